//! Several costs: Newton's method for the tightened limits whose solution has its bounds at the limits asked for.

use super::Search;
use crate::linalg::spd::{dot, solve_small};
use crate::outcome::Outcome;

/// Share of a step towards tighter limits below which they are taken to lie beyond what any policy meets.
const SHORTEST_STEP: f64 = 1e-2;

/// Steps within which the worst residual has to halve for the method to go on.
const PATIENCE: usize = 6;

impl Search<'_, '_> {
    pub(super) fn several_limits(&mut self, naive: Outcome) -> Outcome {
        if let Some(outcome) = self.approach(naive) {
            return outcome;
        }
        self.settle_excess()
    }

    /// Newton's method for `t + m(t) = ĉ` from the present limits, with exact derivatives of the margins; `None` where
    /// it gets nowhere. Where a step leads to limits that no policy meets, it is shortened.
    pub(super) fn approach(&mut self, mut outcome: Outcome) -> Option<Outcome> {
        let (mut best, mut without_gain, mut length) = (f64::INFINITY, 0, 1.0);
        for _ in 0..self.effort.lambda_steps {
            if self.meets_limits() {
                return Some(self.combined(outcome));
            }
            let worst = (0..self.limits.len()).map(|k| self.residual(k)).fold(0.0, f64::max);
            without_gain = if worst < 0.5 * best { 0 } else { without_gain + 1 };
            best = best.min(worst);
            if without_gain > PATIENCE || self.dual.steps >= self.effort.total_steps {
                return None;
            }
            let step = self.newton_step()?;
            let from = self.dual.limits.clone();
            loop {
                for ((limit, &t), &dt) in self.dual.limits.iter_mut().zip(&from).zip(&step) {
                    *limit = t + length * dt;
                }
                outcome = self.at_limits();
                if outcome.is_usable() {
                    break;
                }
                length *= 0.5;
                if length < SHORTEST_STEP {
                    self.dual.limits = from;
                    return None;
                }
            }
            length = f64::min(1.0, 2.0 * length);
        }
        None
    }

    /// `dt` such that `t + m(t) = ĉ` to first order. Margins depend on the limits of costs with a price alone: the
    /// others' do not bind.
    fn newton_step(&mut self) -> Option<Vec<f64>> {
        let k = self.limits.len();
        let defect: Vec<f64> = (0..k)
            .map(|i| self.limits[i] - (self.values[i].value - self.dual.mean_cost(i)) - self.dual.limits[i])
            .collect();
        let priced: Vec<usize> = (0..k).filter(|&i| self.dual.lambda[i] > 0.0).collect();
        let n = priced.len();
        // Derivatives in λ of the costs and of the bounds less the costs.
        let (mut of_costs, mut of_margins) = (vec![0.0; k * n], vec![0.0; k * n]);
        for (j, &l) in priced.iter().enumerate() {
            let d_w = self.dual.sensitivity(l)?;
            for i in 0..k {
                let cost = self.dual.cost_of(i, &d_w);
                of_costs[i * n + j] = cost;
                of_margins[i * n + j] = dot(&self.gradients[i], &d_w) - cost;
            }
        }
        // With dλ the unknown: dt = A dλ for priced costs, and (A + D) dλ = defect.
        let mut matrix = vec![0.0; n * n];
        for (a, &i) in priced.iter().enumerate() {
            for b in 0..n {
                matrix[a * n + b] = of_costs[i * n + b] + of_margins[i * n + b];
            }
        }
        let mut d_lambda: Vec<f64> = priced.iter().map(|&i| defect[i]).collect();
        if !solve_small(&mut matrix, &mut d_lambda) {
            return None;
        }
        let step: Vec<f64> =
            (0..k).map(|i| defect[i] - dot(&of_margins[i * n..(i + 1) * n], &d_lambda)).collect();
        step.iter().all(|x| x.is_finite()).then_some(step)
    }
}
