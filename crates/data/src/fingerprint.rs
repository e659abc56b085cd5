//! A name for the contents of a log.

use sha2::{Digest, Sha256};

use crate::transitions::{Actions, Transitions};

/// SHA-256 over the numbers that training sees: shapes, columns and episode boundaries, little-endian, in a fixed
/// order. The file format, compression, storage width and names do not enter.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    pub(crate) fn of(log: &Transitions) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"coptidice transitions 1\0");
        let (kind, size) = match &log.actions {
            Actions::Continuous { dim, .. } => (0_u64, *dim),
            Actions::Discrete { count, .. } => (1, *count),
        };
        let shape =
            [log.len(), log.observation_dim, log.cost_count(), size, usize::from(log.propensities.is_some())];
        for word in shape.map(|n| n as u64).into_iter().chain([kind]) {
            hash.update(word.to_le_bytes());
        }
        floats(&mut hash, &log.observations);
        for i in 0..log.len() {
            floats(&mut hash, log.next_observation(i));
        }
        match &log.actions {
            Actions::Continuous { values, .. } => floats(&mut hash, values),
            Actions::Discrete { ids, .. } => {
                for id in ids.iter() {
                    hash.update(id.to_le_bytes());
                }
            }
        }
        floats(&mut hash, &log.rewards);
        floats(&mut hash, &log.costs);
        // A flag is any non-zero byte in a file; here it is one bit of meaning.
        for i in 0..log.len() {
            hash.update([u8::from(log.terminal(i)) | u8::from(log.timeout(i)) << 1]);
        }
        for episode in &log.episodes {
            hash.update((episode.start as u64).to_le_bytes());
        }
        if let Some(propensities) = &log.propensities {
            floats(&mut hash, propensities);
        }
        Fingerprint(hash.finalize().into())
    }
}

fn floats(hash: &mut Sha256, values: &[f32]) {
    if cfg!(target_endian = "little") {
        hash.update(bytemuck::cast_slice::<f32, u8>(values));
    } else {
        for value in values {
            hash.update(value.to_le_bytes());
        }
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl serde::Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
