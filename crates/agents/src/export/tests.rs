//! The exported graph under an independent runtime, against the policy itself.

use super::proto::ModelProto;
use super::{exported_acting, save_onnx, to_onnx};
use crate::policy::tests::{mixed_blocks, mixture, random_policy, selecting, uniform};
use crate::policy::{Acting, ActionUnit, Head, METADATA_KEY, Policy, PolicyError, PolicyParts};
use coptidice_core::rng::stream;
use coptidice_nn::{Activation, BlockSpec, Pool};
use prost::Message;
use std::collections::BTreeMap;
use tract_onnx::prelude::*;

const COLUMNS: usize = 7;
const ROWS: usize = 33;

/// Single precision over a few layers of some 40 terms: 1e-6. The product promises 1e-5.
const TOLERANCE: f32 = 1e-5;

fn observations() -> Vec<f32> {
    uniform(&mut stream(0, "observations", 0), -2.0, 2.0, ROWS * COLUMNS)
}

/// Runs the file on [`observations`], `N` bound when it runs.
fn run(bytes: &[u8]) -> TVec<TValue> {
    let model = tract_onnx::onnx().model_for_read(&mut &*bytes).unwrap().into_optimized().unwrap();
    let input = Tensor::from_shape(&[ROWS, COLUMNS], &observations()).unwrap();
    model.into_runnable().unwrap().run(tvec!(input.into())).unwrap()
}

fn floats(value: &TValue) -> Vec<f32> {
    value.to_plain_array_view::<f32>().unwrap().iter().copied().collect()
}

fn act(policy: &Policy, acting: Acting) -> Vec<f32> {
    policy.act_batch(&observations(), acting, 0, &Pool::new(1).unwrap()).unwrap()
}

fn largest_difference(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    left.iter().zip(right).map(|(l, r)| (l - r).abs()).fold(0.0, f32::max)
}

#[test]
fn continuous_policies_act_the_same() {
    let fast = vec![BlockSpec::Dense { width: 64, layer_norm: false, activation: Activation::Relu }; 2];
    let heads = [mixture(1, 1), mixture(1, 5), mixture(6, 5)];
    for (seed, (head, blocks)) in
        heads.into_iter().flat_map(|head| [(head, mixed_blocks()), (head, fast.clone())]).enumerate()
    {
        let policy = random_policy(COLUMNS, blocks, head, seed as u64);
        for acting in Acting::OF_HEAD {
            let found = run(&to_onnx(&policy.with_acting(acting).unwrap()).unwrap());
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].shape(), [ROWS, head.action_width()]);
            let difference = largest_difference(&floats(&found[0]), &act(&policy, exported_acting(acting)));
            assert!(difference < TOLERANCE, "{head:?} {acting}: {difference}");
        }
    }
}

#[test]
fn discrete_policies_act_the_same() {
    let pool = Pool::new(1).unwrap();
    for actions in [2, 5] {
        let policy = random_policy(COLUMNS, mixed_blocks(), Head::Categorical { actions }, actions as u64);
        let found = run(&to_onnx(&policy.with_acting(Acting::Sample).unwrap()).unwrap());
        assert_eq!((found[0].shape(), found[1].shape()), (&[ROWS][..], &[ROWS, actions][..]));
        let indices: Vec<f32> =
            found[0].to_plain_array_view::<i64>().unwrap().iter().map(|&index| index as f32).collect();
        assert_eq!(indices, act(&policy, Acting::Mode));
        let probabilities = policy.probabilities(&observations(), &pool).unwrap();
        let difference = largest_difference(&floats(&found[1]), &probabilities);
        assert!(difference < TOLERANCE, "{difference}");
    }
}

/// Candidates are apart, and so is their worth: where two of seven were within rounding, another action would be chosen.
#[test]
fn selecting_policies_act_the_same() {
    for (costs, head) in [mixture(1, 1), mixture(1, 5), mixture(6, 5)].into_iter().enumerate() {
        let policy = selecting(&random_policy(COLUMNS, mixed_blocks(), head, 20), costs, 21);
        let found = run(&to_onnx(&policy).unwrap());
        assert_eq!((found.len(), found[0].shape()), (1, &[ROWS, head.action_width()][..]));
        let difference = largest_difference(&floats(&found[0]), &act(&policy, Acting::Select));
        assert!(difference < TOLERANCE, "{head:?}: {difference}");
    }
    for costs in 0..3 {
        let head = Head::Categorical { actions: 5 };
        let policy = selecting(&random_policy(COLUMNS, mixed_blocks(), head, 22), costs, 23);
        let found = run(&to_onnx(&policy).unwrap());
        let indices: Vec<f32> =
            found[0].to_plain_array_view::<i64>().unwrap().iter().map(|&index| index as f32).collect();
        assert_eq!(indices, act(&policy, Acting::Select));
        let probabilities = policy.probabilities(&observations(), &Pool::new(1).unwrap()).unwrap();
        let difference = largest_difference(&floats(&found[1]), &probabilities);
        assert!(difference < TOLERANCE, "{difference}");
        // By another way of acting, the selector stays out of the graph.
        let plain = to_onnx(&policy.with_acting(Acting::Mode).unwrap()).unwrap();
        assert!(plain.len() < to_onnx(&policy).unwrap().len());
    }
}

