//! Draws every chart and section with made-up data of realistic shape, to be looked at after a change of style:
//! `cargo run -p coptidice-report --example gallery -- DIR` writes `DIR/training.html`, `DIR/experiment.html`,
//! figures as SVG files, and the metrics files that the learning curves come from.

use coptidice_core::{CostLimit, EpisodeHorizon, LimitUnit, rng};
use coptidice_report::metrics::{History, METRICS_FILE, MetricsLog};
use coptidice_report::page::{
    ActionSummary, CostReading, CostSummary, Curves, DataSummary, EvaluatedCost, Evaluation, EvaluationRow,
    Evidence, LimitReading, Problem, Problems, Report, Reproduce, Section, Verdict, WeightSummary,
};
use coptidice_report::svg::{
    Axis, Bar, BarChart, Chart, Disc, DiscKind, GridPanel, GridRow, LineChart, PanelGrid, PathGroup, PathMap,
    Reference, Series,
};
use coptidice_report::table::{Cell, Column, Status, Table};
use rand_distr::{Distribution, Normal};
use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "target/gallery".to_owned()));
    std::fs::create_dir_all(&directory)?;
    let mut noise = Noise(rng::stream(0, "gallery", 0));
    let history = record(&mut noise, &directory)?;
    training_page(&mut noise, &history)?.write(&directory.join("training.html"))?;
    experiment_page(&mut noise)?.write(&directory.join("experiment.html"))?;
    paper_grid(&mut noise).figure().write(&directory.join("grid.svg"))?;
    paths(&mut noise).figure().write(&directory.join("map.svg"))?;
    eprintln!("{}", data(&mut noise).to_text(80));
    eprintln!("{}", evaluation().table().to_text(Some(100)));
    eprintln!("gallery in {}", directory.display());
    Ok(())
}

struct Noise(rng::Rng);

impl Noise {
    fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        Normal::new(mean, deviation.abs()).map_or(mean, |n| n.sample(&mut self.0))
    }
}

fn limit() -> LimitReading {
    LimitReading::new("violation", CostLimit::PerStep { limit: 0.1 }, 1000.0)
}

/// Logs a run to both metrics files and reads it back.
fn record(noise: &mut Noise, run: &Path) -> Result<History, Box<dyn Error>> {
    let mut log = MetricsLog::create(run)?;
    for i in 0..=200_u32 {
        let t = f64::from(i) / 200.0;
        let decay = (-6.0 * t).exp();
        let estimate = 0.078 + 0.2 * decay + noise.normal(0.0, 0.006);
        let values = [
            ("cost/violation", estimate),
            ("cost_bound/violation", estimate + 0.012 + 0.1 * decay + noise.normal(0.0, 0.004).abs()),
            ("lambda/violation", 1.0 + 1.4 * (1.0 - decay) + noise.normal(0.0, 0.04)),
            ("tau/violation", 0.3 + 0.7 * decay + noise.normal(0.0, 0.01)),
            ("kl/violation", 0.01 + noise.normal(0.0, 0.0015)),
            ("loss/nu", 3e4 * (-60.0 * t).exp() + 4.0 + 20.0 * decay + noise.normal(0.0, 1.0)),
            (
                "loss/policy",
                if i == 73 { f64::NAN } else { -1.0 - 2.2 * (1.0 - decay) + noise.normal(0.0, 0.12) },
            ),
            ("w/effective_share", 0.4 - 0.25 * (1.0 - decay) + noise.normal(0.0, 0.012)),
            ("limit/violation", 0.1),
            ("reward", 0.57 - 0.2 * decay + noise.normal(0.0, 0.01)),
            ("w/mean", 1.0 + 0.3 * decay + noise.normal(0.0, 0.02)),
            ("w/q05", 0.02 + 0.3 * decay),
            ("w/q50", 0.6 + 0.3 * decay),
            ("w/max", 9.0 - 5.0 * decay + noise.normal(0.0, 1.0)),
        ];
        log.log(u64::from(i) * 100, &values)?;
    }
    log.sync()?;
    Ok(History::read(&run.join(METRICS_FILE))?)
}

