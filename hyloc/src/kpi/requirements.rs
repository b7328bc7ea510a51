//! Sensing service categories of 3GPP TS 22.137, the strict end of each range in its table of key performance indicators.

use serde::Serialize;

/// What is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Criterion {
    HorizontalAccuracy,
    VerticalAccuracy,
    Latency,
    Refresh,
    MissedDetection,
    FalseAlarm,
}

impl Criterion {
    pub const ALL: [Self; 6] = [
        Self::HorizontalAccuracy,
        Self::VerticalAccuracy,
        Self::Latency,
        Self::Refresh,
        Self::MissedDetection,
        Self::FalseAlarm,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::HorizontalAccuracy => "horizontal accuracy",
            Self::VerticalAccuracy => "vertical accuracy",
            Self::Latency => "latency",
            Self::Refresh => "refresh",
            Self::MissedDetection => "missed detection",
            Self::FalseAlarm => "false alarm",
        }
    }

    /// Unit in which values are shown, and its size in the unit in which they are kept: metres, seconds, shares.
    pub fn unit(self) -> (&'static str, f64) {
        match self {
            Self::HorizontalAccuracy | Self::VerticalAccuracy => ("m, 95 %", 1.0),
            Self::Latency | Self::Refresh => ("ms", 1e-3),
            Self::MissedDetection | Self::FalseAlarm => ("%", 1e-2),
        }
    }
}

/// Required values of a category, in metres, seconds and shares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Category {
    pub number: u8,
    pub horizontal_m: f64,
    pub vertical_m: f64,
    pub latency_s: f64,
    pub refresh_s: f64,
    pub missed: f64,
    pub false_alarm: f64,
}

impl Category {
    pub fn required(&self, criterion: Criterion) -> f64 {
        match criterion {
            Criterion::HorizontalAccuracy => self.horizontal_m,
            Criterion::VerticalAccuracy => self.vertical_m,
            Criterion::Latency => self.latency_s,
            Criterion::Refresh => self.refresh_s,
            Criterion::MissedDetection => self.missed,
            Criterion::FalseAlarm => self.false_alarm,
        }
    }
}

const fn category(number: u8, accuracy_m: [f64; 2], times_s: [f64; 2], shares: [f64; 2]) -> Category {
    let ([horizontal_m, vertical_m], [latency_s, refresh_s], [missed, false_alarm]) =
        (accuracy_m, times_s, shares);
    Category { number, horizontal_m, vertical_m, latency_s, refresh_s, missed, false_alarm }
}

pub const CATEGORIES: [Category; 5] = [
    category(1, [10.0, 10.0], [1.0, 1.0], [0.05, 0.02]),
    category(2, [2.0, 5.0], [1.0, 0.2], [0.05, 0.05]),
    category(3, [1.0, 1.0], [0.1, 0.05], [0.02, 0.02]),
    category(4, [0.5, 0.5], [0.1, 0.1], [0.01, 0.03]),
    category(7, [0.2, 0.2], [0.05, 0.1], [0.05, 0.05]),
];
