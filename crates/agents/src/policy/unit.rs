//! The unit in which a policy's head counts actions.
//!
//! Networks begin with outputs of about one and learn at a rate that suits such. Doses of thousands, or valves that move by
//! a ten-thousandth, are learned in units of their own: `a = middle + half u`, component by component, with `u` what the
//! head's locations and scales are of. Bounds, logs and everything a user sees stay in the action's units.

/// What an action of the head, `u`, is outside: `middle + half u`.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionUnit {
    /// `[A]`, action units.
    pub middle: Vec<f32>,
    /// `[A]`, action units, above 0.
    pub half: Vec<f32>,
}

/// Halves between these, and middles up to the latter, are learned as they are.
const ORDINARY: std::ops::RangeInclusive<f64> = 0.25..=5.0;
/// Share of the rows on either side that a size is not measured by: a few values far out would make all others one.
const TAIL: f64 = 0.05;

impl ActionUnit {
    /// That of logged actions, `[N, A]`: of every component that is not of ordinary size the median, and half of what nine
    /// tenths of its values span (two standard deviations where that is nothing); 0 and 1 of the others; none where all
    /// are of ordinary size.
    pub(crate) fn of(actions: &[f32], dim: usize) -> Option<Self> {
        let mut values = Vec::with_capacity(actions.len() / dim.max(1));
        let mut unit = ActionUnit { middle: vec![0.0; dim], half: vec![1.0; dim] };
        for i in 0..dim {
            values.clear();
            values.extend(actions.iter().skip(i).step_by(dim).copied());
            let (middle, half) = size(&mut values);
            let far = middle.abs() > *ORDINARY.end() || middle.abs() > ORDINARY.end() * half && half > 0.0;
            // One that never changes has no size of its own.
            let odd = half > 0.0 && !ORDINARY.contains(&half);
            let in_single = half as f32;
            if (far || odd) && middle.is_finite() && in_single.is_finite() {
                unit.middle[i] = middle as f32;
                unit.half[i] = if in_single > 0.0 { in_single } else { 1.0 };
            }
        }
        let ordinary = unit.middle.iter().all(|&m| m == 0.0) && unit.half.iter().all(|&h| h == 1.0);
        (!ordinary).then_some(unit)
    }

    /// From actions, `[_, A]`, to what the head counts.
    pub(crate) fn enter(&self, actions: &mut [f32]) {
        map_to_range(actions, &self.middle, &self.half);
    }

    /// And back.
    pub(crate) fn leave(&self, actions: &mut [f32]) {
        for row in actions.chunks_exact_mut(self.middle.len()) {
            for ((u, &middle), &half) in row.iter_mut().zip(&self.middle).zip(&self.half) {
                *u = middle + half * *u;
            }
        }
    }
}

/// Maps `middle - half` to `middle + half` of every dimension to `[-1, 1]`; `[_, A]`.
pub(crate) fn map_to_range(actions: &mut [f32], middle: &[f32], half: &[f32]) {
    for action in actions.chunks_exact_mut(middle.len().max(1)) {
        for ((u, middle), half) in action.iter_mut().zip(middle).zip(half) {
            *u = (*u - middle) / half;
        }
    }
}

/// Median and half width of `[N]` values, in any order; leaves them in another.
fn size(values: &mut [f32]) -> (f64, f64) {
    let Some(last) = values.len().checked_sub(1) else { return (0.0, 0.0) };
    let mut at = |share: f64| {
        let place = (share * last as f64).round() as usize;
        f64::from(*values.select_nth_unstable_by(place, f32::total_cmp).1)
    };
    let (low, middle, high) = (at(TAIL), at(0.5), at(1.0 - TAIL));
    if low < high {
        return (middle, 0.5 * (high - low));
    }
    let rows = values.len() as f64;
    let mean = values.iter().map(|&a| f64::from(a)).sum::<f64>() / rows;
    let variance = values.iter().map(|&a| (f64::from(a) - mean).powi(2)).sum::<f64>() / rows;
    (middle, 2.0 * variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_of_ordinary_size_gets_a_unit() {
        // One ordinary component, a dose, a fine valve, and one that stands still far out.
        let row = |k: usize| {
            let x = (k % 5) as f32 - 2.0;
            [x, 5000.0 + 1000.0 * x, 1e-4 * x, 300.0]
        };
        let actions: Vec<f32> = (0..100).flat_map(row).collect();
        let unit = ActionUnit::of(&actions, 4).expect("three are odd");
        assert_eq!((unit.middle[0], unit.half[0]), (0.0, 1.0));
        let half = 2.0;
        assert!((unit.middle[1] - 5000.0).abs() < 1e-2 && (unit.half[1] / 1000.0 - half).abs() < 1e-5);
        assert!(unit.middle[2].abs() < 1e-9 && (unit.half[2] / 1e-4 - half).abs() < 1e-5);
        assert_eq!((unit.middle[3], unit.half[3]), (300.0, 1.0));
        let mut there = actions.clone();
        unit.enter(&mut there);
        assert!(there.iter().all(|u| u.abs() <= 2.0));
        let mut with_outliers = actions.clone();
        (0..4).for_each(|k| with_outliers[100 * k] = 1e6);
        assert_eq!(
            ActionUnit::of(&with_outliers, 4),
            Some(unit.clone()),
            "a few values far out change nothing"
        );
        // Nothing but a few values that differ.
        let rare: Vec<f32> = (0..100).map(|k| if k < 4 { 1e6 } else { 0.0 }).collect();
        let rare = ActionUnit::of(&rare, 1).expect("it is odd");
        // A share p of ones has a deviation of the root of p (1 - p).
        assert!(rare.middle[0] == 0.0 && (rare.half[0] / 2e6 - 0.196).abs() < 1e-3, "{rare:?}");
        unit.leave(&mut there);
        assert!(there.iter().zip(&actions).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs().max(1.0)));
        let ordinary: Vec<f32> = (0..100).map(|k| row(k)[0]).collect();
        assert_eq!(ActionUnit::of(&ordinary, 1), None);
    }
}
