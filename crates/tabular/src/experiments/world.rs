//! One run's CMDP, its behaviours, and the data sets they leave.

use coptidice_core::{Occupancy, Policy, rng};

use super::algorithms::DataSet;
use super::{BEHAVIOUR_COSTS, CMDP_LIMIT, CellError, DataOccupancy, DataSource, ExperimentConfig, MAX_STEPS};
use crate::baselines::behaviour_cloning;
use crate::case::{OCCUPANCY_FLOOR, POLICY_FLOOR};
use crate::evaluation::Evaluator;
use crate::generate::{
    Behaviour, BehaviourBuilder, BehaviourConfig, RandomCmdp, RandomCmdpConfig, TrajectorySampler,
    counts_of_table, estimated_model, limited_support_behaviour,
};
use crate::lp::LpSolver;

/// The truth of one run.
pub(super) struct World {
    pub(super) drawn: RandomCmdp,
    /// `V_R(π*)` under the CMDP's own limit.
    pub(super) optimal_reward: f64,
    pub(super) sources: Vec<Source>,
    run: u64,
}

/// Who collects data.
pub(super) struct Source {
    pub(super) data: DataSource,
    /// `V_R(π_D)` and `V_C(π_D)`; of a mixture, the means over trajectories.
    pub(super) reward: f64,
    pub(super) cost: f64,
    collectors: Vec<Collector>,
}

/// One policy of a source, and its share of the trajectories in percent.
struct Collector {
    behaviour: Behaviour,
    sampler: TrajectorySampler,
    percent: usize,
}

/// Workspace for the worlds of one thread.
pub(super) struct Builder {
    behaviours: BehaviourBuilder,
    lp: LpSolver,
    pub(super) evaluator: Evaluator,
    table: Vec<u32>,
}

impl Builder {
    pub(super) fn new(setting: &RandomCmdpConfig) -> Self {
        let states = setting.states;
        Self {
            behaviours: BehaviourBuilder::new(states),
            lp: LpSolver::new(states),
            evaluator: Evaluator::new(states),
            table: vec![0; states * setting.actions * states],
        }
    }

    /// Run `run` with these sources.
    pub(super) fn world(
        &mut self,
        config: &ExperimentConfig,
        run: u64,
        sources: &[DataSource],
    ) -> Result<World, CellError> {
        let drawn = cmdp_config().draw(config.seed, run)?;
        let optimal_reward = self.lp.solve(&drawn.cmdp, &[CMDP_LIMIT])?.reward;
        let sources = sources.iter().map(|&data| self.source(&drawn, data)).collect::<Result<_, _>>()?;
        Ok(World { drawn, optimal_reward, sources, run })
    }

    fn source(&mut self, drawn: &RandomCmdp, data: DataSource) -> Result<Source, CellError> {
        let mut collectors = Vec::new();
        let mut push = |behaviour: Behaviour, percent| -> Result<(), CellError> {
            let sampler = TrajectorySampler::new(&drawn.cmdp, &behaviour.policy)?;
            collectors.push(Collector { behaviour, sampler, percent });
            Ok(())
        };
        match data {
            DataSource::Single { cost } => {
                push(self.behaviours.build(&drawn.cmdp, BehaviourConfig::with_limit(cost))?, 100)?;
            }
            DataSource::Limited { actions, cost } => {
                push(limited_support_behaviour(&drawn.cmdp, actions, cost)?, 100)?;
            }
            DataSource::Mixed { percent } => {
                for (cost, percent) in BEHAVIOUR_COSTS.into_iter().zip([percent, 100 - percent]) {
                    push(self.behaviours.build(&drawn.cmdp, BehaviourConfig::with_limit(cost))?, percent)?;
                }
            }
        }
        let mean = |value: fn(&Behaviour) -> f64| {
            collectors.iter().map(|c| c.percent as f64 * value(&c.behaviour)).sum::<f64>() / 100.0
        };
        let (reward, cost) = (mean(|b| b.reward), mean(|b| b.cost));
        Ok(Source { data, reward, cost, collectors })
    }

    /// Draws `trajectories` trajectories of a source and estimates the model from them.
    pub(super) fn data_set(
        &mut self,
        config: &ExperimentConfig,
        world: &World,
        source: &Source,
        trajectories: usize,
    ) -> Result<DataSet, CellError> {
        let m = &world.drawn.cmdp;
        let name = format!("tabular trajectories {} {trajectories}", source.data.label());
        let mut random = rng::stream(config.seed, &name, world.run);
        self.table.fill(0);
        for c in &source.collectors {
            c.sampler.count_into(&mut random, trajectories * c.percent / 100, MAX_STEPS, &mut self.table);
        }
        let counts = counts_of_table(m.states(), m.actions(), &self.table)?;
        let model = estimated_model(m, &counts, world.drawn.absorbing)?;
        let (data_occupancy, behaviour) = match config.data_occupancy {
            DataOccupancy::Known => self.known(source, &model)?,
            DataOccupancy::Estimated => {
                let d = Occupancy::normalized(m.states(), m.actions(), counts.pair_totals().to_vec())?;
                (d.mass().to_vec(), behaviour_cloning(&counts)?)
            }
        };
        Ok(DataSet { counts, model, data_occupancy, behaviour, trajectories, kind: config.data_occupancy })
    }

    /// The occupancy of the known behaviours on the model, and the one policy that has it.
    fn known(
        &mut self,
        source: &Source,
        model: &coptidice_core::Cmdp,
    ) -> Result<(Vec<f64>, Policy), CellError> {
        let mut mass = vec![0.0; model.pairs()];
        let mut behaviour: Option<Policy> = None;
        for c in &source.collectors {
            let share = c.percent as f64 / 100.0;
            let d = self.evaluator.evaluate(model, &c.behaviour.policy)?.occupancy;
            mass.iter_mut().zip(d).for_each(|(x, d)| *x += share * d);
            behaviour = Some(match behaviour {
                None => c.behaviour.policy.clone(),
                Some(before) => before.mixed(&c.behaviour.policy, share)?,
            });
        }
        let mut behaviour = behaviour.expect("a source has at least one collector");
        if source.collectors.len() > 1 {
            // Where the model is not visited, the mixture by shares stands.
            let kept: Vec<f64> = mass.iter().map(|&d| if d > POLICY_FLOOR { d } else { 0.0 }).collect();
            behaviour = Policy::from_mass(&behaviour, &kept)?;
        }
        let total: f64 = mass.iter().map(|d| d + OCCUPANCY_FLOOR).sum();
        mass.iter_mut().for_each(|d| *d = (*d + OCCUPANCY_FLOOR) / total);
        Ok((mass, behaviour))
    }
}

/// The paper's random CMDPs.
pub(super) fn cmdp_config() -> RandomCmdpConfig {
    RandomCmdpConfig { limit: CMDP_LIMIT, ..RandomCmdpConfig::default() }
}
