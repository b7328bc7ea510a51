//! The figures. What each of them is, is a plan in `hyloc/plans`: what is measured where, how often, and the caption.

use std::fmt;
use std::sync::LazyLock;

use telemetry::exit::{self, Failure};

use crate::sweep::plan::PlanFile;

macro_rules! figures {
    ($($figure:ident = $number:literal, $name:literal;)*) => {
        /// A figure of Section VI, or an additional one. The discriminant is part of the key of every random stream and must
        /// never be reused for another figure.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Figure {
            $($figure = $number,)*
        }

        impl Figure {
            /// All figures, in the order in which they are made.
            pub const ALL: [Self; 16] = [$(Self::$figure,)*];

            /// Name on the command line, in files and in the `figure` column.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$figure => $name,)*
                }
            }

            fn plan_text(self) -> &'static str {
                match self {
                    $(Self::$figure => include_str!(concat!("../../plans/", $name, ".toml")),)*
                }
            }
        }
    };
}

figures! {
    CrbElements = 1, "crb-elements";
    CrbSensors = 2, "crb-sensors";
    CrbCoverage = 3, "crb-coverage";
    CrbIrsCount = 4, "crb-irs-count";
    AnglePower = 5, "angle-power";
    AnglePowerFullRank = 11, "angle-power-full-rank";
    LiteralSweep = 12, "literal-sweep";
    LocationPower = 6, "location-power";
    LocationDistance = 7, "location-distance";
    EndToEndPower = 8, "end-to-end-power";
    Imperfections = 9, "imperfections";
    BackhaulAccuracy = 10, "backhaul-accuracy";
    NearField = 13, "near-field";
    Clocks = 14, "clocks";
    Separation = 15, "separation";
    TrackingPower = 16, "tracking-power";
}

/// The plans in the order of the figures. A test reads all of them.
static PLANS: LazyLock<[PlanFile; 16]> =
    LazyLock::new(|| Figure::ALL.map(|figure| toml::from_str(figure.plan_text()).unwrap_or_default()));

impl Figure {
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|figure| figure.name() == name)
    }

    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// The figure of this name, or what names there are.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        let reason = || format!("there is no figure `{name}`; there are {}", Self::names());
        Ok(Self::parse(name).ok_or_else(|| Failure::new(exit::USAGE, reason()))?)
    }

    pub fn plan(self) -> &'static PlanFile {
        let place = Self::ALL.iter().position(|figure| *figure == self);
        &PLANS[place.unwrap_or(0)]
    }

    pub fn caption(self) -> &'static str {
        &self.plan().caption
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::plan::GridPoint;

    /// Every figure has a plan that resolves, names it and has a caption, and every plan has a figure.
    #[test]
    fn figures_and_plans_belong_to_each_other() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
        for figure in Figure::ALL {
            let path = folder.join(format!("{figure}.toml"));
            assert_eq!(PlanFile::read(&path).unwrap(), *figure.plan(), "{figure}");
            let plan = figure.plan().resolve().unwrap();
            assert_eq!(plan.figure, Some(figure));
            assert!(plan.measure.name != "fix" && figure.caption().ends_with('.'), "{figure}");
            let few = figure.plan().quick_trials.unwrap();
            assert!(few < plan.trials && plan.points.len() > 2, "{figure}");
            assert!(plan.points.iter().all(|point| point.x.is_finite() && point.scenario.seed == 1));
            // Random streams: the same at all points of the literal sweep, different everywhere else.
            let own = |i: usize| if figure == Figure::LiteralSweep { 0 } else { i as u64 };
            let expected = |(i, point): (usize, &GridPoint)| point.address == (figure as u64) << 32 | own(i);
            assert!(plan.points.iter().enumerate().all(expected), "{figure}");
        }
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), Figure::ALL.len());
    }
}
