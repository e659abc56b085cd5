//! Checkpoints from which training continues to the same bytes.
//!
//! `RUN/checkpoints/step-N/` holds `state.safetensors` (every parameter, average and optimiser moment, the multipliers
//! and the open window of metrics) and `state.json` (step, configuration, fingerprint of the log, checksum). Batches
//! and initial parameters are functions of the seed and the step, so there is no generator state to keep. A checkpoint
//! is written under a temporary name, flushed to the disk and then renamed: one that has its name is complete.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use coptidice_nn::Precision;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::TrainConfig;
use crate::learner::{Resumable, StateMut};

/// 2: parameters are of actions in units of their own, and of costs scaled with their credits.
const FORMAT: u32 = 2;
const TENSORS: &str = "state.safetensors";
const STATE: &str = "state.json";
const PREFIX: &str = "step-";
const UNFINISHED: &str = "unfinished-";

/// Fields that may change between a checkpoint and its continuation: they do not enter the parameters.
const FREE_FIELDS: [&str; 5] = ["steps", "threads", "log_every", "checkpoint_every", "keep_checkpoints"];

/// Where training stands beside the learner's own state.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// Steps done.
    pub(crate) step: u64,
    /// Sums of the metrics since they were last reported.
    pub(crate) window: Vec<f64>,
    /// Steps in those sums.
    pub(crate) window_steps: u64,
}

/// A checkpoint that cannot be written or continued from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The disk said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The checkpoint is not whole. An older one may be.
    #[error("checkpoint {} is damaged: {reason}; delete it to continue from an older one", path.display())]
    Damaged {
        /// The checkpoint.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Written in a format that this version does not know.
    #[error("checkpoint {} has format {found}, this version reads {FORMAT}", path.display())]
    Format {
        /// The checkpoint.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The configuration is another one.
    #[error(
        "checkpoint {} was trained with {field} = {theirs}, now it is {ours}; \
         use the old value, or start a new run", path.display()
    )]
    ConfigDiffers {
        /// The checkpoint.
        path: PathBuf,
        /// The first field that differs.
        field: String,
        /// Its value now.
        ours: String,
        /// Its value then.
        theirs: String,
    },
    /// The log is another one.
    #[error(
        "checkpoint {} was trained on a log with fingerprint {theirs}, this one has {ours}; \
         use the same log, or start a new run", path.display()
    )]
    DataDiffers {
        /// The checkpoint.
        path: PathBuf,
        /// Fingerprint of the log given now.
        ours: String,
        /// Fingerprint of the log then.
        theirs: String,
    },
    /// The checkpoint is beyond the last step asked for.
    #[error("checkpoint {} stands at step {step}, beyond steps = {steps}; raise steps", path.display())]
    BeyondEnd {
        /// The checkpoint.
        path: PathBuf,
        /// Its step.
        step: u64,
        /// Steps asked for.
        steps: u64,
    },
}

/// `state.json`.
#[derive(Serialize, Deserialize)]
struct StateFile {
    format: u32,
    version: String,
    step: u64,
    window_steps: u64,
    data_fingerprint: String,
    config: serde_json::Value,
    tensors_sha256: String,
}

/// The checkpoints of one run.
pub(crate) struct Store {
    folder: PathBuf,
    terms: Terms,
}

/// What the checkpoints of a run must agree with, and how many are kept.
pub(crate) struct Terms {
    /// The configuration without what may change.
    pub(crate) config: serde_json::Value,
    /// Fingerprint of the log.
    pub(crate) data_fingerprint: String,
    /// The last step asked for.
    pub(crate) steps: u64,
    /// The newest so many are kept.
    pub(crate) keep: usize,
}

