//! Checks of the values of a log.

use crate::error::DataError;
use crate::next::{NextObservations, same_bits};
use crate::problem::{Problem, ProblemCode, Tally};
use crate::read::{EXACT_INTEGERS, Log, ReadOptions, read};
use crate::transitions::{Actions, Transitions, is_blank};

/// What counts as a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckOptions {
    /// Values of larger magnitude are markers or faults, not measurements.
    pub max_magnitude: f32,
}

impl Default for CheckOptions {
    /// `1e9`: its square and the products of a network's layers still lie well inside 32-bit floating point.
    fn default() -> Self {
        CheckOptions { max_magnitude: 1e9 }
    }
}

/// Reads the log at `path` and checks its values. Problems are listed, errors first, and none is refused.
///
/// # Errors
/// If the path holds no log.
pub fn validate(
    path: &std::path::Path,
    options: &ReadOptions,
    check: &CheckOptions,
) -> Result<Log, DataError> {
    let mut log = read(path, options)?;
    check_values(&mut log, check);
    Ok(log)
}

/// Reads a log for training: as [`validate`], but a log with errors is refused.
///
/// # Errors
/// If the path holds no log, or one with a problem that would make results wrong ([`DataError::Unusable`]).
pub fn load(path: &std::path::Path, options: &ReadOptions, check: &CheckOptions) -> Result<Log, DataError> {
    let log = validate(path, options, check)?;
    if log.problems.iter().any(Problem::is_error) {
        return Err(DataError::Unusable { path: path.to_owned(), problems: log.problems });
    }
    Ok(log)
}

/// Adds the problems of the values to those found while reading, and sorts them, errors first.
fn check_values(log: &mut Log, options: &CheckOptions) {
    let mut checker =
        Checker { log: &log.transitions, options: *options, problems: Vec::new(), faulty: Vec::new() };
    checker.observations();
    checker.actions();
    checker.rewards_and_costs();
    checker.propensities();
    checker.episodes();
    let Checker { mut problems, faulty, .. } = checker;
    for problem in &mut problems {
        problem.row = problem.row.map(|row| log.source_row(row));
    }
    log.problems.extend(problems);
    log.problems.sort_by_key(|problem| !problem.is_error());
    log.faulty.extend(faulty);
    log.faulty.sort_unstable();
    log.faulty.dedup();
}

/// Of one column: what its values are like.
#[derive(Clone)]
struct Scan {
    non_finite: Tally,
    extreme: Tally,
    largest: f32,
    largest_row: usize,
    low: f32,
    high: f32,
    negative: Tally,
    /// Non-zero magnitudes by their binary exponent.
    exponents: Box<[u64; 256]>,
}

impl Scan {
    fn new() -> Self {
        Scan {
            non_finite: Tally::default(),
            extreme: Tally::default(),
            largest: 0.0,
            largest_row: 0,
            low: f32::INFINITY,
            high: f32::NEG_INFINITY,
            negative: Tally::default(),
            exponents: Box::new([0; 256]),
        }
    }

    /// Takes in the range and magnitudes of another column of the same quantity; its faults stay its own.
    fn take_in(&mut self, other: &Scan) {
        self.low = self.low.min(other.low);
        self.high = self.high.max(other.high);
        if other.largest > self.largest {
            (self.largest, self.largest_row) = (other.largest, other.largest_row);
        }
        for (mine, others) in self.exponents.iter_mut().zip(&*other.exponents) {
            *mine += others;
        }
    }

    /// Whether the value can be used.
    fn add(&mut self, row: usize, value: f32, max_magnitude: f32) -> bool {
        if !value.is_finite() {
            self.non_finite.add(row);
            return false;
        }
        let magnitude = value.abs();
        self.low = self.low.min(value);
        self.high = self.high.max(value);
        if value < 0.0 {
            self.negative.add(row);
        }
        if magnitude > self.largest {
            self.largest = magnitude;
            self.largest_row = row;
        }
        if magnitude > 0.0 {
            self.exponents[(magnitude.to_bits() >> 23) as usize] += 1;
        }
        if magnitude > max_magnitude {
            self.extreme.add(row);
            return false;
        }
        true
    }

