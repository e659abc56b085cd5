//! The least excess over all limits at once, by prices.
//!
//! # What is searched
//!
//! Let all prices together be `P = Σλ_k`. Conditions for limits that are all moved by the same `s`,
//!
//! ```text
//! λ_k ≥ 0  ⟂  ĉ_k + s − ℓ_k(w_λ) ≥ 0,      Σλ_k = P,
//! ```
//!
//! are a variational inequality on a simplex, which has a solution whatever `P` (Hartman and Stampacchia 1966). At
//! `s = 0` it solves the program. With one cost there is nothing to share and `s(P) = ℓ(w_P) − ĉ`; among several the
//! price of the last is found by bracketing, those of the others, given what is left of `P`, by the same rule: at
//! either end of the bracket one side exceeds its limit by more, or the end itself is the answer.
//!
//! # What it decides
//!
//! `s(0) > 0`, or the limits were met for free. `P` grows until `s ≤ 0`; then the root of `s` is the solution. Where
//! `s > 0`, let `v` be the direction in which prices grew last. If the costs' sum weighted by `v ≥ 0` is the least that
//! any occupancy has, `w` stays the best for all prices further along `v`: it is the best without the addition, and
//! nothing gains by the addition more. So its bounds stay where they are, the path ends on a ray (as Lemke's method
//! does where there is no solution), and the limits are infeasible for bounds.

use super::{OBJECTIVE_TOLERANCE, Search};
use crate::outcome::Outcome;

/// Excess that is close enough for Newton's method to do the rest.
const NEAR: f64 = 1e-7;

/// Excess below which limits are not called infeasible: a hundred times what bounds and duals leave open.
const PROVEN: f64 = 1e-9;

/// How far the weighted costs may be above the least there are, relative to `1 + |cost|`, to count as the least.
const LEAST: f64 = 1e-10;

/// Factor by which the prices grow.
const GROWTH: f64 = 4.0;

/// By how much closer the shares of prices are sought than what depends on them.
const INNER: f64 = 0.1;

/// Other points of a bracket that are looked at where the first has no bounds: where a state is about to lose its last
/// flow, bounds are out of reach of double precision, over a narrow range of prices.
const DETOURS: u32 = 3;

/// An interval over which a function passes from one sign to the other, and the next point to look at.
struct Bracket {
    low: (f64, f64),
    high: (f64, f64),
    /// Which end moved last, and how often in a row.
    moved: (bool, u32),
}

impl Bracket {
    fn new(low: (f64, f64), high: (f64, f64)) -> Self {
        Self { low, high, moved: (false, 0) }
    }

    /// The zero of the secant, as long as that moves both ends; the middle otherwise.
    fn next(&self) -> f64 {
        let ((low, at_low), (high, at_high)) = (self.low, self.high);
        let middle = 0.5 * (low + high);
        let secant = low + (high - low) * at_low / (at_low - at_high);
        if self.moved.1 >= 3 || !(secant > low && secant < high) { middle } else { secant }
    }

    /// A point between `x` and the end that is farther from it.
    fn beside(&self, x: f64, attempt: u32) -> f64 {
        let far = if x - self.low.0 < self.high.0 - x { self.high.0 } else { self.low.0 };
        x + (far - x) * 0.1 * f64::from(attempt)
    }

    /// Replaces the end on whose side the value is. An end that stays for the second time counts half (the Illinois
    /// rule), which makes secants reach over the zero.
    fn put(&mut self, x: f64, value: f64) {
        let low = (value > 0.0) == (self.low.1 > 0.0);
        self.moved = if self.moved.0 == low { (low, self.moved.1 + 1) } else { (low, 1) };
        if self.moved.1 > 3 {
            self.moved.1 = 0;
        }
        if low {
            self.low = (x, value);
            if self.moved.1 >= 2 {
                self.high.1 *= 0.5;
            }
        } else {
            self.high = (x, value);
            if self.moved.1 >= 2 {
                self.low.1 *= 0.5;
            }
        }
    }

    /// Whether the ends cannot be told apart.
    fn is_closed(&self) -> bool {
        self.high.0 - self.low.0 <= 4.0 * f64::EPSILON * self.high.0.abs().max(self.low.0.abs())
    }
}

