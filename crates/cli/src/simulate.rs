//! A policy in a simulator.

use std::sync::OnceLock;

use coptidice_agents::policy::{Acting, Policy};
use coptidice_core::CostLimit;
use coptidice_core::rng::Rng;
use coptidice_sim::{
    ActionSpec, Environment, EvaluateOptions, Evaluation, PerThread, evaluate as run_evaluation,
};

use crate::failure::Failure;

/// How to evaluate.
pub(crate) struct Request {
    /// Number of episodes.
    pub(crate) episodes: usize,
    /// Seed of the episodes.
    pub(crate) seed: u64,
    /// How to act; the policy's own way where none is given.
    pub(crate) acting: Option<Acting>,
    /// Limits that take the place of the policy's and the environment's.
    pub(crate) limits: Option<Vec<CostLimit>>,
    /// Episodes whose paths are kept.
    pub(crate) record_paths: usize,
}

/// Runs `policy` in `env`, several episodes in step on each thread of the current pool.
pub(crate) fn evaluate(
    policy: &Policy,
    env: &dyn Environment,
    request: &Request,
) -> Result<Evaluation, Failure> {
    check_fit(policy, env)?;
    let limits = request.limits.clone().unwrap_or_else(|| trained_limits(policy, env));
    let options = EvaluateOptions {
        limits: Some(limits),
        record_paths: request.record_paths,
        ..EvaluateOptions::new(request.episodes, request.seed)
    };
    let acting = request.acting.unwrap_or(policy.acting());
    let failed: OnceLock<String> = OnceLock::new();
    let actor = policy.actor_with(acting);
    let source = PerThread(|| {
        let (mut actor, failed) = (actor.clone(), &failed);
        move |observations: &[f32], rngs: &mut [Rng], actions: &mut [f32]| {
            if let Err(error) = actor.act_rows(observations, rngs, actions) {
                let _ = failed.set(error.to_string());
                // No action: the episodes end here.
                actions.fill(f32::NAN);
            }
        }
    });
    let evaluation = run_evaluation(env, &source, &options);
    match failed.into_inner() {
        Some(message) => Err(Failure::work_because(
            format!("the policy could not act: {message}"),
            "the policy does not fit this environment's observations",
        )),
        None => evaluation.map_err(|error| Failure::work(&error)),
    }
}

/// The limits the policy was trained for where costs have the same name (or where log and environment have one cost
/// each, whatever their names), else the environment's own.
fn trained_limits(policy: &Policy, env: &dyn Environment) -> Vec<CostLimit> {
    let spec = env.spec();
    let trained = &policy.about().limits;
    let single = trained.len() == 1 && policy.about().cost_names.len() == 1 && spec.costs.len() == 1;
    spec.costs
        .iter()
        .map(|cost| {
            let found = trained.iter().find(|limit| limit.cost == cost.name);
            let found = found.or(if single { trained.first() } else { None });
            found.map_or(cost.default_limit, |limit| limit.limit)
        })
        .collect()
}

/// Refuses a policy of other shapes than the environment's.
pub(crate) fn check_fit(policy: &Policy, env: &dyn Environment) -> Result<(), Failure> {
    let spec = env.spec();
    let discrete = matches!(spec.action, ActionSpec::Discrete { .. });
    let fits = policy.observation_width() == spec.observation_dim()
        && policy.action_width() == spec.action.width()
        && policy.action_low().is_empty() == discrete;
    if fits {
        return Ok(());
    }
    Err(Failure::usage(
        format!(
            "the policy takes {} observation columns and gives {} action columns; {} has {} and {}",
            policy.observation_width(),
            policy.action_width(),
            spec.name,
            spec.observation_dim(),
            spec.action.width(),
        ),
        "evaluate in the environment whose logs the policy was trained on",
    ))
}

#[cfg(test)]
mod tests {
    use coptidice_core::rng::stream;
    use coptidice_sim::{EpisodeRunner, make};

    use super::*;

    /// Every way of acting, in step with others on any number of threads, against one observation and one episode after
    /// the other: the same bits.
    #[test]
    fn an_evaluation_in_step_is_that_of_episodes_run_alone() {
        for name in ["nav/hazard", "rwrl/cartpole-swingup"] {
            let env = make(name).expect("it is registered");
            let policy = crate::testing::policy(env.as_ref(), 3, Acting::Mean);
            for acting in Acting::ALL {
                let request =
                    Request { episodes: 9, seed: 5, acting: Some(acting), limits: None, record_paths: 9 };
                let (mut actor, mut runner) = (policy.actor_with(acting), EpisodeRunner::new(env.as_ref()));
                let mut alone = Vec::new();
                for episode in 0..9 {
                    let mut act = |observation: &[f32], rng: &mut Rng, action: &mut [f32]| {
                        actor.act(observation, rng, action).expect("observations are finite");
                    };
                    let [mut start, mut acts] =
                        ["episode", "actor"].map(|purpose| stream(5, purpose, episode));
                    let mut path = Vec::new();
                    let ran = runner.run(episode, &mut act, &mut start, &mut acts, |step| {
                        path.push(step.next_observation.to_vec());
                    });
                    assert_eq!(ran, Ok(()));
                    alone.push(path);
                }
                for threads in [1, 2, 4] {
                    let pool =
                        rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
                    let Ok(evaluation) = pool.install(|| evaluate(&policy, env.as_ref(), &request)) else {
                        panic!("{name}, {acting}: it acts")
                    };
                    let paths = evaluation.paths.iter().map(|path| &path.observations[1..]);
                    assert!(paths.eq(alone.iter().map(Vec::as_slice)), "{name}, {acting}, {threads} threads");
                }
            }
        }
    }
}
