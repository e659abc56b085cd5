//! The policy file: what is written comes back, and hostile files are refused by name.

use super::{mixed_blocks, mixture, random_policy, selecting, uniform};
use crate::policy::{
    Acting, ActionBatch, ActionUnit, Head, METADATA_KEY, Policy, PolicyDefect, PolicyError, PolicyParts,
};
use coptidice_core::rng::stream;
use coptidice_nn::{NnError, Pool};
use proptest::prelude::*;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::LazyLock;

fn continuous() -> Policy {
    random_policy(5, mixed_blocks(), mixture(2, 3), 4)
}

fn discrete() -> Policy {
    random_policy(5, mixed_blocks(), Head::Categorical { actions: 3 }, 5)
}

/// A policy file taken apart, to be put together wrongly.
struct Taken {
    tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>,
    description: Value,
}

impl Taken {
    fn apart(policy: &Policy) -> Self {
        let bytes = policy.to_bytes().unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = file
            .tensors()
            .into_iter()
            .map(|(name, view)| (name, view.dtype(), view.shape().to_vec(), view.data().to_vec()))
            .collect();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let entry = &header.metadata().as_ref().unwrap()[METADATA_KEY];
        Self { tensors, description: serde_json::from_str(entry).unwrap() }
    }

    fn together(&self) -> Vec<u8> {
        self.with_entry(METADATA_KEY, &self.description.to_string())
    }

    fn with_entry(&self, key: &str, entry: &str) -> Vec<u8> {
        let views = self.tensors.iter().map(|(name, dtype, shape, bytes)| {
            (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        safetensors::serialize(views, Some(HashMap::from([(key.to_owned(), entry.to_owned())]))).unwrap()
    }

    fn tensor(&mut self, name: &str) -> &mut (String, Dtype, Vec<usize>, Vec<u8>) {
        self.tensors.iter_mut().find(|tensor| tensor.0 == name).unwrap()
    }
}

fn defect_after(change: impl Fn(&mut Taken)) -> PolicyDefect {
    let mut taken = Taken::apart(&continuous());
    change(&mut taken);
    Policy::from_bytes(&taken.together()).unwrap_err()
}

#[test]
fn what_is_saved_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.safetensors");
    for policy in [continuous(), discrete()] {
        policy.save(&path).unwrap();
        let back = Policy::load(&path).unwrap();
        assert_eq!(back.params(), policy.params());
        assert_eq!(back.about(), policy.about());
        assert_eq!(back.network().spec(), policy.network().spec());
        let (one, other) = (back.to_parts(), policy.to_parts());
        assert_eq!((one.head, one.acting, one.normalizer), (other.head, other.acting, other.normalizer));
        assert_eq!((one.action_low, one.action_high), (other.action_low, other.action_high));
        assert_eq!(back.to_bytes().unwrap(), policy.to_bytes().unwrap(), "same policy, same bytes");
        let observations = uniform(&mut stream(0, "observations", 0), -2.0, 2.0, 50);
        let act = |p: &Policy| p.act_batch(&observations, Acting::Sample, 1, &Pool::new(1).unwrap()).unwrap();
        assert_eq!(act(&back), act(&policy));
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["policy.safetensors"], "no temporary file stays behind");
}

/// With a unit, and with a unit and a selector: both come back, and act and weigh as before; a unit that is none does not.
#[test]
fn units_of_actions_come_back() {
    let unit = ActionUnit { middle: vec![5000.0, -3.0], half: vec![200.0, 1e-4] };
    let plain = continuous();
    let pool = Pool::new(1).unwrap();
    let observations = uniform(&mut stream(1, "observations", 0), -1.0, 1.0, 5 * 9);
    for inner in [plain.clone(), selecting(&plain, 1, 6)] {
        let parts = PolicyParts {
            action_unit: Some(unit.clone()),
            action_low: vec![4000.0, -3.0005],
            action_high: vec![6000.0, -2.9995],
            ..inner.to_parts()
        };
        let policy = Policy::new(parts).unwrap();
        let bytes = policy.to_bytes().unwrap();
        let back = Policy::from_bytes(&bytes).unwrap();
        assert_eq!((back.action_unit(), back.to_bytes().unwrap()), (Some(&unit), bytes));
        let actions = policy.act_batch(&observations, policy.acting(), 0, &pool).unwrap();
        assert_eq!(actions, back.act_batch(&observations, policy.acting(), 0, &pool).unwrap());
        assert!(
            actions
                .chunks(2)
                .all(|a| (4000.0..=6000.0).contains(&a[0]) && (-3.0005..=-2.9995).contains(&a[1]))
        );
        assert!(actions.chunks(2).any(|a| a[0] != actions[0]), "they are not all at a bound");
        // A density per unit of the action: that of the head over the widths.
        let inside: Vec<f32> =
            actions.chunks(2).flat_map(|a| [(a[0] - 5000.0) / 200.0, (a[1] + 3.0) / 1e-4]).collect();
        let outside = policy.log_prob(&observations, ActionBatch::Continuous(&actions), &pool).unwrap();
        let of_head = plain.log_prob(&observations, ActionBatch::Continuous(&inside), &pool).unwrap();
        for (outside, of_head) in outside.iter().zip(of_head) {
            assert!((outside + (200.0_f32 * 1e-4).ln() - of_head).abs() < 1e-4, "{outside} {of_head}");
        }
        let none = ActionUnit { half: vec![200.0, 0.0], ..unit.clone() };
        let parts = PolicyParts { action_unit: Some(none), ..policy.to_parts() };
        assert!(matches!(Policy::new(parts), Err(PolicyDefect::ActionUnit { dimension: 1, .. })));
        let short = ActionUnit { middle: vec![0.0], half: vec![1.0] };
        let parts = PolicyParts { action_unit: Some(short), ..policy.to_parts() };
        assert!(matches!(Policy::new(parts), Err(PolicyDefect::TensorShape { .. })));
    }
    let parts = PolicyParts { action_unit: Some(unit), ..discrete().to_parts() };
    assert!(
        matches!(Policy::new(parts), Err(PolicyDefect::TensorShape { .. })),
        "of what there are finitely many"
    );
}

#[test]
fn errors_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("nowhere").join("policy.safetensors");
    let error = Policy::load(&missing).unwrap_err();
    assert!(matches!(&error, PolicyError::Io { .. }) && error.to_string().contains("nowhere"));
    assert!(matches!(continuous().save(&missing), Err(PolicyError::Io { .. })));
    assert!(matches!(Policy::load(folder.path()), Err(PolicyError::Io { .. })), "a folder is no file");

    let path = folder.path().join("weights.safetensors");
    std::fs::write(&path, b"PK\x03\x04 this is a zip archive").unwrap();
    let error = Policy::load(&path).unwrap_err();
    assert!(
        matches!(error, PolicyError::Content { .. }) && error.to_string().contains("weights.safetensors")
    );
}

#[test]
fn an_endless_file_is_not_read_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(Policy::load(&path), Err(PolicyError::TooLarge { .. })));
}

