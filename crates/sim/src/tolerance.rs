//! The shaping functions of which the control suites build their rewards: 1 where a quantity is as wanted,
//! falling to `value_at_margin` at the distance `margin` from there.

/// How the value falls with the distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Falloff {
    /// `exp(−d²·ln(1/v))` for `d` in margins and `v` the value at the margin.
    Gaussian,
    /// `1 − d(1 − v)`, at least 0.
    Linear,
    /// `1 − d²(1 − v)`, at least 0.
    Quadratic,
}

/// The wanted range, and how the value falls outside it.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Lower end of the wanted range; may be −∞.
    pub low: f64,
    /// Upper end of the wanted range; may be +∞.
    pub high: f64,
    /// Distance from the range at which the value is `value_at_margin`; positive.
    pub margin: f64,
    /// In (0, 1) for [`Falloff::Gaussian`], in [0, 1) otherwise.
    pub value_at_margin: f64,
    /// Shape.
    pub falloff: Falloff,
}

impl Tolerance {
    /// Gaussian around `target`, 0.1 at `margin`.
    #[must_use]
    pub const fn near(target: f64, margin: f64) -> Self {
        Tolerance { low: target, high: target, margin, value_at_margin: 0.1, falloff: Falloff::Gaussian }
    }

    /// The value at `x`, in [0, 1].
    #[must_use]
    #[inline]
    pub fn at(&self, x: f64) -> f64 {
        let distance = (self.low - x).max(x - self.high).max(0.0) / self.margin;
        match self.falloff {
            Falloff::Gaussian => (distance * distance * self.value_at_margin.ln()).exp(),
            Falloff::Linear => (1.0 - distance * (1.0 - self.value_at_margin)).max(0.0),
            Falloff::Quadratic => (1.0 - distance * distance * (1.0 - self.value_at_margin)).max(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;

    #[test]
    fn one_inside_and_the_stated_value_at_the_margin() {
        for falloff in [Falloff::Gaussian, Falloff::Linear, Falloff::Quadratic] {
            let t = Tolerance { low: -1.0, high: 2.0, margin: 0.5, value_at_margin: 0.3, falloff };
            assert_eq!([t.at(-1.0), t.at(0.0), t.at(2.0)], [1.0; 3]);
            assert_relative_eq!(t.at(2.5), 0.3, max_relative = 1e-14);
            assert_relative_eq!(t.at(-1.5), 0.3, max_relative = 1e-14);
            assert!(t.at(2.2) > t.at(2.4) && t.at(1e9) < 1e-9);
        }
    }

    #[test]
    fn half_open_range() {
        let t = Tolerance {
            low: 1.2,
            high: f64::INFINITY,
            margin: 0.6,
            value_at_margin: 0.0,
            falloff: Falloff::Linear,
        };
        assert_eq!(t.at(1e300), 1.0);
        assert_relative_eq!(t.at(0.9), 0.5, max_relative = 1e-14);
    }
}
