//! Results in the arrangement of the paper's figures, ready to draw.
//!
//! Each row of a figure has four panels: reward and cost of setting (a), reward and cost of setting (b), over the
//! number of trajectories.

use super::{Algorithm, Experiment, Results};

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureData {
    /// What it shows.
    pub title: String,
    /// Name of the horizontal axis, logarithmic.
    pub x_label: &'static str,
    /// Places to mark on it.
    pub x_marks: Vec<f64>,
    /// Names of the left and the right pair of columns.
    pub column_groups: [String; 2],
    /// Rows from the top.
    pub rows: Vec<FigureRow>,
}

/// A row of panels.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureRow {
    /// What sets it apart; empty if there is one row.
    pub title: String,
    /// Reward and cost of (a), reward and cost of (b).
    pub panels: Vec<FigurePanel>,
}

/// One panel.
#[derive(Clone, Debug, PartialEq)]
pub struct FigurePanel {
    /// Name of the vertical axis.
    pub y_label: &'static str,
    /// The cost limit, in panels of costs.
    pub limit: Option<f64>,
    /// One curve for each algorithm.
    pub series: Vec<FigureSeries>,
}

/// One algorithm's curve.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureSeries {
    /// Which algorithm.
    pub algorithm: Algorithm,
    /// Over the number of trajectories, rising.
    pub points: Vec<FigurePoint>,
}

/// A mean with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FigurePoint {
    /// Number of trajectories.
    pub x: f64,
    /// Mean.
    pub mean: f64,
    /// Standard error.
    pub stderr: f64,
}

/// The figure of an experiment.
#[must_use]
pub fn figure_data(results: &Results) -> FigureData {
    let experiment = results.config.experiment;
    let settings = experiment.settings();
    // The mixture's two settings stand side by side in one row of the paper's figure.
    let per_row = 2;
    let rows = settings.chunks(per_row).enumerate().map(|(i, pair)| FigureRow {
        title: if settings.len() == per_row { String::new() } else { row_title(experiment, &pair[0].row) },
        panels: (0..pair.len()).flat_map(|j| panels(results, i * per_row + j)).collect(),
    });
    FigureData {
        title: title(experiment).to_owned(),
        x_label: "number of trajectories",
        x_marks: results.config.trajectories.iter().map(|&n| n as f64).collect(),
        column_groups: groups(experiment),
        rows: rows.collect(),
    }
}

fn panels(results: &Results, setting: usize) -> [FigurePanel; 2] {
    let raw = results.config.experiment == Experiment::Mixture;
    let series = |cost: bool| {
        let points = |algorithm| {
            let mut points: Vec<FigurePoint> = (0..results.config.trajectories.len())
                .map(|size| {
                    let row = results.row(setting, size, algorithm);
                    let (mean, stderr) = match (cost, raw) {
                        (true, _) => (row.cost_mean, row.cost_stderr),
                        (false, true) => (row.reward_mean, row.reward_stderr),
                        (false, false) => (row.normalized_reward_mean, row.normalized_reward_stderr),
                    };
                    FigurePoint { x: row.trajectories as f64, mean, stderr }
                })
                .collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            points
        };
        Algorithm::ALL.map(|algorithm| FigureSeries { algorithm, points: points(algorithm) }).to_vec()
    };
    let limit = results.config.experiment.settings()[setting].limit;
    [
        FigurePanel {
            y_label: if raw { "reward" } else { "normalised reward" },
            limit: None,
            series: series(false),
        },
        FigurePanel { y_label: "cost", limit: Some(limit), series: series(true) },
    ]
}

fn title(experiment: Experiment) -> &'static str {
    match experiment {
        Experiment::Fig1 => "Random CMDPs",
        Experiment::Thresholds => "Random CMDPs under different cost limits",
        Experiment::Support => "Random CMDPs, data-collection policy with limited exploration",
        Experiment::Mixture => "Random CMDPs, data from two policies",
    }
}

fn groups(experiment: Experiment) -> [String; 2] {
    let text = match experiment {
        Experiment::Mixture => {
            ["(a) 80 % of the trajectories keep the limit", "(b) 20 % of the trajectories keep the limit"]
        }
        Experiment::Support => {
            ["(a) data-collection cost at most .09", "(b) data-collection cost at most .11"]
        }
        Experiment::Fig1 | Experiment::Thresholds => {
            ["(a) data-collection cost .09", "(b) data-collection cost .11"]
        }
    };
    text.map(str::to_owned)
}

fn row_title(experiment: Experiment, row: &str) -> String {
    match experiment {
        Experiment::Support => format!("actions {row}"),
        _ => row.to_owned(),
    }
}
