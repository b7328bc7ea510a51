//! The figures by name: what each shows, and how many trials it takes by default.

use std::fmt;

/// A figure of Section VI, or one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Figure {
    /// Position bound against the number of reflecting elements N.
    CrbElements,
    /// Position bound against the number of sensors M.
    CrbSensors,
    /// Position bound against the radius of the area around the first IRS.
    CrbCoverage,
    /// Position bound against the number of IRSs K.
    CrbIrsCount,
    /// Error of the angles against transmit power.
    AnglePower,
    /// The same with well-conditioned S_k.
    AnglePowerFullRank,
    /// The printed angle algorithm over its weight and its penalty.
    LiteralSweep,
    /// Error of the position against transmit power, measurements drawn from their bound.
    LocationPower,
    /// Error of the position against the place d of the first two IRSs, likewise.
    LocationDistance,
    /// Raw echoes to position against transmit power.
    EndToEndPower,
    /// Raw echoes to position under what the paper idealises away.
    Imperfections,
    /// Raw echoes to position against what each fix costs on the backhaul.
    BackhaulAccuracy,
}

/// How much work goes into a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// As many trials as the paper, or more.
    Full,
    /// Enough to see the shape of every curve within a minute.
    Quick,
}

impl Figure {
    /// Every figure, in the order in which they are made.
    pub const ALL: [Self; 12] = [
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
        }
    }

    /// The figure of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|figure| figure.name() == name)
    }

    /// What the figure shows, as a caption.
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
        }
    }

    /// Trials per point when none are asked for.
    pub fn default_trials(self, effort: Effort) -> u64 {
        match (self, effort) {
            (Self::CrbElements | Self::CrbSensors | Self::CrbCoverage | Self::CrbIrsCount, Effort::Full) => {
                100
            }
            (Self::CrbElements | Self::CrbSensors | Self::CrbCoverage | Self::CrbIrsCount, Effort::Quick) => {
                30
            }
            (Self::LocationPower | Self::LocationDistance, Effort::Full) => 2000,
            (Self::LocationPower | Self::LocationDistance, Effort::Quick) => 200,
            (Self::AnglePower | Self::AnglePowerFullRank, Effort::Full) => 500,
            (Self::AnglePower | Self::AnglePowerFullRank, Effort::Quick) => 20,
            (Self::LiteralSweep, Effort::Full) => 60,
            (Self::LiteralSweep, Effort::Quick) => 5,
            (Self::EndToEndPower | Self::Imperfections, Effort::Full) => 500,
            (Self::EndToEndPower | Self::Imperfections, Effort::Quick) => 30,
            (Self::BackhaulAccuracy, Effort::Full) => 500,
            (Self::BackhaulAccuracy, Effort::Quick) => 15,
        }
    }

    /// Position in the key of every random stream; never to be reused for another figure.
    pub(super) fn key(self) -> u64 {
        match self {
            Self::CrbElements => 1,
            Self::CrbSensors => 2,
            Self::CrbCoverage => 3,
            Self::CrbIrsCount => 4,
            Self::AnglePower => 5,
            Self::LocationPower => 6,
            Self::LocationDistance => 7,
            Self::EndToEndPower => 8,
            Self::Imperfections => 9,
            Self::BackhaulAccuracy => 10,
            Self::AnglePowerFullRank => 11,
            Self::LiteralSweep => 12,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
