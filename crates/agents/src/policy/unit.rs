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
const ORDINARY: std::ops::RangeInclusive<f64> = 0.1..=10.0;

impl ActionUnit {
    /// That of logged actions, `[N, A]`: mean and two standard deviations of every component that is not of ordinary size,
    /// 0 and 1 of the others; none where all are of ordinary size.
    pub(crate) fn of(actions: &[f32], dim: usize) -> Option<Self> {
        let rows = (actions.len() / dim.max(1)) as f64;
        let mut unit = ActionUnit { middle: vec![0.0; dim], half: vec![1.0; dim] };
        for i in 0..dim {
            let values = || actions.iter().skip(i).step_by(dim).map(|&a| f64::from(a));
            let mean = values().sum::<f64>() / rows;
            let half = 2.0 * (values().map(|a| (a - mean).powi(2)).sum::<f64>() / rows).sqrt();
            let far = mean.abs() > *ORDINARY.end() || mean.abs() > ORDINARY.end() * half && half > 0.0;
            // One that never changes has no size of its own.
            let odd = half > 0.0 && !ORDINARY.contains(&half);
            let in_single = half as f32;
            if (far || odd) && mean.is_finite() && in_single.is_finite() {
                unit.middle[i] = mean as f32;
                unit.half[i] = if in_single > 0.0 { in_single } else { 1.0 };
            }
        }
        let ordinary = unit.middle.iter().all(|&m| m == 0.0) && unit.half.iter().all(|&h| h == 1.0);
        (!ordinary).then_some(unit)
    }

    /// From actions, `[_, A]`, to what the head counts.
    pub(crate) fn enter(&self, actions: &mut [f32]) {
        for row in actions.chunks_exact_mut(self.middle.len()) {
            for ((a, &middle), &half) in row.iter_mut().zip(&self.middle).zip(&self.half) {
                *a = (*a - middle) / half;
            }
        }
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
        // The standard deviation of -2, -1, 0, 1, 2 is the root of 2.
        let half = 2.0 * 2.0_f32.sqrt();
        assert!((unit.middle[1] - 5000.0).abs() < 1e-2 && (unit.half[1] / 1000.0 - half).abs() < 1e-5);
        assert!(unit.middle[2].abs() < 1e-9 && (unit.half[2] / 1e-4 - half).abs() < 1e-5);
        assert_eq!((unit.middle[3], unit.half[3]), (300.0, 1.0));
        let mut there = actions.clone();
        unit.enter(&mut there);
        assert!(there.iter().all(|u| u.abs() <= 2.0));
        unit.leave(&mut there);
        assert!(there.iter().zip(&actions).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs().max(1.0)));
        let ordinary: Vec<f32> = (0..100).map(|k| row(k)[0]).collect();
        assert_eq!(ActionUnit::of(&ordinary, 1), None);
    }
}
