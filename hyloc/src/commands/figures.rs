//! `hyloc figures`.

use super::say;
use crate::figures::{Request, run as make};

/// Makes the figures and says where they are.
pub fn run(request: Request) -> anyhow::Result<()> {
    let outcome = make(&request)?;
    let [reproduced, partly, not_reproduced, not_measured] = outcome.verdicts;
    say(&format!(
        "Figures: {} made, {} taken over. Claims: {reproduced} reproduced, {partly} partly, {not_reproduced} not \
         reproduced, {not_measured} not measured. Report: {}",
        outcome.made.len(),
        outcome.resumed.len(),
        outcome.report.display()
    ));
    Ok(())
}
