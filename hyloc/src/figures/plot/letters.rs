//! Lines of text in a plot: as text, which viewers set in a font of their own, or as outlines of an embedded font, DejaVu Sans,
//! for a renderer that has none.

use std::fmt::{self, Write};

use ttf_parser::{Face, OutlineBuilder};

use super::draw::escaped;

/// Size of the text of a plot.
const SIZE: f64 = 12.0;
/// Size of an exponent, and how far it is raised.
const EXPONENT_SIZE: f64 = 9.0;
const EXPONENT_RISE: f64 = 5.0;

/// How text is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letters {
    Text,
    Outlines,
}

/// Which end of a line is at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// One line of text.
#[derive(Debug, Clone, PartialEq)]
pub struct Lettering<'a> {
    pub text: &'a str,
    /// Raised behind the text; may be empty.
    pub exponent: &'a str,
    pub place: (f64, f64),
    pub anchor: Anchor,
    pub size: f64,
    /// Whether the line runs upwards.
    pub upright: bool,
}

impl<'a> Lettering<'a> {
    pub fn new(text: &'a str, place: (f64, f64), anchor: Anchor) -> Self {
        Self { text, exponent: "", place, anchor, size: SIZE, upright: false }
    }

    /// The line as an SVG element.
    pub fn write(&self, out: &mut String, letters: Letters) -> fmt::Result {
        let (x, y) = self.place;
        let turn = if self.upright { " rotate(-90)" } else { "" };
        write!(out, r#"<g transform="translate({x:.1} {y:.1}){turn}">"#)?;
        match letters {
            Letters::Text => self.write_text(out)?,
            Letters::Outlines => self.write_outlines(out)?,
        }
        writeln!(out, "</g>")
    }

    fn write_text(&self, out: &mut String) -> fmt::Result {
        let anchor = match self.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        write!(out, r#"<text text-anchor="{anchor}" font-size="{}">{}"#, self.size, escaped(self.text))?;
        if !self.exponent.is_empty() {
            let exponent = escaped(self.exponent);
            write!(out, r#"<tspan dy="-{EXPONENT_RISE}" font-size="{EXPONENT_SIZE}">{exponent}</tspan>"#)?;
        }
        write!(out, "</text>")
    }

    fn write_outlines(&self, out: &mut String) -> fmt::Result {
        let Ok(face) = Face::parse(dejavu::sans::regular(), 0) else { return Ok(()) };
        let mut pen = Pen { path: String::new(), x: 0.0, y: 0.0, scale: 0.0 };
        pen.letters(&face, self.text, self.size);
        pen.y = -EXPONENT_RISE;
        pen.letters(&face, self.exponent, EXPONENT_SIZE);
        let before = match self.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => 0.5 * pen.x,
            Anchor::End => pen.x,
        };
        write!(out, r#"<path transform="translate({:.2} 0)" d="{}"/>"#, -before, pen.path)
    }
}

/// Draws glyphs one after the other as an SVG path.
struct Pen {
    path: String,
    x: f64,
    y: f64,
    scale: f64,
}

impl Pen {
    fn letters(&mut self, face: &Face<'_>, text: &str, size: f64) {
        self.scale = size / f64::from(face.units_per_em());
        for letter in text.chars() {
            let glyph = face.glyph_index(letter).unwrap_or_default();
            face.outline_glyph(glyph, self);
            self.x += self.scale * f64::from(face.glyph_hor_advance(glyph).unwrap_or(0));
        }
    }

    fn put(&mut self, command: char, points: &[(f32, f32)]) {
        self.path.push(command);
        for (x, y) in points {
            let (x, y) = (self.x + self.scale * f64::from(*x), self.y - self.scale * f64::from(*y));
            // Writing to a string cannot fail.
            let _ = write!(self.path, "{x:.2} {y:.2} ");
        }
    }
}

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        self.put('M', &[(x, y)]);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.put('L', &[(x, y)]);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.put('Q', &[(x1, y1), (x, y)]);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.put('C', &[(x1, y1), (x2, y2), (x, y)]);
    }

    fn close(&mut self) {
        self.path.push('Z');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(anchor: Anchor, letters: Letters) -> String {
        let mut out = String::new();
        let line = Lettering { exponent: "\u{2212}2", ..Lettering::new("N < 10", (3.0, 4.0), anchor) };
        line.write(&mut out, letters).unwrap();
        out
    }

    #[test]
    fn text_stays_text_and_outlines_need_no_font() {
        let text = written(Anchor::Middle, Letters::Text);
        assert!(text.contains(">N &lt; 10<tspan") && text.contains("translate(3.0 4.0)"), "{text}");
        let outlines = written(Anchor::Start, Letters::Outlines);
        // Five letters and two of the exponent, of which 0 and 1 have one or two contours each.
        assert!(!outlines.contains("<text") && outlines.matches('M').count() >= 6, "{outlines}");
    }

    #[test]
    fn anchors_move_a_line_by_its_width() {
        let shift = |anchor| {
            let out = written(anchor, Letters::Outlines);
            let from = out.rfind("translate(").unwrap() + "translate(".len();
            out[from..].split(' ').next().unwrap().parse::<f64>().unwrap()
        };
        let width = -shift(Anchor::End);
        assert!(width > 35.0 && width < 60.0, "{width}");
        assert!((shift(Anchor::Middle) + width / 2.0).abs() < 0.011 && shift(Anchor::Start) == 0.0);
    }
}
