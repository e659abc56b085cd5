//! An environment as the online learner sees it.

use coptidice_agents::cdmpo::{SimulatedStep, Simulator, SimulatorError, SimulatorFacts};
use coptidice_core::rng::Rng;
use coptidice_sim::{ActionSpec, Actor, CostTiming, EnvOptions, Environment, EpisodeRunner};

use crate::failure::Failure;

/// An environment that episodes are run in, with the costs that evaluations of it count.
pub(super) struct InEnvironment {
    facts: SimulatorFacts,
    timing: CostTiming,
    runner: EpisodeRunner,
}

impl InEnvironment {
    /// `options` are those that `env` was made with.
    pub(super) fn new(env: &dyn Environment, options: &EnvOptions) -> Result<Self, Failure> {
        let spec = env.spec();
        let ActionSpec::Continuous { low, high } = &spec.action else {
            return Err(Failure::usage(
                format!("{} has finitely many actions, which the online learner does not take", spec.name),
                "choose an environment with continuous actions",
            ));
        };
        let options = serde_json::to_string(options).map_err(|error| Failure::work(&error))?;
        let narrow = |bounds: &[f64]| bounds.iter().map(|&bound| bound as f32).collect();
        let facts = SimulatorFacts {
            identity: format!("{} {options}", spec.name),
            observation_names: spec.observation_names.clone(),
            action_low: narrow(low),
            action_high: narrow(high),
            cost_names: spec.cost_names(),
            horizon: spec.horizon,
        };
        Ok(InEnvironment { facts, timing: spec.evaluation_timing, runner: EpisodeRunner::new(env) })
    }
}

/// A closure that acts.
struct Acting<'a>(&'a mut dyn FnMut(&[f32], &mut [f32]));

impl Actor for Acting<'_> {
    fn act(&mut self, observation: &[f32], _: &mut Rng, action: &mut [f32]) {
        self.0(observation, action);
    }
}

impl Simulator for InEnvironment {
    fn facts(&self) -> &SimulatorFacts {
        &self.facts
    }

    fn run(
        &mut self,
        episode: u64,
        start: &mut Rng,
        act: &mut dyn FnMut(&[f32], &mut [f32]),
        visit: &mut dyn FnMut(&SimulatedStep<'_>),
    ) -> Result<(), SimulatorError> {
        let timing = self.timing;
        // The learner brings its own noise.
        let mut unused = start.clone();
        let done = self.runner.run(episode, &mut Acting(act), start, &mut unused, |step| {
            visit(&SimulatedStep {
                observation: step.observation,
                action: step.action,
                reward: step.reward as f32,
                costs: match timing {
                    CostTiming::Before => step.costs_before,
                    CostTiming::After => step.costs_after,
                },
                next_observation: step.next_observation,
                terminal: step.terminal,
                last: step.terminal || step.timeout,
            });
        });
        done.map_err(Into::into)
    }
}
