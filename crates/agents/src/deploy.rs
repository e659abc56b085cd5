//! From trained parameters to a policy that acts.

use coptidice_data::Actions;
use coptidice_nn::Network;

use crate::TrainError;
use crate::config::LogFacts;
use crate::extraction::{head, spec};
use crate::learner::Learner;
use crate::policy::{LimitAbout, Policy, PolicyAbout, PolicyParts};
use crate::problem::Problem;

/// The policy of a run whose learner stands as it does after `steps` steps.
pub(crate) fn policy(problem: &Problem<'_>, learner: &dyn Learner, steps: u64) -> Result<Policy, TrainError> {
    with_parameters(problem, learner, learner.policy_parameters(), steps)
}

/// The policies to choose from when training is over, by step.
pub(crate) fn finalists(
    problem: &Problem<'_>,
    learner: &dyn Learner,
    steps: u64,
) -> Result<Vec<Policy>, TrainError> {
    let earlier = learner
        .finalists()
        .iter()
        .map(|earlier| with_parameters(problem, learner, &earlier.params, earlier.step));
    earlier.chain(std::iter::once(policy(problem, learner, steps))).collect()
}

fn with_parameters(
    problem: &Problem<'_>,
    learner: &dyn Learner,
    params: &[f32],
    steps: u64,
) -> Result<Policy, TrainError> {
    let head = head(problem);
    let (action_low, action_high) = problem.action_range();
    let parts = PolicyParts {
        network: Network::new(spec(problem, &head))?,
        params: params.to_vec(),
        head,
        normalizer: problem.normalizer.clone(),
        acting: problem.config.acting,
        action_low,
        action_high,
        action_unit: problem.action_unit.clone(),
        selector: learner.selector(),
        about: about(problem, steps),
    };
    Ok(Policy::new(parts)?)
}

fn about(problem: &Problem<'_>, steps: u64) -> PolicyAbout {
    let (config, data) = (problem.config, problem.data);
    let episode_steps = LogFacts::episodes(data).0.mean_steps();
    let limits = config.limits.iter();
    PolicyAbout {
        observation_names: data.observation_names().to_vec(),
        action_names: match data.actions() {
            Actions::Continuous { .. } => data.action_names().to_vec(),
            Actions::Discrete { labels, .. } => labels.clone(),
        },
        cost_names: data.cost_names().to_vec(),
        limits: limits.map(|limit| LimitAbout::new(&*limit.cost, limit.limit, episode_steps)).collect(),
        ..PolicyAbout::new(config.algo.name(), config.seed, steps, data.fingerprint().to_string())
    }
}
