//! The steps that were taken, to be drawn from again and again.
//!
//! An episode of `T` steps takes `T + 1` rows `[observation | action | reward | costs | kind]`: its last row holds the
//! state it ended in, and whether that was a terminal. The newest rows are kept. So that a run can be continued, rows are
//! appended to a file, `replay.bin`, before a checkpoint says how many there are: row after row of little-endian `f32`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use coptidice_core::rng::Rng;
use rand::RngExt as _;

use super::simulator::SimulatedStep;

/// What a row is: a step from its state to the next row's, or a state in which an episode ended.
const STEP: f32 = 0.0;
const TIMEOUT: f32 = 1.0;
const TERMINAL: f32 = 2.0;

/// Widths of the parts of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Widths {
    /// `O`.
    pub(super) observation: usize,
    /// `A`.
    pub(super) action: usize,
    /// `K`.
    pub(super) costs: usize,
}

impl Widths {
    fn row(self) -> usize {
        self.observation + self.action + self.costs + 2
    }
}

/// The newest rows.
pub(super) struct Replay {
    widths: Widths,
    capacity: usize,
    /// A ring: row `i` of all that were ever added stands at `i % capacity`.
    rows: Vec<f32>,
    /// Rows ever added.
    added: u64,
    /// Of these, how many are in the file.
    stored: u64,
}

/// `n` steps from a state, as a target sees them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lookahead<'r> {
    /// `s`, `[O]`.
    pub(super) observation: &'r [f32],
    /// `a`, `[A]`.
    pub(super) action: &'r [f32],
    /// `(1 - gamma) sum_i gamma^i r_i`.
    pub(super) reward: f32,
    /// The state after the last of the steps, `[O]`.
    pub(super) next_observation: &'r [f32],
    /// `gamma^m` after `m` steps; 0 in a terminal.
    pub(super) discount: f32,
}

impl Replay {
    pub(super) fn new(widths: Widths, capacity: usize) -> Self {
        Replay { widths, capacity, rows: Vec::new(), added: 0, stored: 0 }
    }

    /// Rows ever added.
    pub(super) fn added(&self) -> u64 {
        self.added
    }

    /// Adds a step, and with the last one of an episode the state that it ended in.
    pub(super) fn push(&mut self, step: &SimulatedStep<'_>) {
        self.push_row(|row, widths| {
            let (observation, rest) = row.split_at_mut(widths.observation);
            let (action, rest) = rest.split_at_mut(widths.action);
            observation.copy_from_slice(step.observation);
            action.copy_from_slice(step.action);
            rest[0] = step.reward;
            for (to, &cost) in rest[1..].iter_mut().zip(step.costs) {
                *to = cost as f32;
            }
            rest[widths.costs + 1] = STEP;
        });
        if step.last {
            self.push_row(|row, widths| {
                row.fill(0.0);
                row[..widths.observation].copy_from_slice(step.next_observation);
                row[widths.row() - 1] = if step.terminal { TERMINAL } else { TIMEOUT };
            });
        }
    }

    fn push_row(&mut self, fill: impl FnOnce(&mut [f32], Widths)) {
        let width = self.widths.row();
        let at = (self.added % self.capacity as u64) as usize * width;
        if self.rows.len() < at + width {
            self.rows.resize(at + width, 0.0);
        }
        fill(&mut self.rows[at..at + width], self.widths);
        self.added += 1;
    }

    /// Row `index` of all that were ever added; it must still be there.
    fn row(&self, index: u64) -> &[f32] {
        let width = self.widths.row();
        &self.rows[(index % self.capacity as u64) as usize * width..][..width]
    }

    fn kind(&self, index: u64) -> f32 {
        self.row(index)[self.widths.row() - 1]
    }

    /// Draws a step among those held, each as likely as the others. The last row must be the end of an episode, and there
    /// must be a step before it.
    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        let first = self.added.saturating_sub(self.capacity as u64);
        loop {
            let index = rng.random_range(first..self.added);
            if self.kind(index) == STEP {
                return index;
            }
        }
    }

    /// What happened in up to `steps` steps from row `index`, which [`Replay::draw`] gave; the costs are summed as the
    /// rewards are, into `costs`, `[K]`.
    pub(super) fn look_ahead(
        &self,
        index: u64,
        steps: usize,
        gamma: f64,
        costs: &mut [f32],
    ) -> Lookahead<'_> {
        let Widths { observation, action, costs: count } = self.widths;
        let mut discount = 1.0;
        let mut reward = 0.0;
        let mut sums = [0.0_f64; MOST_COSTS];
        let mut at = index;
        for _ in 0..steps {
            let row = self.row(at);
            let paid = &row[observation + action..];
            reward += discount * f64::from(paid[0]);
            for (sum, &cost) in sums.iter_mut().zip(&paid[1..=count]) {
                *sum += discount * f64::from(cost);
            }
            discount *= gamma;
            at += 1;
            if self.kind(at) != STEP {
                break;
            }
        }
        for (cost, sum) in costs.iter_mut().zip(sums) {
            *cost = ((1.0 - gamma) * sum) as f32;
        }
        let row = self.row(index);
        Lookahead {
            observation: &row[..observation],
            action: &row[observation..observation + action],
            reward: ((1.0 - gamma) * reward) as f32,
            next_observation: &self.row(at)[..observation],
            discount: if self.kind(at) == TERMINAL { 0.0 } else { discount as f32 },
        }
    }

    /// Appends what is not in the file yet, and leaves it on the disk.
    pub(super) fn store(&mut self, path: &Path) -> io::Result<()> {
        let bytes = self.bytes(1);
        let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        // What a run that was cut off wrote beyond its last checkpoint goes.
        file.set_len(self.stored * bytes)?;
        file.seek(SeekFrom::End(0))?;
        let held = self.added.saturating_sub(self.capacity as u64);
        let mut writer = io::BufWriter::new(file);
        if self.stored < held {
            // Rows that came and went between two checkpoints leave a hole.
            writer.seek(SeekFrom::Start(held * bytes))?;
        }
        for index in self.stored.max(held)..self.added {
            for value in self.row(index) {
                writer.write_all(&value.to_le_bytes())?;
            }
        }
        writer.flush()?;
        writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        self.stored = self.added;
        Ok(())
    }

    /// Reads the rows back that were held when `added` had been added.
    pub(super) fn restore(&mut self, path: &Path, added: u64) -> io::Result<()> {
        let mut file = File::open(path)?;
        let first = added.saturating_sub(self.capacity as u64);
        file.seek(SeekFrom::Start(self.bytes(first)))?;
        let mut reader = io::BufReader::new(file);
        let mut row = vec![0_u8; self.bytes(1) as usize];
        self.rows.clear();
        self.added = first;
        while self.added < added {
            reader.read_exact(&mut row)?;
            let (words, _) = row.as_chunks::<4>();
            // Behind a terminal anything may stand.
            let mut numbers = words.iter().map(|word| f32::from_le_bytes(*word)).rev();
            if numbers.next() != Some(TERMINAL) && !numbers.all(f32::is_finite) {
                let text = format!("row {} holds what is no number", self.added);
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            self.push_row(|values, _| {
                let (words, _) = row.as_chunks::<4>();
                for (value, word) in values.iter_mut().zip(words) {
                    *value = f32::from_le_bytes(*word);
                }
            });
        }
        self.stored = added;
        Ok(())
    }

    fn bytes(&self, rows: u64) -> u64 {
        rows * self.widths.row() as u64 * 4
    }
}