/// Units of thousands and of thousandths; the product's promise is relative to the range.
#[test]
fn units_of_actions_are_inside_the_graph() {
    let (halves, head) = ([2000.0, 1e-3], mixture(2, 3));
    let plain = random_policy(COLUMNS, mixed_blocks(), head, 31);
    let unit = ActionUnit { middle: vec![5000.0, 0.25], half: halves.to_vec() };
    let outside = |bounds: &[f32]| {
        bounds.iter().zip(&unit.middle).zip(&unit.half).map(|((u, middle), half)| middle + half * u).collect()
    };
    let (low, high): (Vec<f32>, Vec<f32>) = (outside(plain.action_low()), outside(plain.action_high()));
    for policy in [plain.clone(), selecting(&plain, 2, 32)] {
        let parts = policy.to_parts();
        let (action_low, action_high) = (low.clone(), high.clone());
        let parts = PolicyParts { action_low, action_high, action_unit: Some(unit.clone()), ..parts };
        let policy = Policy::new(parts).unwrap();
        let (found, expected) = (floats(&run(&to_onnx(&policy).unwrap())[0]), act(&policy, policy.acting()));
        for (found, expected) in found.chunks(2).zip(expected.chunks(2)) {
            for i in 0..2 {
                let miss = (found[i] - expected[i]).abs() / halves[i];
                // The second one's middle alone has an error of 250 halves times a rounding.
                assert!(miss < 5e-5, "{found:?} for {expected:?}");
                assert!((low[i]..=high[i]).contains(&found[i]) && (low[i]..=high[i]).contains(&expected[i]));
            }
        }
    }
}

#[test]
fn bounds_hold_inside_the_graph() {
    let policy = random_policy(COLUMNS, mixed_blocks(), mixture(2, 3), 9);
    let mut parts = policy.to_parts();
    (parts.action_low, parts.action_high) = (vec![-0.01, 0.02], vec![0.01, 0.02]);
    let actions = floats(&run(&to_onnx(&Policy::new(parts).unwrap()).unwrap())[0]);
    assert!(actions.chunks(2).all(|a| (-0.01..=0.01).contains(&a[0]) && a[1] == 0.02));
    assert!(actions.chunks(2).any(|a| a[0] == 0.01) && actions.chunks(2).any(|a| a[0] == -0.01));
}

#[test]
fn the_file_says_what_it_is() {
    let policy = random_policy(COLUMNS, mixed_blocks(), mixture(2, 3), 3);
    let bytes = to_onnx(&policy.with_acting(Acting::Sample).unwrap()).unwrap();
    assert_eq!(
        bytes,
        to_onnx(&policy.with_acting(Acting::Sample).unwrap()).unwrap(),
        "same policy, same bytes"
    );
    let model = ModelProto::decode(&*bytes).unwrap();
    let entries: BTreeMap<String, String> =
        model.metadata_props.into_iter().map(|e| (e.key.unwrap(), e.value.unwrap())).collect();
    assert_eq!(entries["acting"], "mean");
    assert_eq!(entries["policy_acting"], "sample");
    assert!(entries["note"].contains("draws nothing"));
    assert_eq!(entries["seed"], u64::MAX.to_string());
    assert_eq!(entries["limit.tailgating.per_episode"].parse::<f64>(), Ok(100.0 / 3.0));
    assert_eq!(entries["limit.tailgating.per_step"].parse::<f64>(), Ok(100.0 / 3.0 / 300.0));
    assert!(
        entries["limit.tailgating"].ends_with("per step)")
            && entries["limit.tailgating"].contains("300 steps")
    );
    let names: Vec<String> = serde_json::from_str(&entries["observation_names"]).unwrap();
    assert_eq!(names, policy.about().observation_names);
    let whole: serde_json::Value = serde_json::from_str(&entries[METADATA_KEY]).unwrap();
    assert_eq!(whole["about"]["limits"][0]["limit"]["unit"], "per_episode");

    let plain = ModelProto::decode(&*to_onnx(&policy.with_acting(Acting::Mode).unwrap()).unwrap()).unwrap();
    assert!(plain.metadata_props.iter().all(|entry| entry.key.as_deref() != Some("note")));
}

#[test]
fn saving_names_the_file_it_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let policy = random_policy(COLUMNS, vec![], mixture(1, 1), 3);
    let path = folder.path().join("policy.onnx");
    save_onnx(&policy, &path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), to_onnx(&policy).unwrap());
    let nowhere = folder.path().join("nowhere").join("policy.onnx");
    assert!(matches!(save_onnx(&policy, &nowhere), Err(PolicyError::Io { .. })));
}
