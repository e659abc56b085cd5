//! The order of rows: which belong to one episode, and which comes first.

use std::collections::HashMap;

use super::Cell;
use crate::problem::{Problem, ProblemCode, Tally};

/// Gives equal cells of an episode column equal numbers, in the order of first appearance.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    ids: HashMap<String, u32>,
    last: Option<(String, u32)>,
    spelled: String,
}

impl Interner {
    pub(crate) fn id(&mut self, cell: Cell<'_>) -> u32 {
        use std::fmt::Write as _;
        self.spelled.clear();
        write!(self.spelled, "{cell}").expect("writing to a String cannot fail");
        if let Some((text, id)) = &self.last
            && *text == self.spelled
        {
            return *id;
        }
        let next = self.ids.len() as u32;
        let id = *self.ids.entry(self.spelled.clone()).or_insert(next);
        self.last = Some((self.spelled.clone(), id));
        id
    }
}

/// Rows brought into the order episode by episode, step by step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Arrangement {
    /// Source row at each position; `None` where the source is in order already.
    pub(crate) order: Option<Vec<u32>>,
    /// First position of each episode.
    pub(crate) starts: Vec<usize>,
    /// Positions whose step equals that of the position before. Whoever knows what the rows say reports them, with
    /// [`Arrangement::report_repeated`].
    pub(crate) duplicates: Vec<usize>,
    /// Positions before which steps are missing.
    pub(crate) gaps: Vec<usize>,
    /// What was found. Rows are those of the source.
    pub(crate) problems: Vec<Problem>,
}

/// Arranges rows by episode and step.
///
/// `episode[i]` numbers the episodes by first appearance. `step` may be anything with a constant stride, such as
/// minutes in steps of ten; the stride is the smallest difference found.
pub(crate) fn arrange(episode: &[u32], step: Option<(&str, &[f64])>) -> Arrangement {
    let mut arrangement = Arrangement::default();
    let out_of_order = report_disorder(&mut arrangement.problems, episode, step);
    if out_of_order {
        let mut order: Vec<u32> = (0..episode.len() as u32).collect();
        // Stable, so that rows of equal step keep the order of the file.
        order.sort_by(|&a, &b| {
            let (a, b) = (a as usize, b as usize);
            let by_step = step.map_or(std::cmp::Ordering::Equal, |(_, steps)| steps[a].total_cmp(&steps[b]));
            episode[a].cmp(&episode[b]).then(by_step)
        });
        arrangement.order = Some(order);
    }
    arrangement.starts = (0..episode.len())
        .filter(|&p| p == 0 || episode[arrangement.source(p)] != episode[arrangement.source(p - 1)])
        .collect();
    if let Some((name, steps)) = step {
        arrangement.check_steps(name, steps);
    }
    arrangement
}

/// Reports mixed episodes and steps that go back; returns whether there are any.
fn report_disorder(problems: &mut Vec<Problem>, episode: &[u32], step: Option<(&str, &[f64])>) -> bool {
    let mut mixed = Tally::default();
    let mut unsorted = Tally::default();
    let mut seen = 0;
    for row in 0..episode.len() {
        if episode[row] as usize == seen {
            seen += 1;
        } else if episode[row] != episode[row - 1] {
            mixed.add(row);
        } else if step.is_some_and(|(_, steps)| steps[row] < steps[row - 1]) {
            unsorted.add(row);
        }
    }
    if let Some(row) = mixed.found() {
        let message = format!(
            "rows of different episodes are mixed ({} times a row returns to an earlier episode); repair groups the \
             rows of each episode{}",
            mixed.count,
            if step.is_some() { " and sorts them by step" } else { " in the order of the file" }
        );
        problems.push(Problem::new(ProblemCode::EpisodesInterleaved, message).row(row));
    }
    if let (Some(row), Some((name, _))) = (unsorted.found(), step) {
        let message =
            format!("the step goes back in {} rows; repair sorts each episode by step", unsorted.count);
        problems.push(Problem::new(ProblemCode::StepsUnsorted, message).column(name).row(row));
    }
    mixed.count + unsorted.count > 0
}

impl Arrangement {
    /// The source row at `position`.
    pub(crate) fn source(&self, position: usize) -> usize {
        self.order.as_ref().map_or(position, |order| order[position] as usize)
    }

    /// The last position of the episode that begins at `starts[index]`, of `len` rows in all.
    pub(crate) fn end(&self, index: usize, len: usize) -> usize {
        self.starts.get(index + 1).copied().unwrap_or(len)
    }

    /// Reports repeated steps: `identical` positions repeat the whole row before them, `conflicting` ones only its
    /// step.
    pub(crate) fn report_repeated(&mut self, name: &str, identical: &[usize], conflicting: &[usize]) {
        for (code, positions, what) in [
            (ProblemCode::StepsDuplicated, identical, "rows stand twice; repair keeps one of them"),
            (
                ProblemCode::StepsConflicting,
                conflicting,
                "rows carry the step of the row before them but differ from it; repair drops these episodes",
            ),
        ] {
            if let Some(&first) = positions.first() {
                let message = format!("{} {what}", positions.len());
                let row = self.source(first);
                self.problems.push(Problem::new(code, message).column(name).row(row));
            }
        }
    }

