//! Long-run occupancy at `γ = 1`, without assuming a single recurrent class.
//!
//! Ended episodes start again by way of a state of their own in which no time is spent, so that a chain stays as sparse
//! as its steps are.
//!
//! Up to [`FACTOR_LIMIT`] states linear systems are factorised. Of larger chains the visits between two returns to one
//! state (two starts of an episode, where there are any), or those before a closed class is entered, are found by
//! iteration; where their balance does not close, by a factorisation after all, which is dense.

use std::ops::Range;

use coptidice_core::{Cmdp, Policy};
use faer::Mat;
use faer::linalg::solvers::Solve as _;

use crate::linalg::flow::{FACTOR_LIMIT, FlowSystem, Pairs};

/// Successors of each state and their probabilities; the last row is that of the start of an episode.
type Rows = Vec<Vec<(usize, f64)>>;

/// Imbalance of an iterated occupancy, relative to its returns, at which it is as good as a factorisation's. Where
/// these are the starts of episodes, what is lost of them is lost of totals per episode.
const BALANCE: f64 = 1e-10;

/// What a policy ever visits from `p0`.
pub(crate) struct Reach {
    /// `[S]`.
    pub(crate) visited: Vec<bool>,
    /// Closed classes among them: where there are several, the long-run average depends on the one that is entered.
    pub(crate) closed_classes: usize,
}

impl Reach {
    pub(crate) fn new(m: &Cmdp, policy: &Policy) -> Self {
        let rows = chain(m, policy);
        let mut open: Vec<usize> = (0..m.states()).filter(|&s| m.initial()[s] > 0.0).collect();
        let mut visited = vec![false; rows.len()];
        open.iter().for_each(|&s| visited[s] = true);
        while let Some(s) = open.pop() {
            for &(t, p) in &rows[s] {
                if p > 0.0 && !visited[t] {
                    visited[t] = true;
                    open.push(t);
                }
            }
        }
        let classes = Classes::new(&rows);
        let mut entered = vec![false; classes.closed.len()];
        (0..rows.len()).filter(|&s| visited[s]).for_each(|s| entered[classes.of[s]] = true);
        let closed_classes = entered.iter().zip(&classes.closed).filter(|(e, c)| **e && **c).count();
        visited.truncate(m.states());
        Self { visited, closed_classes }
    }
}

fn chain(m: &Cmdp, policy: &Policy) -> Rows {
    let start = m.states();
    let step = |s: usize| {
        let mut row = Vec::new();
        let mut end = 0.0;
        for (a, &p) in policy.row(s).iter().enumerate().filter(|(_, p)| **p > 0.0) {
            let pair = s * m.actions() + a;
            let (next, probability) = m.row(pair);
            row.extend(next.iter().zip(probability).map(|(&t, &q)| (t as usize, p * q)));
            end += p * m.transitions().end_probability(pair);
        }
        if end > 0.0 {
            row.push((start, end));
        }
        row
    };
    let starts = m.initial().iter().enumerate().filter(|(_, p)| **p > 0.0).map(|(s, &p)| (s, p));
    (0..start).map(step).chain([starts.collect()]).collect()
}

/// Share of time in each state, `[S]`.
pub(super) fn state_occupancy(m: &Cmdp, policy: &Policy) -> Vec<f64> {
    let rows = chain(m, policy);
    let (n, start) = (rows.len(), m.states());
    let classes = Classes::new(&rows);
    let in_closed = |s: usize| classes.closed[classes.of[s]];
    let mut entering = m.initial().to_vec();
    entering.push(0.0);
    // Mass of p0 that starts in transient states flows on to closed ones.
    let transient: Vec<usize> = (0..n).filter(|&s| !in_closed(s)).collect();
    if transient.iter().any(|&s| entering[s] > 0.0) {
        let visits = transient_visits(&rows, &transient, &entering);
        for (&s, visits) in transient.iter().zip(visits) {
            entering[s] = 0.0;
            for &(t, p) in rows[s].iter().filter(|(t, _)| in_closed(*t)) {
                entering[t] += visits * p;
            }
        }
    }
    let mut members = vec![Vec::new(); classes.closed.len()];
    (0..n).filter(|&s| in_closed(s)).for_each(|s| members[classes.of[s]].push(s));
    let mut occupancy = vec![0.0; n];
    for members in members.iter().filter(|m| !m.is_empty()) {
        let mass: f64 = members.iter().map(|&s| entering[s]).sum();
        if mass > 0.0 {
            let mut shares = stationary(&rows, members, start);
            if members.last() == Some(&start) {
                shares.pop();
            }
            let time: f64 = shares.iter().sum();
            for (&s, d) in members.iter().zip(shares) {
                occupancy[s] = mass * d / time;
            }
        }
    }
    occupancy.truncate(start);
    occupancy
}

