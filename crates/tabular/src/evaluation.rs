//! Value and occupancy of a policy.
//!
//! For `γ < 1` the state occupancy solves `(I − γP_πᵀ)d = (1−γ)p0`. For `γ = 1` it is the long-run share of time
//! spent in each state from `p0`: the stationary distribution of every closed class, weighted with the probability
//! of being absorbed there.

use coptidice_core::{Cmdp, CmdpError, Policy};

use crate::linalg::flow::{FACTOR_LIMIT, FlowSystem, Pairs};

/// Occupancy and values of a policy, all `(1−γ)`-normalised: averages per step.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// `d^π`, `[S*A]`. Sums to one unless episodes end by absorption; the rest is spent after the end.
    pub occupancy: Vec<f64>,
    /// `V_R(π)`, reward units per step.
    pub reward: f64,
    /// `V_C(π)`, `[K]`, cost units per step.
    pub costs: Vec<f64>,
}

/// Imbalance of an iterated occupancy, relative to its ends, at which it is as good as a factorisation's.
const BALANCE: f64 = 1e-10;

/// Workspace for evaluating policies on CMDPs of one size.
pub struct Evaluator {
    system: FlowSystem,
}

impl Evaluator {
    /// Workspace for `states` states.
    #[must_use]
    pub fn new(states: usize) -> Self {
        Self { system: FlowSystem::new(states) }
    }

    /// Occupancy and values of `policy` on `m`.
    ///
    /// # Errors
    /// [`CmdpError::Shape`] if the policy has another shape than the CMDP.
    pub fn evaluate(&mut self, m: &Cmdp, policy: &Policy) -> Result<Evaluation, CmdpError> {
        self.check(m, policy)?;
        let states = if m.gamma() < 1.0 {
            self.load(m, policy);
            let mut d: Vec<f64> = m.initial().iter().map(|&p| (1.0 - m.gamma()) * p).collect();
            self.system.solve_transposed(&mut d);
            d
        } else {
            match self.visits_of_an_episode(m, policy) {
                Some(d) => d,
                None => average::state_occupancy(m, policy),
            }
        };
        let mut occupancy = vec![0.0; m.pairs()];
        for (s, &d) in states.iter().enumerate() {
            for (a, &p) in policy.row(s).iter().enumerate() {
                // Rounding may leave −1e-18 in states that cannot be reached.
                occupancy[s * m.actions() + a] = (d * p).max(0.0);
            }
        }
        let mean = |table: &[f64]| occupancy.iter().zip(table).map(|(&d, &x)| d * x).sum::<f64>();
        let (reward, costs) = (mean(m.reward()), m.costs().iter().map(|c| mean(c)).collect());
        Ok(Evaluation { occupancy, reward, costs })
    }

    /// State values `v = r_π + γP_πv`, `[S]`, of a table `r` over pairs, in units of `r` (not normalised; multiply
    /// by `1−γ` for an average per step).
    ///
    /// # Errors
    /// [`CmdpError::Shape`] on other shapes, [`CmdpError::Gamma`] at `γ = 1`, where the sum does not converge.
    pub fn state_values(&mut self, m: &Cmdp, policy: &Policy, table: &[f64]) -> Result<Vec<f64>, CmdpError> {
        self.check(m, policy)?;
        if table.len() != m.pairs() {
            return Err(CmdpError::Shape { what: "table", expected: m.pairs(), found: table.len() });
        }
        if m.gamma() >= 1.0 {
            return Err(CmdpError::Gamma(m.gamma()));
        }
        self.load(m, policy);
        let rows = policy.probabilities().chunks(m.actions()).zip(table.chunks(m.actions()));
        let mut v: Vec<f64> = rows.map(|(p, r)| p.iter().zip(r).map(|(&x, &y)| x * y).sum()).collect();
        self.system.solve(&mut v);
        Ok(v)
    }

