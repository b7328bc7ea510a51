//! Tail of the chi-square distribution, for the consistency tests: `Q(dof / 2, x / 2)`, the regularised upper
//! incomplete gamma function.

use statrs::function::gamma::checked_gamma_ur;

/// Probability that a chi-square variable of `degrees_of_freedom` exceeds `value`; NaN if `value` is.
///
/// With no degree of freedom the variable is zero: 1 for `value <= 0`, else 0.
pub fn chi_square_survival(value: f64, degrees_of_freedom: usize) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    if degrees_of_freedom == 0 || value.is_infinite() {
        return 0.0;
    }
    checked_gamma_ur(0.5 * degrees_of_freedom as f64, 0.5 * value).unwrap_or(f64::NAN)
}

/// The value that a chi-square variable exceeds with this probability: the inverse of [`chi_square_survival`], to 1e-12 of the
/// value.
pub(crate) fn chi_square_quantile(probability: f64, degrees_of_freedom: usize) -> f64 {
    if degrees_of_freedom == 2 {
        return -2.0 * probability.ln();
    }
    let (mut low, mut high) = (0.0, 1.0);
    while chi_square_survival(high, degrees_of_freedom) > probability && high < 1e6 {
        high *= 2.0;
    }
    while high - low > 1e-12 * high {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if chi_square_survival(middle, degrees_of_freedom) > probability {
            low = middle
        } else {
            high = middle
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (value, degrees of freedom, tail), from scipy.stats.chi2.sf.
    const KNOWN: &[(f64, usize, f64)] = &[
        (0.1, 1, 0.7518296340458492),
        (3.841458820694124, 1, 0.04999999999999989),
        (15.136705226623606, 1, 9.999999999998886e-05),
        (40.0, 1, 2.539628589470863e-10),
        (1.0, 2, 0.6065306597126334),
        (13.815510557964274, 2, 0.001),
        (2.5, 3, 0.4752910833430205),
        (30.0, 3, 1.380057031293255e-06),
        (6.0, 7, 0.539749350395557),
        (8.0, 7, 0.3325939025993081),
        (9.1, 7, 0.2455559988966747),
        (29.9, 7, 9.905498902088253e-05),
        (3.0, 10, 0.9814240637778593),
        (35.564013941952474, 10, 9.999999999998571e-05),
        (42.3, 18, 0.001004009227934063),
        (70.0, 100, 0.9901544975235914),
        (101.9, 100, 0.4283417171776492),
        (102.1, 100, 0.4228739243260632),
        (161.3, 100, 0.0001003825388062446),
        (250.0, 270, 0.8034495133877656),
        (272.5, 270, 0.4459405169149731),
        (380.0, 270, 1.126336209165307e-05),
        (1000.0, 1054, 0.8814493162505062),
        (1056.0, 1054, 0.4768537003096259),
        (1250.0, 1054, 2.626342738408678e-05),
    ];

    #[test]
    fn quantiles_are_the_inverse_of_tails() {
        for &(value, dof, tail) in KNOWN.iter().filter(|(_, _, tail)| *tail > 1e-9) {
            let found = chi_square_quantile(tail, dof);
            assert!((found / value - 1.0).abs() < 1e-8, "chi2({dof}), {tail}: {found} instead of {value}");
        }
    }

    #[test]
    fn oracle_tails() {
        for &(value, dof, tail) in KNOWN {
            let found = chi_square_survival(value, dof);
            assert!((found / tail - 1.0).abs() < 1e-10, "chi2({dof}) > {value}: {found} instead of {tail}");
        }
    }

    #[test]
    fn edges() {
        assert_eq!(chi_square_survival(-1.0, 3), 1.0);
        assert_eq!(chi_square_survival(1.0, 0), 0.0);
        assert_eq!(chi_square_survival(0.0, 0), 1.0);
        assert_eq!(chi_square_survival(f64::INFINITY, 7), 0.0);
        assert_eq!(chi_square_survival(1e9, 7), 0.0);
        assert!(chi_square_survival(f64::NAN, 7).is_nan());
    }
}
