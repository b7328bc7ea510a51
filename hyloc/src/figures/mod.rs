//! What figures are made of: names, rows with intervals, plots.

pub mod catalogue;
pub mod plot;
pub mod rows;
pub mod statistics;