    /// At `γ = 1`, where every state that the policy visits leads to an end: visits of one episode, `(I − Pᵀ)x = p0`
    /// without the restart, over their sum. This is sparse, as the restart chain is not. `None` where the balance
    /// does not close, and on few states, where nothing is gained.
    fn visits_of_an_episode(&mut self, m: &Cmdp, policy: &Policy) -> Option<Vec<f64>> {
        if m.states() < FACTOR_LIMIT || !m.restarts() {
            return None;
        }
        let visited = ending(m, policy)?;
        let actions = m.actions();
        // States that are not visited keep the identity: one without rows would be singular.
        self.system.load(&OneEpisode(m), |s| {
            let row = if visited[s] { policy.row(s) } else { &[] };
            let chosen = row.iter().enumerate().filter(|(_, p)| **p > 0.0);
            chosen.map(move |(a, &p)| (s * actions + a, p))
        });
        let mut visits = m.initial().to_vec();
        self.system.solve_transposed(&mut visits);
        let total: f64 = visits.iter().sum();
        visits.iter_mut().for_each(|x| *x /= total);
        // What is left of the balance of the restart chain, and of its ends against its starts.
        let mut left: Vec<f64> = visits.clone();
        let ended: f64 = (0..m.pairs())
            .map(|p| visits[p / actions] * policy.probabilities()[p] * m.transitions().end_probability(p))
            .sum();
        left.iter_mut().zip(m.initial()).for_each(|(l, p)| *l -= ended * p);
        for s in (0..m.states()).filter(|&s| visited[s]) {
            for (a, &p) in policy.row(s).iter().enumerate().filter(|(_, p)| **p > 0.0) {
                let (next, probability) = m.row(s * actions + a);
                next.iter().zip(probability).for_each(|(&t, &q)| left[t as usize] -= visits[s] * p * q);
            }
        }
        let worst = left.iter().fold(0.0_f64, |x, l| x.max(l.abs()));
        // Relative to the ends: where they are rare, what is lost of them is lost of the total per episode.
        (total.is_finite() && worst <= BALANCE * ended).then_some(visits)
    }

    fn load(&mut self, m: &Cmdp, policy: &Policy) {
        let actions = m.actions();
        self.system.load(m, |s| {
            let row = policy.row(s).iter().enumerate();
            row.filter(|(_, p)| **p > 0.0).map(move |(a, &p)| (s * actions + a, p))
        });
    }

    fn check(&self, m: &Cmdp, policy: &Policy) -> Result<(), CmdpError> {
        let found = policy.probabilities().len();
        if policy.states() != m.states() || found != m.pairs() {
            return Err(CmdpError::Shape { what: "policy", expected: m.pairs(), found });
        }
        if self.system.order() != m.states() {
            return Err(CmdpError::Shape {
                what: "evaluator",
                expected: m.states(),
                found: self.system.order(),
            });
        }
        Ok(())
    }
}

/// A CMDP up to the end of its episodes.
struct OneEpisode<'a>(&'a Cmdp);

impl Pairs for OneEpisode<'_> {
    fn states(&self) -> usize {
        self.0.states()
    }

    fn pairs_of(&self, state: usize) -> std::ops::Range<usize> {
        state * self.0.actions()..(state + 1) * self.0.actions()
    }

    fn successors(&self, pair: usize) -> (&[u32], &[f64]) {
        self.0.row(pair)
    }

    fn end(&self, _pair: usize) -> f64 {
        0.0
    }

    fn initial(&self) -> &[f64] {
        self.0.initial()
    }

    fn restarts(&self) -> bool {
        false
    }

    fn gamma(&self) -> f64 {
        self.0.gamma()
    }
}

/// States that a policy visits, if from each of them it comes to an end at some time.
fn ending(m: &Cmdp, policy: &Policy) -> Option<Vec<bool>> {
    let mut visited: Vec<bool> = m.initial().iter().map(|&p| p > 0.0).collect();
    let mut open: Vec<usize> = (0..m.states()).filter(|&s| visited[s]).collect();
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); m.states()];
    let mut ends = vec![false; m.states()];
    while let Some(s) = open.pop() {
        for (a, _) in policy.row(s).iter().enumerate().filter(|(_, p)| **p > 0.0) {
            let pair = s * m.actions() + a;
            ends[s] |= m.transitions().end_probability(pair) > 0.0;
            for (&t, _) in m.row(pair).0.iter().zip(m.row(pair).1).filter(|(_, p)| **p > 0.0) {
                before[t as usize].push(s);
                if !std::mem::replace(&mut visited[t as usize], true) {
                    open.push(t as usize);
                }
            }
        }
    }
    open.extend((0..m.states()).filter(|&s| ends[s]));
    while let Some(t) = open.pop() {
        for &s in &before[t] {
            if !std::mem::replace(&mut ends[s], true) {
                open.push(s);
            }
        }
    }
    (visited == ends).then_some(visited)
}

