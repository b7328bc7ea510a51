//! Renders a plot as PNG: its SVG with outlines instead of text, so that no font is needed.

use anyhow::Context;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

use super::Plot;
use super::draw::to_svg_with;
use super::letters::Letters;

/// Pixels per SVG unit.
const PIXELS_PER_UNIT: f32 = 2.0;

/// The picture as PNG.
pub fn to_png(plot: &Plot) -> anyhow::Result<Vec<u8>> {
    let svg = to_svg_with(plot, Letters::Outlines);
    let tree = Tree::from_str(&svg, &Options::default()).context("the figure is not valid SVG")?;
    let size = tree.size().to_int_size().scale_by(PIXELS_PER_UNIT).context("the figure has no size")?;
    let mut pixels = Pixmap::new(size.width(), size.height()).context("the figure is too large")?;
    let scale = Transform::from_scale(PIXELS_PER_UNIT, PIXELS_PER_UNIT);
    resvg::render(&tree, scale, &mut pixels.as_mut());
    pixels.encode_png().context("the figure cannot be written as PNG")
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, PlotPanel, Scale};
    use super::*;

    fn dark_pixels(heading: &str) -> usize {
        let axis = || Axis::new("", Scale::Linear);
        let panel = PlotPanel { heading: heading.into(), x: axis(), y: axis(), series: Vec::new() };
        let plot = Plot { id: "p".into(), description: String::new(), panels: vec![panel] };
        let pixels = Pixmap::decode_png(&to_png(&plot).unwrap()).unwrap();
        pixels.pixels().iter().filter(|p| p.red() < 128).count()
    }

    #[test]
    fn text_is_drawn_without_any_system_font() {
        assert!(dark_pixels("N = 10") > dark_pixels("") + 100);
    }
}
