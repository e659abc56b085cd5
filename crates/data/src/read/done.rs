//! One flag that says only that an episode was over.

use super::Done;
use crate::problem::{Problem, ProblemCode};

/// One flag for both ends: where episodes of one and the same greatest length end it was the limit on time, elsewhere
/// the process ended.
pub(crate) fn split_done(
    done: &[u8],
    name: &str,
    reading: Done,
    problems: &mut Vec<Problem>,
) -> (Vec<u8>, Vec<u8>) {
    let none = vec![0; done.len()];
    match reading {
        Done::Terminal => return (done.to_vec(), none),
        Done::Timeout => return (none, done.to_vec()),
        Done::Auto => {}
    }
    let mut ends: Vec<(usize, usize)> = Vec::new();
    let mut start = 0;
    for row in 0..done.len() {
        if done[row] != 0 {
            ends.push((row, row + 1 - start));
            start = row + 1;
        }
    }
    let longest = ends.iter().map(|&(_, length)| length).max().unwrap_or(0);
    let shared = ends.iter().filter(|&&(_, length)| length == longest).count() > 1;
    let (mut terminals, mut timeouts) = (none.clone(), none);
    let mut timed_out = 0;
    for &(row, length) in &ends {
        if shared && length == longest {
            timeouts[row] = 1;
            timed_out += 1;
        } else {
            terminals[row] = 1;
        }
    }
    let message = format!(
        "says that an episode was over, not whether the process ended: {timed_out} episodes of the greatest length, \
         {longest} steps, are read as stopped and the other {} as ended; say which it is with --done terminal or \
         --done timeout",
        ends.len() - timed_out
    );
    problems.push(Problem::new(ProblemCode::DoneAmbiguous, message).column(name));
    (terminals, timeouts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flag_for_both_ends_is_split_by_length() {
        let mut done = vec![0; 11];
        for row in [3, 5, 9] {
            done[row] = 1;
        }
        let mut problems = Vec::new();
        let (terminals, timeouts) = split_done(&done, "done", Done::Auto, &mut problems);
        let rows = |flags: &[u8]| (0..flags.len()).filter(|&row| flags[row] != 0).collect::<Vec<_>>();
        assert_eq!((rows(&timeouts), rows(&terminals)), (vec![3, 9], vec![5]));
        assert_eq!(problems[0].code, ProblemCode::DoneAmbiguous);
        // A single longest episode is no evidence of a limit.
        let (terminals, timeouts) = split_done(&done[..6], "done", Done::Auto, &mut problems);
        assert_eq!((rows(&timeouts), rows(&terminals)), (vec![], vec![3, 5]));
        let asked = split_done(&done, "done", Done::Timeout, &mut Vec::new());
        assert_eq!((rows(&asked.1), rows(&asked.0)), (vec![3, 5, 9], vec![]));
    }
}