/// Occupancy and values of `policy` on `m`; [`Evaluator`] saves the workspace when there are many.
///
/// # Errors
/// As [`Evaluator::evaluate`].
pub fn evaluate(m: &Cmdp, policy: &Policy) -> Result<Evaluation, CmdpError> {
    Evaluator::new(m.states()).evaluate(m, policy)
}

/// States that a policy ever visits, and how many closed classes of them there are: where there are several, the
/// long-run average depends on the class that is entered. Ended episodes start again.
pub(crate) fn visited(m: &Cmdp, policy: &Policy) -> (Vec<bool>, usize) {
    average::visited(m, policy)
}

/// Long-run occupancy at `γ = 1`, without assuming a single recurrent class.
mod average {
    use coptidice_core::{Cmdp, Policy};
    use faer::Mat;
    use faer::linalg::solvers::Solve as _;

    /// The chain of a policy, restart included, row by row.
    fn chain(m: &Cmdp, policy: &Policy) -> Vec<Vec<(usize, f64)>> {
        (0..m.states())
            .map(|s| {
                let mut row = Vec::new();
                let mut end = 0.0;
                for (a, &p) in policy.row(s).iter().enumerate().filter(|(_, p)| **p > 0.0) {
                    let pair = s * m.actions() + a;
                    let (next, probability) = m.row(pair);
                    row.extend(next.iter().zip(probability).map(|(&t, &q)| (t as usize, p * q)));
                    end += p * m.transitions().end_probability(pair);
                }
                if end > 0.0 {
                    row.extend(
                        m.initial().iter().enumerate().filter(|(_, p)| **p > 0.0).map(|(t, &p)| (t, end * p)),
                    );
                }
                row
            })
            .collect()
    }

    pub(super) fn visited(m: &Cmdp, policy: &Policy) -> (Vec<bool>, usize) {
        let rows = chain(m, policy);
        let mut open: Vec<usize> = (0..m.states()).filter(|&s| m.initial()[s] > 0.0).collect();
        let mut seen = vec![false; m.states()];
        open.iter().for_each(|&s| seen[s] = true);
        while let Some(s) = open.pop() {
            for &(t, p) in &rows[s] {
                if p > 0.0 && !seen[t] {
                    seen[t] = true;
                    open.push(t);
                }
            }
        }
        let component = components(&rows);
        let mut closed = vec![false; m.states()];
        (0..m.states()).filter(|&s| seen[s]).for_each(|s| closed[component[s]] = true);
        for (s, row) in rows.iter().enumerate().filter(|(s, _)| seen[*s]) {
            if row.iter().any(|&(t, p)| p > 0.0 && component[t] != component[s]) {
                closed[component[s]] = false;
            }
        }
        (seen, closed.iter().filter(|c| **c).count())
    }

    pub(super) fn state_occupancy(m: &Cmdp, policy: &Policy) -> Vec<f64> {
        let n = m.states();
        let rows = chain(m, policy);
        let component = components(&rows);
        let count = component.iter().max().map_or(0, |c| c + 1);
        let mut closed = vec![true; count];
        for (s, row) in rows.iter().enumerate() {
            if row.iter().any(|&(t, _)| component[t] != component[s]) {
                closed[component[s]] = false;
            }
        }
        let mut entering = vec![0.0; n];
        entering.copy_from_slice(m.initial());
        // Mass of p0 that starts in transient states flows on to closed ones: x = (I − Q)⁻ᵀ p0 visits.
        let transient: Vec<usize> = (0..n).filter(|&s| !closed[component[s]]).collect();
        if transient.iter().any(|&s| entering[s] > 0.0) {
            let mut place = vec![usize::MAX; n];
            for (i, &s) in transient.iter().enumerate() {
                place[s] = i;
            }
            let mut system = Mat::<f64>::identity(transient.len(), transient.len());
            for (i, &s) in transient.iter().enumerate() {
                for &(t, p) in &rows[s] {
                    if place[t] != usize::MAX {
                        system[(place[t], i)] -= p;
                    }
                }
            }
            let start = Mat::from_fn(transient.len(), 1, |i, _| entering[transient[i]]);
            let visits = system.partial_piv_lu().solve(&start);
            for (i, &s) in transient.iter().enumerate() {
                entering[s] = 0.0;
                for &(t, p) in &rows[s] {
                    if closed[component[t]] {
                        entering[t] += visits[(i, 0)] * p;
                    }
                }
            }
        }
        let mut occupancy = vec![0.0; n];
        for class in (0..count).filter(|&c| closed[c]) {
            let members: Vec<usize> = (0..n).filter(|&s| component[s] == class).collect();
            let mass: f64 = members.iter().map(|&s| entering[s]).sum();
            if mass > 0.0 {
                for (&s, d) in members.iter().zip(stationary(&rows, &members)) {
                    occupancy[s] = mass * d;
                }
            }
        }
        occupancy
    }