    /// An upper bound of the magnitude that all but one in a hundred (at least one) of the non-zero values keep.
    /// Infinite where too few values are there to tell.
    fn usual(&self) -> f64 {
        const ENOUGH: u64 = 10;
        let total: u64 = self.exponents.iter().sum();
        if total < ENOUGH {
            return f64::INFINITY;
        }
        let spared = (total / 100).max(1);
        let mut below = 0;
        for (exponent, count) in self.exponents.iter().enumerate() {
            below += count;
            if below + spared >= total {
                return 2.0_f64.powi(exponent as i32 - 126);
            }
        }
        f64::INFINITY
    }
}

/// A value this many times the usual magnitude of its column is remarkable.
const OUTLIER_FACTOR: f64 = 1000.0;

/// Whole numbers of which each stands in so many rows, on average, may be ids.
const ROWS_PER_ID: usize = 10;

/// Noise on actions, as a part of half their range, below which a log does not explore. The logs on which learning was
/// tried have .05 to .3, or none.
const LEAST_NOISE: f64 = 0.01;

/// Second differences from which noise is judged.
const ENOUGH_CHANGES: u64 = 100;

struct Checker<'a> {
    log: &'a Transitions,
    options: CheckOptions,
    problems: Vec<Problem>,
    faulty: Vec<usize>,
}

