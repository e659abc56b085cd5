//! `policy.safetensors`: the whole policy in one file.
//!
//! Tensors, all of 32-bit floats: `network.<name>` for every tensor of [`Network::layout`], `normalizer.mean` and
//! `normalizer.scale` `[O]`, and for continuous actions `action.low` and `action.high` `[A]`. The header's metadata
//! has one entry, [`METADATA_KEY`], a JSON object with `version` (the format's), `network`, `head`, `acting` and
//! `about`. The same policy gives the same bytes.
//!
//! A policy with a [`Selector`] is of version 2 and has besides: in the description `selector`, with `network`, `costs`
//! (`K`) and `candidates`, of the kind `drawn` (with `count`, `m`) or `likely` (with `threshold`); tensors
//! `selector.network.<name>`, `selector.prices` `[K]`, and for drawn candidates `selector.draws` `[m, A, 2]` (quantile of
//! the component, normal value), `selector.action.mean` and `selector.action.scale` `[A]`. A policy whose head counts actions
//! in a unit of its own ([`ActionUnit`]), with a selector or without, is of version 3 and has tensors `action.middle` and
//! `action.half` `[A]`. All others are of version 1, the format's first, as they always were.
//!
//! Files are not trusted: sizes are capped before anything is read or allocated, every shape is compared with the
//! one the description implies, and every number must be finite. Fields or tensors that this version does not know
//! are errors, because ignoring one could change what the policy does; a change of the format changes its version.

use super::selector::MAX_CANDIDATES;
use super::{
    Acting, ActionUnit, Candidates, Head, Normalizer, Policy, PolicyAbout, PolicyDefect, PolicyError,
    PolicyParts, Selector,
};
use coptidice_nn::{Network, NetworkSpec};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::Path;

/// The metadata entry that makes a safetensors file a policy.
pub const METADATA_KEY: &str = "coptidice.policy";

/// The newest format, of policies with a unit of actions; those that need it not are written in an older one. All are read.
pub const FORMAT_VERSION: u64 = 3;

/// The format of policies with a selector, and no unit of actions.
const SELECTOR_VERSION: u64 = 2;

/// The format of policies with neither.
const FIRST_VERSION: u64 = 1;

/// Largest file read: 1 GiB, 268 million parameters.
const MAX_BYTES: u64 = 1 << 30;

/// Largest header read: 16 MiB, some hundred thousand names.
const MAX_HEADER_BYTES: u64 = 1 << 24;