fn data(noise: &mut Noise) -> DataSummary {
    let mut returns = Vec::new();
    let mut costs = Vec::new();
    for i in 0..200 {
        let safe = i % 5 != 0;
        returns.push(
            noise
                .normal(if safe { 560.0 } else { 840.0 }, if safe { 120.0 } else { 40.0 })
                .clamp(0.0, 1000.0),
        );
        costs.push(
            noise.normal(if safe { 60.0 } else { 420.0 }, if safe { 25.0 } else { 90.0 }).max(0.0).round(),
        );
    }
    DataSummary {
        source: "rwrl-cartpole-swingup-b80-200ep.hdf5 (DSRL HDF5)".to_owned(),
        transitions: 200_000,
        observation_dim: 5,
        action: ActionSummary::Continuous { dim: 1 },
        lengths: vec![1000.0; 200],
        costs: vec![CostSummary {
            name: "violation".to_owned(),
            per_step: costs.iter().sum::<f64>() / 200_000.0,
            per_episode: costs,
            limit: Some(limit()),
        }],
        returns,
    }
}

fn evaluation() -> Evaluation {
    let row = |policy: &str, return_mean: f64, return_stderr, per_step: f64, share| EvaluationRow {
        policy: policy.to_owned(),
        episodes: 50,
        return_mean,
        return_stderr,
        costs: vec![EvaluatedCost {
            per_step,
            per_step_stderr: per_step * 0.08,
            per_episode: per_step * 1000.0,
            per_episode_stderr: per_step * 80.0,
            share_over_limit: share,
        }],
    };
    Evaluation {
        environment: "rwrl/cartpole-swingup (1000 steps)".to_owned(),
        limits: vec![limit()],
        rows: vec![
            row("bc", 553.2, 12.1, 0.137, 0.62),
            row("optidice", 702.8, 14.7, 0.412, 0.98),
            row("coptidice, naive", 648.5, 11.0, 0.118, 0.56),
            row("coptidice", 611.9, 9.3, 0.0784, 0.12),
        ],
    }
}

fn paths(noise: &mut Noise) -> PathMap {
    let mut path = |bend: f64, spread: f64| -> Vec<(f64, f64)> {
        let (side, end) = (noise.normal(bend, spread), noise.normal(0.0, spread * 0.2));
        (0..=100)
            .map(|i| {
                let t = f64::from(i) / 100.0;
                let wobble = noise.normal(0.0, 0.006);
                (-1.0 + 2.0 * t, side * (std::f64::consts::PI * t).sin() + end * t + wobble)
            })
            .collect()
    };
    let logged = (0..60).map(|i| path([0.0, 0.55, -0.55][i % 3], 0.12)).collect();
    let cloned = (0..5).map(|_| path(0.18, 0.08)).collect();
    let learned = (0..5).map(|_| path(0.5, 0.03)).collect();
    let disc =
        |kind, x, radius, label: &str| Disc { kind, center: (x, 0.0), radius, label: label.to_owned() };
    PathMap::new("Logged and learned paths", (-1.25, 1.25), (-0.85, 0.85))
        .labels("x (m)", "y (m)")
        .disc(disc(DiscKind::Hazard, 0.0, 0.35, "hazard"))
        .disc(disc(DiscKind::Goal, 1.0, 0.12, "goal"))
        .disc(disc(DiscKind::Start, -1.0, 0.06, ""))
        .paths(PathGroup::faint("logged (60 of 200)", logged))
        .paths(PathGroup::new("bc", cloned).color(1))
        .paths(PathGroup::new("coptidice", learned).color(0))
}

const SIZES: [f64; 8] = [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0];