impl Terms {
    /// Of training on a log. The number of steps may change where every step is like the others: a policy with steps of
    /// its own has them by a share of all, and learning rates fall towards the last.
    pub(crate) fn of(config: &TrainConfig, data_fingerprint: String) -> Self {
        let free = FREE_FIELDS.into_iter().filter(|field| *field != "steps" || !config.draws_afterwards());
        Terms {
            config: comparable(config, free),
            data_fingerprint,
            steps: config.steps,
            keep: config.keep_checkpoints,
        }
    }
}

/// What [`Store::save`] did.
pub(crate) enum Saved {
    /// The checkpoint stands here.
    At(PathBuf),
    /// A piece of the state was not finite, and nothing was written.
    NotFinite(String),
}

impl Store {
    /// Opens `run/checkpoints`, making it if needed, and clears away what an interrupted writer left.
    pub(crate) fn open(run: &Path, terms: Terms) -> Result<Self, CheckpointError> {
        let folder = run.join("checkpoints");
        fs::create_dir_all(&folder).map_err(io(&folder))?;
        for (name, path) in entries(&folder)? {
            if name.starts_with(UNFINISHED) {
                fs::remove_dir_all(&path).map_err(io(&path))?;
            }
        }
        Ok(Store::new(&folder, terms))
    }

    /// The checkpoints in `folder`, which is left as it is.
    pub(crate) fn new(folder: &Path, terms: Terms) -> Self {
        Store { folder: folder.to_owned(), terms }
    }

    /// The checkpoints there are, newest first.
    pub(crate) fn list(&self) -> Result<Vec<(u64, PathBuf)>, CheckpointError> {
        let mut found = checkpoints(&self.folder)?;
        found.reverse();
        Ok(found)
    }

    /// Writes a checkpoint and removes the oldest beyond the number to keep.
    pub(crate) fn save(
        &self,
        state: &mut dyn Resumable,
        progress: &Progress,
    ) -> Result<Saved, CheckpointError> {
        let pieces = match collect(state, progress) {
            Ok(pieces) => pieces,
            Err(name) => return Ok(Saved::NotFinite(name)),
        };
        let path = self.folder.join(format!("{PREFIX}{}", progress.step));
        let views = pieces.iter().map(|piece| {
            let view =
                TensorView::new(piece.dtype, vec![piece.bytes.len() / piece.dtype_bytes()], &piece.bytes)
                    .expect("the shape is computed from the bytes");
            (piece.name.as_str(), view)
        });
        let tensors = safetensors::serialize(views, None)
            .map_err(|error| CheckpointError::Damaged { path: path.clone(), reason: error.to_string() })?;
        let state = StateFile {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            step: progress.step,
            window_steps: progress.window_steps,
            data_fingerprint: self.terms.data_fingerprint.clone(),
            config: self.terms.config.clone(),
            tensors_sha256: hex(&Sha256::digest(&tensors)),
        };
        let state = serde_json::to_vec_pretty(&state).expect("a struct of plain values has a JSON form");
        self.publish(&path, &[(TENSORS, &tensors), (STATE, &state)])?;
        self.prune()?;
        Ok(Saved::At(path))
    }