/// The metadata entry.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    version: u64,
    network: NetworkSpec,
    head: Head,
    acting: Acting,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    selector: Option<SelectorDescription>,
    about: PolicyAbout,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SelectorDescription {
    network: NetworkSpec,
    costs: usize,
    candidates: CandidatesDescription,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum CandidatesDescription {
    Drawn { count: usize },
    Likely { threshold: f32 },
}

/// Just enough to tell the version, whatever else is there.
#[derive(Deserialize)]
struct VersionOnly {
    version: u64,
}

impl Policy {
    /// Reads a policy.
    ///
    /// # Errors
    /// [`PolicyError`] with the path and what is wrong with the file.
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        let bytes = read_capped(path)?;
        Self::from_bytes(&bytes).map_err(|defect| PolicyError::Content { path: path.to_owned(), defect })
    }

    /// Writes the policy, replacing the file in one step: a reader sees the old file or the new one, whole.
    ///
    /// # Errors
    /// [`PolicyError`] with the path and what the system said.
    pub fn save(&self, path: &Path) -> Result<(), PolicyError> {
        let bytes =
            self.to_bytes().map_err(|defect| PolicyError::Unwritable { path: path.to_owned(), defect })?;
        write_whole(path, &bytes)
    }

    /// The content of a policy file.
    ///
    /// # Errors
    /// A defect if the header or the whole would be larger than [`Policy::load`] reads.
    pub fn to_bytes(&self) -> Result<Vec<u8>, PolicyDefect> {
        let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
        let networks = std::iter::once(("", self.network(), self.params()))
            .chain(self.selector().map(|s| ("selector.", &s.network, s.params.as_slice())));
        for (owner, network, params) in networks {
            for slice in network.layout() {
                let values = &params[slice.offset..slice.offset + slice.len];
                let name = format!("{owner}{}", network_tensor(&slice.name));
                tensors.push((name, slice.shape.clone(), little_endian(values)));
            }
        }
        for (name, values) in self.vectors() {
            let shape = match name {
                "selector.draws" => vec![values.len() / (2 * self.action_width()), self.action_width(), 2],
                _ => vec![values.len()],
            };
            tensors.push((name.to_owned(), shape, little_endian(values)));
        }
        let views = tensors
            .iter()
            .map(|(name, shape, bytes)| Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?)))
            .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
            .map_err(not_safetensors)?;
        let metadata = HashMap::from([(METADATA_KEY.to_owned(), self.description()?)]);
        let bytes = safetensors::serialize(views, Some(metadata)).map_err(not_safetensors)?;
        check_header_size(&bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(PolicyDefect::TooLarge {
                format: "policy",
                bytes: bytes.len() as u64,
                limit: MAX_BYTES,
            });
        }
        Ok(bytes)
    }

    /// The policy in the content of a file.
    ///
    /// # Errors
    /// The first [`PolicyDefect`] found.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PolicyDefect> {
        check_header_size(bytes)?;
        let tensors = SafeTensors::deserialize(bytes).map_err(not_safetensors)?;
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(not_safetensors)?;
        let entry = header.metadata().as_ref().and_then(|entries| entries.get(METADATA_KEY));
        let description = parse_description(entry.ok_or(PolicyDefect::NotAPolicy { key: METADATA_KEY })?)?;
        // Every block has at least two tensors: an endless list of blocks is refused before it is laid out.
        let described = std::iter::once(&description.network)
            .chain(description.selector.as_ref().map(|selector| &selector.network));
        if described.map(|network| network.blocks.len()).any(|blocks| blocks > tensors.len()) {
            return Err(PolicyDefect::MissingTensor { tensor: network_tensor("layers") });
        }
        let head = description.head.validated()?;
        let network = Network::new(description.network)?;

        let mut reader = TensorReader { tensors: &tensors, read: Vec::new() };
        let mut params = Vec::new();
        for slice in network.layout() {
            params.extend(reader.read(&network_tensor(&slice.name), &slice.shape)?);
        }
        let columns = [network.spec().input];
        let normalizer = Normalizer {
            mean: reader.read("normalizer.mean", &columns)?,
            scale: reader.read("normalizer.scale", &columns)?,
        };
        let (action_low, action_high) = if head.is_discrete() {
            (Vec::new(), Vec::new())
        } else {
            let dimensions = [head.action_width()];
            (reader.read("action.low", &dimensions)?, reader.read("action.high", &dimensions)?)
        };
        let action_unit = if description.version == FORMAT_VERSION {
            let dimensions = [head.action_width()];
            Some(ActionUnit {
                middle: reader.read("action.middle", &dimensions)?,
                half: reader.read("action.half", &dimensions)?,
            })
        } else {
            None
        };
        let selector = match description.selector {
            Some(described) => Some(read_selector(described, head, &mut reader)?),
            None => None,
        };
        if reader.read.len() != tensors.len() {
            return Err(reader.unexpected());
        }
        Policy::new(PolicyParts {
            network,
            params,
            head,
            normalizer,
            acting: description.acting,
            action_low,
            action_high,
            action_unit,
            selector,
            about: description.about,
        })
    }

    /// The JSON description that travels in the metadata of every file the policy is written to.
    pub(crate) fn description(&self) -> Result<String, PolicyDefect> {
        let selector = self.selector().map(|selector| SelectorDescription {
            network: selector.network.spec().clone(),
            costs: selector.prices.len(),
            candidates: match &selector.candidates {
                Candidates::Drawn { draws, .. } => {
                    CandidatesDescription::Drawn { count: draws.len() / self.action_width() }
                }
                Candidates::Likely { threshold } => CandidatesDescription::Likely { threshold: *threshold },
            },
        });
        let description = Description {
            version: match (self.action_unit(), &selector) {
                (Some(_), _) => FORMAT_VERSION,
                (None, Some(_)) => SELECTOR_VERSION,
                (None, None) => FIRST_VERSION,
            },
            selector,
            network: self.network().spec().clone(),
            head: self.head(),
            acting: self.acting(),
            about: self.about().clone(),
        };
        serde_json::to_string(&description)
            .map_err(|error| PolicyDefect::Metadata { reason: error.to_string() })
    }

    /// The named vectors beside the network's tensors.
    fn vectors(&self) -> Vec<(&'static str, &[f32])> {
        let mut vectors = vec![
            ("normalizer.mean", self.normalizer().mean.as_slice()),
            ("normalizer.scale", self.normalizer().scale.as_slice()),
        ];
        if !self.head().is_discrete() {
            vectors.push(("action.low", self.action_low()));
            vectors.push(("action.high", self.action_high()));
        }
        if let Some(unit) = self.action_unit() {
            vectors.push(("action.middle", &unit.middle));
            vectors.push(("action.half", &unit.half));
        }
        vectors.extend(self.selector().into_iter().flat_map(Selector::vectors));
        vectors
    }
}

