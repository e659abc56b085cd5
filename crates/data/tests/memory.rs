//! Loading a log takes little more memory than the columns it is held in.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test's unwrap is its assertion

use coptidice_data::{
    ActionSpace, CheckOptions, ReadOptions, Schema, Step, StepAction, TransitionsBuilder, WriteOptions, load,
    write,
};

mod common;
use common::memory;

const ROWS: usize = 1_000_000;
const DIM: usize = 14;
const EPISODE: usize = 1000;

fn write_logs(directory: &std::path::Path) {
    let mut builder = TransitionsBuilder::new(Schema {
        observation_dim: DIM,
        action: ActionSpace::Continuous { dim: 1 },
        cost_names: vec!["cost".into()],
        propensity: false,
    })
    .unwrap();
    builder.reserve(ROWS);
    // Few digits, so that text is short and quickly read; no two neighbours alike.
    let observation =
        |row: usize| -> [f32; DIM] { std::array::from_fn(|j| ((7 * row + j) % 1024) as f32 / 4.0) };
    for row in 0..ROWS {
        builder
            .push(&Step {
                observation: &observation(row),
                action: StepAction::Continuous(&[(row % 8) as f32 / 8.0]),
                reward: 0.5,
                costs: &[f32::from(u8::from(row % 5 == 0))],
                next_observation: &observation(row + 1),
                terminal: false,
                timeout: (row + 1) % EPISODE == 0,
                propensity: None,
            })
            .unwrap();
    }
    let log = builder.finish().unwrap();
    for name in FORMATS {
        write(&log, &directory.join(name), &WriteOptions::default()).unwrap();
    }
}

const FORMATS: [&str; 5] = ["columns", "log.hdf5", "log.npz", "log.parquet", "log.csv"];

/// Set for the process that loads: the log.
const LOG: &str = "COPTIDICE_TEST_LOG";

/// Loads the log and prints the bytes of its columns and those that the process took at the peak.
fn load_and_report(path: &std::path::Path) {
    let before = memory("VmHWM:").unwrap();
    let log = load(path, &ReadOptions::default(), &CheckOptions::default()).unwrap().transitions;
    assert_eq!(log.len(), ROWS);
    println!("held and peak: {} {}", log.column_bytes(), memory("VmHWM:").unwrap() - before);
}

#[test]
fn a_log_is_never_in_memory_twice() {
    if let Some(path) = std::env::var_os(LOG) {
        return load_and_report(path.as_ref());
    }
    let directory = tempfile::tempdir().unwrap();
    write_logs(directory.path());
    let mut too_much = Vec::new();
    for name in FORMATS {
        // A process of its own: what another load has freed would be used again, and not show.
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_log_is_never_in_memory_twice", "--nocapture"])
            .env(LOG, directory.path().join(name))
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let figures =
            printed.lines().find_map(|line| line.split_once("held and peak: ")).expect("it reports").1;
        let (held, peak) = figures.split_once(' ').unwrap();
        let (held, peak): (usize, usize) = (held.parse().unwrap(), peak.parse().unwrap());
        println!("{name}: {peak} bytes at the peak, {held} held: {:.2}", peak as f64 / held as f64);
        // Blocks in flight take a few megabytes whatever the log's size: they count against the half that is allowed.
        if 2 * peak > 3 * held {
            too_much.push(name);
        }
    }
    assert!(too_much.is_empty(), "{too_much:?}");
}
