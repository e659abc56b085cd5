//! The table of a sweep.

use std::fmt::Write as _;

use coptidice_core::statistics::{mean, standard_error};
use coptidice_data::Transitions;

use super::{CellResult, Sweep, curves};
use crate::failure::Failure;
use crate::run_directory::write_text;

/// Mean and standard error over the seeds.
struct Spread {
    mean: f64,
    stderr: f64,
}

/// Writes results.csv and results.md from the cells that are there, and returns the latter.
pub(crate) fn tabulate(sweep: &Sweep) -> Result<String, Failure> {
    let plan = &sweep.plan;
    let mut csv = String::from(
        "log,variant,seeds,finished,return_mean,return_stderr,cost_per_step_mean,cost_per_step_stderr,\
         share_over_limit,seeds_over_limit,promised_reward,promised_cost,promised_bound,lambda,estimated_reward,estimated_cost\n",
    );
    let mut page = format!(
        "# {}\n\n{}: {} evaluation episodes for each of {} seeds; limit {} per {}. Standard errors are over seeds.\n",
        plan.title,
        plan.environment,
        plan.episodes,
        plan.seeds.len(),
        plan.limit,
        plan.limit_unit
    );
    let (mut all, mut times) = (Vec::new(), String::from("log,variant,seed,seconds\n"));
    for log in &plan.logs {
        let _ = write!(page, "\n## {}\n\n{}\n\n", log.name, describe(sweep.data(&log.name), plan.limit));
        page.push_str("| | return | cost per step | episodes over | dual: reward per step | dual: cost | dual: bound | lambda | policy, estimated: reward per step | cost |\n|---|---|---|---|---|---|---|---|---|---|\n");
        for variant in &plan.variants {
            let mut cells = Vec::new();
            for cell in sweep.cells() {
                if cell.log.name == log.name && cell.variant.name == variant.name {
                    cells.extend(sweep.result(cell)?);
                    if let Some(seconds) = sweep.seconds(cell) {
                        let _ = writeln!(times, "{},{},{},{seconds:.1}", log.name, variant.name, cell.seed);
                    }
                }
            }
            if !cells.is_empty() {
                row(&mut csv, &mut page, &cells, plan.limit);
            }
            all.extend(cells);
        }
    }
    write_text(&sweep.out().join("results.csv"), &csv)?;
    write_text(&sweep.out().join("results.md"), &page)?;
    write_text(&sweep.out().join("times.csv"), &times)?;
    if plan.curve_every.is_some() {
        curves::draw(sweep, &all)?;
    }
    Ok(page)
}

fn row(csv: &mut String, page: &mut String, cells: &[CellResult], limit: f64) {
    let column = |value: fn(&CellResult) -> Option<f64>| spread(cells.iter().filter_map(value));
    let (earned, cost) = (column(|c| c.return_mean), column(|c| c.cost_per_step));
    let over = column(|c| c.share_over_limit);
    let finished = cells.iter().filter(|c| c.outcome == "finished").count();
    let seeds_over = cells.iter().filter(|c| c.cost_per_step.is_some_and(|cost| cost > limit)).count();
    let promises = [
        column(|c| c.promised_reward),
        column(|c| c.promised_cost),
        column(|c| c.promised_bound),
        column(|c| c.lambda),
        column(|c| c.estimated_reward),
        column(|c| c.estimated_cost),
    ];
    let mean = |s: &Option<Spread>| s.as_ref().map_or(String::new(), |s| format!("{:.6}", s.mean));
    let stderr = |s: &Option<Spread>| s.as_ref().map_or(String::new(), |s| format!("{:.6}", s.stderr));
    let fields = [
        cells[0].log.clone(),
        cells[0].variant.clone(),
        cells.len().to_string(),
        finished.to_string(),
        mean(&earned),
        stderr(&earned),
        mean(&cost),
        stderr(&cost),
        mean(&over),
        seeds_over.to_string(),
    ];
    let _ = writeln!(csv, "{},{}", fields.join(","), promises.iter().map(mean).collect::<Vec<_>>().join(","));
    let both = |s: &Option<Spread>, digits: usize| {
        s.as_ref().map_or("–".to_owned(), |s| format!("{:.digits$} ± {:.digits$}", s.mean, s.stderr))
    };
    let one = |s: &Option<Spread>| s.as_ref().map_or("–".to_owned(), |s| format!("{:.3}", s.mean));
    let failed = if finished == cells.len() {
        String::new()
    } else {
        // The word before the details, as in "infeasible: ..." and "diverged at step ...".
        let mut reasons: Vec<&str> = cells
            .iter()
            .filter_map(|c| c.outcome.split([':', ' ']).next().filter(|word| *word != "finished"))
            .collect();
        reasons.sort_unstable();
        reasons.dedup();
        format!(" ({finished} of {} ended; {})", cells.len(), reasons.join(", "))
    };
    let _ = writeln!(
        page,
        "| {}{failed} | {} | {} | {} | {} |",
        cells[0].variant,
        both(&earned, 1),
        both(&cost, 4),
        one(&over),
        promises.iter().map(one).collect::<Vec<_>>().join(" | ")
    );
}

fn spread(values: impl Iterator<Item = f64>) -> Option<Spread> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty())
        .then(|| Spread { mean: mean(&values), stderr: standard_error(&values).unwrap_or(0.0) })
}

/// What the log itself earned and cost.
fn describe(data: &Transitions, limit: f64) -> String {
    let returns = data.episode_totals(|i| data.reward(i));
    let costs = data.episode_totals(|i| data.costs(i).first().copied().unwrap_or(0.0));
    let (mut safe, mut best_safe) = (0_usize, f64::NEG_INFINITY);
    for ((episode, &cost), &earned) in data.episodes().iter().zip(&costs).zip(&returns) {
        if cost / episode.len as f64 <= limit {
            safe += 1;
            best_safe = best_safe.max(earned);
        }
    }
    let episodes = returns.len() as f64;
    format!(
        "Log: {} episodes, {:.0}% within the limit; mean return {:.1}, mean cost per step {:.4}; best safe episode {:.1}.",
        returns.len(),
        100.0 * safe as f64 / episodes,
        returns.iter().sum::<f64>() / episodes,
        costs.iter().sum::<f64>() / data.len() as f64,
        best_safe
    )
}
