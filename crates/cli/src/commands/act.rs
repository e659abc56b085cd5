//! `coptidice act`: actions for a file of observations.

use std::path::{Path, PathBuf};

use clap::Args;
use coptidice_nn::Pool;
use ndarray::{Array1, Array2};
use ndarray_npy::{ReadNpyError, WriteNpyExt as _};

use crate::failure::{Done, Failure};
use crate::output::check_target;
use crate::run_directory::RunDirectory;

/// Flags of `act`.
#[derive(Args)]
pub(crate) struct Act {
    /// Run directory of a trained policy
    run: PathBuf,
    /// Observations, a .npy array of f32 or f64, [N, O]
    #[arg(long, value_name = "OBS.npy")]
    observations: PathBuf,
    /// Where the actions go: .npy, [N, A] f32; for discrete actions [N] i64, the log's own ids where they are integers,
    /// else positions in its list of actions
    #[arg(long, value_name = "ACTIONS.npy")]
    to: PathBuf,
    /// How to act: mean, mode, component, sample, or select where the policy has something to select by [default: the
    /// policy's own way]
    #[arg(long, value_name = "HOW")]
    acting: Option<String>,
    /// Seed of the draws where acting draws
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Replace a file that exists
    #[arg(long)]
    overwrite: bool,
}

impl Act {
    /// Scores the file.
    pub(crate) fn run(self) -> Done {
        check_target(&self.to, self.overwrite)?;
        let run = RunDirectory::open(&self.run)?;
        if run.holds(&self.to) || same_file(&self.to, &self.observations) {
            return Err(Failure::usage(
                format!("{}: is a file that the policy or its observations are in", self.to.display()),
                "choose another name for the actions",
            ));
        }
        let policy = crate::policies::load(&run.policy())?;
        let acting = crate::policies::acting(&policy, self.acting.as_deref())?.unwrap_or(policy.acting());
        let observations = self.observations()?;
        let (rows, width) = observations.dim();
        if width != policy.observation_width() {
            return Err(Failure::usage(
                format!(
                    "{} has {width} columns; the policy takes {}",
                    self.observations.display(),
                    policy.observation_width()
                ),
                "give observations with the columns of the log the policy was trained on",
            ));
        }
        let observations = observations.as_standard_layout();
        let flat = observations.as_slice().expect("standard layout is contiguous");
        let pool = Pool::new(std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
            .map_err(|error| Failure::work(&error))?;
        let discrete = policy.action_low().is_empty();
        let actions =
            policy.act_batch(flat, acting, self.seed, &pool).map_err(|error| Failure::input(&error))?;
        let mut file = Vec::new();
        let result = if discrete {
            let called = called(&policy.about().action_names);
            let ids = actions.iter().map(|&id| called.get(id as usize).copied().unwrap_or(id as i64));
            Array1::from(ids.collect::<Vec<i64>>()).write_npy(&mut file)
        } else {
            let shaped = Array2::from_shape_vec((rows, policy.action_width()), actions)
                .map_err(|error| Failure::work(&error))?;
            shaped.write_npy(&mut file)
        };
        result.map_err(|error| Failure::writing(&self.to, &error))?;
        if let Some(parent) = self.to.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).map_err(|error| Failure::writing(parent, &error))?;
        }
        coptidice_report::write_whole(&self.to, &file).map_err(|error| Failure::writing(&self.to, &error))
    }

    /// The array, as f32.
    fn observations(&self) -> Result<Array2<f32>, Failure> {
        let single: Result<Array2<f32>, _> = ndarray_npy::read_npy(&self.observations);
        single.or_else(|first| {
            let double: Result<Array2<f64>, _> = ndarray_npy::read_npy(&self.observations);
            double.map(|values| values.mapv(|value| value as f32)).map_err(|second| {
                let what = match (&first, &second) {
                    (ReadNpyError::WrongNdim(_, axes), _) | (_, ReadNpyError::WrongNdim(_, axes)) => {
                        format!("has {axes} {}, not two", if *axes == 1 { "axis" } else { "axes" })
                    }
                    (ReadNpyError::WrongDescriptor(_), ReadNpyError::WrongDescriptor(found)) => {
                        format!("holds numbers of the type {found}, not f32 or f64")
                    }
                    _ => first.to_string(),
                };
                Failure::usage(
                    format!("{}: {what}", self.observations.display()),
                    "give a .npy file with an array of f32 or f64 of shape [N, O], a row for each observation",
                )
            })
        })
    }
}

/// Whether both names are of one file that is there.
fn same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// What the log called each action, where these are integers. Of words the file can hold only positions: the list is
/// printed then.
fn called(labels: &[String]) -> Vec<i64> {
    let numbers: Option<Vec<i64>> = labels.iter().map(|label| label.parse().ok()).collect();
    numbers.unwrap_or_else(|| {
        eprintln!("actions are written as positions in this list, from 0: {}", labels.join(", "));
        Vec::new()
    })
}
