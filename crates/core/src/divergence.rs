//! The f-divergences that keep the learned occupancy near the data (`eq:lp_objective`).
//!
//! For a strictly convex `f` with `f(1) = 0`, the penalty is `D_f(d ‖ d^D) = E_{d^D}[f(w)]`. The dual needs the
//! solution of the inner maximisation (`eq:w_closed_form_solution`)
//!
//! ```text
//! w(y) = argmax_{w ≥ 0}  w·y − f(w) = ((f')⁻¹(y))₊ ,   y = e(s,a)/α
//! ```
//!
//! and its value, the convex conjugate of `f` over `w ≥ 0`: `g(y) = w(y)·y − f(w(y))`, with `g' = w`.
//! The dual term of one sample is then `α·g(e/α)`, and by the envelope theorem its derivative in `e` is `w`.

use serde::{Deserialize, Serialize};

/// Which `f` measures the distance between the learned and the logged occupancy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Divergence {
    /// `f(x) = (x − 1)²/2`, the paper's choice for finite CMDPs. `w` is exactly zero where `y ≤ −1`.
    Chi2,
    /// `x ln x − x + 1` below one and `(x − 1)²/2` above: the paper's choice for networks. `w` stays positive, so
    /// that gradients reach every sample, and grows only linearly.
    SoftChi,
    /// `x ln x − x + 1`, the Kullback–Leibler divergence between normalised occupancies. `w` grows exponentially.
    Kl,
}

impl Divergence {
    /// Every member, in a fixed order.
    pub const ALL: [Divergence; 3] = [Divergence::Chi2, Divergence::SoftChi, Divergence::Kl];

    /// The name used in configurations.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Divergence::Chi2 => "chi2",
            Divergence::SoftChi => "softchi",
            Divergence::Kl => "kl",
        }
    }

    /// `f(x)` for `x ≥ 0`.
    #[must_use]
    pub fn f(self, x: f64) -> f64 {
        match self {
            Divergence::Chi2 => 0.5 * (x - 1.0) * (x - 1.0),
            Divergence::SoftChi if x >= 1.0 => 0.5 * (x - 1.0) * (x - 1.0),
            Divergence::SoftChi | Divergence::Kl => x_ln_x(x) - x + 1.0,
        }
    }

    /// `w(y) = ((f')⁻¹(y))₊` (`eq:w_closed_form_solution`).
    #[must_use]
    pub fn weight(self, y: f64) -> f64 {
        match self {
            Divergence::Chi2 => (y + 1.0).max(0.0),
            Divergence::SoftChi if y >= 0.0 => y + 1.0,
            Divergence::SoftChi | Divergence::Kl => y.exp(),
        }
    }

    /// `w'(y)`. Where `w` has a kink the right derivative is returned.
    #[must_use]
    pub fn weight_derivative(self, y: f64) -> f64 {
        match self {
            Divergence::Chi2 => {
                if y >= -1.0 {
                    1.0
                } else {
                    0.0
                }
            }
            Divergence::SoftChi if y >= 0.0 => 1.0,
            Divergence::SoftChi | Divergence::Kl => y.exp(),
        }
    }

    /// `g(y) = max_{w ≥ 0} w·y − f(w)`.
    #[must_use]
    pub fn conjugate(self, y: f64) -> f64 {
        match self {
            Divergence::Chi2 if y < -1.0 => -0.5,
            Divergence::Chi2 => 0.5 * y * y + y,
            Divergence::SoftChi if y >= 0.0 => 0.5 * y * y + y,
            Divergence::SoftChi | Divergence::Kl => y.exp_m1(),
        }
    }
}

impl std::str::FromStr for Divergence {
    type Err = UnknownDivergence;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|d| d.name() == name).ok_or_else(|| UnknownDivergence(name.to_owned()))
    }
}

impl std::fmt::Display for Divergence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A divergence name that is not one of `chi2`, `softchi`, `kl`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown divergence {0:?}; use chi2, softchi or kl")]
pub struct UnknownDivergence(pub String);

/// `x ln x` with its limit 0 at 0.
fn x_ln_x(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x * x.ln() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn f_vanishes_at_one_and_is_minimal_there() {
        for d in Divergence::ALL {
            assert_eq!(d.f(1.0), 0.0, "{d}");
            assert_eq!(d.weight(0.0), 1.0, "{d}");
            assert!(d.f(0.0).is_finite());
        }
    }

    #[test]
    fn names_round_trip() {
        for d in Divergence::ALL {
            assert_eq!(d.name().parse::<Divergence>(), Ok(d));
            assert_eq!(serde_json::to_string(&d).unwrap(), format!("\"{}\"", d.name()));
        }
        assert!("hellinger".parse::<Divergence>().is_err());
    }

    proptest! {
        /// `weight` attains the maximum of `w·y − f(w)` among a grid of rivals, and `conjugate` is that maximum.
        #[test]
        fn weight_is_the_maximiser(y in -6.0..4.0f64) {
            for d in Divergence::ALL {
                let w = d.weight(y);
                let best = w * y - d.f(w);
                prop_assert!((best - d.conjugate(y)).abs() <= 1e-12 * (1.0 + best.abs()));
                for i in 0..400 {
                    let rival = f64::from(i) * 0.15;
                    prop_assert!(rival * y - d.f(rival) <= best + 1e-9 * (1.0 + best.abs()));
                }
            }
        }

        /// Envelope theorem, `g' = w`, and `w'` against central differences away from kinks. Truncation is h²/6
        /// times a third derivative of at most e⁴ ≈ 55; rounding is 1e-16·55/h.
        #[test]
        fn derivatives_match_differences(y in -6.0..4.0f64) {
            let h = 1e-5;
            for d in Divergence::ALL {
                prop_assume!((y + 1.0).abs() > 2.0 * h && y.abs() > 2.0 * h);
                let slope = (d.conjugate(y + h) - d.conjugate(y - h)) / (2.0 * h);
                prop_assert!((slope - d.weight(y)).abs() < 1e-7);
                let slope = (d.weight(y + h) - d.weight(y - h)) / (2.0 * h);
                prop_assert!((slope - d.weight_derivative(y)).abs() < 1e-7);
            }
        }
    }
}
