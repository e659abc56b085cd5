//! `coptidice tabular solve`: a policy from the logs of a finite CMDP, or the solution of a stored case.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};
use coptidice_core::{CostLimit, Divergence, Policy};
use coptidice_tabular::Outcome;
use coptidice_tabular::baselines::PAPER_WEDGE;
use coptidice_tabular::case::{self, CaseAlgorithm, CaseError};
use coptidice_tabular::dice::Effort;
use coptidice_tabular::from_logs::{self, CostReading, LogAlgorithm, LogOptions, LogSolution, Objective};

use super::logs::{Columns, FiniteLog};
use super::result::{SolveResult, estimate_in_unit, in_unit};
use crate::failure::{Done, Failure};
use crate::finite_policy::FinitePolicy;
use crate::limits::LimitFlags;
use crate::output::{check_target, command_line, json, line};
use crate::run_directory::write_json;

/// Flags of `tabular solve`.
#[derive(Args)]
pub(crate) struct Solve {
    /// Logs of a finite CMDP: CSV or Parquet, one row a step
    #[arg(long, value_name = "FILE", required_unless_present = "case", requires = "out")]
    logs: Option<PathBuf>,
    /// A stored case instead: a known CMDP with the counts of its logs (.json or .json.gz)
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "logs", "out", "limit", "limit_unit", "alpha", "epsilon", "behavior", "overwrite", "divergence", "gamma", "objective",
        "wedge", "episode", "step", "state", "action", "reward", "cost", "next_state", "terminal",
    ])]
    case: Option<PathBuf>,
    /// How
    #[arg(long, value_enum, default_value_t = Algo::Coptidice)]
    algo: Algo,
    #[command(flatten)]
    columns: Columns,
    #[command(flatten)]
    limits: LimitFlags,
    /// Discount in (0, 1]; at 1 an ended episode leads back to the start, and limits per episode are exact
    #[arg(long, default_value_t = 1.0, value_parser = parse_gamma, allow_hyphen_values = true)]
    gamma: f64,
    /// What to maximise [default: reward per episode where gamma is 1, episodes end and a limit is per episode; else
    /// per step]
    #[arg(long, value_enum)]
    objective: Option<ObjectiveFlag>,
    /// Weight of the divergence from the data, reward units [default: standard error of estimated gains]
    #[arg(long, value_parser = parse_positive, allow_hyphen_values = true)]
    alpha: Option<f64>,
    /// KL radius of the cost bound [default: 0.1 / number of episodes]
    #[arg(long, value_parser = parse_nonnegative, allow_hyphen_values = true)]
    epsilon: Option<f64>,
    /// Divergence from the data: chi2, softchi or kl
    #[arg(long, default_value = "chi2", value_parser = parse_divergence)]
    divergence: Divergence,
    /// spibb only: pairs logged less often than this repeat the behaviour
    #[arg(long, default_value_t = PAPER_WEDGE, value_parser = parse_wedge, allow_hyphen_values = true)]
    wedge: f64,
    /// The policy that made the logs, where it is known (policy.json); else it is estimated
    #[arg(long, value_name = "FILE")]
    behavior: Option<PathBuf>,
    /// Directory for policy.json, result.json and report.html
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace what an earlier solve left in --out
    #[arg(long)]
    overwrite: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// `--algo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Algo {
    /// COptiDICE with the upper bound on each cost
    #[value(alias = "conservative")]
    Coptidice,
    /// COptiDICE without the bound (a case's `vanilla`)
    #[value(alias = "vanilla")]
    Naive,
    /// OptiDICE: limits ignored
    Optidice,
    /// Linear program on the estimated CMDP (a case's `basic`)
    #[value(alias = "basic")]
    Lp,
    /// C-SPIBB: the linear program among policies that repeat the behaviour on rarely logged pairs
    Spibb,
    /// Behaviour cloning: the logged frequencies
    Bc,
}

/// `--objective`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ObjectiveFlag {
    /// Reward of a step, discounted where gamma < 1
    Step,
    /// Undiscounted reward of an episode
    Episode,
}