/// `x = (I − Q)⁻ᵀp0` over the transient states.
fn transient_visits(rows: &Rows, transient: &[usize], entering: &[f64]) -> Vec<f64> {
    let start: Vec<f64> = transient.iter().map(|&s| entering[s]).collect();
    let part = Part::new(rows, transient);
    if transient.len() > FACTOR_LIMIT {
        let visits = part.visits(start.clone());
        // Relative to what is to arrive.
        if part.imbalance(&visits, &start) <= BALANCE * start.iter().sum::<f64>() {
            return visits;
        }
    }
    let mut system = part.balance();
    let visits = system.as_mut().partial_piv_lu().solve(&Mat::from_fn(start.len(), 1, |i, _| start[i]));
    visits.col(0).iter().copied().collect()
}

/// Stationary distribution of one closed class, whose members increase, by returns to `home` if that is one.
fn stationary(rows: &Rows, members: &[usize], home: usize) -> Vec<f64> {
    let part = Part::new(rows, members);
    if members.len() > FACTOR_LIMIT
        && let Some(found) = part.by_returns(members.binary_search(&home).ok())
    {
        return found;
    }
    part.by_factor()
}

/// Some states of a chain, numbered anew, and its steps among them.
#[derive(Clone)]
struct Part {
    row_start: Vec<usize>,
    next: Vec<u32>,
    probability: Vec<f64>,
}

impl Part {
    /// `states` increase.
    fn new(rows: &Rows, states: &[usize]) -> Self {
        let mut part = Self { row_start: vec![0], next: Vec::new(), probability: Vec::new() };
        for &s in states {
            for &(t, p) in &rows[s] {
                if let Ok(place) = states.binary_search(&t) {
                    part.next.push(place as u32);
                    part.probability.push(p);
                }
            }
            part.row_start.push(part.next.len());
        }
        part
    }

    fn steps(&self, s: usize) -> impl Iterator<Item = (usize, f64)> {
        let (next, probability) = self.successors(s);
        next.iter().zip(probability).map(|(&t, &p)| (t as usize, p))
    }

    /// `(I − P)ᵀ`.
    fn balance(&self) -> Mat<f64> {
        let mut system = Mat::<f64>::identity(self.states(), self.states());
        for s in 0..self.states() {
            self.steps(s).for_each(|(t, p)| system[(t, s)] -= p);
        }
        system
    }

    /// `(I − P)⁻ᵀ start`, iterated.
    fn visits(&self, mut start: Vec<f64>) -> Vec<f64> {
        let mut system = FlowSystem::new(self.states());
        system.load(self, |s| std::iter::once((s, 1.0)));
        system.solve_transposed(&mut start);
        start
    }

    /// Largest part of `(I − P)ᵀx − start`; infinite where some of `x` is not a number.
    fn imbalance(&self, x: &[f64], start: &[f64]) -> f64 {
        let mut left: Vec<f64> = x.iter().zip(start).map(|(x, b)| x - b).collect();
        for (s, x) in x.iter().enumerate() {
            self.steps(s).for_each(|(t, p)| left[t] -= p * x);
        }
        left.iter().fold(0.0_f64, |worst, l| if l.is_nan() { f64::INFINITY } else { worst.max(l.abs()) })
    }

    /// Stationary distribution of a closed class by its balance equations, the last replaced by the sum.
    fn by_factor(&self) -> Vec<f64> {
        let n = self.states();
        let mut system = self.balance();
        for i in 0..n {
            system[(n - 1, i)] = 1.0;
        }
        let right = Mat::from_fn(n, 1, |i, _| if i + 1 == n { 1.0 } else { 0.0 });
        let d = system.partial_piv_lu().solve(&right);
        (0..n).map(|i| d[(i, 0)].max(0.0)).collect()
    }

