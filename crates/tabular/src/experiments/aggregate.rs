//! Sums in a fixed order with compensation.

/// Neumaier's compensated sum (1974): the error does not grow with the number of terms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    total: f64,
    lost: f64,
}

impl Sum {
    pub(super) fn add(&mut self, x: f64) {
        let next = self.total + x;
        self.lost +=
            if self.total.abs() >= x.abs() { (self.total - next) + x } else { (x - next) + self.total };
        self.total = next;
    }

    pub(super) fn value(self) -> f64 {
        self.total + self.lost
    }
}

/// Mean and standard error of the mean, in the order given. The standard error of fewer than two values is zero.
pub(super) fn mean_and_error(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let (mut sum, mut count) = (Sum::default(), 0_usize);
    for x in values.clone() {
        sum.add(x);
        count += 1;
    }
    let mean = sum.value() / count.max(1) as f64;
    let mut squares = Sum::default();
    values.for_each(|x| squares.add((x - mean) * (x - mean)));
    let variance = if count > 1 { squares.value() / (count - 1) as f64 } else { 0.0 };
    (mean, (variance / count.max(1) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compensation_recovers_what_plain_sums_lose() {
        let mut sum = Sum::default();
        [1e16, 1.0, -1e16, 1.0].into_iter().for_each(|x| sum.add(x));
        assert_eq!(sum.value(), 2.0);
    }

    #[test]
    fn mean_and_error_by_hand() {
        let (mean, error) = mean_and_error([1.0, 2.0, 3.0, 6.0].into_iter());
        // Variance (4 + 1 + 0 + 9)/3.
        assert_eq!(mean, 3.0);
        assert!((error - (14.0_f64 / 3.0 / 4.0).sqrt()).abs() < 1e-15);
        assert_eq!(mean_and_error([5.0].into_iter()), (5.0, 0.0));
    }
}
