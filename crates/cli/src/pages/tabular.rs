//! The page of a policy found from the logs of a finite CMDP.

use coptidice_report::number::{count, significant};
use coptidice_report::page::{
    CostReading, Evidence, LimitReading, Problems, Report, Reproduce, Section, Verdict,
};
use coptidice_report::svg::{Bar, BarChart, Reference};
use coptidice_report::table::{Cell, Column, Status, Table};
use coptidice_tabular::Outcome;
use coptidice_tabular::from_logs::LogSolution;

use crate::commands::tabular::{FiniteLog, SolveResult, estimate_in_unit, in_unit};
use crate::run_directory::readings;

/// The page.
pub(crate) fn solution(
    log: &FiniteLog,
    solution: &LogSolution,
    result: &SolveResult,
    command: String,
) -> Report {
    let title = format!("{} on {}", result.algorithm, super::file_name(&result.log));
    let subtitle = format!(
        "{} transitions, {} episodes, {} states, {} actions; discount {}; {}",
        count(result.transitions as u64),
        count(result.episodes as u64),
        count(result.states as u64),
        count(result.actions as u64),
        result.gamma,
        result.outcome
    );
    let (reward, unit) = match result.reward.per_episode {
        Some(total) => (total, "per episode"),
        None => (result.reward.per_step, "per step"),
    };
    let logged = result.reward.behaviour_per_episode.unwrap_or(result.reward.behaviour_per_step);
    let mut report = Report::new("Policy report", title)
        .subtitle(subtitle)
        .verdict(verdict(log, solution, result))
        .key_figure(
            "estimated reward",
            significant(reward, 4),
            format!("{unit}; logged behaviour {}", significant(logged, 4)),
        );
    for cost in &result.costs {
        let lambda = cost.lambda.map_or("–".to_owned(), |l| significant(l, 4));
        report = report.key_figure(format!("lambda, {}", cost.name), lambda, "price of the cost in reward");
    }
    report = report.section(comparison(log, solution, result));
    report = report.section(rows(result)).section(proof(result));
    if let Some(table) = problems(log).table() {
        report = report.section(Section::new("Remarks on the log").table(table));
    }
    report
        .section(Reproduce { command, config: String::new(), facts: facts(result) })
        .footer(format!("coptidice {}", result.coptidice))
}

fn verdict(log: &FiniteLog, solution: &LogSolution, result: &SolveResult) -> Verdict {
    let mut verdict = Verdict::new(result.algorithm);
    if !solution.outcome.is_solved() {
        let what = match solution.outcome {
            Outcome::AlmostSolved => {
                "The program was solved only to within a thousand times its tolerance: a better policy may exist."
            }
            Outcome::BoundOverLimit => {
                "Policies within the limits exist by this log, but none whose upper bound on the cost is; none was \
                 written."
            }
            Outcome::Infeasible => "No policy meets the limits by this log; none was written.",
            Outcome::Unconfirmed => {
                "The policy found does not keep the limits when it is valued anew; none was written."
            }
            _ => "The program did not reach its solution; no policy was written.",
        };
        verdict = verdict.remark(what);
    }
    for (k, reading) in solution.estimate.costs.iter().enumerate() {
        verdict = verdict.cost(CostReading {
            limit: LimitReading::new(log.cost_names[k].clone(), log.limits[k], log.mean_steps()),
            estimate: estimate_in_unit(reading),
            upper_bound: in_unit(reading, &solution.estimate, reading.upper_bound),
            evidence: Evidence::Model,
            // Programs are solved to 1e-9; limits under a discount settle to a thousandth.
            tolerance: 1e-7 + if result.gamma < 1.0 { 2e-3 * result.costs[k].limit.abs() } else { 0.0 },
        });
    }
    verdict
}

/// The policy beside the logged behaviour, cost by cost.
fn comparison(log: &FiniteLog, solution: &LogSolution, result: &SolveResult) -> Section {
    let mut section = Section::new("Against the logged behaviour").paragraph(
        "Both on the model estimated from the logs. What the policy does in the world may differ: \
         coptidice tabular evaluate gives confidence bounds on logs that were held out.",
    );
    let reward = |per_episode: Option<f64>, per_step: f64| per_episode.unwrap_or(per_step);
    let r = &result.reward;
    let unit = if r.per_episode.is_some() { "per episode" } else { "per step" };
    section = section.chart(
        &BarChart::new("Reward", format!("reward {unit}"))
            .bar(Bar::new("logged behaviour", reward(r.behaviour_per_episode, r.behaviour_per_step)))
            .bar(Bar::new(result.algorithm, reward(r.per_episode, r.per_step)).color(1)),
    );
    for (k, cost) in result.costs.iter().enumerate() {
        let (policy, logged) = (&solution.estimate.costs[k], &solution.behaviour.costs[k]);
        section = section.chart(
            &BarChart::new(log.cost_names[k].clone(), format!("{} per {}", cost.name, cost.limit_unit))
                .bar(Bar::new("logged behaviour", estimate_in_unit(logged)))
                .bar(Bar::new(result.algorithm, estimate_in_unit(policy)).color(1))
                .reference(Reference::new(cost.limit, "limit")),
        );
    }
    section
}

/// Where the rows of the policy come from.
fn rows(result: &SolveResult) -> Section {
    let mut table =
        Table::new([Column::text("states"), Column::numeric("number"), Column::text("policy there")]);
    let mut push = |name: &str, number: usize, what: &str| {
        table.push([Cell::from(name), Cell::from(count(number as u64)), Cell::from(what)]);
    };
    push("visited by the solution", result.states_from_solution, "the solution's");
    push("not visited", result.states_from_behaviour, "the logged behaviour's");
    push("nothing logged", result.states_unseen.len(), "uniform, or a known behaviour's");
    let mut section = Section::new("Where the policy comes from").table(table);
    if !result.dead_ends.is_empty() {
        let text = format!(
            "{} states were entered but never acted in; entering them was counted as an end.",
            count(result.dead_ends.len() as u64)
        );
        section = section.callout(Status::Warning, text);
    }
    section
}

fn proof(result: &SolveResult) -> Section {
    let section = Section::new("Certificate");
    let Some(c) = &result.certificate else { return section };
    let mut table = Table::new([Column::text("quantity"), Column::numeric("value")]);
    for (name, value) in [
        ("objective", c.objective),
        ("duality gap", c.duality_gap()),
        ("Bellman flow residual", c.flow_residual),
        ("E[w]", c.expected_ratio),
        ("largest excess over a limit", c.limit_excess),
        ("complementarity", c.complementarity),
    ] {
        table.push([Cell::from(name), Cell::from(format!("{value:.3e}"))]);
    }
    section.table(table.note(format!("{} Newton steps", c.iterations)))
}

fn problems(log: &FiniteLog) -> Problems {
    Problems(log.problems().iter().map(|problem| super::ProblemPicture::of(problem).shown()).collect())
}

fn facts(result: &SolveResult) -> Vec<(String, String)> {
    let mut facts = vec![
        ("log".to_owned(), result.log.clone()),
        ("alpha".to_owned(), format!("{}", result.alpha)),
        ("epsilon".to_owned(), format!("{}", result.epsilon)),
    ];
    for cost in &result.costs {
        let text = format!(
            "{}; given per {}",
            readings(cost.limit_per_step, cost.limit_per_episode),
            cost.limit_unit
        );
        facts.push((format!("limit of {}", cost.name), text));
    }
    facts
}
