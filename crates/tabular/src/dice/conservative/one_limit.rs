//! One cost: a bracketed Newton search for the tightened limit whose solution has its bound at the limit asked for.

use super::{DUAL_TOLERANCES, OBJECTIVE_TOLERANCE, Search};
use crate::linalg::spd::dot;
use crate::outcome::Outcome;

/// Solutions without a bound after which the search is given up: the next ones are hardly different, and each takes all
/// the steps there are.
const BLIND: usize = 8;

/// Distance in the limit over which a bound that moves with it does not change so much, relative to the change: it jumps.
const STEEPEST: f64 = 1e-3;

/// What is known of the lower end of the bracket.
#[derive(Clone, Copy, PartialEq)]
enum Below {
    /// Its bound meets the limit.
    Met,
    /// No policy costs less.
    OutOfReach,
    /// The dual, or the bound of its solution, was not solved there.
    Unsolved,
}

impl Search<'_, '_> {
    /// `dℓ/dt` of the only cost, which must be the one last bounded; one where it cannot be had.
    fn slope(&mut self) -> f64 {
        let Some(d_w) = self.dual.sensitivity(0) else { return 1.0 };
        let slope = dot(&self.gradients[0], &d_w) / self.dual.cost_of(0, &d_w);
        // Where costs are cheap beside their credits a bound moves ten times as fast as its cost. At a kink the one-sided
        // derivatives of cost and bound may disagree; the bracket does the rest.
        if slope.is_finite() { slope.clamp(0.2, 100.0) } else { 1.0 }
    }

    /// The solution at the lower end of the bracket, where its bound met the limit, if what is left of the limit is worth
    /// nothing.
    fn at_lower_end(&mut self, low: f64) -> Option<Outcome> {
        self.dual.limits[0] = low;
        let outcome = self.at_limits();
        if !outcome.is_usable() {
            return None;
        }
        if self.is_complementary(OBJECTIVE_TOLERANCE) {
            return Some(self.combined(outcome));
        }
        let almost = 1e3 * OBJECTIVE_TOLERANCE * (1.0 + self.dual.objectives().0.abs());
        self.is_complementary(almost).then(|| match self.combined(outcome) {
            Outcome::Solved => Outcome::AlmostSolved,
            other => other,
        })
    }

    pub(super) fn one_limit(&mut self, naive: Outcome) -> Outcome {
        let mut outcome = naive;
        // At `γ = 1` that takes a program of its own; there the search finds its way without.
        let least = if self.dual.r.gamma < 1.0 { self.dual.least_cost(&[1.0]) } else { None };
        let least = least.unwrap_or(f64::NEG_INFINITY);
        let (mut low, mut high) = (least, f64::INFINITY);
        let mut below = Below::OutOfReach;
        let mut blind = 0;
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
            let bounded = self.values[0].outcome.is_usable();
            if !usable {
                low = self.dual.limits[0];
                below = if outcome == Outcome::Infeasible { Below::OutOfReach } else { Below::Unsolved };
            } else if !bounded {
                (low, below) = (target, Below::Unsolved);
                blind += 1;
                if blind > BLIND {
                    break;
                }
            } else if self.slack(0) < 0.0 {
                high = target;
            } else {
                (low, below) = (target, Below::Met);
                let jumps = high - target <= STEEPEST * self.slack(0);
                if jumps && self.is_complementary(OBJECTIVE_TOLERANCE) {
                    return self.combined(outcome);
                }
            }
            if below == Below::Met && !moved && high - low <= DUAL_TOLERANCES * self.dual.tolerance() {
                // The dual does not tell the limits left apart. That is not close enough where the bound moves much
                // more than one to one.
                if let Some(found) = self.at_lower_end(low) {
                    return found;
                }
                return match self.combined(outcome) {
                    Outcome::Solved => Outcome::AlmostSolved,
                    other => other,
                };
            }
            if high.is_finite() && high - low <= 1e-13 * (1.0 + high.abs()) {
                // Even the least cost has a bound above the limit, if it is the bound. Where the limit was met at the
                // lower end the bound jumps over it, and where steps ran out there only another method knows the least.
                if below == Below::Met
                    && let Some(found) = self.at_lower_end(low)
                {
                    return found;
                }
                let decided = match below {
                    Below::OutOfReach => true,
                    Below::Unsolved => self.is_least(&[1.0]),
                    Below::Met => false,
                };
                let proved = decided && self.values[0].outcome.is_usable();
                return if proved { Outcome::Infeasible } else { Outcome::IterationLimit };
            }
            let newton = if usable && bounded { target + self.slack(0) / self.slope() } else { f64::NAN };
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