    /// Stationary distribution of one closed class: balance equations, the last replaced by the sum.
    fn stationary(rows: &[Vec<(usize, f64)>], members: &[usize]) -> Vec<f64> {
        let n = members.len();
        let place = |s: usize| members.binary_search(&s).expect("a closed class leads only to its members");
        let mut system = Mat::<f64>::zeros(n, n);
        for (i, &s) in members.iter().enumerate() {
            system[(i, i)] += 1.0;
            for &(t, p) in &rows[s] {
                system[(place(t), i)] -= p;
            }
        }
        for i in 0..n {
            system[(n - 1, i)] = 1.0;
        }
        let right = Mat::from_fn(n, 1, |i, _| if i + 1 == n { 1.0 } else { 0.0 });
        let d = system.partial_piv_lu().solve(&right);
        (0..n).map(|i| d[(i, 0)].max(0.0)).collect()
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;
    use coptidice_core::{CmdpParts, EpisodeEnd, Transitions};

    /// Two states; action 0 stays, action 1 moves on. Reward 1 in state 1.
    fn two_state(gamma: f64) -> Cmdp {
        let t =
            Transitions::from_triples(2, 2, [(0, 0, 0, 1.0), (0, 1, 1, 1.0), (1, 0, 1, 1.0), (1, 1, 0, 1.0)]);
        Cmdp::new(CmdpParts {
            transitions: t.unwrap(),
            episode_end: EpisodeEnd::Absorb,
            reward: vec![0.0, 0.0, 1.0, 1.0],
            costs: vec![vec![1.0, 0.0, 0.0, 0.0]],
            initial: vec![1.0, 0.0],
            gamma,
        })
        .unwrap()
    }

    #[test]
    fn closed_form_of_two_states() {
        let m = two_state(0.9);
        // Leave state 0 with probability q each step, then stay: d(0) = (1−γ)/(1−γ(1−q)).
        let q = 0.3;
        let policy = Policy::new(2, 2, vec![1.0 - q, q, 1.0, 0.0]).unwrap();
        let e = evaluate(&m, &policy).unwrap();
        let d0 = 0.1 / (1.0 - 0.9 * (1.0 - q));
        assert_relative_eq!(e.reward, 1.0 - d0, max_relative = 1e-13);
        assert_relative_eq!(e.costs[0], d0 * (1.0 - q), max_relative = 1e-13);
        assert_relative_eq!(e.occupancy.iter().sum::<f64>(), 1.0, max_relative = 1e-13);
        let v = Evaluator::new(2).state_values(&m, &policy, m.reward()).unwrap();
        assert_relative_eq!(0.1 * v[0], e.reward, max_relative = 1e-13);
        assert_relative_eq!(v[1], 10.0, max_relative = 1e-13);
    }

    /// A walk on 300 states that ends with probability 1/20 a step, beside a state without rows.
    #[test]
    fn visits_of_an_episode_are_the_occupancy_of_the_restart_chain() {
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
            costs: vec![(0..2 * n).map(|p| (p % 5) as f64).collect()],
            initial: (0..n).map(|s| if s < 2 { 0.5 } else { 0.0 }).collect(),
            gamma: 1.0,
        })
        .unwrap();
        let policy = Policy::uniform(n, 2).unwrap();
        let found = Evaluator::new(n).visits_of_an_episode(&m, &policy).expect("every visited state ends");
        for (x, y) in found.iter().zip(average::state_occupancy(&m, &policy)) {
            assert!((x - y).abs() < 1e-12, "{x} {y}");
        }
        // Where a state that never ends is entered there are no visits to count.
        let mut parts = m.into_parts();
        parts.initial.iter_mut().for_each(|p| *p *= 0.5);
        parts.initial[n - 1] = 0.5;
        let stuck = Cmdp::new(parts).unwrap();
        assert_eq!(Evaluator::new(n).visits_of_an_episode(&stuck, &policy), None);
    }

    #[test]
    fn undiscounted_average_of_an_ergodic_chain_and_of_two_closed_classes() {
        let m = two_state(1.0);
        // Leave 0 with .3, leave 1 with .1: stationary (1/4, 3/4).
        let policy = Policy::new(2, 2, vec![0.7, 0.3, 0.9, 0.1]).unwrap();
        let e = evaluate(&m, &policy).unwrap();
        assert_relative_eq!(e.reward, 0.75, max_relative = 1e-13);
        // Both states closed: only the one where p0 lies is ever visited.
        let stay = Policy::deterministic(2, &[0, 0]).unwrap();
        assert_eq!(evaluate(&m, &stay).unwrap().reward, 0.0);
        assert!(Evaluator::new(2).state_values(&m, &stay, m.reward()).is_err());
    }

    /// Transient start that splits 1:3 between two absorbing states.
    #[test]
    fn undiscounted_mass_is_split_by_absorption_probability() {
        let t = Transitions::from_triples(
            3,
            1,
            [(0, 0, 0, 0.6), (0, 0, 1, 0.1), (0, 0, 2, 0.3), (1, 0, 1, 1.0), (2, 0, 2, 1.0)],
        );
        let m = Cmdp::new(CmdpParts {
            transitions: t.unwrap(),
            episode_end: EpisodeEnd::Absorb,
            reward: vec![0.0, 1.0, 2.0],
            costs: vec![],
            initial: vec![1.0, 0.0, 0.0],
            gamma: 1.0,
        })
        .unwrap();
        let e = evaluate(&m, &Policy::uniform(3, 1).unwrap()).unwrap();
        assert_relative_eq!(e.reward, 0.25 + 1.5, max_relative = 1e-12);
    }

    /// Restart chain: a one-step episode with probability 1/2, otherwise another step. Mean length 2, so an end
    /// happens in every second step.
    #[test]
    fn restart_chain_counts_ends_per_step() {
        let t = Transitions::from_triples(1, 1, [(0, 0, 0, 0.5)])
            .unwrap()
            .with_end_probability(vec![0.5])
            .unwrap();
        let make = |gamma, episode_end| {
            Cmdp::new(CmdpParts {
                transitions: t.clone(),
                episode_end,
                reward: vec![1.0],
                costs: vec![],
                initial: vec![1.0],
                gamma,
            })
            .unwrap()
        };
        let policy = Policy::uniform(1, 1).unwrap();
        assert_relative_eq!(evaluate(&make(1.0, EpisodeEnd::Restart), &policy).unwrap().reward, 1.0);
        assert_relative_eq!(
            evaluate(&make(0.8, EpisodeEnd::Restart), &policy).unwrap().reward,
            1.0,
            max_relative = 1e-14
        );
        // Absorbed: Σ (1−γ)γ^t 2^{-t} = .2/.6.
        assert_relative_eq!(
            evaluate(&make(0.8, EpisodeEnd::Absorb), &policy).unwrap().reward,
            1.0 / 3.0,
            max_relative = 1e-13
        );
    }

    #[test]
    fn wrong_shapes_are_refused() {
        let m = two_state(0.9);
        assert!(evaluate(&m, &Policy::uniform(3, 2).unwrap()).is_err());
        assert!(Evaluator::new(3).evaluate(&m, &Policy::uniform(2, 2).unwrap()).is_err());
        let uniform = Policy::uniform(2, 2).unwrap();
        assert!(Evaluator::new(2).state_values(&m, &uniform, &[0.0]).is_err());
    }
}
