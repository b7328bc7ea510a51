//! Claims of Section VI-C: position from delays and angles.

use super::data::{ClaimData, Curve, db, number, range_db, spread};
use super::{Finding, PartVerdict, Statements, finding};
use crate::figures::catalogue::Figure::{LocationDistance, LocationPower};
use crate::figures::statistics::{Estimate, slope};

pub(super) const STATEMENTS: &[Statements] = &[
    (
        &[LocationPower],
        &[
            ("ls-to-wls", "WLS lowers the error of LS, the worst of all, by about 4 dB.", ls_to_wls),
            ("wls-to-two-stage", "The second stage lowers it by another 4 dB.", wls_to_two_stage),
            ("two-to-three-stage", "The third stage lowers it by another 2 dB.", two_to_three_stage),
            ("steps-at-any-snr", "These gains do not depend on SNR.", steps_at_any_snr),
        ],
    ),
    (
        &[LocationDistance],
        &[
            ("flat-in-d", "Only the proposed scheme varies as little with d as the bound does.", flat_in_d),
            (
                "wls-at-small-d",
                "The error of WLS grows as d gets small, below 10 m above all.",
                wls_at_small_d,
            ),
            ("third-stage-with-d", "The third stage matters more the larger d is.", third_stage_with_d),
        ],
    ),
];

const TABLE_ONE_DBM: f64 = 50.0;
const TABLE_ONE_D_M: f64 = 10.0;

fn step(data: &ClaimData, scheme: &str, before: &str) -> Option<Estimate> {
    data.at(LocationPower, TABLE_ONE_DBM, scheme, &format!("gain_over_{before}_db"))
}

fn gap(data: &ClaimData, scheme: &str) -> Option<Estimate> {
    data.at(LocationPower, TABLE_ONE_DBM, scheme, "gap_exact_db")
}

/// About 4 dB: between 3 and 5 dB; and LS is the worst of the working schemes.
fn ls_to_wls(data: &ClaimData) -> Option<Finding> {
    let gain = step(data, "wls", "ls")?;
    let ls = gap(data, "ls")?;
    let literal = gap(data, "paper-literal")?;
    let others =
        ["wls", "paper-two-stage", "paper-three-stage", "two-stage", "three-stage", "maximum-likelihood"];
    let worst = others.iter().map(|s| gap(data, s)).collect::<Option<Vec<_>>>()?;
    let ls_is_worst = PartVerdict::all(worst.into_iter().map(|other| PartVerdict::less(other, ls)));
    finding(
        format!("50 dBm: {}; LS is {} above the exact bound", db(gain), db(ls)),
        &[PartVerdict::inside(gain, 3.0, 5.0), ls_is_worst],
        format!(
            "Weights alone are worth this much. The paper's chain exactly as printed, misprints and all, is no better than \
             LS: {} above the exact bound.",
            db(literal)
        ),
    )
}

/// About 4 dB: between 3 and 5 dB, in the paper's form with its misprints corrected.
fn wls_to_two_stage(data: &ClaimData) -> Option<Finding> {
    let paper = step(data, "paper-two-stage", "wls")?;
    let ours = step(data, "two-stage", "wls")?;
    finding(
        format!("50 dBm: {} in the paper's form, {} in ours", db(paper), db(ours)),
        &[PartVerdict::inside(paper, 3.0, 5.0)],
        "The tangent rows are nearly singular for the two IRSs that see the area at 90 degrees, and the paper's \
                 total least squares takes the errors of both sides of a row as independent, though they are one angle's: \
                 in that form the second stage adds nothing to WLS. Rows in sine and cosine with one error each do better.",
    )
}

/// About 2 dB: between 1 and 3 dB, in the paper's form with its misprints corrected.
fn two_to_three_stage(data: &ClaimData) -> Option<Finding> {
    let paper = step(data, "paper-three-stage", "paper-two-stage")?;
    let ours = step(data, "three-stage", "two-stage")?;
    let end = gap(data, "three-stage")?;
    finding(
        format!("50 dBm: {} in the paper's form, {} in ours", db(paper), db(ours)),
        &[PartVerdict::inside(paper, 1.0, 3.0)],
        format!(
            "In our form the second stage leaves less to gain: after the third it is {} from the exact bound.",
            db(end)
        ),
    )
}

/// Each step of the paper's chain within 1 dB over all powers.
fn steps_at_any_snr(data: &ClaimData) -> Option<Finding> {
    let steps = [("wls", "ls"), ("paper-two-stage", "wls"), ("paper-three-stage", "paper-two-stage")];
    let (mut parts, mut measured) = (Vec::new(), Vec::new());
    for (scheme, before) in steps {
        let curve = data.curve(LocationPower, scheme, &format!("gain_over_{before}_db"))?;
        parts.push(PartVerdict::below(spread(&curve)?, 1.0));
        measured.push(format!("{before} to {scheme}: {}", range_db(&curve)));
    }
    finding(
        format!("30 to 70 dBm: {}", measured.join("; ")),
        &parts,
        "Each scheme is linear in the errors while these are small, so that power moves all alike.",
    )
}