impl Algo {
    fn name(self) -> &'static str {
        match self {
            Algo::Coptidice => "coptidice",
            Algo::Naive => "naive",
            Algo::Optidice => "optidice",
            Algo::Lp => "lp",
            Algo::Spibb => "spibb",
            Algo::Bc => "bc",
        }
    }

    fn for_logs(self) -> LogAlgorithm {
        match self {
            Algo::Coptidice => LogAlgorithm::Coptidice,
            Algo::Naive => LogAlgorithm::Naive,
            Algo::Optidice => LogAlgorithm::Optidice,
            Algo::Lp => LogAlgorithm::Lp,
            Algo::Spibb => LogAlgorithm::Spibb,
            Algo::Bc => LogAlgorithm::Bc,
        }
    }

    fn for_case(self) -> Result<CaseAlgorithm, Failure> {
        match self {
            Algo::Coptidice => Ok(CaseAlgorithm::Conservative),
            Algo::Naive => Ok(CaseAlgorithm::Vanilla),
            Algo::Lp => Ok(CaseAlgorithm::Basic),
            Algo::Optidice | Algo::Spibb | Algo::Bc => Err(Failure::usage(
                format!("a case is not solved by {}", self.name()),
                "use --algo basic, vanilla or conservative",
            )),
        }
    }
}

/// A number that `fits`; `wanted` says which do.
pub(super) fn parse_number(text: &str, fits: impl Fn(f64) -> bool, wanted: &str) -> Result<f64, String> {
    text.parse().ok().filter(|&value| fits(value)).ok_or_else(|| format!("give {wanted}"))
}

/// A discount.
pub(super) fn parse_gamma(text: &str) -> Result<f64, String> {
    parse_number(text, |gamma| gamma > 0.0 && gamma <= 1.0, "a number above 0 and at most 1")
}

fn parse_positive(text: &str) -> Result<f64, String> {
    parse_number(text, |value| value > 0.0 && value.is_finite(), "a positive number")
}

fn parse_nonnegative(text: &str) -> Result<f64, String> {
    parse_number(text, |value| value >= 0.0 && value.is_finite(), "a number >= 0")
}

/// Below one, pairs that were never logged would be the program's to use.
fn parse_wedge(text: &str) -> Result<f64, String> {
    parse_number(text, |value| value >= 1.0 && value.is_finite(), "a number >= 1")
}

fn parse_divergence(text: &str) -> Result<Divergence, String> {
    let found = Divergence::ALL.into_iter().find(|d| d.name() == text);
    found.ok_or_else(|| format!("use one of {}", Divergence::ALL.map(Divergence::name).join(", ")))
}

impl Solve {
    /// Solves, writes and prints.
    pub(crate) fn run(self) -> Done {
        match (&self.case, &self.logs, &self.out) {
            (Some(case), ..) => self.solve_case(case),
            (None, Some(logs), Some(out)) => self.solve_logs(logs, out),
            _ => unreachable!("the parser asks for --case, or --logs with --out"),
        }
    }

    fn solve_case(&self, path: &Path) -> Done {
        let algorithm = self.algo.for_case()?;
        let found = case::solve(path, algorithm).map_err(|error| match &error {
            CaseError::Read { .. } => Failure::usage(error.to_string(), "give a case file"),
            _ => Failure::input(&error),
        })?;
        if self.json {
            json(&found)?;
        } else {
            line(&format!("{}: {} in {:.4} s", self.algo.name(), found.outcome, found.seconds))?;
            line(&format!(
                "true reward {:.9}, true cost {:.9} per step",
                found.true_reward, found.true_cost
            ))?;
            line(&format!(
                "lambda {:.6}, tau {:.6}, cost held to the limit {:.9}",
                found.lambda, found.tau, found.cost_upper_bound
            ))?;
        }
        verdict(found.outcome, "no policy meets the limit by the counts of this case", None)
    }

