//! The figures: names, captions and default numbers of trials.

use std::fmt;

/// A figure of Section VI, or an additional one. The discriminant is part of the key of every random stream and must
/// never be reused for another figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    CrbElements = 1,
    CrbSensors = 2,
    CrbCoverage = 3,
    CrbIrsCount = 4,
    AnglePower = 5,
    AnglePowerFullRank = 11,
    LiteralSweep = 12,
    LocationPower = 6,
    LocationDistance = 7,
    EndToEndPower = 8,
    Imperfections = 9,
    BackhaulAccuracy = 10,
    NearField = 13,
    Clocks = 14,
    Separation = 15,
    TrackingPower = 16,
}

impl Figure {
    /// All figures, in the order in which they are made.
    pub const ALL: [Self; 16] = [
        Self::CrbElements,
        Self::CrbSensors,
        Self::CrbCoverage,
        Self::CrbIrsCount,
        Self::AnglePower,
        Self::AnglePowerFullRank,
        Self::LiteralSweep,
        Self::LocationPower,
        Self::LocationDistance,
        Self::EndToEndPower,
        Self::Imperfections,
        Self::BackhaulAccuracy,
        Self::NearField,
        Self::Clocks,
        Self::Separation,
        Self::TrackingPower,
    ];

    /// Name on the command line, in files and in the `figure` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::CrbElements => "crb-elements",
            Self::CrbSensors => "crb-sensors",
            Self::CrbCoverage => "crb-coverage",
            Self::CrbIrsCount => "crb-irs-count",
            Self::AnglePower => "angle-power",
            Self::AnglePowerFullRank => "angle-power-full-rank",
            Self::LiteralSweep => "literal-sweep",
            Self::LocationPower => "location-power",
            Self::LocationDistance => "location-distance",
            Self::EndToEndPower => "end-to-end-power",
            Self::Imperfections => "imperfections",
            Self::BackhaulAccuracy => "backhaul-accuracy",
            Self::NearField => "near-field",
            Self::Clocks => "clocks",
            Self::Separation => "separation",
            Self::TrackingPower => "tracking-power",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|figure| figure.name() == name)
    }

    pub fn caption(self) -> &'static str {
        match self {
            Self::CrbElements => {
                "Mean position bound against the number of reflecting elements N of every IRS (Table I otherwise)."
            }
            Self::CrbSensors => {
                "Mean position bound against the number of sensors M of every IRS (Table I otherwise)."
            }
            Self::CrbCoverage => {
                "Mean position bound for targets uniform over the disc of radius r around the first IRS, and how far \
                 the medians of other schemes are from that of the hybrid one: a few targets at end-fire dominate means."
            }
            Self::CrbIrsCount => {
                "What collaboration is worth against the number of IRSs K, on a ring of 50 m around the area."
            }
            Self::AnglePower => {
                "Mean squared error of the K angles against transmit power, blocks at the true delays."
            }
            Self::AnglePowerFullRank => {
                "The same with path angles on the DFT grids, so that S_k has rank N and is well-conditioned."
            }
            Self::LiteralSweep => {
                "The paper's angle algorithm as printed at 50 dBm over its weight lambda (penalty balanced) and over its \
                 penalty rho (fixed, as printed), for data of unit noise after the inverse; limit of 100 iterations."
            }
            Self::LocationPower => {
                "Mean squared error of the position against transmit power; delays and angles drawn from their exact \
                 bounds, as in the paper."
            }
            Self::LocationDistance => {
                "Mean squared error of the position with the first two IRSs at (d, +-50) m; delays and angles drawn \
                 from their exact bounds."
            }
            Self::EndToEndPower => {
                "Raw echoes of a single frame to a position: by the chain (matched filter, joint angles, coherent \
                 delays, location), and directly from the spectra of all paths."
            }
            Self::Imperfections => {
                "Raw echoes to position when beams leak, clocks are off, or the cross-section fluctuates."
            }
            Self::BackhaulAccuracy => {
                "What a bit buys: error above the exact bound against kilobytes per fix, for parameters alone, blocks \
                 and spectra at 64 to 2 bits per real."
            }
            Self::NearField => {
                "Echoes of spherical waves against the number of elements and sensors N = M (Table I otherwise): located \
                 with spherical and with plane waves assumed; bounds of both; the single IRS of K N elements."
            }
            Self::Clocks => {
                "Direct fixes when the clocks of the nodes are off by up to plus or minus x: with clocks that are trusted, with \
                 unknown clocks from one frame, and with unknown clocks over ten frames, beside the exact bound of each."
            }
            Self::Separation => {
                "Two targets x metres apart in one frame, their number unknown: errors of the scenes with the right number beside the \
                 exact bounds of both targets together and of one alone; how often the number is right."
            }
            Self::TrackingPower => {
                "Three targets that walk at 1.5 m/s, 20 frames a second: GOSPA of single frames, of tracks that are followed in the \
                 signals, and of Stone Soup's JPDA on the detections of the single frames; share of the targets that each shows."
            }
        }
    }

    /// Default number of trials per point: as many as in the paper or more, or enough to see the shape of every curve.
    pub fn default_trials(self, quick: bool) -> u64 {
        let (full, few) = match self {
            Self::CrbElements | Self::CrbSensors | Self::CrbCoverage | Self::CrbIrsCount => (100, 30),
            Self::LocationPower | Self::LocationDistance => (2000, 200),
            Self::AnglePower | Self::AnglePowerFullRank => (500, 20),
            Self::LiteralSweep => (60, 5),
            Self::EndToEndPower | Self::Imperfections => (500, 30),
            Self::BackhaulAccuracy => (500, 15),
            Self::NearField => (200, 8),
            Self::Clocks => (300, 8),
            Self::Separation => (200, 8),
            Self::TrackingPower => (20, 2),
        };
        if quick { few } else { full }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
