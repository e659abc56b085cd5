//! How a pool came about: what its policies earn and cost, over the steps of the runs that left them.

use std::fmt::Write as _;
use std::path::Path;

use coptidice_report::svg::{Axis, Chart as _, Figure, GridPanel, GridRow, PanelGrid, Reference, Series};

use super::pool::{Member, Pool};
use crate::failure::{Done, Failure};
use crate::run_directory::write_text;

/// Writes `curves.csv`, every member of the pool, and `curves.svg` into its folder.
pub(crate) fn draw(pool: &Pool, folder: &Path) -> Done {
    write_text(&folder.join("curves.csv"), &table(pool))?;
    let path = folder.join("curves.svg");
    figure(pool).write(&path).map_err(|error| Failure::writing(&path, &error))
}

/// One line for each member; standard errors are empty where there are none.
fn table(pool: &Pool) -> String {
    let mut csv = String::from("limit,seed,steps,episodes,return_mean,return_stderr");
    for cost in &pool.costs {
        let _ = write!(csv, ",{cost},{cost}_stderr");
    }
    csv.push('\n');
    let error = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.6}"));
    for member in &pool.members {
        let Member { limit, seed, steps, episodes, return_mean, return_stderr, .. } = member;
        let _ = write!(csv, "{limit},{seed},{steps},{episodes},{return_mean:.6},{}", error(*return_stderr));
        for (cost, stderr) in member.cost_per_step.iter().zip(&member.cost_per_step_stderr) {
            let _ = write!(csv, ",{cost:.6},{}", error(*stderr));
        }
        csv.push('\n');
    }
    csv
}

/// A row for each limit, a line for each seed.
fn figure(pool: &Pool) -> Figure {
    let mut grid = PanelGrid::new(
        format!("{}: policies of the pool, as measured", pool.environment),
        Axis::linear("environment steps"),
    )
    .panel_size(300.0, 150.0);
    for of_limit in pool.members.chunk_by(|a, b| a.limit == b.limit) {
        let Some(Member { limit, .. }) = of_limit.first() else { continue };
        let mut earned = GridPanel::new(Axis::linear("return").including(0.0)).shared_y(0);
        let mut costs: Vec<GridPanel> = pool
            .costs
            .iter()
            .map(|name| {
                GridPanel::new(Axis::linear(format!("{name} per step")).including(0.0))
                    .reference(Reference::new(*limit, "limit"))
            })
            .collect();
        for run in of_limit.chunk_by(|a, b| a.seed == b.seed) {
            let Some(Member { seed, .. }) = run.first() else { continue };
            let line = |value: &dyn Fn(&Member) -> (f64, Option<f64>)| {
                let points = run.iter().map(|member| (member.steps as f64, value(member).0));
                let errors = run.iter().map(|member| value(member).1.unwrap_or(0.0));
                Series::new(format!("seed {seed}"), points).error_bars(errors)
            };
            earned = earned.series(line(&|member| (member.return_mean, member.return_stderr)));
            costs = costs
                .into_iter()
                .enumerate()
                .map(|(k, panel)| panel.series(line(&|m| (m.cost_per_step[k], m.cost_per_step_stderr[k]))))
                .collect();
        }
        let mut panels = vec![earned];
        panels.append(&mut costs);
        grid = grid.row(GridRow::new(format!("limit {limit}"), panels));
    }
    grid.figure()
}

#[cfg(test)]
mod tests {
    use super::*;
    use coptidice_sim::EnvOptions;

    fn member(limit: f64, seed: u64, steps: u64, stderr: Option<f64>) -> Member {
        Member {
            policy: format!("{limit}-{seed}-{steps}.safetensors"),
            limit,
            seed,
            steps,
            episodes: 2,
            episode_seed: 1,
            return_mean: steps as f64 / 4.0,
            return_stderr: stderr,
            cost_per_step: vec![0.25, 0.5],
            cost_per_step_stderr: vec![stderr, None],
        }
    }

    #[test]
    fn every_member_has_its_line_and_every_limit_its_row() {
        let mut pool =
            Pool::new("rwrl/walker-walk".into(), EnvOptions::default(), vec!["fast".into(), "low".into()]);
        for (limit, seed, stderr) in [(0.2, 0, None), (0.1, 0, Some(0.5)), (0.1, 1, Some(0.5))] {
            pool.insert(member(limit, seed, 2000, stderr));
            pool.insert(member(limit, seed, 1000, stderr));
        }
        let table = table(&pool);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[0],
            "limit,seed,steps,episodes,return_mean,return_stderr,fast,fast_stderr,low,low_stderr"
        );
        assert_eq!(lines[1], "0.1,0,1000,2,250.000000,0.500000,0.250000,0.500000,0.500000,");
        assert_eq!(lines[6], "0.2,0,2000,2,500.000000,,0.250000,,0.500000,");
        assert_eq!(lines.len(), 7);
        let folder = tempfile::tempdir().expect("a folder");
        assert!(draw(&pool, folder.path()).is_ok());
        let svg = std::fs::read_to_string(folder.path().join("curves.svg")).expect("just written");
        for text in ["limit 0.1", "limit 0.2", "seed 1", "fast per step", "low per step"] {
            assert!(svg.contains(text), "{text}");
        }
        // A pool that has no policy yet has a picture without rows.
        pool.members.clear();
        assert!(draw(&pool, folder.path()).is_ok());
    }
}
