//! Recorded traces of another simulator, and how far an environment is from them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ndarray::{ArrayView, Dimension, Ix1, Ix2};
use ndarray_npy::ViewNpyExt;
use serde::{Deserialize, Serialize};

use crate::env::{Environment, PhysicsState};
use crate::error::SimError;

/// Largest array of a trace, bytes: above 20 hours of the widest task, and far below what could hurt.
const MAX_ARRAY_BYTES: u64 = 256 << 20;

/// One episode's start as another simulator ran it: `T` steps, `A` action components, `O` observation
/// components.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The state right after the reset.
    pub start: PhysicsState,
    /// `[T][A]`.
    pub actions: Vec<Vec<f64>>,
    /// `[T + 1][O]`; the first is that of the reset.
    pub observations: Vec<Vec<f64>>,
    /// `[T]`.
    pub rewards: Vec<f64>,
    /// First cost of each state, `[T + 1]`.
    pub costs: Vec<f64>,
}

/// How far an environment is from a trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// Largest difference of any component of any observation, the first included.
    pub max_abs_observation: f64,
    /// Largest difference of any reward.
    pub max_abs_reward: f64,
    /// States, the first included, whose first cost differs.
    pub cost_mismatches: usize,
    /// Steps replayed.
    pub steps: usize,
}

/// A trace that cannot be read or replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is no npz archive.
    #[error("{}: not a readable .npz archive: {source}", path.display())]
    Archive {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: zip::result::ZipError,
    },
    /// An array is missing.
    #[error(
        "{}: no array {name:?}; a trace has qpos0, qvel0, act0, actions, observations, rewards and costs",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// The array.
        name: &'static str,
    },
    /// An array is larger than any trace.
    #[error("{}: array {name:?} claims {bytes} bytes; at most {MAX_ARRAY_BYTES} are read", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The array.
        name: &'static str,
        /// Bytes claimed.
        bytes: u64,
    },
    /// An array is not what it should be.
    #[error("{}: array {name:?} is no {dimensions}-dimensional float64 array: {reason}", path.display())]
    Array {
        /// The file.
        path: PathBuf,
        /// The array.
        name: &'static str,
        /// Dimensions expected.
        dimensions: usize,
        /// What the reader says.
        reason: String,
    },
    /// Something that is no number, which nothing can be held against.
    #[error("{}: array {name:?} has {value} in row {row}; record the trace again", path.display())]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The array.
        name: &'static str,
        /// The row.
        row: usize,
        /// What stands there.
        value: f64,
    },
    /// Lengths that do not belong together.
    #[error("the trace has {found} {what}, expected {expected}")]
    Shape {
        /// What is counted.
        what: &'static str,
        /// Found.
        found: usize,
        /// Expected.
        expected: usize,
    },
    /// The environment refuses the start.
    #[error(transparent)]
    Sim(#[from] SimError),
}

impl Trace {
    /// Reads an npz archive of float64 arrays `qpos0`, `qvel0`, `act0`, `actions` `[T,A]`, `observations`
    /// `[T+1,O]`, `rewards` `[T]`, `costs` `[T+1]`.
    ///
    /// # Errors
    /// If the file cannot be read, or arrays are missing, of another type, or of lengths that do not belong
    /// together.
    pub fn read_npz(path: &Path) -> Result<Self, TraceError> {
        let mut archive = Archive::open(path)?;
        let trace = Trace {
            start: PhysicsState {
                qpos: archive.vector("qpos0")?,
                qvel: archive.vector("qvel0")?,
                act: archive.vector("act0")?,
            },
            actions: archive.matrix("actions")?,
            observations: archive.matrix("observations")?,
            rewards: archive.vector("rewards")?,
            costs: archive.vector("costs")?,
        };
        let steps = trace.actions.len();
        check("rewards", trace.rewards.len(), steps)?;
        check("observations", trace.observations.len(), steps + 1)?;
        check("costs", trace.costs.len(), steps + 1)?;
        if steps == 0 {
            return Err(TraceError::Shape { what: "steps", found: 0, expected: 1 });
        }
        let rows = |vector: &[f64]| vector.iter().map(|&x| vec![x]).collect::<Vec<_>>();
        let PhysicsState { qpos, qvel, act } = &trace.start;
        for (name, rows) in [
            ("qpos0", rows(qpos)),
            ("qvel0", rows(qvel)),
            ("act0", rows(act)),
            ("actions", trace.actions.clone()),
            ("observations", trace.observations.clone()),
            ("rewards", rows(&trace.rewards)),
            ("costs", rows(&trace.costs)),
        ] {
            for (row, values) in rows.iter().enumerate() {
                if let Some(&value) = values.iter().find(|value| !value.is_finite()) {
                    return Err(TraceError::NotFinite { path: path.to_owned(), name, row, value });
                }
            }
        }
        Ok(trace)
    }
}