    fn solve_logs(&self, path: &Path, out: &Path) -> Done {
        for file in ["policy.json", "result.json", "report.html"] {
            check_target(&out.join(file), self.overwrite)?;
        }
        let log = self.columns.load(path, &self.limits)?;
        if log.limits.is_empty() && self.algo.for_logs().keeps_limits() {
            return Err(Failure::usage(
                format!("{} needs a limit for at least one cost", self.algo.name()),
                "add --limit COST=VALUE --limit-unit step|episode, or use --algo optidice or bc",
            ));
        }
        let behaviour = self.behaviour(&log)?;
        let options = self.options(&log, behaviour.as_ref());
        let started = Instant::now();
        let solution = from_logs::solve(&log.as_logs(), &options).map_err(|error| Failure::input(&error))?;
        let seconds = started.elapsed().as_secs_f64();
        std::fs::create_dir_all(out).map_err(|error| Failure::writing(out, &error))?;
        let result =
            SolveResult::new(path.display().to_string(), self.algo.name(), &log, &options, &solution);
        write(out, &log, &solution, &result)?;
        if self.json {
            let mut value = serde_json::to_value(&result).map_err(|error| Failure::work(&error))?;
            value["seconds"] = seconds.into();
            json(&value)?;
        } else {
            print(&result, &solution, seconds, out)?;
        }
        let infeasible = "no policy meets the limits by this log; see result.json";
        verdict(solution.outcome, infeasible, lingers(&solution))
    }

    fn behaviour(&self, log: &FiniteLog) -> Result<Option<Policy>, Failure> {
        let Some(path) = &self.behavior else { return Ok(None) };
        let uniform = Policy::uniform(log.states.len(), log.actions.len()).map_err(|e| Failure::input(&e))?;
        let (policy, missing) = FinitePolicy::read(path)?.over(path, &log.states, &log.actions, &uniform)?;
        if missing > 0 {
            return Err(Failure::usage(
                format!("{}: {missing} states of the log are missing", path.display()),
                "give the behaviour in every state, or leave --behavior out to have it estimated",
            ));
        }
        Ok(Some(policy))
    }

    fn options<'a>(&self, log: &FiniteLog, behaviour: Option<&'a Policy>) -> LogOptions<'a> {
        LogOptions {
            algorithm: self.algo.for_logs(),
            gamma: self.gamma,
            limits: log.limits.clone(),
            divergence: self.divergence,
            objective: self.objective.map(|o| match o {
                ObjectiveFlag::Step => Objective::PerStep,
                ObjectiveFlag::Episode => Objective::PerEpisode,
            }),
            alpha: self.alpha,
            epsilon: self.epsilon,
            wedge: self.wedge,
            behaviour,
            effort: Effort::default(),
        }
    }
}

/// Whether there is a policy to deploy, and if not, why. `lingers`: what to say of a policy that puts off the end.
fn verdict(outcome: Outcome, infeasible: &str, lingers: Option<String>) -> Done {
    match (outcome, lingers) {
        (Outcome::Solved, _) => return Ok(()),
        (Outcome::AlmostSolved, _) => eprintln!(
            "the program was solved only to within a thousand times its tolerance: its figures hold, but a better \
             solution may exist; scale rewards and costs to about one, or give a larger --alpha"
        ),
        (Outcome::Infeasible, _) => eprintln!("{infeasible}"),
        (Outcome::BoundOverLimit, _) => eprintln!(
            "policies within the limits exist by this log, but none whose upper bound on the cost is within them; none \
             was written: lower --epsilon, raise the limits, or use --algo naive or lp, which hold the estimate alone"
        ),
        (Outcome::Unconfirmed, Some(lingers)) => eprintln!("{lingers}"),
        (Outcome::Unconfirmed, None) => eprintln!(
            "the policy found, valued anew, does not keep the limits or is not what the program took it for, and was not \
             written: raise the limits, or see whether their unit is right; where the log falls into parts that are \
             never left, use --gamma below 1"
        ),
        (Outcome::IterationLimit, _) => {
            eprintln!("no policy was found within the limit of iterations, and none was written");
        }
    }
    Err(Failure::DoNotDeploy)
}

