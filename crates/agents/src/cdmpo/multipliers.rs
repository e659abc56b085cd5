//! What is learned beside the networks: the temperatures and prices of the policy's improvement, and the costs'
//! multipliers.

use super::config::CdmpoConfig;
use crate::learner::StateMut;

/// Logarithms of temperatures and prices stay within these: 5e-5 to 2e4.
const LOG_MAX: f32 = 10.0;

/// Temperatures of the two reweightings and prices of the two trust regions, by the logarithm.
///
/// Each is the multiplier of a bound on a divergence, `KL <= bound`, whose dual has the derivative
/// `multiplier (bound - KL)` with respect to its logarithm. They differ in size by orders of magnitude, and so may each of
/// them from one time to another; the step is therefore `rate (KL - bound)/bound`, no longer than `rate`, which does not
/// depend on how large the multiplier is or was.
pub(super) struct Duals {
    /// Temperature of the values, temperature of the penalty, `[A]` prices of locations, `[A]` of deviations.
    logs: Vec<f32>,
    rate: f64,
    /// The prices themselves, `[2A]`.
    prices: Vec<f64>,
}

impl Duals {
    pub(super) fn new(config: &CdmpoConfig, action_dim: usize) -> Self {
        let mut logs = vec![config.initial_temperature.ln() as f32; 2];
        logs.extend(vec![config.initial_location_price.ln() as f32; action_dim]);
        logs.extend(vec![config.initial_deviation_price.ln() as f32; action_dim]);
        let mut duals = Duals { logs, rate: f64::from(config.dual_rate), prices: vec![0.0; 2 * action_dim] };
        duals.read_prices();
        duals
    }

    fn read_prices(&mut self) {
        for (price, &log) in self.prices.iter_mut().zip(&self.logs[2..]) {
            *price = f64::from(log).exp();
        }
    }

    /// Temperature of the values (0) or of the penalty (1).
    pub(super) fn temperature(&self, which: usize) -> f64 {
        f64::from(self.logs[which]).exp()
    }

    /// Prices of locations, then of deviations, `[2A]`.
    pub(super) fn prices(&self) -> &[f64] {
        &self.prices
    }

    /// One step of each: `[2 + 2A]` pairs of a divergence and its bound, in the order of the temperatures and prices.
    pub(super) fn update(&mut self, divergences: impl Iterator<Item = (f64, f64)>) {
        for (log, (kl, bound)) in self.logs.iter_mut().zip(divergences) {
            let step = self.rate * ((kl - bound) / bound).clamp(-1.0, 1.0);
            *log = (*log + step as f32).clamp(-LOG_MAX, LOG_MAX);
        }
        self.read_prices();
    }

    pub(super) fn visit_state(&mut self, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        visit("duals", StateMut::F32(&mut self.logs));
        self.read_prices();
    }
}

/// The costs' multipliers `lambda`, `[K]`: what a unit of cost is worth in reward.
pub(super) struct CostMultipliers {
    lambda: Vec<f32>,
    limits: Vec<f64>,
    rate: f64,
    max: f64,
}

impl CostMultipliers {
    pub(super) fn new(config: &CdmpoConfig, costs: usize) -> Self {
        CostMultipliers {
            lambda: vec![config.lambda_start as f32; costs],
            limits: vec![config.limit; costs],
            rate: config.multiplier_rate,
            max: config.lambda_max,
        }
    }

    /// `[K]`.
    pub(super) fn lambda(&self) -> &[f32] {
        &self.lambda
    }

    /// One step up the dual `lambda'(cost - limit)`, taken at every one of `steps` environment steps whose costs add up to
    /// `totals`, `[K]`: `lambda += rate sum_t (c_t - limit)`, within `[0, lambda_max]`.
    pub(super) fn update(&mut self, totals: &[f64], steps: u64) {
        for ((lambda, total), limit) in self.lambda.iter_mut().zip(totals).zip(&self.limits) {
            let excess = total - limit * steps as f64;
            *lambda = (f64::from(*lambda) + self.rate * excess).clamp(0.0, self.max) as f32;
        }
    }

    pub(super) fn visit_state(&mut self, visit: &mut dyn FnMut(&str, StateMut<'_>)) {
        visit("lambda", StateMut::F32(&mut self.lambda));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multiplier_rises_by_what_exceeds_the_limit_and_stays_within_its_bounds() {
        let config = CdmpoConfig {
            limit: 0.1,
            lambda_start: 0.5,
            lambda_max: 1.0,
            multiplier_rate: 0.01,
            ..CdmpoConfig::default()
        };
        let mut multipliers = CostMultipliers::new(&config, 3);
        // 100 steps at .2, at .1 and at 0: over the limit by 10, by nothing, and below it by 10.
        multipliers.update(&[20.0, 10.0, 0.0], 100);
        for (found, wanted) in multipliers.lambda().iter().zip([0.6, 0.5, 0.4]) {
            assert!((found - wanted).abs() < 1e-6);
        }
        multipliers.update(&[1e6, 100.0, 0.0], 1000);
        assert_eq!(multipliers.lambda(), [1.0, 0.5, 0.0]);
    }

    /// A temperature goes up where its reweighting goes beyond the bound, and so does a price.
    #[test]
    fn duals_move_against_what_is_wrong() {
        let config = CdmpoConfig { dual_rate: 0.1, ..CdmpoConfig::default() };
        let mut duals = Duals::new(&config, 1);
        let all = |duals: &Duals| {
            let temperatures = [0, 1].map(|which| duals.temperature(which).ln());
            let prices: Vec<f64> = duals.prices().iter().map(|price| price.ln()).collect();
            [temperatures[0], temperatures[1], prices[0], prices[1]]
        };
        let before = all(&duals);
        duals.update([(0.3, 0.2), (0.1, 0.2), (9.0, 0.01), (0.0, 0.01)].into_iter());
        for ((after, before), wanted) in all(&duals).iter().zip(before).zip([0.05, -0.05, 0.1, -0.1]) {
            // Logarithms of up to 10 in single precision.
            assert!((after - before - wanted).abs() < 1e-6, "{after} {before} {wanted}");
        }
    }
}