impl Checker<'_> {
    fn report(&mut self, code: ProblemCode, column: &str, row: Option<usize>, message: String) {
        self.problems.push(Problem { row, ..Problem::new(code, message).column(column) });
    }

    /// Reports what every numeric column is checked for.
    fn report_scan(&mut self, column: &str, scan: &Scan) {
        self.report_faults(column, scan);
        self.report_outlier(column, scan);
    }

    /// Reports values that cannot be used.
    fn report_faults(&mut self, column: &str, scan: &Scan) {
        if let Some(row) = scan.non_finite.found() {
            let message = format!(
                "{} values are NaN or infinite (or empty, or too large for 32-bit floating point); repair drops \
                 their episodes",
                scan.non_finite.count
            );
            self.report(ProblemCode::NonFinite, column, Some(row), message);
        }
        if let Some(row) = scan.extreme.found() {
            let message = format!(
                "{} values exceed {:e} in magnitude (the largest is {:e}): a marker for missing data, or a fault; \
                 repair drops their episodes. If they are real, rescale the column or raise --max-magnitude",
                scan.extreme.count, self.options.max_magnitude, scan.largest
            );
            self.report(ProblemCode::ExtremeValue, column, Some(row), message);
        }
    }

    /// Reports a value that can be used but looks odd beside the others.
    fn report_outlier(&mut self, column: &str, scan: &Scan) {
        if scan.largest <= self.options.max_magnitude
            && f64::from(scan.largest) > OUTLIER_FACTOR * scan.usual()
        {
            let message = format!(
                "the largest magnitude is {:e}, although nearly all values that are not zero lie below {:e}; if it is a \
                 fault, repair with a lower --max-magnitude",
                scan.largest,
                scan.usual()
            );
            self.report(ProblemCode::Outlier, column, Some(scan.largest_row), message);
        }
    }

    fn observations(&mut self) {
        let dim = self.log.observation_dim;
        let limit = self.options.max_magnitude;
        let mut scans = vec![Scan::new(); dim];
        let mut starts = self.log.episodes.iter().map(|episode| episode.start).peekable();
        for row in 0..self.log.len() {
            let first = starts.next_if_eq(&row).is_some();
            let mut sound = true;
            for (scan, &value) in scans.iter_mut().zip(self.log.observation(row)) {
                sound &= scan.add(row, value, limit);
            }
            if !sound {
                // The row before leads here.
                if !first {
                    self.faulty.push(row - 1);
                }
                self.faulty.push(row);
            }
        }
        let mut next = vec![Scan::new(); dim];
        self.next_observations(&mut next);
        let rows = self.log.len();
        for (component, (scan, next)) in scans.iter_mut().zip(&next).enumerate() {
            let name = component_name(&self.log.observation_names, "observations", component, dim);
            let next_name = format!("next_{name}");
            self.report_faults(&name, scan);
            self.report_faults(&next_name, next);
            let larger = if next.largest > scan.largest { &next_name } else { &name };
            let sound = next.non_finite.count == 0;
            scan.take_in(next);
            self.report_outlier(larger, scan);
            if sound && rows > 1 && scan.low == scan.high && scan.non_finite.count == 0 {
                let message =
                    format!("is {} in every row; it carries no information and is not rescaled", scan.low);
                self.report(ProblemCode::ConstantObservation, &name, None, message);
            }
        }
        self.state_ids();
    }

    /// With finitely many actions, one component of whole numbers that recur: likely ids, whose order means nothing.
    fn state_ids(&mut self) {
        let log = self.log;
        let discrete = matches!(log.actions, Actions::Discrete { .. });
        let whole = |x: &f32| *x >= 0.0 && x.fract() == 0.0 && *x <= EXACT_INTEGERS as f32;
        if log.observation_dim != 1 || !discrete || !log.observations.iter().all(whole) {
            return;
        }
        let mut seen: Vec<u32> = log.observations.iter().map(|&x| x as u32).collect();
        seen.sort_unstable();
        seen.dedup();
        if seen.len() > 2 && seen.len().saturating_mul(ROWS_PER_ID) <= log.observations.len() {
            let message = format!(
                "is a whole number in every row, one of {}, and is read as one real number, of which near ones are alike. \
                 If these are ids of states, `coptidice tabular solve` takes them for what they are; or give a column of \
                 0 and 1 for each",
                seen.len()
            );
            let name = component_name(&log.observation_names, "observations", 0, 1);
            self.report(ProblemCode::StateIds, &name, None, message);
        }
    }

    /// Next observations that are stored by themselves, less those that are the following row's observation: what is
    /// wrong with them is reported there.
    fn next_observations(&mut self, scans: &mut [Scan]) {
        let limit = self.options.max_magnitude;
        let dim = self.log.observation_dim;
        let log = self.log;
        let mut check = |row: usize, values: &[f32]| {
            // Where an episode ends, nothing need have been recorded; the reader says what follows from that.
            if is_blank(values) && log.ends_episode(row) {
                return;
            }
            if !log.ends_episode(row) && row + 1 < log.len() && same_bits(values, log.observation(row + 1)) {
                return;
            }
            let mut sound = true;
            for (scan, &value) in scans.iter_mut().zip(values) {
                sound &= scan.add(row, value, limit);
            }
            if !sound {
                self.faulty.push(row);
            }
        };
        match &log.next {
            NextObservations::Full(values) => {
                values.chunks_exact(dim).enumerate().for_each(|(row, values)| check(row, values));
            }
            NextObservations::Chained(exceptions) => {
                let values = exceptions.values().chunks_exact(dim);
                exceptions.rows().zip(values).for_each(|(row, values)| check(row, values));
            }
        }
    }

    fn actions(&mut self) {
        let Actions::Continuous { dim, values } = &self.log.actions else { return };
        let mut scans = vec![Scan::new(); *dim];
        for (row, action) in values.chunks_exact(*dim).enumerate() {
            let mut sound = true;
            for (scan, &value) in scans.iter_mut().zip(action) {
                sound &= scan.add(row, value, self.options.max_magnitude);
            }
            if !sound {
                self.faulty.push(row);
            }
        }
        for (component, scan) in scans.iter().enumerate() {
            let name = component_name(&self.log.action_names, "actions", component, *dim);
            self.report_scan(&name, scan);
        }
        if scans.iter().any(|scan| scan.non_finite.count > 0) {
            return;
        }
        // An actuator that is not in use says nothing of the others.
        let mut moved = scans.iter().enumerate().filter(|(_, scan)| scan.low < scan.high).peekable();
        if moved.peek().is_none() {
            if self.log.len() as u64 >= ENOUGH_CHANGES {
                let message =
                    "the same action was taken in every row: nothing tells what another would lead to";
                self.problems.push(Problem::new(ProblemCode::NoExploration, message).column("actions"));
            }
            return;
        }
        let found: Vec<bool> =
            moved.filter_map(|(component, scan)| self.is_smooth(values, component, *dim, scan)).collect();
        if !found.is_empty() && found.iter().all(|&smooth| smooth) {
            let message = format!(
                "actions change smoothly from step to step, by chance no more than {}% of their range: where logged \
                 policies never tried anything but their choice, nothing tells what else would lead to, neither a \
                 critic nor an evaluation of the learned policy by this log, however good they look. Log with noise \
                 on the actions, or clone (algo = \"bc\")",
                100.0 * LEAST_NOISE
            );
            self.problems.push(Problem::new(ProblemCode::NoExploration, message).column("actions"));
        }
    }

    /// Whether an action component has next to no noise. Second differences of a smooth course vanish as steps get
    /// short; those of white noise of deviation σ have deviation √6 σ, whatever the course (Gasser, Sroka and
    /// Jennen-Steinmetz 1986), and in half of all places a magnitude above .6745 of that. Actions that are held for some
    /// steps count once; `None` where fewer than [`ENOUGH_CHANGES`] places are left.
    fn is_smooth(&self, values: &[f32], component: usize, dim: usize, scan: &Scan) -> Option<bool> {
        let half_range = 0.5 * (f64::from(scan.high) - f64::from(scan.low));
        let least = 0.6745 * 6.0_f64.sqrt() * LEAST_NOISE * half_range;
        let (mut places, mut above) = (0_u64, 0_u64);
        for episode in &self.log.episodes {
            // The last two actions that differ.
            let mut held: [Option<f64>; 2] = [None; 2];
            for row in episode.rows() {
                let value = f64::from(values[row * dim + component]);
                if held[1] == Some(value) {
                    continue;
                }
                if let [Some(a), Some(b)] = held {
                    places += 1;
                    above += u64::from((value - 2.0 * b + a).abs() > least);
                }
                held = [held[1], Some(value)];
            }
        }
        (places >= ENOUGH_CHANGES).then_some(2 * above < places)
    }

    /// Scans the column that `value` gives.
    fn scan(&mut self, value: impl Fn(usize) -> f32) -> Scan {
        let mut scan = Scan::new();
        for row in 0..self.log.len() {
            if !scan.add(row, value(row), self.options.max_magnitude) {
                self.faulty.push(row);
            }
        }
        scan
    }

    fn rewards_and_costs(&mut self) {
        let log = self.log;
        let scan = self.scan(|row| log.reward(row));
        self.report_scan("rewards", &scan);
        for (k, name) in log.cost_names.iter().enumerate() {
            let scan = self.scan(|row| log.costs(row)[k]);
            self.report_scan(name, &scan);
            if let Some(row) = scan.negative.found() {
                let message = format!(
                    "is negative in {} rows; a limit on it then bounds a difference. If it is a reward, turn its sign",
                    scan.negative.count
                );
                self.report(ProblemCode::NegativeCost, name, Some(row), message);
            }
            if scan.low == 0.0 && scan.high == 0.0 && scan.non_finite.count == 0 {
                let message =
                    "is zero in every row: no limit on it can bind, and nothing can be learned about it";
                self.report(ProblemCode::ZeroCost, name, None, message.to_owned());
            }
        }
    }

    fn propensities(&mut self) {
        let log = self.log;
        let Some(values) = &log.propensities else { return };
        let probability = log.actions.is_discrete();
        let (mut bad, mut non_finite) = (Tally::default(), Tally::default());
        for (row, &value) in values.iter().enumerate() {
            if !value.is_finite() {
                non_finite.add(row);
            } else if value <= 0.0 || probability && value > 1.0 + 1e-6 {
                bad.add(row);
            } else {
                continue;
            }
            self.faulty.push(row);
        }
        if let Some(row) = non_finite.found() {
            let message =
                format!("{} values are NaN or infinite; repair drops their episodes", non_finite.count);
            self.report(ProblemCode::NonFinite, "propensities", Some(row), message);
        }
        if let Some(row) = bad.found() {
            let range = if probability { "(0, 1]" } else { "(0, ∞)" };
            let message = format!("{} values lie outside {range}; repair drops their episodes", bad.count);
            self.report(ProblemCode::BadPropensity, "propensities", Some(row), message);
        }
    }

    fn episodes(&mut self) {
        let count = self.log.episodes.len();
        if count < 3 {
            let message = format!(
                "only {count} episode{}: nothing can be held out for a certificate, and initial states are hardly known",
                if count == 1 { "" } else { "s" }
            );
            self.problems.push(Problem::new(ProblemCode::FewEpisodes, message));
        }
    }
}

/// The source's name of a component, or its position.
pub(crate) fn component_name(names: &[String], stem: &str, component: usize, count: usize) -> String {
    match names.get(component) {
        Some(name) => name.clone(),
        None if count == 1 => stem.to_owned(),
        None => format!("{stem}[{component}]"),
    }
}