fn network_tensor(name: &str) -> String {
    format!("network.{name}")
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn not_safetensors(error: safetensors::SafeTensorError) -> PolicyDefect {
    PolicyDefect::NotSafetensors { reason: error.to_string() }
}

fn parse_description(entry: &str) -> Result<Description, PolicyDefect> {
    let unreadable = |error: serde_json::Error| PolicyDefect::Metadata { reason: error.to_string() };
    // The version first: another version's description may have any form.
    let VersionOnly { version } = serde_json::from_str(entry).map_err(unreadable)?;
    if !(FIRST_VERSION..=FORMAT_VERSION).contains(&version) {
        return Err(PolicyDefect::UnknownVersion { found: version, supported: FORMAT_VERSION });
    }
    let description: Description = serde_json::from_str(entry).map_err(unreadable)?;
    if version != FORMAT_VERSION && description.selector.is_some() != (version == SELECTOR_VERSION) {
        let reason = format!("format {version} and a selector, or none, do not go together");
        return Err(PolicyDefect::Metadata { reason });
    }
    Ok(description)
}

/// The selector of a policy with `head`.
fn read_selector(
    described: SelectorDescription,
    head: Head,
    reader: &mut TensorReader<'_>,
) -> Result<Selector, PolicyDefect> {
    let network = Network::new(described.network)?;
    let mut params = Vec::new();
    for slice in network.layout() {
        let name = format!("selector.{}", network_tensor(&slice.name));
        params.extend(reader.read(&name, &slice.shape)?);
    }
    let candidates = match described.candidates {
        CandidatesDescription::Drawn { count } => {
            if !(1..=MAX_CANDIDATES).contains(&count) {
                return Err(PolicyDefect::Selector { reason: "it has no candidates, or too many" });
            }
            let dim = head.action_width();
            let draws = reader.read("selector.draws", &[count, dim, 2])?;
            let (draws, _) = draws.as_chunks::<2>();
            Candidates::Drawn {
                draws: draws.to_vec(),
                action: Normalizer {
                    mean: reader.read("selector.action.mean", &[dim])?,
                    scale: reader.read("selector.action.scale", &[dim])?,
                },
            }
        }
        CandidatesDescription::Likely { threshold } => Candidates::Likely { threshold },
    };
    let prices = reader.read("selector.prices", &[described.costs])?;
    Ok(Selector { network, params, prices, candidates })
}

/// Reads tensors by name, each once, and remembers which.
struct TensorReader<'a> {
    tensors: &'a SafeTensors<'a>,
    read: Vec<String>,
}

impl TensorReader<'_> {
    fn read(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, PolicyDefect> {
        let Ok(view) = self.tensors.tensor(name) else {
            return Err(PolicyDefect::MissingTensor { tensor: name.to_owned() });
        };
        if view.dtype() != Dtype::F32 {
            let found = view.dtype().to_string();
            return Err(PolicyDefect::TensorType { tensor: name.to_owned(), found });
        }
        if view.shape() != shape {
            return Err(PolicyDefect::TensorShape {
                tensor: name.to_owned(),
                expected: shape.to_vec(),
                found: view.shape().to_vec(),
            });
        }
        self.read.push(name.to_owned());
        let (words, _) = view.data().as_chunks::<4>();
        Ok(words.iter().map(|&word| f32::from_le_bytes(word)).collect())
    }

    /// Names a tensor that was not read; only called when there is one.
    fn unexpected(&self) -> PolicyDefect {
        let mut names: Vec<&str> = self.tensors.names();
        names.sort_unstable();
        let stray = names.into_iter().find(|name| !self.read.iter().any(|read| read == name));
        PolicyDefect::UnexpectedTensor { tensor: stray.unwrap_or_default().to_owned() }
    }
}

/// Refuses a header that no policy has, before it is parsed.
fn check_header_size(bytes: &[u8]) -> Result<(), PolicyDefect> {
    let Some(claim) = bytes.first_chunk::<8>() else {
        return Err(PolicyDefect::NotSafetensors { reason: format!("only {} bytes long", bytes.len()) });
    };
    let claim = u64::from_le_bytes(*claim);
    if claim > MAX_HEADER_BYTES {
        return Err(PolicyDefect::HeaderTooLarge { bytes: claim, limit: MAX_HEADER_BYTES });
    }
    Ok(())
}

/// Reads a whole file, but never more than a policy can have: not every file says how long it is.
fn read_capped(path: &Path) -> Result<Vec<u8>, PolicyError> {
    let failed = |source| PolicyError::Io { action: "cannot read", path: path.to_owned(), source };
    let too_large = || PolicyError::TooLarge { path: path.to_owned(), limit: MAX_BYTES };
    let file = std::fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > MAX_BYTES {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(too_large());
    }
    Ok(bytes)
}

/// Writes a file under a temporary name beside `path`, flushes it to the disk, and renames it.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), PolicyError> {
    let failed = |source| PolicyError::Io { action: "cannot write", path: path.to_owned(), source };
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As any other new file: readable as the user's mask says, not private like temporary files.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.prefix(".policy-").tempfile_in(folder).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    // The rename itself is on the disk once the folder is; not every system lets folders be flushed.
    if let Ok(folder) = std::fs::File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}
