//! The figure and the page of an experiment on random CMDPs.

use coptidice_report::number::{count, fixed, mean_with_error, percent};
use coptidice_report::page::{Report, Reproduce, Section};
use coptidice_report::svg::{Axis, GridPanel, GridRow, PanelGrid, Reference, Series};
use coptidice_report::table::{Cell, Column, Status, Table};
use coptidice_tabular::experiments::{
    Algorithm, DataOccupancy, Experiment, FigurePanel, ResultRow, Results, figure_data,
};

/// The figure in the paper's arrangement.
pub(crate) fn figure(results: &Results) -> PanelGrid {
    let data = figure_data(results);
    let axis = Axis::logarithmic(data.x_label).marks(data.x_marks.iter().copied());
    let mut grid = PanelGrid::new(&data.title, axis);
    for group in &data.column_groups {
        grid = grid.column_group(group, 2);
    }
    for row in &data.rows {
        grid = grid.row(GridRow::new(&row.title, row.panels.iter().map(panel).collect()));
    }
    grid
}

fn panel(data: &FigurePanel) -> GridPanel {
    let mut panel = GridPanel::new(Axis::linear(data.y_label));
    for series in &data.series {
        let points = series.points.iter().map(|p| (p.x, p.mean));
        panel = panel.series(
            Series::new(series.algorithm.label(), points)
                .error_bars(series.points.iter().map(|p| p.stderr))
                .color(color(series.algorithm))
                .markers(),
        );
    }
    match data.limit {
        Some(limit) => panel.reference(Reference::new(limit, "cost limit")),
        None => panel,
    }
}

/// The paper's colours: COptiDICE blue, the naive one green, C-SPIBB orange, Baseline red.
fn color(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::Coptidice => 0,
        Algorithm::Baseline => 1,
        Algorithm::NaiveCoptidice => 2,
        Algorithm::Bc => 3,
        Algorithm::CSpibb => 4,
    }
}

/// The page.
pub(crate) fn page(results: &Results, command: String) -> Report {
    let config = &results.config;
    let sizes = config.trajectories.len();
    let cells = results.runs * config.cells_per_run() as u64;
    let unsolved: u64 = results.rows.iter().map(|row| row.unsolved).sum();
    let mut report = Report::new("Experiment report", figure_data(results).title)
        .subtitle(format!(
            "tabular-{}, {} runs, seed {}",
            config.experiment,
            count(results.runs),
            config.seed
        ))
        .key_figure("random CMDPs", count(results.runs), "")
        .key_figure("cells", count(cells), "a cell is one data set, solved by five algorithms")
        .key_figure("programs not solved to full accuracy", count(unsolved), "of five to a cell")
        .key_figure("mean optimum", fixed(results.optimal_reward, 4), "reward per step under the limit .1")
        .section(Section::new("Figure").wide(&figure(results)).paragraph(caption(config.experiment)));
    for (index, setting) in config.experiment.settings().iter().enumerate() {
        let (reward, cost) = results.behaviours[index];
        let title = format!("{}, data-collection cost {}", setting.row, setting.data.behaviour_cost());
        let rows = (0..sizes).flat_map(|size| Algorithm::ALL.map(|a| results.row(index, size, a)));
        report = report.section(
            Section::new(title)
                .paragraph(format!(
                    "Limit {} per step. The data come from a policy that earns {} and costs {} per step on average.",
                    setting.limit,
                    fixed(reward, 4),
                    fixed(cost, 4)
                ))
                .table(table(rows)),
        );
    }
    let mut facts = vec![("seed".to_owned(), config.seed.to_string())];
    let knowledge = match config.data_occupancy {
        DataOccupancy::Known => "the behaviour is known: its occupancy on the estimated CMDP",
        DataOccupancy::Estimated => "counts only: the empirical distribution",
    };
    facts.push(("distribution of the data".to_owned(), knowledge.to_owned()));
    report
        .section(Reproduce { command, config: String::new(), facts })
        .footer(format!("coptidice {}", env!("CARGO_PKG_VERSION")))
}

fn caption(experiment: Experiment) -> &'static str {
    match experiment {
        Experiment::Mixture => "Means over runs with their standard errors, rewards as they are.",
        _ => {
            "Means over runs with their standard errors. The normalised reward is 0 for the policy that collected the \
             data and 1 for the best policy that keeps the limit .1 on the true CMDP."
        }
    }
}

/// Every size and algorithm of one setting.
fn table<'r>(rows: impl Iterator<Item = &'r ResultRow>) -> Table {
    let mut table = Table::new([
        Column::numeric("trajectories"),
        Column::text("algorithm"),
        Column::numeric("normalised reward"),
        Column::numeric("reward"),
        Column::numeric("cost"),
        Column::numeric("runs over the limit"),
        Column::numeric("no policy within the limit"),
    ]);
    for row in rows {
        table.push([
            Cell::from(row.trajectories.to_string()),
            Cell::from(row.algorithm.as_str()),
            Cell::from(mean_with_error(row.normalized_reward_mean, row.normalized_reward_stderr)),
            Cell::from(fixed(row.reward_mean, 4)),
            cost(row),
            Cell::from(percent(row.share_violating)),
            Cell::from(if row.infeasible == 0 { String::new() } else { count(row.infeasible) }),
        ]);
    }
    table.note(
        "The last column counts runs in which the algorithm's own estimate met the limit for no policy.",
    )
}

/// The mean cost, marked as over the limit where it is so by more than twice its standard error.
fn cost(row: &ResultRow) -> Cell {
    let status = match row.cost_mean - row.limit {
        excess if excess <= 0.0 => Status::Good,
        excess if excess <= 2.0 * row.cost_stderr => Status::Warning,
        _ => Status::Bad,
    };
    Cell::with_status(mean_with_error(row.cost_mean, row.cost_stderr), status)
}

/// The smallest and the largest size of every setting, for the terminal.
pub(crate) fn summary(results: &Results) -> Table {
    let sizes = results.config.trajectories.len();
    let mut shown = vec![0];
    if sizes > 1 {
        shown.push(sizes - 1);
    }
    let mut table = Table::new([
        Column::text("row"),
        Column::numeric("behaviour"),
        Column::numeric("trajectories"),
        Column::text("algorithm"),
        Column::numeric("normalised reward"),
        Column::numeric("cost"),
        Column::numeric("over the limit"),
    ]);
    for (index, setting) in results.config.experiment.settings().iter().enumerate() {
        for &size in &shown {
            for algorithm in Algorithm::ALL {
                let row = results.row(index, size, algorithm);
                table.push([
                    Cell::from(setting.row.as_str()),
                    Cell::from(setting.data.behaviour_cost().to_string()),
                    Cell::from(row.trajectories.to_string()),
                    Cell::from(algorithm.name()),
                    Cell::from(mean_with_error(row.normalized_reward_mean, row.normalized_reward_stderr)),
                    cost(row),
                    Cell::from(percent(row.share_violating)),
                ]);
            }
        }
    }
    table
}