/// Episodes this many times as long as the logged ones are put off, not merely longer.
const LINGERING: f64 = 20.0;

/// What to say of a policy that does not end its episodes, or only after very long, where totals per episode have
/// limits: no other limit would help.
fn lingers(solution: &LogSolution) -> Option<String> {
    let per_episode = |c: &CostReading| matches!(c.limit, CostLimit::PerEpisode { .. });
    let logged = solution.behaviour.steps_per_episode?;
    let steps = solution.estimate.steps_per_episode.unwrap_or(f64::INFINITY);
    if !solution.estimate.costs.iter().any(per_episode) || steps <= LINGERING * logged {
        return None;
    }
    let length = if steps < 1e9 {
        format!(
            "ends its episodes only after {steps:.0} steps on average, where the logged ones took {logged:.1}"
        )
    } else {
        "never ends its episodes".to_owned()
    };
    let remedy = if solution.objective == Objective::PerStep {
        "where steps earn or ends cost, a discount or a reward per step favours that; use --gamma 1 with --objective \
         episode, or a larger --alpha"
    } else {
        "by this log staying on costs too little; use a larger --alpha"
    };
    Some(format!(
        "the policy found {length}, so that its totals are over the limits, and was not written: {remedy}"
    ))
}

/// Writes the directory, the policy last: one that may not be deployed, or of which nothing else could be written, is
/// not left lying about.
fn write(out: &Path, log: &FiniteLog, solution: &LogSolution, result: &SolveResult) -> Result<(), Failure> {
    let policy = out.join("policy.json");
    if policy.exists() {
        std::fs::remove_file(&policy).map_err(|error| Failure::writing(&policy, &error))?;
    }
    write_json(&out.join("result.json"), result)?;
    crate::pages::tabular::solution(log, solution, result, command_line())
        .write(&out.join("report.html"))
        .map_err(|error| Failure::work(&error))?;
    if solution.outcome.is_usable() {
        FinitePolicy::new(log.states.clone(), log.actions.clone(), &solution.policy).write(&policy)?;
    }
    Ok(())
}

fn print(result: &SolveResult, solution: &LogSolution, seconds: f64, out: &Path) -> Done {
    line(&format!("{}: {} in {seconds:.2} s", result.algorithm, result.outcome))?;
    let reward = |per_step: f64, per_episode: Option<f64>| match per_episode {
        Some(total) => format!("{total:.4} per episode ({per_step:.5} per step)"),
        None => format!("{per_step:.5} per step"),
    };
    let r = &result.reward;
    line(&format!(
        "estimated reward {}; logged behaviour {}",
        reward(r.per_step, r.per_episode),
        reward(r.behaviour_per_step, r.behaviour_per_episode)
    ))?;
    for (cost, (reading, logged)) in
        result.costs.iter().zip(solution.estimate.costs.iter().zip(&solution.behaviour.costs))
    {
        let bound = in_unit(reading, &solution.estimate, reading.upper_bound)
            .map_or(String::new(), |bound| format!(", upper bound {bound:.4}"));
        let estimate = match estimate_in_unit(reading) {
            // A limit per episode, of a policy without any.
            value if value.is_nan() => "its episodes never end".to_owned(),
            value => format!("estimated {value:.4} per {}", cost.limit_unit),
        };
        line(&format!(
            "{}: {estimate}{bound}; limit {}; logged behaviour {}; lambda {}",
            cost.name,
            cost.limit,
            match estimate_in_unit(logged) {
                value if value.is_nan() => "without end".to_owned(),
                value => format!("{value:.4}"),
            },
            match cost.lambda.unwrap_or(0.0) {
                lambda if lambda < 1e6 => format!("{lambda:.4}"),
                lambda => format!("{lambda:.3e}"),
            }
        ))?;
    }
    line(&format!(
        "{} states by the solution, {} by the logged behaviour, {} unseen; in {}",
        result.states_from_solution,
        result.states_from_behaviour,
        result.states_unseen.len(),
        out.display()
    ))
}