#[test]
fn files_of_another_kind_are_refused() {
    let refused = |bytes: &[u8]| Policy::from_bytes(bytes).unwrap_err();
    assert!(matches!(refused(b""), PolicyDefect::NotSafetensors { .. }));
    assert!(matches!(refused(b"\x89HDF\r\n\x1a\n0123"), PolicyDefect::HeaderTooLarge { .. }), "wrong magic");
    assert!(matches!(refused(&[1, 0, 0, 0, 0, 0, 0, 0, b'{']), PolicyDefect::NotSafetensors { .. }));
    let claim = (1_u64 << 40).to_le_bytes();
    assert_eq!(refused(&claim), PolicyDefect::HeaderTooLarge { bytes: 1 << 40, limit: 1 << 24 });

    let taken = Taken::apart(&continuous());
    let other = taken.with_entry("format", "pt");
    assert_eq!(refused(&other), PolicyDefect::NotAPolicy { key: METADATA_KEY });
    for entry in ["", "{}", "[]", "{\"version\":1}", "{\"version\":\"1\"}", "{\"version\":-1}"] {
        let bytes = taken.with_entry(METADATA_KEY, entry);
        assert!(matches!(refused(&bytes), PolicyDefect::Metadata { .. }), "{entry}");
    }
    let future = taken.with_entry(METADATA_KEY, "{\"version\":4,\"attention\":true}");
    assert_eq!(refused(&future), PolicyDefect::UnknownVersion { found: 4, supported: 3 });
}

