//! Selection: against what it must choose by construction, saved, and refused.

use super::{mixed_blocks, mixture, random_policy, selecting, uniform};
use crate::policy::{
    ActError, Acting, Candidates, Head, METADATA_KEY, Normalizer, Policy, PolicyDefect, PolicyParts, Selector,
};
use coptidice_core::rng::stream;
use coptidice_nn::{Network, NetworkSpec, Pool};

fn policies() -> Vec<Policy> {
    let heads = [mixture(1, 1), mixture(2, 5), Head::Categorical { actions: 4 }];
    let of = |(costs, head)| selecting(&random_policy(6, mixed_blocks(), head, 1), costs, 2);
    heads.into_iter().enumerate().map(of).collect()
}

/// A policy of constant outputs over observations of one column.
fn constant(head: Head, outputs: &[f32], selector: Selector) -> Policy {
    let network = Network::new(NetworkSpec { input: 1, blocks: vec![], output: head.outputs() }).unwrap();
    let mut parts = random_policy(1, vec![], head, 0).to_parts();
    // Weights, then biases.
    parts.params = [vec![0.0; outputs.len()], outputs.to_vec()].concat();
    parts.network = network;
    parts.action_low.fill(-0.5);
    parts.action_high.fill(0.5);
    (parts.selector, parts.acting) = (Some(selector), Acting::Select);
    Policy::new(parts).unwrap()
}

fn act(policy: &Policy) -> f32 {
    let mut action = [f32::NAN];
    let mut rng = stream(0, "t", 0);
    let untouched = rng.clone();
    policy.actor().act(&[0.3], &mut rng, &mut action).unwrap();
    assert_eq!(rng, untouched, "nothing is drawn");
    let batch = policy.act_batch(&[0.3], Acting::Select, 0, &Pool::new(1).unwrap()).unwrap();
    assert_eq!(batch, action);
    action[0]
}

/// Two components around -0.2 and 0.1, three to one, of deviations 0.05 and 0.01; `Q_r = u` and `Q_c = 2u` with
/// `u = 2a`: the worth is `2a (1 - 2 price)`.
#[test]
fn the_candidate_of_the_largest_worth_is_done() {
    let soft = |scale: f32| (scale.exp() - 1.0).ln();
    let head = Head::Mixture { action_dim: 1, components: 2, min_scale: 1e-6 };
    let outputs = [3.0_f32.ln(), 0.0, -0.2, 0.1, soft(0.05), soft(0.01)];
    let with = |price: f32, draws: &[[f32; 2]]| {
        let network = Network::new(NetworkSpec { input: 2, blocks: vec![], output: 2 }).unwrap();
        constant(
            head,
            &outputs,
            Selector {
                params: vec![0.0, 1.0, 0.0, 2.0, 0.0, 0.0],
                network,
                prices: vec![price],
                candidates: Candidates::Drawn {
                    draws: draws.to_vec(),
                    action: Normalizer { mean: vec![0.0], scale: vec![2.0] },
                },
            },
        )
    };
    let draws = [[0.74, 1.0], [0.76, 1.0], [0.76, -2.0], [0.1, -1.0], [0.5, 20.0]];
    // Single precision, of scales that went through a logarithm and back.
    let near = |found: f32, expected: f32| assert!((found - expected).abs() < 1e-5, "{found} for {expected}");
    near(act(&with(0.0, &draws[..4])), 0.11);
    near(act(&with(1.0, &draws[..4])), -0.25);
    near(act(&with(0.5, &draws[..4])), -0.15);
    near(act(&with(0.0, &draws)), 0.5);
}

/// Probabilities 0.70, 0.26 and 0.04. The last is worth most, and too unlikely at a tenth of the first; of the others the
/// second is worth as much as the first at a price of 0.5, more below and less above.
#[test]
fn of_finitely_many_actions_only_likely_ones_are_looked_at() {
    let head = Head::Categorical { actions: 3 };
    let with = |price: f32, threshold: f32| {
        let network = Network::new(NetworkSpec { input: 1, blocks: vec![], output: 6 }).unwrap();
        let biases = vec![1.0, 0.0, 2.0, 2.0, 9.0, 0.0];
        let params = [vec![0.0; 6], biases].concat();
        let candidates = Candidates::Likely { threshold };
        constant(head, &[1.0, 0.0, -2.0], Selector { network, params, prices: vec![price], candidates })
    };
    assert_eq!(act(&with(0.4, 0.1)), 1.0);
    assert_eq!(act(&with(0.6, 0.1)), 0.0);
    assert_eq!(act(&with(0.5, 0.1)), 0.0, "the first of equals");
    assert_eq!(act(&with(0.4, 0.01)), 2.0);
    assert_eq!(act(&with(0.4, 1.0)), 0.0);
}

