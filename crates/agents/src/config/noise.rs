//! Whether a log shows that its process is noisy: the same action in the same state, and another outcome.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use coptidice_data::{Actions, Transitions};

/// Share of the rows from which a process counts as noisy. A recording that repeats itself where nothing goes on (a
/// process at rest, a stuck sensor) shows now and then that something began; below this it is no more than that.
const NOISY_SHARE: f64 = 0.05;

/// Rows that are looked at, the first: where states recur they do within these, and a larger log is not read once more.
const LOOKED_AT: usize = 100_000;

/// Whether at least a twentieth of the rows came out otherwise than most rows of the same state and action. States that
/// never recur exactly, as measurements of a continuous process, say nothing.
pub(super) fn is_noisy(data: &Transitions) -> bool {
    let unknown = data.next_unknown();
    let known = (0..data.len().min(LOOKED_AT)).filter(|i| unknown.binary_search(i).is_err());
    let mut rows: Vec<(u64, u64)> = known.map(|i| (taken(data, i), came_of_it(data, i))).collect();
    rows.sort_unstable();
    let surprises: usize = rows
        .chunk_by(|a, b| a.0 == b.0)
        .map(|alike| {
            let most = alike.chunk_by(|a, b| a.1 == b.1).map(<[_]>::len).max().unwrap_or(0);
            alike.len() - most
        })
        .sum();
    surprises > 0 && surprises as f64 >= NOISY_SHARE * rows.len() as f64
}

/// Hash of a row's state and action. Of 64 bits: the chance that two of the rows looked at collide is one in four
/// billion, and they would be one surprise.
fn taken(data: &Transitions, i: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    numbers(data.observation(i), &mut hasher);
    match data.actions() {
        Actions::Discrete { .. } => data.discrete_action(i).hash(&mut hasher),
        Actions::Continuous { .. } => numbers(data.continuous_action(i), &mut hasher),
    }
    hasher.finish()
}

/// Hash of a row's successor; all ends are one.
fn came_of_it(data: &Transitions, i: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    let end = data.terminal(i);
    end.hash(&mut hasher);
    if !end {
        numbers(data.next_observation(i), &mut hasher);
    }
    hasher.finish()
}

fn numbers(values: &[f32], hasher: &mut DefaultHasher) {
    for value in values {
        // Zero has two signs.
        (value + 0.0).to_bits().hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coptidice_data::{ActionSpace, Schema, Step, StepAction, TransitionsBuilder};

    /// Steps `(state, action, next state)`; a next state below 0 ends the episode.
    fn log(steps: &[(f32, f32, f32)], continuous: bool) -> Transitions {
        let action = if continuous { ActionSpace::Continuous { dim: 1 } } else { ActionSpace::discrete(2) };
        let schema = Schema { observation_dim: 1, action, cost_names: Vec::new(), propensity: false };
        let mut builder = TransitionsBuilder::new(schema).unwrap();
        for &(state, action, next) in steps {
            let taken = [action];
            let action =
                if continuous { StepAction::Continuous(&taken) } else { StepAction::Discrete(action as u32) };
            let step = Step {
                observation: &[state],
                action,
                reward: 0.0,
                costs: &[],
                next_observation: &[next],
                terminal: next < 0.0,
                timeout: next >= 0.0,
                propensity: None,
            };
            builder.push(&step).unwrap();
        }
        builder.finish().unwrap()
    }

    #[test]
    fn only_what_recurs_and_comes_out_otherwise_is_noise() {
        for continuous in [false, true] {
            let noisy = |steps: &[_]| is_noisy(&log(steps, continuous));
            assert!(noisy(&[(0.0, 1.0, 2.0), (-0.0, 1.0, 3.0)]));
            assert!(noisy(&[(0.0, 1.0, 2.0), (0.0, 1.0, -1.0)]), "an end is another outcome");
            assert!(!noisy(&[(0.0, 1.0, -1.0), (0.0, 1.0, -2.0)]), "all ends are one");
            assert!(!noisy(&[(0.0, 1.0, 2.0), (0.0, 0.0, 3.0)]), "another action");
            assert!(!noisy(&[(0.0, 1.0, 2.0), (0.5, 1.0, 3.0), (0.0, 1.0, 2.0)]));
            // One row of twenty, and one of twenty-one.
            let mut rest = vec![(0.0, 1.0, 0.0); 19];
            rest.push((0.0, 1.0, 1.0));
            assert!(noisy(&rest));
            rest.push((0.0, 1.0, 0.0));
            assert!(!noisy(&rest));
        }
    }
}