fn paper_grid(noise: &mut Noise) -> PanelGrid {
    let algorithms: [(&str, f64, f64); 6] = [
        ("BC", 0.0, 0.1),
        ("Baseline", -0.4, 0.128),
        ("C-SPIBB", 0.1, 0.106),
        ("OptiDICE", 0.35, 0.135),
        ("COptiDICE, naive", 0.3, 0.11),
        ("COptiDICE", 0.25, 0.095),
    ];
    let mut panel = |reward: bool, behaviour: f64, limit: f64| {
        let label = if reward { "normalised reward" } else { "cost" };
        let mut panel = GridPanel::new(Axis::linear(label)).shared_y(u32::from(!reward));
        for (name, gain, cost) in algorithms {
            let points: Vec<_> = SIZES
                .iter()
                .map(|&n| {
                    let learned = 1.0 - 12.0 / (n + 12.0);
                    let value = if reward {
                        gain * 2.2 * learned - 0.6 * (1.0 - learned) * (1.0 - gain)
                    } else {
                        behaviour + (cost - 0.1) * (1.3 - learned * 0.6) + (limit - 0.1) * 0.3
                    };
                    (n, value + noise.normal(0.0, if reward { 0.01 } else { 0.0006 }))
                })
                .collect();
            let errors = SIZES.map(|n| if reward { 0.2 } else { 0.008 } / n.powf(0.3));
            panel = panel.series(Series::new(name, points).error_bars(errors).markers());
        }
        if reward { panel } else { panel.reference(Reference::new(limit, "limit")) }
    };
    let mut grid = PanelGrid::new(
        "Random CMDPs: reward and cost by dataset size",
        Axis::logarithmic("number of trajectories").marks([10.0, 50.0, 200.0, 1000.0]),
    )
    .column_group("(a) behaviour keeps the limit", 2)
    .column_group("(b) behaviour exceeds the limit", 2);
    for limit in [0.08, 0.1] {
        let panels = vec![
            panel(true, 0.09, limit),
            panel(false, 0.09, limit),
            panel(true, 0.11, limit),
            panel(false, 0.11, limit),
        ];
        grid = grid.row(GridRow::new(format!("limit {limit}"), panels));
    }
    grid
}

fn training_page(noise: &mut Noise, history: &History) -> Result<Report, Box<dyn Error>> {
    let weights: Vec<f64> =
        (0..20_000).map(|i| if i % 4 == 0 { 0.0 } else { noise.normal(-0.4, 1.1).exp() }).collect();
    let weights = WeightSummary::of(&weights);
    let reading = CostReading {
        limit: limit(),
        estimate: 0.0783,
        upper_bound: Some(0.0962),
        evidence: Evidence::Optimum,
        tolerance: 0.001,
    };
    let measured = CostReading {
        estimate: 0.0784,
        upper_bound: None,
        evidence: Evidence::Simulated { episodes: 50 },
        ..reading.clone()
    };
    let limits = CostLimit::new(0.1, LimitUnit::Step, EpisodeHorizon::Fixed(1000.0))?;
    Ok(Report::new("Training report", "COptiDICE on rwrl-cartpole-swingup-b80")
        .subtitle("200,000 logged transitions, 20,000 steps, preset fast, seed 0")
        .verdict(
            Verdict::new("COptiDICE with the cost upper bound")
                .cost(reading)
                .cost(measured)
                .remark(format!("Limits are per step; {} per episode of 1000 steps.", limits.both_readings(1000.0).1)),
        )
        .key_figure("return of the optimum", "571", "per episode, from the logs")
        .key_figure("lambda", "2.41", "cost multiplier")
        .key_figure("mean of w", "0.998", "1 at an exact optimum")
        .key_figure("steps", "20,000", "in 3 min 12 s on 2 threads")
        .section(&evaluation())
        .section(Section::new("Map").chart(&paths(noise)))
        .section(Curves::training(history, Some(0.01)))
        .section(&weights)
        .section(&data(noise))
        .section(problems())
        .section(Reproduce {
            command: "coptidice train rwrl-cartpole-swingup-b80-200ep.hdf5 --algo coptidice --limit 0.1 --limit-unit step \
                      --seed 0 --out runs/b80"
                .to_owned(),
            config: "algorithm = \"coptidice\"\ngamma = 0.995\nalpha = 0.01\nepsilon = 0.01\ndivergence = \"softchi\"\n\n\
                     [network]\nhidden = [256, 256]\nlayer_norm = true\n"
                .to_owned(),
            facts: vec![
                ("coptidice".to_owned(), "0.1.0".to_owned()),
                ("seed".to_owned(), "0".to_owned()),
                ("data fingerprint".to_owned(), "sha256:5b1e8f0c6a1f4d0e9f6a22b5c0b7d1a4".to_owned()),
            ],
        })
        .footer("coptidice 0.1.0"))
}

