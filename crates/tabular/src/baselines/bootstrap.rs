//! Bootstrap bounds (Efron and Tibshirani 1993; Hanna et al. 2017): the spread of an estimate over resampled data.
//!
//! Episodes, the units that were drawn independently, are drawn again with replacement; the policy is evaluated on
//! the maximum-likelihood CMDP of each resample. The bounds are percentiles of those values. Each resample costs one
//! model and one linear solve, which is what the paper's bound avoids.

use coptidice_core::{Cmdp, CmdpError, Policy, rng};
use rand::RngExt as _;
use serde::{Deserialize, Serialize};

use crate::evaluation::Evaluator;
use crate::generate::GenerateError;

/// Percentile bounds on the reward and each cost of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootstrapBounds {
    /// `V_R`, reward units per step.
    pub reward: Interval,
    /// `V_C`, `[K]`, cost units per step.
    pub costs: Vec<Interval>,
    /// Resamples drawn.
    pub resamples: usize,
}

/// A central estimate between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower percentile.
    pub lower: f64,
    /// Value on the data as they are.
    pub estimate: f64,
    /// Upper percentile.
    pub upper: f64,
}

/// How to resample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootstrapConfig {
    /// Number of resamples.
    pub resamples: usize,
    /// Probability between the bounds, in `(0, 1)`; half of the rest lies on either side.
    pub confidence: f64,
    /// Seed of the resampling.
    pub seed: u64,
}

impl Default for BootstrapConfig {
    fn default() -> Self {
        Self { resamples: 1000, confidence: 0.95, seed: 0 }
    }
}

/// Bounds on the values of `policy` from `episodes` logged episodes.
///
/// `model` builds the CMDP of the episodes whose indices it is given, each as often as it occurs.
///
/// # Errors
/// If there are no episodes, the confidence lies outside `(0, 1)`, no resample is asked for, `model` fails, or the
/// policy has another shape than its CMDPs.
pub fn bootstrap_bounds<E: From<GenerateError> + From<CmdpError>>(
    episodes: usize,
    mut model: impl FnMut(&[usize]) -> Result<Cmdp, E>,
    policy: &Policy,
    config: BootstrapConfig,
) -> Result<BootstrapBounds, E> {
    let refuse = |field, why| Err(GenerateError::Setting { field, why }.into());
    if episodes == 0 {
        return refuse("episodes", "give at least one");
    }
    if config.resamples == 0 {
        return refuse("resamples", "give at least one");
    }
    if !(config.confidence > 0.0 && config.confidence < 1.0) {
        return refuse("confidence", "give a number between 0 and 1, both excluded");
    }
    let mut evaluator = Evaluator::new(policy.states());
    let mut value = |chosen: &[usize]| -> Result<Vec<f64>, E> {
        let found = evaluator.evaluate(&model(chosen)?, policy)?;
        Ok(std::iter::once(found.reward).chain(found.costs).collect())
    };
    let mut chosen: Vec<usize> = (0..episodes).collect();
    let estimate = value(&chosen)?;
    let mut random = rng::stream(config.seed, "bootstrap", 0);
    let mut samples = vec![Vec::with_capacity(config.resamples); estimate.len()];
    for _ in 0..config.resamples {
        chosen.iter_mut().for_each(|i| *i = random.random_range(0..episodes));
        for (column, x) in samples.iter_mut().zip(value(&chosen)?) {
            column.push(x);
        }
    }
    let tail = 0.5 * (1.0 - config.confidence);
    let mut intervals = samples.iter_mut().zip(&estimate).map(|(column, &estimate)| {
        column.sort_unstable_by(f64::total_cmp);
        Interval { lower: quantile(column, tail), estimate, upper: quantile(column, 1.0 - tail) }
    });
    let reward = intervals.next().expect("the reward is always evaluated");
    Ok(BootstrapBounds { reward, costs: intervals.collect(), resamples: config.resamples })
}

/// Quantile of sorted values, linear between order statistics (type 7 of Hyndman and Fan 1996).
fn quantile(sorted: &[f64], p: f64) -> f64 {
    let place = p * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (place - below as f64) * (sorted[above] - sorted[below])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{TrajectorySampler, count_episodes, estimated_model};
    use coptidice_core::{CmdpParts, EpisodeEnd, StateId, Transitions};

    /// One draw per episode: state 1 costs one for ever and is entered with probability .3.
    fn coin() -> Cmdp {
        let triples = [(0, 0, 1, 0.3), (0, 0, 2, 0.7), (1, 0, 1, 1.0), (2, 0, 2, 1.0)];
        Cmdp::new(CmdpParts {
            transitions: Transitions::from_triples(3, 1, triples).unwrap(),
            episode_end: EpisodeEnd::Absorb,
            reward: vec![0.0, 0.0, 1.0],
            costs: vec![vec![0.0, 1.0, 0.0]],
            initial: vec![1.0, 0.0, 0.0],
            gamma: 0.5,
        })
        .unwrap()
    }

    /// The value of a resample is half the share of heads among `n` coins: binomial with the sample's own share,
    /// whose normal approximation is good to the width of one step, `.5/n`.
    #[test]
    fn percentiles_of_a_coin_are_binomial() {
        let m = coin();
        let policy = Policy::uniform(3, 1).unwrap();
        let n = 400;
        let sampler = TrajectorySampler::new(&m, &policy).unwrap();
        let episodes = sampler.sample(&mut rng::stream(0, "test", 0), n, 2);
        let config = BootstrapConfig { resamples: 4000, confidence: 0.9, seed: 1 };
        let model = |chosen: &[usize]| {
            estimated_model(&m, &count_episodes(3, 1, &episodes, chosen.iter().copied())?, StateId(2))
                .map_err(GenerateError::from)
        };
        let bounds = bootstrap_bounds(n, model, &policy, config).unwrap();
        let heads = episodes.iter().filter(|e| e[0].next == Some(StateId(1))).count() as f64 / n as f64;
        let cost = bounds.costs[0];
        assert!((cost.estimate - 0.5 * heads).abs() < 1e-12);
        let half_width = 1.6449 * 0.5 * (heads * (1.0 - heads) / n as f64).sqrt();
        // Monte-Carlo error of a 5 % quantile from 4000 draws is about 3 % of the half-width; one step is 1.5/n.
        let slack = 0.1 * half_width + 0.75 / n as f64;
        assert!((cost.upper - cost.estimate - half_width).abs() < slack, "{cost:?} {half_width}");
        assert!((cost.estimate - cost.lower - half_width).abs() < slack, "{cost:?} {half_width}");
        // Reward plus cost of a resample is ½ whatever it holds: the intervals mirror each other.
        assert!((bounds.reward.lower - (0.5 - cost.upper)).abs() < 1e-12);
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 0.75), 3.0);
        assert_eq!(quantile(&[5.0], 0.99), 5.0);
    }

    #[test]
    fn nonsense_is_refused() {
        let m = coin();
        let policy = Policy::uniform(3, 1).unwrap();
        let call = |episodes, config| {
            bootstrap_bounds(episodes, |_| Ok::<_, GenerateError>(m.clone()), &policy, config)
        };
        assert!(call(0, BootstrapConfig::default()).is_err());
        assert!(call(1, BootstrapConfig { resamples: 0, ..Default::default() }).is_err());
        assert!(call(1, BootstrapConfig { confidence: 1.0, ..Default::default() }).is_err());
        let bounds = call(1, BootstrapConfig::default()).unwrap();
        assert_eq!(bounds.costs[0].lower, bounds.costs[0].upper, "one episode has no spread");
    }
}