#[test]
fn every_wrong_tensor_is_named() {
    let name = "network.layers.0.weight".to_owned();
    let missing = defect_after(|t| t.tensors.retain(|tensor| tensor.0 != "network.layers.0.weight"));
    assert_eq!(missing, PolicyDefect::MissingTensor { tensor: name.clone() });
    let stray = defect_after(|t| t.tensors.push(("extra".into(), Dtype::F32, vec![1], vec![0; 4])));
    assert_eq!(stray, PolicyDefect::UnexpectedTensor { tensor: "extra".into() });
    let transposed = defect_after(|t| t.tensor("network.layers.0.weight").2 = vec![5, 40]);
    let (expected, found) = (vec![40, 5], vec![5, 40]);
    assert_eq!(transposed, PolicyDefect::TensorShape { tensor: name.clone(), expected, found });
    let integers = defect_after(|t| t.tensor("network.layers.0.weight").1 = Dtype::I32);
    assert_eq!(integers, PolicyDefect::TensorType { tensor: name, found: "I32".into() });
    let nan =
        defect_after(|t| t.tensor("network.layers.0.bias").3[8..12].copy_from_slice(&f32::NAN.to_le_bytes()));
    assert_eq!(nan, PolicyDefect::NotFinite { tensor: "layers.0.bias".into(), index: 2 });
    let infinite =
        defect_after(|t| t.tensor("normalizer.mean").3[..4].copy_from_slice(&f32::INFINITY.to_le_bytes()));
    assert_eq!(infinite, PolicyDefect::NotFinite { tensor: "normalizer.mean".into(), index: 0 });
    let zero = defect_after(|t| t.tensor("normalizer.scale").3[4..8].fill(0));
    assert_eq!(zero, PolicyDefect::Scale { column: 1, scale: 0.0 });
    let unbounded = defect_after(|t| t.tensors.retain(|tensor| tensor.0 != "action.high"));
    assert_eq!(unbounded, PolicyDefect::MissingTensor { tensor: "action.high".into() });
}

#[test]
fn every_wrong_description_is_named() {
    let unknown = defect_after(|t| t.description["surprise"] = json!(1));
    assert!(matches!(unknown, PolicyDefect::Metadata { .. }));
    let acting = defect_after(|t| t.description["acting"] = json!("greedy"));
    assert!(matches!(acting, PolicyDefect::Metadata { .. }));
    let components = defect_after(|t| t.description["head"]["components"] = json!(0));
    assert!(matches!(components, PolicyDefect::Head(_)));
    let overflow = defect_after(|t| t.description["head"]["action_dim"] = json!(u64::MAX));
    assert!(matches!(overflow, PolicyDefect::Head(_)));
    let fewer = defect_after(|t| t.description["head"]["components"] = json!(2));
    assert_eq!(fewer, PolicyDefect::Outputs { network: 18, head: 12 });
    let empty = defect_after(|t| t.description["network"]["input"] = json!(0));
    assert!(matches!(empty, PolicyDefect::Network(NnError::ZeroWidth { .. })));
    let huge = defect_after(|t| t.description["network"]["blocks"][0]["width"] = json!(1_u64 << 62));
    assert!(matches!(huge, PolicyDefect::Network(NnError::TooLarge { .. })));
    // Large but addressable: refused by the shapes, before anything of that size is allocated.
    let large = defect_after(|t| t.description["network"]["blocks"][0]["width"] = json!(1_000_000));
    assert!(matches!(large, PolicyDefect::TensorShape { .. }));
    let endless = defect_after(|t| {
        let block = t.description["network"]["blocks"][1].clone();
        t.description["network"]["blocks"] = json!(vec![block; 20_000]);
    });
    assert!(matches!(endless, PolicyDefect::MissingTensor { .. }));
    let names = defect_after(|t| t.description["about"]["action_names"] = json!(["a"]));
    assert_eq!(names, PolicyDefect::Names { what: "action", expected: 2, found: 1 });
    let limit = defect_after(|t| t.description["about"]["limits"][0]["per_step"] = Value::Null);
    assert!(matches!(limit, PolicyDefect::Metadata { .. }));
    let deep = "[".repeat(100_000);
    let taken = Taken::apart(&continuous());
    let found = Policy::from_bytes(&taken.with_entry(METADATA_KEY, &deep)).unwrap_err();
    assert!(matches!(found, PolicyDefect::Metadata { .. }));
}

#[test]
fn a_file_cut_short_is_refused_at_every_length() {
    let bytes = continuous().to_bytes().unwrap();
    for length in (0..bytes.len()).step_by(61).chain(bytes.len() - 9..bytes.len()) {
        assert!(Policy::from_bytes(&bytes[..length]).is_err(), "{length} of {}", bytes.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Damage anywhere in the header never panics; what still loads is a sound policy.
    #[test]
    fn damaged_headers_never_panic(at in 0..4000_usize, byte in any::<u8>(), at2 in 0..16_usize, byte2 in any::<u8>()) {
        static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| discrete().to_bytes().unwrap());
        let mut bytes = SOUND.clone();
        let length = bytes.len();
        bytes[at % length] = byte;
        if byte2 % 2 == 0 {
            bytes[at2] = byte2;
        }
        if let Ok(policy) = Policy::from_bytes(&bytes) {
            let observation = vec![0.0; policy.observation_width()];
            let mut action = vec![0.0; policy.action_width()];
            // The weights may have become huge; that is an error by name, too.
            let _ = policy.actor().act(&observation, &mut stream(0, "t", 0), &mut action);
        }
    }
}