/// Most costs of a simulator.
pub(super) const MOST_COSTS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use coptidice_core::rng::stream;

    const WIDTHS: Widths = Widths { observation: 1, action: 1, costs: 1 };

    /// Episode `e`: states `10 e + t`, rewards `t + 1`, costs half of them; ends as said.
    fn episode(replay: &mut Replay, e: usize, length: usize, terminal: bool) {
        for t in 0..length {
            let last = t + 1 == length;
            replay.push(&SimulatedStep {
                observation: &[(10 * e + t) as f32],
                action: &[0.1 * t as f32],
                reward: (t + 1) as f32,
                costs: &[0.5 * (t + 1) as f64],
                next_observation: &[(10 * e + t + 1) as f32],
                terminal: last && terminal,
                last,
            });
        }
    }

    #[test]
    fn looking_ahead_stops_at_ends_and_trusts_nothing_behind_a_terminal() {
        let mut replay = Replay::new(WIDTHS, 100);
        episode(&mut replay, 0, 4, true);
        episode(&mut replay, 1, 3, false);
        let mut costs = [0.0];
        // Rows 0..4 and their end at 4; rows 5..8 and their end at 8.
        let seen = replay.look_ahead(0, 2, 0.5, &mut costs);
        assert_eq!(
            (seen.observation, seen.action, seen.next_observation),
            (&[0.0][..], &[0.0][..], &[2.0][..])
        );
        assert_eq!((seen.reward, seen.discount, costs[0]), (0.5 * (1.0 + 0.5 * 2.0), 0.25, 0.5));
        let seen = replay.look_ahead(2, 5, 0.5, &mut costs);
        assert_eq!((seen.reward, seen.discount), (0.5 * (3.0 + 0.5 * 4.0), 0.0));
        assert_eq!(seen.next_observation, [4.0]);
        let seen = replay.look_ahead(6, 5, 0.5, &mut costs);
        assert_eq!((seen.reward, seen.discount), (0.5 * (2.0 + 0.5 * 3.0), 0.25));
        assert_eq!(seen.next_observation, [13.0]);
    }

    /// 7 steps stand in 9 rows; each of 7000 draws is a given one with chance 1/7: 1000 +- 5 deviations of 29.3.
    #[test]
    fn steps_are_drawn_alike_and_ends_never() {
        let mut replay = Replay::new(WIDTHS, 100);
        episode(&mut replay, 0, 4, true);
        episode(&mut replay, 1, 3, false);
        let (mut rng, mut counts) = (stream(6, "draws", 0), [0_u32; 9]);
        for _ in 0..7000 {
            counts[replay.draw(&mut rng) as usize] += 1;
        }
        assert_eq!((counts[4], counts[8]), (0, 0));
        for row in [0, 1, 2, 3, 5, 6, 7] {
            assert!((850..1150).contains(&counts[row]), "{counts:?}");
        }
    }

    #[test]
    fn the_newest_rows_come_back_from_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("replay.bin");
        let mut replay = Replay::new(WIDTHS, 10);
        episode(&mut replay, 0, 4, true);
        replay.store(&path).expect("a file");
        for e in 1..5 {
            episode(&mut replay, e, 3, false);
        }
        replay.store(&path).expect("a file");
        let added = replay.added();
        // More than was kept comes between this and the next checkpoint, then nothing.
        let mut again = Replay::new(WIDTHS, 10);
        again.restore(&path, added).expect("as many rows");
        assert_eq!((again.added, again.stored), (added, added));
        for index in added - 10..added {
            assert_eq!(again.row(index), replay.row(index));
        }
        // Rows beyond a checkpoint are dropped.
        episode(&mut again, 7, 3, true);
        again.store(&path).expect("a file");
        replay.store(&path).expect("a file");
        assert_eq!(path.metadata().expect("a file").len(), replay.bytes(added));
        assert!(Replay::new(WIDTHS, 10).restore(&path, added + 1).is_err());
    }
}