#[test]
fn the_critic_has_a_say() {
    let observations = uniform(&mut stream(0, "observations", 0), -2.0, 2.0, 6 * 1100);
    for policy in policies() {
        let act = |acting| policy.act_batch(&observations, acting, 7, &Pool::new(1).unwrap()).unwrap();
        let (selected, modes) = (act(Acting::Select), act(Acting::Mode));
        let width = policy.action_width();
        let differ = |(a, m): (&[f32], &[f32])| a.iter().zip(m).any(|(a, m)| (a - m).abs() > 1e-3);
        let others = selected.chunks(width).zip(modes.chunks(width)).filter(|&pair| differ(pair)).count();
        assert!(others > 50, "{others}");
        assert_eq!(policy.act_batch(&[], Acting::Select, 0, &Pool::new(1).unwrap()), Ok(vec![]));
    }
}

#[test]
fn what_is_saved_comes_back() {
    let pool = Pool::new(1).unwrap();
    let observations = uniform(&mut stream(0, "observations", 0), -2.0, 2.0, 6 * 40);
    for policy in policies() {
        let bytes = policy.to_bytes().unwrap();
        let back = Policy::from_bytes(&bytes).unwrap();
        assert_eq!(back.to_bytes().unwrap(), bytes);
        let (one, other) = (back.selector().unwrap(), policy.selector().unwrap());
        assert_eq!((&one.params, &one.prices), (&other.params, &other.prices));
        assert_eq!(one.candidates, other.candidates);
        let act = |p: &Policy| p.act_batch(&observations, p.acting(), 0, &pool).unwrap();
        assert_eq!(act(&back), act(&policy));
    }
}

fn description(policy: &Policy) -> serde_json::Value {
    serde_json::from_str(&policy.description().unwrap()).unwrap()
}

#[test]
fn only_policies_with_a_selector_are_of_the_second_format() {
    let policy = &policies()[1];
    assert_eq!(description(policy)["version"], 2);
    let plain =
        Policy::new(PolicyParts { selector: None, acting: Acting::Mean, ..policy.to_parts() }).unwrap();
    assert_eq!(description(&plain)["version"], 1);
    assert!(description(&plain).get("selector").is_none(), "as it was before there were selectors");

    // The description is what the version goes by, in both directions.
    let rewritten = |policy: &Policy, from: &str, to: &str| {
        let bytes = policy.to_bytes().unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(text.contains(METADATA_KEY) && text.contains(from), "{from}");
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        let mut bytes = bytes;
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        Policy::from_bytes(&bytes)
    };
    for (policy, from, to) in [
        (policy, "\\\"version\\\":2", "\\\"version\\\":1"),
        (&plain, "\\\"version\\\":1", "\\\"version\\\":2"),
    ] {
        let refused = rewritten(policy, from, to).unwrap_err();
        assert!(matches!(refused, PolicyDefect::Metadata { .. }), "{refused:?}");
    }
    let none = rewritten(policy, "\\\"count\\\":7", "\\\"count\\\":0").unwrap_err();
    assert!(matches!(none, PolicyDefect::Selector { .. }), "{none:?}");
    let more = rewritten(policy, "\\\"count\\\":7", "\\\"count\\\":8").unwrap_err();
    assert!(
        matches!(&more, PolicyDefect::TensorShape { tensor, .. } if tensor == "selector.draws"),
        "{more:?}"
    );
    let costs = rewritten(policy, "\\\"costs\\\":1", "\\\"costs\\\":2").unwrap_err();
    assert!(
        matches!(&costs, PolicyDefect::TensorShape { tensor, .. } if tensor == "selector.prices"),
        "{costs:?}"
    );
}

