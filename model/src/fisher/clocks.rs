//! Bounds with unknown clocks.
//!
//! The offset o_l of a sensing node adds to the delay of every path that it senses, so that the information of path (l, k) on
//! (position, offsets) is `J^T F J`, J the Jacobian of arrival, departure and delay with a one in the row of the delay and the
//! column of o_l. Offsets are in metres of range, `c o_l`. With a normal prior on the offsets its information is added,
//! and the bound on the position is the upper left block of the inverse. Of F frames in which the offsets are constant and the
//! target is anywhere, every earlier one adds its information on the offsets with its position marginalised.

use nalgebra::DMatrix;

use super::{Information, SingularInformation, inverse};
use crate::units::SPEED_OF_LIGHT_M_S;

impl Information {
    /// Information on the free coordinates of the position and the offsets of all clocks, in metres.
    pub fn clock_information(&self) -> DMatrix<f64> {
        let (axes, count) = (self.axes(), self.paths.len());
        let mut total = DMatrix::zeros(axes + count, axes + count);
        for (l, k, information) in self.present() {
            let rows = information.nrows();
            let mut jacobian = DMatrix::zeros(rows, axes + count);
            jacobian.view_mut((0, 0), (rows, axes)).copy_from(&self.geometry[l][k]);
            jacobian[(rows - 1, axes + l)] = 1.0 / SPEED_OF_LIGHT_M_S;
            total += jacobian.tr_mul(&(information * &jacobian));
        }
        total
    }

    /// Information on the offsets of all clocks in metres, with the position unknown.
    pub fn offset_information(&self) -> Result<DMatrix<f64>, SingularInformation> {
        let (axes, count) = (self.axes(), self.paths.len());
        let joint = self.clock_information();
        let position = joint.view((0, 0), (axes, axes)).into_owned().cholesky().ok_or(SingularInformation)?;
        let coupling = joint.view((0, axes), (axes, count));
        let explained = coupling.tr_mul(&position.solve(&coupling));
        Ok(joint.view((axes, axes), (count, count)) - explained)
    }

    /// Bound on the free coordinates of the position where the offsets have this prior information, per square metre.
    pub fn position_crb_with_clocks_m2(
        &self,
        prior: &DMatrix<f64>,
    ) -> Result<DMatrix<f64>, SingularInformation> {
        let (axes, count) = (self.axes(), self.paths.len());
        let mut joint = self.clock_information();
        if prior.shape() != (count, count) {
            return Err(SingularInformation);
        }
        let mut offsets = joint.view_mut((axes, axes), (count, count));
        offsets += prior;
        Ok(inverse(joint)?.view((0, 0), (axes, axes)).into_owned())
    }

    /// Bound on the position in the last of `frames` frames of equal information in which the offsets are constant, each with
    /// the standard deviation `prior_s` beforehand.
    pub fn position_crb_after_m2(
        &self,
        frames: u64,
        prior_s: f64,
    ) -> Result<DMatrix<f64>, SingularInformation> {
        let count = self.paths.len();
        let own = (prior_s * SPEED_OF_LIGHT_M_S).powi(-2);
        let earlier = self.offset_information()? * frames.saturating_sub(1) as f64;
        self.position_crb_with_clocks_m2(&(earlier + DMatrix::from_diagonal_element(count, count, own)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Gain, Scheme};
    use super::*;
    use crate::{EchoSource, Scenario};

    /// Ratios of mean squared bounds to that of known clocks over 60 scenes of Table I, in decibels.
    fn losses_db(of: impl Fn(&Information) -> DMatrix<f64>) -> f64 {
        let (mut known, mut unknown) = (0.0, 0.0);
        for seed in 0..60 {
            let source = EchoSource::new(&Scenario::default().with_seed(seed)).unwrap();
            let information =
                Information::new(source.system(), source.target_m(0), source.rcs_m2(), Gain::Unknown);
            known += information.position_crb_m2(Scheme::Hybrid).unwrap().trace();
            unknown += of(&information).trace();
        }
        10.0 * (unknown / known).log10()
    }

    /// Unknown clocks cost 1.75 dB in one frame, 0.95 after two, 0.39 after five, 0.20 after ten, 0.07 after thirty.
    #[test]
    fn losses_of_unknown_clocks_at_table_one() {
        for (frames, loss_db, most_db) in
            [(1, 1.75, 0.25), (2, 0.95, 0.15), (5, 0.39, 0.08), (10, 0.20, 0.04), (30, 0.07, 0.015)]
        {
            let found_db = losses_db(|i| i.position_crb_after_m2(frames, 1e-3).unwrap());
            assert!((found_db - loss_db).abs() < most_db, "{frames} frames: {found_db} dB");
        }
    }

    /// A prior without uncertainty is a known clock, and the loss grows with the uncertainty.
    #[test]
    fn a_prior_limits_the_loss() {
        let loss_db = |prior_s| losses_db(|i| i.position_crb_after_m2(1, prior_s).unwrap());
        let [exact, small, large] = [1e-14, 0.3e-9, 100e-9].map(loss_db);
        assert!(exact.abs() < 1e-6 && small > 0.1 && large > small + 0.1, "{exact} {small} {large}");
    }
}
