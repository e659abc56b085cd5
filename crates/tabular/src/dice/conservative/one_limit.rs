//! One cost: a bracketed Newton search for the tightened limit whose solution has its bound at the limit asked for.

use super::{DUAL_TOLERANCES, Search};
use crate::linalg::spd::dot;
use crate::outcome::Outcome;

impl Search<'_, '_> {
    /// `dℓ/dt` of the only cost, which must be the one last bounded; one where it cannot be had.
    fn slope(&mut self) -> f64 {
        let Some(d_w) = self.dual.sensitivity(0) else { return 1.0 };
        let slope = dot(&self.gradients[0], &d_w) / self.dual.cost_of(0, &d_w);
        // At a kink the one-sided derivatives of cost and bound may disagree; the bracket does the rest.
        if slope.is_finite() { slope.clamp(0.2, 5.0) } else { 1.0 }
    }

    pub(super) fn one_limit(&mut self, naive: Outcome) -> Outcome {
        let mut outcome = naive;
        // At `γ = 1` that takes a program of its own; there the search finds its way without.
        let least = if self.dual.r.gamma < 1.0 { self.dual.least_cost(&[1.0]) } else { None };
        let least = least.unwrap_or(f64::NEG_INFINITY);
        let (mut low, mut high) = (least, f64::INFINITY);
        // Whether the limit is met at the lower end.
        let mut met = false;
        let mut moved = true;
        for _ in 0..self.effort.lambda_steps {
            if self.residual(0) <= self.tolerance(0) {
                return self.combined(outcome);
            }
            if self.dual.steps >= self.effort.total_steps {
                break;
            }
            let usable = outcome.is_usable();
            let target = self.dual.limits[0].min(self.dual.mean_cost(0));
            if !usable {
                (low, met) = (self.dual.limits[0], false);
            } else if self.slack(0) < 0.0 {
                high = target;
            } else {
                (low, met) = (target, true);
            }
            if met && !moved && high - low <= DUAL_TOLERANCES * self.dual.tolerance() {
                // The dual does not tell the limits left apart. That is not close enough where the bound moves much
                // more than one to one.
                return match self.combined(outcome) {
                    Outcome::Solved => Outcome::AlmostSolved,
                    other => other,
                };
            }
            if high - low <= 1e-13 * (1.0 + high.abs()) {
                // Even the least cost has a bound above the limit, if it is the bound. Where the limit was met at the
                // lower end the bound jumps over it, and nothing is proved.
                let proved = !met && self.values[0].outcome.is_usable();
                return if proved { Outcome::Infeasible } else { Outcome::IterationLimit };
            }
            let newton = if usable { target + self.slack(0) / self.slope() } else { f64::NAN };
            let inside = newton > low && newton < high;
            self.dual.limits[0] = match (inside, low.is_finite()) {
                (true, _) => newton,
                (false, true) if high.is_finite() => 0.5 * (low + high),
                (false, true) => low + 1.0,
                (false, false) => high - 2.0 * (1.0 + (high - self.limits[0]).abs()),
            };
            let before = self.dual.steps;
            outcome = self.at_limits();
            moved = self.dual.steps > before;
        }
        Outcome::IterationLimit
    }
}
