//! `coptidice tabular generate`: a random CMDP, a policy that collects data, and its logs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use coptidice_core::rng;
use coptidice_tabular::case::NewCase;
use coptidice_tabular::generate::{
    BehaviourBuilder, BehaviourConfig, Episodes, INITIAL_STATE, RandomCmdp, RandomCmdpConfig,
    TrajectorySampler, count_episodes,
};
use serde_json::json;

use crate::failure::{Done, Failure};
use crate::finite_policy::{FinitePolicy, numbered};
use crate::output::{check_target, line};
use crate::run_directory::write_text;

/// Flags of `tabular generate`.
#[derive(Args)]
pub(crate) struct Generate {
    /// States, the absorbing one included
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(3..=100_000))]
    states: u32,
    /// Actions, the first of which is free of cost
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    actions: u32,
    /// Successors of each state and action
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connectivity: u32,
    /// Discount, below 1
    #[arg(long, default_value_t = 0.95)]
    gamma: f64,
    /// Cost limit per step; costs are drawn until it binds
    #[arg(long, default_value_t = 0.1)]
    limit: f64,
    /// Cost per step of the policy that collects data
    #[arg(long, default_value_t = 0.09)]
    behavior_cost: f64,
    /// How good that policy is: between a uniform policy (0) and the best one of its cost (1)
    #[arg(long, default_value_t = 0.9)]
    optimality: f64,
    /// Episodes to log
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    trajectories: u32,
    /// Longest episode, steps
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_steps: u32,
    /// Seed of every random stream
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Which CMDP of that seed
    #[arg(long, default_value_t = 0)]
    index: u64,
    /// Directory for case.json.gz, logs.csv and behavior.json
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace these files where they exist
    #[arg(long)]
    overwrite: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Generate {
    /// Draws, writes and says what was drawn.
    pub(crate) fn run(self) -> Done {
        for file in ["case.json.gz", "logs.csv", "behavior.json"] {
            check_target(&self.out.join(file), self.overwrite)?;
        }
        let config = RandomCmdpConfig {
            states: self.states as usize,
            actions: self.actions as usize,
            connectivity: self.connectivity as usize,
            gamma: self.gamma,
            limit: self.limit,
            ..RandomCmdpConfig::default()
        };
        let drawn = config.draw(self.seed, self.index).map_err(|error| Failure::input(&error))?;
        let behaviour = BehaviourBuilder::new(config.states)
            .build(
                &drawn.cmdp,
                BehaviourConfig {
                    optimality: self.optimality,
                    ..BehaviourConfig::with_limit(self.behavior_cost)
                },
            )
            .map_err(|error| Failure::input(&error))?;
        let sampler =
            TrajectorySampler::new(&drawn.cmdp, &behaviour.policy).map_err(|error| Failure::input(&error))?;
        let mut random = rng::stream(self.seed, "tabular generate", self.index);
        let episodes = sampler.sample(&mut random, self.trajectories as usize, self.max_steps as usize);
        let counts = count_episodes(config.states, config.actions, &episodes, 0..episodes.len())
            .map_err(|error| Failure::work(&error))?;
        let n = f64::from(self.trajectories);
        let case = NewCase {
            truth: &drawn.cmdp,
            initial_state: INITIAL_STATE,
            absorbing_state: drawn.absorbing,
            counts: &counts,
            behaviour: &behaviour.policy,
            limit: self.limit,
            alpha: 1.0 / n,
            epsilon: 0.1 / n,
        };
        let bytes = case.to_gzip().map_err(|error| Failure::work(&error))?;
        std::fs::create_dir_all(&self.out).map_err(|error| Failure::writing(&self.out, &error))?;
        let path = self.out.join("case.json.gz");
        coptidice_report::write_whole(&path, &bytes).map_err(|error| Failure::writing(&path, &error))?;
        FinitePolicy::new(numbered(config.states), numbered(config.actions), &behaviour.policy)
            .write(&self.out.join("behavior.json"))?;
        write_logs(&self.out.join("logs.csv"), &drawn, &episodes)?;
        if self.json {
            return crate::output::json(&json!({
                "states": config.states,
                "actions": config.actions,
                "goal": drawn.goal.index(),
                "absorbing": drawn.absorbing.index(),
                "behavior_reward": behaviour.reward,
                "behavior_cost": behaviour.cost,
                "episodes": episodes.len(),
                "transitions": episodes.steps().len(),
            }));
        }
        line(&format!(
            "{} states, {} actions; the data come from a policy that earns {:.5} and costs {:.5} per step",
            config.states, config.actions, behaviour.reward, behaviour.cost
        ))?;
        line(&format!(
            "{} episodes, {} steps; case.json.gz, logs.csv and behavior.json are in {}",
            episodes.len(),
            episodes.steps().len(),
            self.out.display()
        ))
    }
}

/// One row a step. The step in the absorbing state, from which nothing is earned or paid any more, ends the episode.
fn write_logs(path: &Path, drawn: &RandomCmdp, episodes: &Episodes) -> Result<(), Failure> {
    let m = &drawn.cmdp;
    let mut text = String::from("episode,step,state,action,reward,cost,next_state,terminal\n");
    for (episode, steps) in episodes.iter().enumerate() {
        for (number, step) in steps.iter().enumerate() {
            let pair = step.state.index() * m.actions() + step.action.index();
            let next = step.next.unwrap_or(step.state);
            let _ = writeln!(
                text,
                "{episode},{number},{},{},{},{},{},{}",
                step.state.index(),
                step.action.index(),
                m.reward()[pair],
                m.cost(0)[pair],
                next.index(),
                u8::from(step.state == drawn.absorbing)
            );
        }
    }
    write_text(path, &text)
}
