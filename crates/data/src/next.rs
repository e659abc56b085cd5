//! Next observations, stored only where they are not the following row's observation.
//!
//! Inside an episode `s'` of row `i` is nearly always `s` of row `i + 1`, bit for bit. Storing it again would double
//! the log; only the exceptions (ends of episodes, and recorders that disagree with themselves) are kept.

use crate::column::Column;

/// Where `s'` of each row is found.
#[derive(Clone, Debug)]
pub(crate) enum NextObservations {
    /// One stored row for every transition, `[N, D]`.
    Full(Column<f32>),
    /// Stored rows for the exceptions only.
    Chained(Exceptions),
}

/// The set of rows whose `s'` is stored, with constant-time rank, and the stored values.
#[derive(Clone, Debug)]
pub(crate) struct Exceptions {
    /// Bit `i % 64` of word `i / 64` is set where row `i` is an exception.
    words: Vec<u64>,
    /// Exceptions before each word.
    ranks: Vec<u32>,
    /// `[E, D]`, in the order of rows.
    values: Column<f32>,
}

impl Exceptions {
    /// `rows` ascending and below `len`; `values` is `[rows.len(), D]`.
    pub(crate) fn new(len: usize, rows: impl IntoIterator<Item = usize>, values: Column<f32>) -> Self {
        let mut words = vec![0_u64; len.div_ceil(64)];
        for row in rows {
            words[row / 64] |= 1 << (row % 64);
        }
        let mut before = 0;
        let ranks = words
            .iter()
            .map(|word| {
                let rank = before;
                before += word.count_ones();
                rank
            })
            .collect();
        Exceptions { words, ranks, values }
    }

    /// Position of `row` among the exceptions, or `None` where `s'` is the following row's observation.
    pub(crate) fn rank(&self, row: usize) -> Option<usize> {
        let word = self.words[row / 64];
        let bit = 1_u64 << (row % 64);
        (word & bit != 0).then(|| (self.ranks[row / 64] + (word & (bit - 1)).count_ones()) as usize)
    }

    /// The stored values, `[E, D]`.
    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    /// The exceptional rows, ascending.
    pub(crate) fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(position, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| position * 64 + bit)
        })
    }
}

impl Exceptions {
    /// `s'` of `row`, where `observations` is `[N, dim]`.
    pub(crate) fn next<'a>(&'a self, observations: &'a [f32], dim: usize, row: usize) -> &'a [f32] {
        match self.rank(row) {
            Some(stored) => &self.values[stored * dim..(stored + 1) * dim],
            None => &observations[(row + 1) * dim..(row + 2) * dim],
        }
    }
}

/// Collects next observations row by row, keeping those that the following row does not repeat. What is not yet known
/// to be repeated is one row, so that a log is never in memory twice while it is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    len: usize,
    rows: Vec<usize>,
    values: Vec<f32>,
    /// `s'` of the row pushed last, while it may still turn out to be the next row's observation.
    pending: Vec<f32>,
}

impl Chain {
    /// Appends a row, by its `s` and `s'`.
    pub(crate) fn push(&mut self, observation: &[f32], next: &[f32]) {
        if !self.pending.is_empty() && !same_bits(&self.pending, observation) {
            self.cut();
        }
        self.pending.clear();
        self.pending.extend_from_slice(next);
        self.len += 1;
    }

    /// Keeps `s'` of the row pushed last, whatever follows: nothing that follows continues it.
    pub(crate) fn cut(&mut self) {
        if !self.pending.is_empty() {
            self.rows.push(self.len - 1);
            self.values.append(&mut self.pending);
        }
    }

    pub(crate) fn finish(mut self) -> Exceptions {
        self.cut();
        Exceptions::new(self.len, self.rows, Column::from(self.values))
    }
}

/// Equality of two observations bit for bit, so that NaN equals itself and `-0` differs from `0`.
pub(crate) fn same_bits(a: &[f32], b: &[f32]) -> bool {
    bytemuck::cast_slice::<f32, u8>(a) == bytemuck::cast_slice::<f32, u8>(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_chain_keeps_what_does_not_follow() {
        let mut chain = Chain::default();
        chain.push(&[0.0], &[1.0]);
        chain.push(&[1.0], &[2.5]); // the recorder disagrees with itself
        chain.push(&[2.0], &[3.0]);
        chain.cut();
        chain.push(&[3.0], &[4.0]); // by chance the episode begins where the former ended
        let exceptions = chain.finish();
        assert_eq!(exceptions.rows().collect::<Vec<_>>(), [1, 2, 3]);
        let observations = [0.0, 1.0, 2.0, 3.0];
        let next: Vec<f32> = (0..4).map(|row| exceptions.next(&observations, 1, row)[0]).collect();
        assert_eq!(next, [1.0, 2.5, 3.0, 4.0]);
    }

    proptest! {
        #[test]
        fn rank_counts_exceptions_before(flags in proptest::collection::vec(any::<bool>(), 1..400)) {
            let rows: Vec<usize> = (0..flags.len()).filter(|&i| flags[i]).collect();
            let exceptions = Exceptions::new(flags.len(), rows.iter().copied(), Column::from(vec![0.0; rows.len()]));
            prop_assert_eq!(exceptions.rows().collect::<Vec<_>>(), rows.clone());
            for i in 0..flags.len() {
                let expected = flags[i].then(|| rows.iter().filter(|&&row| row < i).count());
                prop_assert_eq!(exceptions.rank(i), expected);
            }
        }
    }
}
