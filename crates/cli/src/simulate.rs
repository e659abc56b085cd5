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

/// Runs `policy` in `env`, several episodes at once on the threads of the current pool.
pub(crate) fn evaluate(
    policy: &Policy,
    env: &dyn Environment,
    request: &Request,
) -> Result<Evaluation, Failure> {
    check_fit(policy, env)?;
    let spec = env.spec();
    let limits = request.limits.clone().unwrap_or_else(|| trained_limits(policy, env));
    let options = EvaluateOptions {
        limits: Some(limits),
        record_paths: request.record_paths,
        ..EvaluateOptions::new(request.episodes, request.seed)
    };
    let acting = request.acting.unwrap_or(policy.acting());
    let discrete = matches!(spec.action, ActionSpec::Discrete { .. });
    let failed: OnceLock<String> = OnceLock::new();
    let source = PerThread(|| {
        let mut actor = policy.actor_with(acting);
        let failed = &failed;
        move |observation: &[f32], rng: &mut Rng, action: &mut [f32]| {
            let result = if discrete {
                actor.choose(observation, rng).map(|choice| action[0] = choice as f32)
            } else {
                actor.act(observation, rng, action)
            };
            if let Err(error) = result {
                let _ = failed.set(error.to_string());
                action.fill(0.0);
            }
        }
    });
    let evaluation = run_evaluation(env, &source, &options).map_err(|error| Failure::work(&error))?;
    match failed.into_inner() {
        Some(message) => Err(Failure::work_because(
            format!("the policy could not act: {message}"),
            "the policy does not fit this environment's observations",
        )),
        None => Ok(evaluation),
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

fn check_fit(policy: &Policy, env: &dyn Environment) -> Result<(), Failure> {
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