#[test]
fn selectors_that_do_not_fit_are_refused() {
    let [_, continuous, discrete] = policies().try_into().unwrap();
    let defect = |policy: &Policy, change: &dyn Fn(&mut Selector)| {
        let mut parts = policy.to_parts();
        change(parts.selector.as_mut().unwrap());
        Policy::new(parts).err()
    };
    assert_eq!(defect(&continuous, &|_| {}), None);
    let unfit = |found: Option<PolicyDefect>| {
        assert!(matches!(found, Some(PolicyDefect::Selector { .. })), "{found:?}")
    };
    let drawn = |change: fn(&mut Vec<[f32; 2]>, &mut Normalizer)| {
        defect(&continuous, &move |s| {
            if let Candidates::Drawn { draws, action } = &mut s.candidates {
                change(draws, action);
            }
        })
    };
    unfit(drawn(|draws, _| draws.clear()));
    unfit(drawn(|draws, _| draws.truncate(3)));
    unfit(drawn(|draws, _| *draws = draws.repeat(200)));
    unfit(drawn(|draws, _| draws[1][0] = 1.0));
    unfit(drawn(|draws, _| draws[1][0] = f32::NAN));
    unfit(drawn(|_, action| action.scale[1] = 0.0));
    let infinite = drawn(|draws, _| draws[1][1] = f32::INFINITY);
    assert_eq!(infinite, Some(PolicyDefect::NotFinite { tensor: "selector.draws".into(), index: 3 }));
    let short = drawn(|_, action| action.mean.truncate(1));
    let (expected, found) = (vec![2], vec![1]);
    assert_eq!(
        short,
        Some(PolicyDefect::TensorShape { tensor: "selector.action.mean".into(), expected, found })
    );
    for threshold in [0.0, 1.5, f32::NAN] {
        unfit(defect(&discrete, &|s| s.candidates = Candidates::Likely { threshold }));
        unfit(defect(&continuous, &|s| s.candidates = Candidates::Likely { threshold: 0.5 }));
    }
    unfit(defect(&continuous, &|s| s.prices[0] = -1.0));
    let nan = defect(&continuous, &|s| s.params[8 * 40 + 3] = f32::NAN);
    assert_eq!(nan, Some(PolicyDefect::NotFinite { tensor: "selector.layers.0.bias".into(), index: 3 }));
    let nan = defect(&continuous, &|s| s.prices[0] = f32::NAN);
    assert_eq!(nan, Some(PolicyDefect::NotFinite { tensor: "selector.prices".into(), index: 0 }));
    let fewer = defect(&continuous, &|s| s.prices.clear());
    assert_eq!(fewer, Some(PolicyDefect::SelectorNetwork { expected: (8, 1), found: (8, 2) }));
    let params = defect(&continuous, &|s| s.params.truncate(9));
    assert!(matches!(&params, Some(PolicyDefect::TensorShape { tensor, .. }) if tensor == "selector.params"));
}

#[test]
fn without_a_selector_nothing_is_selected() {
    let policy = random_policy(6, mixed_blocks(), mixture(2, 5), 1);
    assert_eq!(policy.with_acting(Acting::Select).err(), Some(PolicyDefect::NoSelector));
    let parts = PolicyParts { acting: Acting::Select, ..policy.to_parts() };
    assert_eq!(Policy::new(parts).err(), Some(PolicyDefect::NoSelector));
    let found = policy.actor_with(Acting::Select).act(&[0.0; 6], &mut stream(0, "t", 0), &mut [0.0; 2]);
    assert_eq!(found, Err(ActError::NoSelector));
    let found = policy.act_batch(&[0.0; 6], Acting::Select, 0, &Pool::new(1).unwrap());
    assert_eq!(found, Err(ActError::NoSelector));
}

#[test]
fn a_critic_that_overflows_is_an_error_with_the_row() {
    for policy in policies() {
        let mut parts = policy.to_parts();
        let selector = parts.selector.as_mut().unwrap();
        // The last layer's biases are the last parameters.
        *selector.params.last_mut().unwrap() = f32::MAX;
        selector.prices.fill(2.0);
        let bias = selector.params.len() - 1 - selector.prices.len();
        selector.params[bias] = -f32::MAX;
        let Ok(policy) = Policy::new(parts) else { panic!("finite parameters are sound") };
        if policy.selector().unwrap().prices.is_empty() {
            continue;
        }
        let found =
            policy.actor().act(&[0.0; 6], &mut stream(0, "t", 0), &mut vec![0.0; policy.action_width()]);
        assert_eq!(found, Err(ActError::Overflow { row: 0 }));
        let found = policy.act_batch(&[0.0; 12], Acting::Select, 0, &Pool::new(1).unwrap());
        assert_eq!(found, Err(ActError::Overflow { row: 0 }));
    }
}
