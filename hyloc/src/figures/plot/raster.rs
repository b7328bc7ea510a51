//! Renders SVG as PNG with an embedded font, DejaVu Sans.

use std::sync::Arc;

use anyhow::Context;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

/// Pixels per SVG unit.
const PIXELS_PER_UNIT: f32 = 2.0;
const FAMILY: &str = "DejaVu Sans";

/// The picture as PNG.
pub fn to_png(svg: &str) -> anyhow::Result<Vec<u8>> {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    fonts.set_sans_serif_family(FAMILY);
    let options = Options { font_family: FAMILY.into(), fontdb: Arc::new(fonts), ..Options::default() };
    let tree = Tree::from_str(svg, &options).context("the figure is not valid SVG")?;
    let size = tree.size().to_int_size().scale_by(PIXELS_PER_UNIT).context("the figure has no size")?;
    let mut pixels = Pixmap::new(size.width(), size.height()).context("the figure is too large")?;
    let scale = Transform::from_scale(PIXELS_PER_UNIT, PIXELS_PER_UNIT);
    resvg::render(&tree, scale, &mut pixels.as_mut());
    pixels.encode_png().context("the figure cannot be written as PNG")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dark_pixels(body: &str) -> usize {
        let svg = format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="60" height="20" font-family="No Such Font, sans-serif"><rect width="60" height="20" fill="#fff"/>{body}</svg>"##
        );
        let pixels = Pixmap::decode_png(&to_png(&svg).unwrap()).unwrap();
        assert_eq!((pixels.width(), pixels.height()), (120, 40));
        pixels.pixels().iter().filter(|p| p.red() < 128).count()
    }

    #[test]
    fn text_is_drawn_without_any_system_font() {
        assert_eq!(dark_pixels(""), 0);
        assert!(dark_pixels(r#"<text x="2" y="15">N = 10</text>"#) > 100);
    }

    #[test]
    fn what_is_not_svg_is_refused() {
        assert!(to_png("<svg").is_err());
    }
}
