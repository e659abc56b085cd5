//! How far an environment is from a recorded trace.
//!
//! `cargo run --release -p coptidice-sim --example replay -- rwrl/cartpole-swingup fixtures/rwrl/cartpole.npz`

#![expect(clippy::print_stdout, reason = "the output of an example")]

use std::error::Error;
use std::path::Path;

use coptidice_sim::{Trace, make, replay};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, path] = arguments.as_slice() else {
        return Err("usage: replay ENVIRONMENT TRACE.npz".into());
    };
    println!("{:?}", replay(&Trace::read_npz(Path::new(path))?, make(name)?.as_ref())?);
    Ok(())
}
