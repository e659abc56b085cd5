//! Logs of a finite CMDP on the command line: columns, limits, and their names.

use std::path::Path;

use clap::Args;
use coptidice_core::{CostLimit, EpisodeHorizon};
use coptidice_data::{TabularColumns, TabularLog, read_tabular};
use coptidice_tabular::from_logs::Logs;

use crate::failure::Failure;
use crate::finite_policy::{Label, labels};
use crate::limits::LimitFlags;

/// Which column of the log is what.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Columns of the log; those left out are found by their names")]
pub(crate) struct Columns {
    /// Episode id
    #[arg(long, value_name = "COLUMN")]
    episode: Option<String>,
    /// Order of the rows in an episode
    #[arg(long, value_name = "COLUMN")]
    step: Option<String>,
    /// State: whole numbers or words
    #[arg(long, value_name = "COLUMN")]
    state: Option<String>,
    /// Action: whole numbers or words
    #[arg(long, value_name = "COLUMN")]
    action: Option<String>,
    /// Reward
    #[arg(long, value_name = "COLUMN")]
    reward: Option<String>,
    /// Cost; repeat for several
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    cost: Vec<String>,
    /// Next state
    #[arg(long, value_name = "COLUMN")]
    next_state: Option<String>,
    /// Set where the process ended
    #[arg(long, value_name = "COLUMN")]
    terminal: Option<String>,
}

/// A log in memory, with what it calls things.
pub(crate) struct FiniteLog {
    log: TabularLog,
    starts: Vec<usize>,
    /// Costs that have a limit, as positions in the log.
    limited: Vec<usize>,
    costs: Vec<Vec<f64>>,
    /// What each limited cost was called on the command line.
    pub(crate) cost_names: Vec<String>,
    pub(crate) limits: Vec<CostLimit>,
    pub(crate) states: Vec<Label>,
    pub(crate) actions: Vec<Label>,
}

impl Columns {
    /// Reads the log, and matches limits to costs.
    pub(crate) fn load(&self, path: &Path, limits: &LimitFlags) -> Result<FiniteLog, Failure> {
        let columns = TabularColumns {
            episode: self.episode.clone(),
            step: self.step.clone(),
            state: self.state.clone(),
            action: self.action.clone(),
            reward: self.reward.clone(),
            costs: (!self.cost.is_empty()).then(|| self.cost.clone()),
            next_state: self.next_state.clone(),
            terminal: self.terminal.clone(),
        };
        let log = read_tabular(path, &columns).map_err(|error| Failure::input(&error))?;
        for problem in &log.problems {
            eprintln!("{}", crate::commands::describe_problem(problem));
        }
        let starts = log.episodes.iter().map(|episode| episode.start).collect();
        let (states, actions) = (labels(&log.state_labels), labels(&log.action_labels));
        let mut log = FiniteLog {
            starts,
            limited: Vec::new(),
            costs: Vec::new(),
            cost_names: Vec::new(),
            limits: Vec::new(),
            states,
            actions,
            log,
        };
        log.match_limits(limits, &self.cost)?;
        log.as_logs().check().map_err(|error| Failure::input(&error))?;
        Ok(log)
    }
}

impl FiniteLog {
    /// Gives each limit its cost, by the cost's name or its column's.
    fn match_limits(&mut self, limits: &LimitFlags, columns: &[String]) -> Result<(), Failure> {
        let names = self.log.cost_names.clone();
        let column = |k: usize| columns.get(k).cloned().unwrap_or_else(|| names[k].clone());
        let is = |k: usize, given: &str| {
            names[k] == given || column(k) == given || format!("cost_{}", names[k]) == given
        };
        let horizon = self.horizon();
        let mut found: Vec<Option<CostLimit>> = vec![None; names.len()];
        for raw in limits.raw() {
            let place = match &raw.cost {
                Some(given) => (0..names.len()).find(|&k| is(k, given)),
                None if names.len() == 1 => Some(0),
                None => None,
            };
            let Some(k) = place else {
                let all = (0..names.len()).map(column).collect::<Vec<_>>().join(", ");
                return Err(match raw.cost {
                    Some(given) => Failure::usage(
                        format!("there is a limit for {given}, but the log has no such cost"),
                        format!("its costs are: {all}"),
                    ),
                    None if names.is_empty() => Failure::usage(
                        "there is a limit, but the log has no cost column",
                        "name the column by --cost",
                    ),
                    None => Failure::usage(
                        "the log has several costs and a limit names none of them",
                        format!("write --limit COST={}, where COST is one of: {all}", raw.limit),
                    ),
                });
            };
            if found[k].is_some() {
                return Err(Failure::usage(
                    format!("there are two limits for {}", column(k)),
                    "give each cost one limit",
                ));
            }
            let unit = raw.unit.expect("the flags require a unit beside a limit");
            found[k] =
                Some(CostLimit::new(raw.limit, unit, horizon).map_err(|error| Failure::input(&error))?);
        }
        for (k, limit) in found.into_iter().enumerate() {
            if let Some(limit) = limit {
                self.limited.push(k);
                self.limits.push(limit);
                self.cost_names.push(column(k));
                self.costs.push(self.log.costs[k].clone());
            } else {
                eprintln!("note: {} has no limit and is not looked at", column(k));
            }
        }
        Ok(())
    }

    /// As the solvers take it; costs are those with a limit.
    pub(crate) fn as_logs(&self) -> Logs<'_> {
        Logs {
            states: self.states.len(),
            actions: self.actions.len(),
            episode_starts: &self.starts,
            state: &self.log.state,
            action: &self.log.action,
            reward: &self.log.reward,
            costs: &self.costs,
            next_state: &self.log.next_state,
            terminal: &self.log.terminal,
        }
    }

    /// Rows.
    pub(crate) fn len(&self) -> usize {
        self.log.len()
    }

    /// Episodes.
    pub(crate) fn episodes(&self) -> usize {
        self.starts.len()
    }

    /// Mean number of steps of a logged episode.
    pub(crate) fn mean_steps(&self) -> f64 {
        self.horizon().mean_steps()
    }

    fn horizon(&self) -> EpisodeHorizon {
        EpisodeHorizon::of_lengths(&self.log.logged_steps, self.log.terminal.contains(&true))
    }

    /// Remarks on the log.
    pub(crate) fn problems(&self) -> &[coptidice_data::Problem] {
        &self.log.problems
    }
}
