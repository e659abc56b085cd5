//! How much memory loading takes.
//!
//! ```text
//! cargo run --release -p coptidice-data --example load_memory -- generate LOG.hdf5 10000000
//! cargo run --release -p coptidice-data --example load_memory -- load LOG.hdf5
//! ```
//!
//! `generate` writes a log of the given number of transitions (observations of 14 components, 1 action, 1 cost,
//! episodes of 1000 steps) in the format of the extension. `load` reads it as training does, draws batches, and
//! compares the peak resident memory of the process with the bytes of the columns.

#![allow(clippy::print_stdout)] // the result of the command

use std::path::Path;
use std::time::Instant;

use coptidice_core::rng;
use coptidice_data::{
    ActionSpace, Batch, CheckOptions, ReadOptions, Schema, Step, StepAction, TransitionsBuilder,
    WriteOptions, load, write,
};
use rand::RngExt;

#[path = "../tests/common/mod.rs"]
mod common;
use common::memory;

const DIM: usize = 14;
const EPISODE: usize = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["generate", path, rows] => generate(Path::new(path), rows.parse()?),
        ["load", path] => measure(Path::new(path)),
        _ => Err("usage: generate PATH ROWS | load PATH".into()),
    }
}

fn generate(path: &Path, rows: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = TransitionsBuilder::new(Schema {
        observation_dim: DIM,
        action: ActionSpace::Continuous { dim: 1 },
        cost_names: vec!["cost".into()],
        propensity: false,
    })?;
    builder.reserve(rows);
    let mut rng = rng::stream(0, "load_memory", 0);
    let mut observation = [0.0_f32; DIM];
    for row in 0..rows {
        let mut next = observation;
        for value in &mut next {
            *value = 0.95 * *value + rng.random::<f32>() - 0.5;
        }
        let timeout = (row + 1) % EPISODE == 0 || row + 1 == rows;
        builder.push(&Step {
            observation: &observation,
            action: StepAction::Continuous(&[rng.random::<f32>()]),
            reward: observation[0],
            costs: &[f32::from(u8::from(observation[1] > 1.0))],
            next_observation: &next,
            terminal: false,
            timeout,
            propensity: None,
        })?;
        observation = if timeout { [0.0; DIM] } else { next };
    }
    write(&builder.finish()?, path, &WriteOptions { overwrite: true, ..WriteOptions::default() })?;
    println!("wrote {rows} transitions to {}", path.display());
    Ok(())
}

fn measure(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let log = load(path, &ReadOptions::default(), &CheckOptions::default())?.transitions;
    let seconds = start.elapsed().as_secs_f64();
    let mut rng = rng::stream(0, "load_memory", 1);
    let mut batch = Batch::default();
    let mut rows = vec![0_usize; 1024];
    let start = Instant::now();
    let batches = 2000;
    for _ in 0..batches {
        rows.fill_with(|| rng.random_range(0..log.len()));
        log.gather(&rows, &mut batch);
    }
    let gather = start.elapsed().as_secs_f64() / f64::from(batches);
    // As the source holds them: both observations, action, reward, cost, and two flags.
    let columns = log.len() * (4 * (2 * DIM + 3) + 2);
    let mega = |bytes: usize| bytes as f64 / 1e6;
    println!("{} transitions, read and checked in {seconds:.1} s", log.len());
    println!("columns of the source  {:8.0} MB", mega(columns));
    println!("columns as held        {:8.0} MB", mega(log.column_bytes()));
    println!("a batch of 1024 rows   {:8.1} us", 1e6 * gather);
    for (name, key) in
        [("peak resident", "VmHWM:"), ("of it now anonymous", "RssAnon:"), ("of it now mapped", "RssFile:")]
    {
        if let Some(bytes) = memory(key) {
            println!(
                "{name:<22} {:8.0} MB, {:.2} of the source's columns",
                mega(bytes),
                bytes as f64 / columns as f64
            );
        }
    }
    Ok(())
}
