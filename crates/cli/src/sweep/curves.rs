//! Learning curves: what policies were worth on the way, in the simulator.

use std::path::Path;

use coptidice_agents::{TrainConfig, checkpoints, policy_at};
use coptidice_core::statistics::{mean, standard_error};
use coptidice_report::svg::{Axis, Chart as _, GridPanel, GridRow, PanelGrid, Reference, Series};
use serde::{Deserialize, Serialize};

use super::{Cell, CellResult, Sweep};
use crate::environment::environment;
use crate::failure::{Done, Failure};
use crate::run_directory::write_text;
use crate::simulate::evaluate;

/// A policy on the way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CurvePoint {
    /// Steps of training.
    pub(crate) step: u64,
    /// Mean return of an episode in the simulator.
    pub(crate) return_mean: f64,
    /// Cost per step in the simulator.
    pub(crate) cost_per_step: Option<f64>,
}

/// Evaluates the policy at every checkpoint of a finished run; none where the sweep draws no curves. Before the policy's
/// own steps begin there is nothing to see.
pub(super) fn trace(
    sweep: &Sweep,
    cell: Cell<'_>,
    config: &TrainConfig,
    run: &Path,
) -> Result<Vec<CurvePoint>, Failure> {
    if sweep.plan.curve_every.is_none() {
        return Ok(Vec::new());
    }
    let begins = config.steps_before_policy();
    let env = environment(&sweep.plan.environment, &sweep.plan.environment_options)?;
    let mut points = Vec::new();
    let found = checkpoints(&run.join("checkpoints")).map_err(|error| {
        Failure::work_because(error.to_string(), "checkpoints must stay until curves are drawn")
    })?;
    for (step, checkpoint) in found.into_iter().filter(|(step, _)| *step > begins) {
        let policy = policy_at(config, sweep.data(&cell.log.name), &checkpoint)
            .map_err(|error| Failure::work(&error))?;
        let found = evaluate(&policy, env.as_ref(), &sweep.request())?;
        points.push(CurvePoint { step, return_mean: found.return_mean, cost_per_step: found.cost_per_step });
    }
    Ok(points)
}

/// Writes curves.csv, every point of every cell, and curves.svg, means over seeds.
pub(super) fn draw(sweep: &Sweep, cells: &[CellResult]) -> Done {
    let mut csv = String::from("log,variant,seed,step,return_mean,cost_per_step\n");
    for cell in cells {
        for point in &cell.curve {
            let cost = point.cost_per_step.map_or(String::new(), |cost| format!("{cost:.6}"));
            csv.push_str(&format!(
                "{},{},{},{},{:.6},{cost}\n",
                cell.log, cell.variant, cell.seed, point.step, point.return_mean
            ));
        }
    }
    write_text(&sweep.out().join("curves.csv"), &csv)?;
    let plan = &sweep.plan;
    let mut grid = PanelGrid::new(
        format!("{}: return and cost in the simulator", plan.title),
        Axis::linear("steps of training"),
    );
    for log in &plan.logs {
        let of_log: Vec<&CellResult> = cells.iter().filter(|cell| cell.log == log.name).collect();
        let mut earned = GridPanel::new(Axis::linear("return"));
        let mut cost = GridPanel::new(Axis::linear("cost per step").including(0.0))
            .reference(Reference::new(plan.limit, "limit"));
        for variant in &plan.variants {
            let of_variant: Vec<&[CurvePoint]> =
                of_log.iter().filter(|cell| cell.variant == variant.name).map(|cell| &*cell.curve).collect();
            earned = earned.series(series(&variant.name, &of_variant, |point| Some(point.return_mean)));
            cost = cost.series(series(&variant.name, &of_variant, |point| point.cost_per_step));
        }
        grid = grid.row(GridRow::new(&log.name, vec![earned, cost]));
    }
    let path = sweep.out().join("curves.svg");
    grid.figure().write(&path).map_err(|error| Failure::writing(&path, &error))
}

/// Means over seeds with their standard errors, at the steps that every curve has.
fn series(name: &str, curves: &[&[CurvePoint]], value: impl Fn(&CurvePoint) -> Option<f64>) -> Series {
    let steps = curves.first().map_or(Vec::new(), |curve| curve.iter().map(|point| point.step).collect());
    let (mut points, mut errors) = (Vec::new(), Vec::new());
    for step in steps {
        let at = |curve: &&[CurvePoint]| curve.iter().find(|point| point.step == step).and_then(&value);
        let values: Option<Vec<f64>> = curves.iter().map(at).collect();
        if let Some(values) = values {
            points.push((step as f64, mean(&values)));
            errors.push(standard_error(&values).unwrap_or(0.0));
        }
    }
    Series::new(name, points).error_bars(errors)
}