    /// Stationary distribution of a closed class as the visits between two returns to one of its states.
    fn by_returns(&self, home: Option<usize>) -> Option<Vec<f64>> {
        let n = self.states();
        let home = home.unwrap_or_else(|| {
            let mut into = vec![0.0; n];
            for s in 0..n {
                self.steps(s).for_each(|(t, p)| into[t] += p);
            }
            // The more often it is returned to, the fewer visits there are to add up.
            (0..n).fold(0, |most, s| if into[s] > into[most] { s } else { most })
        });
        let mut start = vec![0.0; n];
        self.steps(home).filter(|(t, _)| *t != home).for_each(|(t, p)| start[t] += p);
        let mut away = self.clone();
        for s in 0..n {
            for i in away.row_start[s]..away.row_start[s + 1] {
                if s == home || away.next[i] as usize == home {
                    away.probability[i] = 0.0;
                }
            }
        }
        let mut visits = away.visits(start);
        visits[home] = 1.0;
        let total: f64 = visits.iter().sum();
        visits.iter_mut().for_each(|x| *x = (*x / total).max(0.0));
        // Relative to the returns, as all visits are.
        let balanced = self.imbalance(&visits, &vec![0.0; n]) <= BALANCE * visits[home];
        (total.is_finite() && balanced).then_some(visits)
    }
}

impl Pairs for Part {
    fn states(&self) -> usize {
        self.row_start.len() - 1
    }

    fn pairs_of(&self, state: usize) -> Range<usize> {
        state..state + 1
    }

    fn successors(&self, pair: usize) -> (&[u32], &[f64]) {
        let range = self.row_start[pair]..self.row_start[pair + 1];
        (&self.next[range.clone()], &self.probability[range])
    }

    fn end(&self, _: usize) -> f64 {
        0.0
    }

    fn initial(&self) -> &[f64] {
        &[]
    }

    fn restarts(&self) -> bool {
        false
    }

    fn gamma(&self) -> f64 {
        1.0
    }
}

/// Strongly connected components.
struct Classes {
    /// Number of each state's component.
    of: Vec<usize>,
    /// Whether a component is never left.
    closed: Vec<bool>,
}

impl Classes {
    fn new(rows: &Rows) -> Self {
        let of = components(rows);
        let mut closed = vec![true; of.iter().max().map_or(0, |c| c + 1)];
        for (s, row) in rows.iter().enumerate() {
            if row.iter().any(|&(t, p)| p > 0.0 && of[t] != of[s]) {
                closed[of[s]] = false;
            }
        }
        Self { of, closed }
    }
}