fn in_db(curve: Curve) -> Curve {
    curve.into_iter().map(|(x, y)| (x, y.map(|v| 10.0 * v.log10()))).collect()
}

/// Over d: the proposed scheme within 1 dB of the bound's own spread; every other scheme not.
fn flat_in_d(data: &ClaimData) -> Option<Finding> {
    let errors = |scheme: &str| spread(&in_db(data.curve(LocationDistance, scheme, "mse_m2")?));
    let bound = spread(&in_db(data.curve(LocationDistance, "exact-bound", "crb_m2")?))?;
    let (paper, ours) = (errors("paper-three-stage")?, errors("three-stage")?);
    let (ls, wls) = (errors("ls")?, errors("wls")?);
    let (two, ours_two) = (errors("paper-two-stage")?, errors("two-stage")?);
    let flat = |spread: Estimate| PartVerdict::below(spread.minus(bound), 1.0);
    let others = PartVerdict::all([ls, wls, two].map(|spread| flat(spread).negated()));
    let [bound_db, paper_db, ours_db] = [bound, paper, ours].map(db);
    let [ls, wls, two, ours_two] = [ls, wls, two, ours_two].map(db);
    finding(
        format!(
            "largest over smallest error, d = 2 to 40 m: exact bound {bound_db}, three-stage {ours_db}, in the paper's form \
             {paper_db}; two-stage {ours_two}, in the paper's form {two}; WLS {wls}, LS {ls}",
        ),
        &[flat(ours), flat(paper), others],
        "The schemes without the third stage lose what x^2 + y^2 knows of the position, the more the farther out \
                 the IRSs stand.",
    )
}

/// Somewhere below 10 m WLS is worse than at its best from 10 m on; and still so at the smallest d.
fn wls_at_small_d(data: &ClaimData) -> Option<Finding> {
    let curve = data.curve(LocationDistance, "wls", "mse_m2")?;
    let gaps = data.curve(LocationDistance, "wls", "gap_exact_db")?;
    let lowest = |curve: &mut dyn Iterator<Item = &(f64, Estimate)>| {
        curve.min_by(|a, b| a.1.value.total_cmp(&b.1.value)).copied()
    };
    let (best_m, best) = lowest(&mut curve.iter().filter(|(d, _)| *d >= TABLE_ONE_D_M))?;
    let below = || curve.iter().filter(|(d, _)| *d < TABLE_ONE_D_M);
    let (worst_m, worst) = *below().max_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
    let (smallest_m, smallest) = *below().next()?;
    let gap_at = |d: f64| gaps.iter().find(|(x, _)| *x == d).map(|(_, gap)| db(*gap));
    finding(
        format!(
            "WLS above the exact bound: {} at d = {smallest_m} m, {} at d = {worst_m} m, {} at d = {best_m} m; squared \
             error {:.4}, {:.4} and {:.4} m^2",
            gap_at(smallest_m)?,
            gap_at(worst_m)?,
            gap_at(best_m)?,
            smallest.value,
            worst.value,
            best.value
        ),
        &[PartVerdict::less(best, worst), PartVerdict::less(best, smallest)],
        "Not path loss: 50 m off in y, an IRS that moves from d = 10 to 2 m stays within 2 m of its distance to \
                 the area, and the bound hardly moves. It is the tangent: with d in the middle of the area's 0 to 10 m, two \
                 IRSs see the target near 90 degrees. The error of WLS peaks there and falls again on either side.",
    )
}

/// The gain of the third stage rises with d, by more than the intervals, in the paper's form and in ours.
fn third_stage_with_d(data: &ClaimData) -> Option<Finding> {
    let curve =
        |scheme: &str, before: &str| data.curve(LocationDistance, scheme, &format!("gain_over_{before}_db"));
    let paper = curve("paper-three-stage", "paper-two-stage")?;
    let ours = curve("three-stage", "two-stage")?;
    let (paper_slope, ours_slope) = (slope(&paper)?, slope(&ours)?);
    let ends = |curve: &Curve| Some(format!("{} to {}", db(curve.first()?.1), db(curve.last()?.1)));
    finding(
        format!(
            "gain of the third stage from d = 2 to 40 m: {} in the paper's form, {} in ours; slope in dB per metre {} and {}",
            ends(&paper)?,
            ends(&ours)?,
            number(paper_slope),
            number(ours_slope)
        ),
        &[paper_slope, ours_slope].map(|slope| PartVerdict::above(slope, 0.0)),
        "The farther out the IRSs, the better x^2 + y^2 is known beside x and y.",
    )
}