    /// Temporary name, flush, rename, flush the folder.
    fn publish(&self, path: &Path, files: &[(&str, &[u8])]) -> Result<(), CheckpointError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = self.folder.join(format!("{UNFINISHED}{name}"));
        fs::create_dir_all(&temporary).map_err(io(&temporary))?;
        for (name, bytes) in files {
            let file = temporary.join(name);
            let mut handle = File::create(&file).map_err(io(&file))?;
            handle.write_all(bytes).and_then(|()| handle.sync_all()).map_err(io(&file))?;
        }
        sync_folder(&temporary)?;
        if path.exists() {
            // The same step of the same run: a damaged one, or a time before the run was continued.
            fs::remove_dir_all(path).map_err(io(path))?;
        }
        fs::rename(&temporary, path).map_err(io(path))?;
        sync_folder(&self.folder)
    }

    fn prune(&self) -> Result<(), CheckpointError> {
        for (_, path) in self.list()?.into_iter().skip(self.terms.keep) {
            fs::remove_dir_all(&path).map_err(io(&path))?;
        }
        Ok(())
    }

    /// Puts the checkpoint at `path` into a learner that reports so many metrics.
    pub(crate) fn load(
        &self,
        path: &Path,
        learner: &mut dyn Resumable,
        metrics: usize,
    ) -> Result<Progress, CheckpointError> {
        let damaged = |reason: String| CheckpointError::Damaged { path: path.to_owned(), reason };
        let read = |name: &str| {
            let file = path.join(name);
            fs::read(&file).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => damaged(format!("{name} is missing")),
                _ => io(&file)(error),
            })
        };
        let state: StateFile =
            serde_json::from_slice(&read(STATE)?).map_err(|error| damaged(format!("{STATE}: {error}")))?;
        self.check(path, &state)?;
        let bytes = read(TENSORS)?;
        if hex(&Sha256::digest(&bytes)) != state.tensors_sha256 {
            return Err(damaged(format!("{TENSORS} does not have its checksum")));
        }
        let tensors = SafeTensors::deserialize(&bytes).map_err(|error| damaged(error.to_string()))?;
        restore(&tensors, learner).map_err(damaged)?;
        let window = tensors.tensor("window").map_err(|error| damaged(error.to_string()))?;
        let (words, _) = window.data().as_chunks::<8>();
        let window: Vec<f64> = words.iter().map(|word| f64::from_le_bytes(*word)).collect();
        if window.len() != metrics {
            return Err(damaged(format!("it has {} metrics, not {metrics}", window.len())));
        }
        Ok(Progress { step: state.step, window, window_steps: state.window_steps })
    }

    fn check(&self, path: &Path, state: &StateFile) -> Result<(), CheckpointError> {
        let path = path.to_owned();
        if state.format != FORMAT {
            return Err(CheckpointError::Format { path, found: state.format });
        }
        let mut theirs = state.config.clone();
        if let Some(fields) = theirs.as_object_mut() {
            // Written before there was a choice: of the precision, or of extractions with these settings.
            fields.entry("precision").or_insert_with(|| Precision::F32.name().into());
            for table in ["projection", "selection"] {
                fields.entry(table).or_insert_with(|| self.terms.config[table].clone());
            }
        }
        if let Some((field, ours, theirs)) = difference(&self.terms.config, &theirs, "") {
            return Err(CheckpointError::ConfigDiffers { path, field, ours, theirs });
        }
        if state.data_fingerprint != self.terms.data_fingerprint {
            let (ours, theirs) = (self.terms.data_fingerprint.clone(), state.data_fingerprint.clone());
            return Err(CheckpointError::DataDiffers { path, ours, theirs });
        }
        if state.step > self.terms.steps {
            return Err(CheckpointError::BeyondEnd { path, step: state.step, steps: self.terms.steps });
        }
        Ok(())
    }
}

struct Piece {
    name: String,
    dtype: Dtype,
    bytes: Vec<u8>,
}

impl Piece {
    fn dtype_bytes(&self) -> usize {
        if self.dtype == Dtype::F32 { 4 } else { 8 }
    }
}

/// Copies the state, or names the first piece that is not finite.
fn collect(learner: &mut dyn Resumable, progress: &Progress) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut bad = None;
    learner.visit_state(&mut |name, state| {
        let (dtype, bytes) = match state {
            StateMut::F32(values) => {
                if values.iter().any(|v| !v.is_finite()) {
                    bad.get_or_insert_with(|| name.to_owned());
                }
                (Dtype::F32, values.iter().flat_map(|v| v.to_le_bytes()).collect())
            }
            StateMut::U64(value) => (Dtype::U64, value.to_le_bytes().to_vec()),
        };
        pieces.push(Piece { name: name.to_owned(), dtype, bytes });
    });
    let window = progress.window.iter().flat_map(|v| v.to_le_bytes()).collect();
    pieces.push(Piece { name: "window".to_owned(), dtype: Dtype::F64, bytes: window });
    bad.map_or(Ok(pieces), Err)
}

