//! Plots in the style of a journal: framed axes with ticks inside, log scales with powers of ten, error bars, markers
//! and dashes that are distinct in greyscale, one legend for all panels.
//!
//! A plot is drawn once, as SVG; the PNG is that SVG with its text as outlines of an embedded font, so that it is the same
//! picture on every machine, whether or not it has fonts.

mod axis;
mod draw;
mod letters;
mod raster;

pub use axis::{Axis, Scale};
pub use draw::{escaped, to_svg};
pub use raster::to_png;

use super::statistics::Estimate;

#[derive(Debug, Clone)]
pub struct Plot {
    /// Prefix of the ids inside the SVG, so that several can live in one page.
    pub id: String,
    /// What it shows, for readers who cannot see it.
    pub description: String,
    /// From left to right.
    pub panels: Vec<PlotPanel>,
}

/// One pair of axes.
#[derive(Debug, Clone)]
pub struct PlotPanel {
    /// Shown above the frame; may be empty.
    pub heading: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

/// One curve.
#[derive(Debug, Clone)]
pub struct Series {
    /// Name in the legend. Curves of one name share an entry.
    pub name: String,
    pub style: Style,
    /// Points; what is not finite, or not positive on a log axis, is left out.
    pub points: Vec<(f64, Estimate)>,
}

/// Colour, dash and marker of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Style {
    /// An SVG colour.
    pub color: &'static str,
    /// Dash pattern; empty for a solid line.
    pub dash: &'static str,
    pub marker: Marker,
}

/// Shape that is drawn at every point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// For bounds.
    None,
    Disc,
    Ring,
    Square,
    OpenSquare,
    Triangle,
    OpenTriangle,
    Diamond,
    OpenDiamond,
    Cross,
    Plus,
}