impl Search<'_, '_> {
    /// Finds prices whose common excess is zero, or the price beyond which it stays positive.
    pub(super) fn settle_excess(&mut self) -> Outcome {
        let k = self.limits.len();
        let mut prices = vec![0.0; k];
        let start: f64 = self.dual.lambda.iter().sum::<f64>().max(self.dual.alpha);
        let Some(excess) = self.share(&mut prices, k, 0.0, NEAR) else { return Outcome::IterationLimit };
        let mut low = (0.0, excess);
        let mut total = start;
        let mut before = prices.clone();
        let mut bracket = loop {
            if low.1 <= 0.0 {
                // Newton's method must have missed that no limit binds.
                break Bracket::new(low, low);
            }
            let Some(excess) = self.share(&mut prices, k, total, NEAR) else {
                return Outcome::IterationLimit;
            };
            if excess <= 0.0 {
                break Bracket::new(low, (total, excess));
            }
            let growth: Vec<f64> =
                prices.iter().zip(&before).map(|(p, b)| (p - b) / (total - low.0)).collect();
            if excess > PROVEN && self.is_least(&growth) {
                return Outcome::Infeasible;
            }
            before.clone_from(&prices);
            low = (total, excess);
            total *= GROWTH;
            if total > self.effort.lambda_cap {
                return Outcome::IterationLimit;
            }
        };
        let mut tolerance = NEAR;
        loop {
            let total = if bracket.high.0 > bracket.low.0 { bracket.next() } else { bracket.low.0 };
            let Some(excess) = self.share(&mut prices, k, total, tolerance) else {
                return Outcome::IterationLimit;
            };
            if excess <= 0.0 && self.is_complementary(OBJECTIVE_TOLERANCE) {
                return self.combined(Outcome::Solved);
            }
            if excess.abs() <= tolerance || bracket.is_closed() {
                let multipliers = self.dual.multipliers();
                if let Some(outcome) = self.approach_from_prices() {
                    return outcome;
                }
                self.dual.restore(&multipliers);
                self.dual.refresh();
                self.bound_costs();
                if self.meets_limits() {
                    return self.combined(Outcome::Solved);
                }
                if bracket.is_closed() || tolerance < self.tolerance(0) {
                    return Outcome::IterationLimit;
                }
                tolerance *= 0.01;
            }
            bracket.put(total, excess);
        }
    }

    /// Newton's method from the limits that the present prices stand for.
    fn approach_from_prices(&mut self) -> Option<Outcome> {
        for k in 0..self.limits.len() {
            let cost = self.dual.mean_cost(k);
            self.dual.limits[k] =
                if self.dual.lambda[k] > 0.0 { cost } else { self.limits[k] - (self.values[k].value - cost) };
        }
        let outcome = self.at_limits();
        if outcome.is_usable() { self.approach(outcome) } else { None }
    }

    /// Shares `total` among the first `k` prices so that costs with a price exceed their limits by the same and others
    /// by no more, to within `tolerance`; returns that excess, or `None` where no such shares were found.
    fn share(&mut self, prices: &mut [f64], k: usize, total: f64, tolerance: f64) -> Option<f64> {
        if k == 1 || total <= 0.0 {
            prices[..k].fill(0.0);
            prices[0] = total.max(0.0);
            self.at_prices(prices)?;
            return Some((0..k).map(|i| -self.slack(i)).fold(f64::NEG_INFINITY, f64::max));
        }
        let last = k - 1;
        let mut excess = 0.0;
        // How much more the others exceed their limits than the last: rising in the last's price.
        let mut difference = |search: &mut Self, prices: &mut [f64], price: f64| {
            prices[last] = price;
            excess = search.share(prices, last, total - price, INNER * tolerance)?;
            Some(excess + search.slack(last))
        };
        let at_zero = difference(self, prices, 0.0)?;
        if at_zero >= -tolerance {
            return Some(excess);
        }
        let at_total = difference(self, prices, total)?;
        if at_total <= tolerance {
            return Some(-self.slack(last));
        }
        let mut bracket = Bracket::new((0.0, at_zero), (total, at_total));
        while !bracket.is_closed() {
            let mut price = bracket.next();
            let mut value = difference(self, prices, price);
            for attempt in 1..=DETOURS {
                if value.is_none() {
                    price = bracket.beside(price, attempt);
                    value = difference(self, prices, price);
                }
            }
            let value = value?;
            if value.abs() <= tolerance {
                return Some(excess);
            }
            bracket.put(price, value);
        }
        None
    }

    /// Solves the dual at given prices and bounds its costs; `None` where that fails or the effort is used up.
    fn at_prices(&mut self, prices: &[f64]) -> Option<()> {
        if self.dual.steps >= self.effort.total_steps {
            return None;
        }
        self.dual.lambda.copy_from_slice(prices);
        let outcome = self.dual.minimise(false, f64::INFINITY, self.effort.newton_steps);
        if !outcome.is_usable() {
            return None;
        }
        self.bound_costs();
        self.values.iter().all(|v| v.outcome.is_usable()).then_some(())
    }

    /// Whether the weighted sum of the present costs is the least of all occupancies in the data's support.
    pub(super) fn is_least(&self, weights: &[f64]) -> bool {
        if weights.iter().any(|&v| v < 0.0) {
            return false;
        }
        let found: f64 = weights.iter().enumerate().map(|(k, v)| v * self.dual.mean_cost(k)).sum();
        self.dual.least_cost(weights).is_some_and(|least| found - least <= LEAST * (1.0 + found.abs()))
    }
}