fn restore(tensors: &SafeTensors<'_>, learner: &mut dyn Resumable) -> Result<(), String> {
    let mut problem = Ok(());
    learner.visit_state(&mut |name, state| {
        if problem.is_ok() {
            problem = restore_piece(tensors, name, state);
        }
    });
    problem
}

fn restore_piece(tensors: &SafeTensors<'_>, name: &str, state: StateMut<'_>) -> Result<(), String> {
    let view = tensors.tensor(name).map_err(|error| format!("{name}: {error}"))?;
    let (dtype, length) = match &state {
        StateMut::F32(values) => (Dtype::F32, values.len()),
        StateMut::U64(_) => (Dtype::U64, 1),
    };
    if view.dtype() != dtype || view.shape() != [length] {
        return Err(format!("{name} is {:?} {:?}, not {dtype:?} [{length}]", view.dtype(), view.shape()));
    }
    match state {
        StateMut::F32(values) => {
            let (words, _) = view.data().as_chunks::<4>();
            for (value, word) in values.iter_mut().zip(words) {
                *value = f32::from_le_bytes(*word);
            }
        }
        StateMut::U64(value) => {
            let (words, _) = view.data().as_chunks::<8>();
            *value = words.first().map_or(0, |word| u64::from_le_bytes(*word));
        }
    }
    Ok(())
}

/// A validated configuration without its free fields, as JSON that equals itself after writing and reading.
pub(crate) fn comparable(
    config: &impl Serialize,
    free: impl IntoIterator<Item = &'static str>,
) -> serde_json::Value {
    let text =
        serde_json::to_string(config).expect("a validated configuration holds finite numbers and text");
    let mut value: serde_json::Value = serde_json::from_str(&text).expect("JSON just written is JSON");
    if let Some(fields) = value.as_object_mut() {
        for field in free {
            fields.remove(field);
        }
    }
    value
}

/// Path and values of the first difference.
fn difference(
    ours: &serde_json::Value,
    theirs: &serde_json::Value,
    place: &str,
) -> Option<(String, String, String)> {
    if let (Some(a), Some(b)) = (ours.as_object(), theirs.as_object()) {
        let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let absent = serde_json::Value::Null;
        return keys.into_iter().find_map(|key| {
            let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
            difference(a.get(key).unwrap_or(&absent), b.get(key).unwrap_or(&absent), &place)
        });
    }
    (ours != theirs).then(|| (place.to_owned(), ours.to_string(), theirs.to_string()))
}

/// The checkpoints in a run's folder of them, `RUN/checkpoints`: step and path, oldest first.
///
/// # Errors
/// [`CheckpointError`] if the folder cannot be read.
pub fn checkpoints(folder: &Path) -> Result<Vec<(u64, PathBuf)>, CheckpointError> {
    let mut found: Vec<(u64, PathBuf)> = entries(folder)?
        .into_iter()
        .filter_map(|(name, path)| Some((name.strip_prefix(PREFIX)?.parse().ok()?, path)))
        .collect();
    found.sort_unstable();
    Ok(found)
}

fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>, CheckpointError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(io(folder))? {
        let entry = entry.map_err(io(folder))?;
        found.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    Ok(found)
}

/// Makes a rename or new file in `folder` survive a power cut. Where folders cannot be opened (not on Unix) the
/// system offers nothing of the kind.
fn sync_folder(folder: &Path) -> Result<(), CheckpointError> {
    if cfg!(unix) {
        File::open(folder).and_then(|handle| handle.sync_all()).map_err(io(folder))?;
    }
    Ok(())
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> CheckpointError {
    let path = path.to_owned();
    move |source| CheckpointError::Io { path, source }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