    fn check_steps(&mut self, name: &str, steps: &[f64]) {
        let at = |position: usize| steps[self.source(position)];
        // Every position but the first of each episode, with the step it advances by.
        let advances = || {
            let mut is_start = self.starts.iter().copied().peekable();
            (0..steps.len())
                .filter(move |position| is_start.next_if_eq(position).is_none())
                .map(|position| (position, at(position) - at(position - 1)))
        };
        let stride = advances()
            .map(|(_, difference)| difference)
            .filter(|&difference| difference > 0.0)
            .fold(f64::INFINITY, f64::min);
        let (mut duplicates, mut gaps) = (Vec::new(), Vec::new());
        for (position, difference) in advances() {
            if difference == 0.0 {
                duplicates.push(position);
            } else if difference > 1.5 * stride {
                gaps.push(position);
            }
        }
        if let Some(&first) = gaps.first() {
            let message = format!(
                "steps are missing before {} rows (steps advance by {stride} elsewhere); repair drops these episodes, \
                 or their part from the gap on",
                gaps.len()
            );
            let row = self.source(first);
            self.problems.push(Problem::new(ProblemCode::StepGap, message).column(name).row(row));
        }
        self.report_late_starts(name, steps);
        self.duplicates = duplicates;
        self.gaps = gaps;
    }

    /// Where nearly all episodes begin at one step, the others have lost their beginning: their first row is no
    /// initial state.
    fn report_late_starts(&mut self, name: &str, steps: &[f64]) {
        let first = |&start: &usize| steps[self.source(start)];
        let mut sorted: Vec<f64> = self.starts.iter().map(first).collect();
        sorted.sort_by(f64::total_cmp);
        let Some(&earliest) = sorted.first() else { return };
        let early = sorted.partition_point(|&step| step <= earliest);
        let late = sorted.len() - early;
        // Absolute times differ everywhere; only a rare exception to a common first step is suspicious.
        if late == 0 || late * 10 > sorted.len() {
            return;
        }
        let row = self.starts.iter().find(|start| first(start) > earliest).map(|&start| self.source(start));
        let message = format!(
            "{late} episodes begin after step {earliest}, where the others begin; their first rows are taken for \
             initial states"
        );
        let problem = Problem::new(ProblemCode::LateStart, message).column(name);
        self.problems.push(Problem { row, ..problem });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(arrangement: &Arrangement) -> Vec<ProblemCode> {
        arrangement.problems.iter().map(|problem| problem.code).collect()
    }

    #[test]
    fn clean_logs_are_left_alone() {
        let arrangement = arrange(&[0, 0, 1, 1, 1], Some(("t", &[0.0, 10.0, 50.0, 60.0, 70.0])));
        assert_eq!(arrangement, Arrangement { starts: vec![0, 2], ..Arrangement::default() });
    }

    #[test]
    fn mixed_and_unsorted_rows_are_arranged() {
        let arrangement = arrange(&[0, 1, 0, 1, 1], Some(("t", &[1.0, 0.0, 0.0, 2.0, 1.0])));
        assert_eq!(arrangement.order.as_deref(), Some(&[2, 0, 1, 4, 3][..]));
        assert_eq!(arrangement.starts, [0, 2]);
        assert_eq!(codes(&arrangement), [ProblemCode::EpisodesInterleaved, ProblemCode::StepsUnsorted]);
        assert_eq!((arrangement.problems[0].row, arrangement.problems[1].row), (Some(2), Some(4)));
    }

    #[test]
    fn repeated_and_missing_steps_are_found() {
        let arrangement = arrange(&[0; 6], Some(("t", &[0.0, 1.0, 1.0, 2.0, 4.0, 5.0])));
        assert_eq!((arrangement.duplicates.as_slice(), arrangement.gaps.as_slice()), (&[2][..], &[4][..]));
        assert_eq!(codes(&arrangement), [ProblemCode::StepGap]);
        let mut arrangement = arrangement;
        arrangement.report_repeated("t", &[2], &[]);
        assert_eq!(codes(&arrangement), [ProblemCode::StepGap, ProblemCode::StepsDuplicated]);
    }

    #[test]
    fn a_rare_late_start_is_reported_but_absolute_times_are_not() {
        let episodes: Vec<u32> = (0..20).collect();
        let mut steps = vec![0.0; 20];
        steps[7] = 3.0;
        let arrangement = arrange(&episodes, Some(("t", &steps)));
        assert_eq!(codes(&arrangement), [ProblemCode::LateStart]);
        assert_eq!(arrangement.problems[0].row, Some(7));
        let absolute: Vec<f64> = (0..20).map(f64::from).collect();
        assert!(arrange(&episodes, Some(("t", &absolute))).problems.is_empty());
    }

    #[test]
    fn equal_spellings_are_one_episode() {
        let mut interner = Interner::default();
        let cells = [Cell::Int(7), Cell::Text("b"), Cell::Int(7), Cell::Null];
        assert_eq!(cells.map(|cell| interner.id(cell)), [0, 1, 0, 2]);
    }
}