/// Sets the trace's start, plays its actions, and compares what is seen with what was recorded.
///
/// # Errors
/// If the trace's shapes are not those of the environment.
pub fn replay(trace: &Trace, env: &dyn Environment) -> Result<Replay, TraceError> {
    let mut env = env.fresh();
    let (width, observation_dim) = (env.spec().action.width(), env.spec().observation_dim());
    check("action components", trace.actions.first().map_or(width, Vec::len), width)?;
    let recorded = trace.observations.first().map_or(observation_dim, Vec::len);
    check("observation components", recorded, observation_dim)?;
    check("observations", trace.observations.len(), trace.actions.len() + 1)?;
    env.set_state(&trace.start)?;
    let mut result = Replay {
        max_abs_observation: 0.0,
        max_abs_reward: 0.0,
        cost_mismatches: 0,
        steps: trace.actions.len(),
    };
    let mut observation = vec![0.0; observation_dim];
    let mut costs = vec![0.0; env.spec().costs.len()];
    for (t, recorded) in trace.observations.iter().enumerate() {
        if t > 0 {
            let reward = env.step(&trace.actions[t - 1]).reward;
            result.max_abs_reward = worse(result.max_abs_reward, reward, trace.rewards[t - 1]);
        }
        env.observe(&mut observation);
        env.costs(&mut costs);
        for (&seen, &recorded) in observation.iter().zip(recorded) {
            result.max_abs_observation = worse(result.max_abs_observation, seen, recorded);
        }
        if costs.first().is_some_and(|&cost| cost != trace.costs[t]) {
            result.cost_mismatches += 1;
        }
    }
    Ok(result)
}

/// The larger of `so_far` and the difference, where a NaN on either side counts as infinitely far.
fn worse(so_far: f64, seen: f64, recorded: f64) -> f64 {
    let difference = (seen - recorded).abs();
    so_far.max(if difference.is_nan() { f64::INFINITY } else { difference })
}

fn check(what: &'static str, found: usize, expected: usize) -> Result<(), TraceError> {
    if found == expected { Ok(()) } else { Err(TraceError::Shape { what, found, expected }) }
}

/// An npz file. Arrays are bounded before they are read, and their headers are believed only as far as there
/// are bytes.
struct Archive {
    path: PathBuf,
    zip: zip::ZipArchive<File>,
}

impl Archive {
    fn open(path: &Path) -> Result<Self, TraceError> {
        let path = path.to_owned();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(source) => return Err(TraceError::Io { path, source }),
        };
        match zip::ZipArchive::new(file) {
            Ok(zip) => Ok(Archive { path, zip }),
            Err(source) => Err(TraceError::Archive { path, source }),
        }
    }

    /// The bytes of an array, in a buffer aligned for float64, and how many there are.
    fn bytes(&mut self, name: &'static str) -> Result<(Vec<f64>, usize), TraceError> {
        let path = self.path.clone();
        let entry = match self.zip.by_name(&format!("{name}.npy")) {
            Ok(entry) => entry,
            Err(zip::result::ZipError::FileNotFound) => return Err(TraceError::Missing { path, name }),
            Err(source) => return Err(TraceError::Archive { path, source }),
        };
        if entry.size() > MAX_ARRAY_BYTES {
            return Err(TraceError::TooLarge { path, name, bytes: entry.size() });
        }
        let mut bytes = Vec::new();
        // The size in the archive's directory may be a lie, so what is unpacked is bounded too.
        match entry.take(MAX_ARRAY_BYTES + 1).read_to_end(&mut bytes) {
            Ok(read) if read as u64 > MAX_ARRAY_BYTES => {
                return Err(TraceError::TooLarge { path, name, bytes: read as u64 });
            }
            Ok(_) => {}
            Err(source) => return Err(TraceError::Io { path, source }),
        }
        let mut aligned = vec![0.0_f64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<f64, u8>(&mut aligned)[..bytes.len()].copy_from_slice(&bytes);
        Ok((aligned, bytes.len()))
    }

    fn array<D: Dimension, T>(
        &mut self,
        name: &'static str,
        dimensions: usize,
        read: impl Fn(ArrayView<'_, f64, D>) -> T,
    ) -> Result<T, TraceError> {
        let (aligned, len) = self.bytes(name)?;
        match ArrayView::<f64, D>::view_npy(&bytemuck::cast_slice::<f64, u8>(&aligned)[..len]) {
            Ok(view) => Ok(read(view)),
            Err(error) => Err(TraceError::Array {
                path: self.path.clone(),
                name,
                dimensions,
                reason: error.to_string(),
            }),
        }
    }

    fn vector(&mut self, name: &'static str) -> Result<Vec<f64>, TraceError> {
        self.array::<Ix1, _>(name, 1, |view| view.to_vec())
    }

    fn matrix(&mut self, name: &'static str) -> Result<Vec<Vec<f64>>, TraceError> {
        self.array::<Ix2, _>(name, 2, |view| view.rows().into_iter().map(|row| row.to_vec()).collect())
    }
}