/// Strongly connected components (Tarjan 1972, without recursion); numbered, in no particular order.
fn components(rows: &[Vec<(usize, f64)>]) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let n = rows.len();
    let (mut index, mut low, mut component) = (vec![NONE; n], vec![0; n], vec![NONE; n]);
    let (mut stack, mut calls, mut next_index, mut count) = (Vec::new(), Vec::new(), 0, 0);
    for root in 0..n {
        if index[root] != NONE {
            continue;
        }
        calls.push((root, 0));
        while let Some((s, edge)) = calls.pop() {
            if edge == 0 {
                index[s] = next_index;
                low[s] = next_index;
                next_index += 1;
                stack.push(s);
            }
            if let Some(&(t, _)) = rows[s].get(edge) {
                calls.push((s, edge + 1));
                if index[t] == NONE {
                    calls.push((t, 0));
                } else if component[t] == NONE {
                    low[s] = low[s].min(index[t]);
                }
                continue;
            }
            if low[s] == index[s] {
                while let Some(t) = stack.pop() {
                    component[t] = count;
                    if t == s {
                        break;
                    }
                }
                count += 1;
            }
            if let Some(&(parent, _)) = calls.last() {
                low[parent] = low[parent].min(low[s]);
            }
        }
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;
    use coptidice_core::{CmdpParts, EpisodeEnd, Transitions};

    /// On chains of more states than are factorised at once, against the factorisation.
    #[test]
    fn iterated_shares_of_time_are_those_of_the_factorisation() {
        let n = 3 * FACTOR_LIMIT;
        let rows: Rows = (0..n)
            .map(|s| vec![((s + 1) % n, 0.5), ((s * 7 + 3) % n, 0.3), ((s * s + 1) % n, 0.2)])
            .collect();
        let members: Vec<usize> = (0..n).collect();
        let part = Part::new(&rows, &members);
        let found = part.by_returns(None).expect("a chain that mixes in a few steps");
        for (s, (found, exact)) in found.iter().zip(part.by_factor()).enumerate() {
            // Both balance to 1e-14 of shares about 1/n; the chain forgets its start in tens of steps.
            assert!((found - exact).abs() < 1e-12, "{s}: {found} {exact}");
        }
    }

    /// A walk that stays put but for one step in a million to either side: balanced only by a factorisation, or not
    /// claimed to be.
    #[test]
    fn a_class_that_hardly_mixes_is_right_or_refused() {
        let n = 2 * FACTOR_LIMIT;
        let stay = 1.0 - 2.0 * (-20.0_f64).exp2();
        let step = (-20.0_f64).exp2();
        let rows: Rows =
            (0..n).map(|s| vec![(s, stay), ((s + 1) % n, step), ((s + n - 1) % n, step)]).collect();
        let members: Vec<usize> = (0..n).collect();
        for d in stationary(&rows, &members, n) {
            assert!((d * n as f64 - 1.0).abs() < 1e-6, "{d}");
        }
    }

    /// A walk on 300 states that ends with probability 1/20 a step, beside a state without rows: the share of time by
    /// returns to the start of an episode, against the balance of the chain in which every end leads straight to `p0`.
    #[test]
    fn shares_of_time_in_the_restart_chain() {
        let n = 300;
        let walk = (0..n - 1).flat_map(|s| {
            let (near, far) = ((s + 1) % (n - 1), (s * 7 + 3) % (n - 1));
            [(s, 0, near, 0.95), (s, 1, near, 0.35), (s, 1, far, 0.6)]
        });
        let alone = [(n - 1, 0, n - 1, 1.0), (n - 1, 1, n - 1, 1.0)];
        let mut ends = vec![0.05; 2 * n];
        ends[2 * (n - 1)..].fill(0.0);
        let m = Cmdp::new(CmdpParts {
            transitions: Transitions::from_triples(n, 2, walk.chain(alone))
                .unwrap()
                .with_end_probability(ends)
                .unwrap(),
            episode_end: EpisodeEnd::Restart,
            reward: vec![1.0; 2 * n],
            costs: vec![],
            initial: (0..n).map(|s| if s < 2 { 0.5 } else { 0.0 }).collect(),
            gamma: 1.0,
        })
        .unwrap();
        let d = state_occupancy(&m, &Policy::uniform(n, 2).unwrap());
        assert!((d.iter().sum::<f64>() - 1.0).abs() < 1e-13);
        assert_eq!(d[n - 1], 0.0);
        let mut left = d.clone();
        for s in 0..n - 1 {
            left[(s + 1) % (n - 1)] -= 0.65 * d[s];
            left[(s * 7 + 3) % (n - 1)] -= 0.3 * d[s];
            left[0] -= 0.025 * d[s];
            left[1] -= 0.025 * d[s];
        }
        // A twentieth of all steps end; their balance closes to 1e-10 of that, and commonly to rounding.
        assert!(left.iter().all(|l| l.abs() < 1e-13), "{left:?}");
    }

    /// A long way to one of two ends.
    #[test]
    fn iterated_visits_before_a_class_is_entered() {
        let n = 2 * FACTOR_LIMIT;
        let mut rows: Rows = (0..n).map(|s| vec![(s + 1, 0.9), (n + 1, 0.1)]).collect();
        rows[n - 1] = vec![(n, 0.9), (n + 1, 0.1)];
        rows.extend([vec![(n, 1.0)], vec![(n + 1, 1.0)]]);
        let transient: Vec<usize> = (0..n).collect();
        let mut entering = vec![0.0; n + 2];
        entering[n - 3] = 1.0;
        let visits = transient_visits(&rows, &transient, &entering);
        for (s, expected) in [(n - 4, 0.0), (n - 3, 1.0), (n - 2, 0.9), (n - 1, 0.81)] {
            assert!((visits[s] - expected).abs() < 1e-13, "{s}: {}", visits[s]);
        }
    }
}
