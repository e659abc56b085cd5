//! Cells: runs, settings and sizes, solved by every algorithm.

use serde::{Deserialize, Serialize};

use super::algorithms::{Algorithm, Solvers};
use super::world::{Builder, cmdp_config};
use super::{CellError, DataSource, ExperimentConfig};
use crate::outcome::Outcome;

/// What an algorithm's policy achieves on the true CMDP.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlgorithmResult {
    /// `V_R(π)`, reward units per step.
    pub reward: f64,
    /// `V_C(π)`, cost units per step.
    pub cost: f64,
    /// How the algorithm's program ended.
    pub outcome: Outcome,
}

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// `V_R(π*)` of the run's CMDP under its own limit.
    pub optimal_reward: f64,
    /// `V_R(π_D)`.
    pub behaviour_reward: f64,
    /// `V_C(π_D)`.
    pub behaviour_cost: f64,
    /// In the order of [`Algorithm::ALL`].
    pub algorithms: [AlgorithmResult; 5],
}

impl CellResult {
    /// `(V_R(π) − V_R(π_D))/(V_R(π*) − V_R(π_D))`.
    #[must_use]
    pub fn normalized_reward(&self, algorithm: Algorithm) -> f64 {
        let reward = self.algorithms[algorithm as usize].reward;
        (reward - self.behaviour_reward) / (self.optimal_reward - self.behaviour_reward)
    }
}

/// Workspace of one thread.
pub(super) struct Worker {
    builder: Builder,
    solvers: Solvers,
}

impl Worker {
    pub(super) fn new() -> Result<Self, CellError> {
        let cmdp = cmdp_config();
        Ok(Self { builder: Builder::new(&cmdp), solvers: Solvers::new(cmdp.states, cmdp.actions)? })
    }

    /// All cells of one run, `[settings][trajectories]`.
    pub(super) fn run(&mut self, config: &ExperimentConfig, run: u64) -> Result<Vec<CellResult>, CellError> {
        let settings = config.experiment.settings();
        let mut sources: Vec<DataSource> = Vec::new();
        for setting in &settings {
            if !sources.contains(&setting.data) {
                sources.push(setting.data);
            }
        }
        let sizes = config.trajectories.len();
        let mut cells = vec![None; settings.len() * sizes];
        for (source, size, results) in self.data_sets(config, run, &sources, &config.trajectories)? {
            let of_source = settings.iter().enumerate().filter(|(_, s)| s.data == source);
            for ((i, _), result) in of_source.zip(results) {
                cells[i * sizes + size] = Some(result);
            }
        }
        Ok(cells.into_iter().map(|c| c.expect("every setting has its source among the sources")).collect())
    }

    /// Results of `(source, size)` for the limits of all settings of that source, in order.
    fn data_sets(
        &mut self,
        config: &ExperimentConfig,
        run: u64,
        sources: &[DataSource],
        sizes: &[usize],
    ) -> Result<Vec<(DataSource, usize, Vec<CellResult>)>, CellError> {
        let settings = config.experiment.settings();
        let world = self.builder.world(config, run, sources)?;
        let mut all = Vec::with_capacity(sources.len() * sizes.len());
        for source in &world.sources {
            for (size, &n) in sizes.iter().enumerate() {
                let data = self.builder.data_set(config, &world, source, n)?;
                self.solvers.next_data_set();
                let mut results = Vec::new();
                for setting in settings.iter().filter(|s| s.data == source.data) {
                    let mut algorithms =
                        [AlgorithmResult { reward: 0.0, cost: 0.0, outcome: Outcome::Solved }; 5];
                    let solved = self.solvers.solve(&data, setting.limit)?;
                    for (result, (policy, outcome)) in algorithms.iter_mut().zip(&solved) {
                        let found = self.builder.evaluator.evaluate(&world.drawn.cmdp, policy)?;
                        *result =
                            AlgorithmResult { reward: found.reward, cost: found.costs[0], outcome: *outcome };
                    }
                    results.push(CellResult {
                        optimal_reward: world.optimal_reward,
                        behaviour_reward: source.reward,
                        behaviour_cost: source.cost,
                        algorithms,
                    });
                }
                all.push((source.data, size, results));
            }
        }
        Ok(all)
    }
}

/// One cell by itself: setting `setting` (a position in [`super::Experiment::settings`]) of run `run` with
/// `trajectories` trajectories. The same numbers as the whole experiment gives.
///
/// # Errors
/// [`CellError`] if generation or a program fails.
///
/// # Panics
/// If there is no such setting.
pub fn cell(
    config: &ExperimentConfig,
    setting: usize,
    run: u64,
    trajectories: usize,
) -> Result<CellResult, CellError> {
    let settings = config.experiment.settings();
    let source = settings[setting].data;
    let place = settings[..setting].iter().filter(|s| s.data == source).count();
    let results = Worker::new()?.data_sets(config, run, &[source], &[trajectories])?;
    Ok(results[0].2[place])
}