fn problems() -> Problems {
    let problem = |status, code: &str, place: &str, message: &str| Problem {
        status,
        code: code.to_owned(),
        place: place.to_owned(),
        message: message.to_owned(),
    };
    Problems(vec![
        problem(
            Status::Warning,
            "last-episode-open",
            "row 199,999",
            "The last episode has no end flag; it was read as cut off by the end of the file.",
        ),
        problem(
            Status::Warning,
            "constant-column",
            "observations[3]",
            "This column never changes; it is kept unscaled.",
        ),
    ])
}

fn experiment_page(noise: &mut Noise) -> Result<Report, Box<dyn Error>> {
    let claims =
        Table::new([Column::text("claim of the paper"), Column::text("here"), Column::text("verdict")])
            .row([
                "COptiDICE keeps the limit in (b) where the others do not".into(),
                "cost 0.098 ± 0.001 at every size; the others 0.104 to 0.135".into(),
                Cell::with_status("confirmed", Status::Good),
            ])
            .row([
                "Baseline violates at N = 10".into(),
                "cost 0.151 ± 0.002".into(),
                Cell::with_status("confirmed", Status::Good),
            ])
            .row([
                "Better reward than C-SPIBB in (a)".into(),
                "from N = 50 on; equal within two standard errors below".into(),
                Cell::with_status("in part", Status::Warning),
            ]);
    let walk = |noise: &mut Noise, start: f64, end: f64| {
        (0..=40)
            .map(|i| {
                (
                    f64::from(i) * 2.5e4,
                    start + (end - start) * (1.0 - (-f64::from(i) / 9.0).exp()) + noise.normal(0.0, 6.0),
                )
            })
            .collect::<Vec<_>>()
    };
    let mut curves = LineChart::new(
        "Return by training step, mean of 5 seeds",
        Axis::linear("training step"),
        Axis::linear("return").including(0.0),
    );
    for (name, end) in [("bc", 520.0), ("coptidice, naive", 655.0), ("coptidice", 612.0)] {
        let points = walk(noise, 120.0, end);
        let band: Vec<_> = points.iter().map(|p| (p.1 - 28.0, p.1 + 28.0)).collect();
        curves = curves.series(Series::new(name, points).band(band));
    }
    let bars = ["bc", "optidice", "coptidice, naive", "coptidice"]
        .iter()
        .zip([0.21, 0.34, 0.027, 0.0152])
        .enumerate()
        .fold(BarChart::new("Cost per step, 80% safe logs", "cost per step"), |chart, (i, (name, cost))| {
            chart.bar(Bar::new(*name, cost).error(cost * 0.07).color(i))
        })
        .reference(Reference::new(0.02, "limit 0.02"));
    Ok(Report::new("Experiment", "Random CMDPs, thresholds 0.08 and 0.1")
        .subtitle("10,000 runs; error bars are standard errors")
        .section(Section::new("Figure").wide(&paper_grid(noise)))
        .section(Section::new("Claims").table(claims))
        .section(Section::new("Other charts").chart(&curves).chart(&bars))
        .footer("coptidice 0.1.0"))
}
