//! Policies from logs: the reading of the logs against sums over the logs themselves, limits, sources, refusals.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a surprise is a failed test")]

use coptidice_core::{CostLimit, Divergence, EpisodeHorizon, LimitUnit, Policy, rng};
use coptidice_tabular::Outcome;
use coptidice_tabular::baselines::likelihood_radius;
use coptidice_tabular::dice::Effort;
use coptidice_tabular::from_logs::{
    Appraisal, AppraisalOptions, LogAlgorithm, LogError, LogOptions, Logs, Objective, RowSource, appraise,
    solve,
};
use rand::RngExt as _;

const STATES: usize = 7;
const ACTIONS: usize = 3;

/// Columns of a log.
#[derive(Clone, Default)]
struct Columns {
    starts: Vec<usize>,
    state: Vec<u32>,
    action: Vec<u32>,
    reward: Vec<f64>,
    costs: Vec<Vec<f64>>,
    next: Vec<u32>,
    terminal: Vec<bool>,
}

impl Columns {
    fn logs(&self) -> Logs<'_> {
        Logs {
            states: STATES,
            actions: ACTIONS,
            episode_starts: &self.starts,
            state: &self.state,
            action: &self.action,
            reward: &self.reward,
            costs: &self.costs,
            next_state: &self.next,
            terminal: &self.terminal,
        }
    }

    fn push(&mut self, state: u32, action: u32, reward: f64, costs: [f64; 2], next: u32, terminal: bool) {
        self.state.push(state);
        self.action.push(action);
        self.reward.push(reward);
        self.costs.resize(2, Vec::new());
        self.costs[0].push(costs[0]);
        self.costs[1].push(costs[1]);
        self.next.push(next);
        self.terminal.push(terminal);
    }

    fn per_episode(&self, column: &[f64]) -> f64 {
        column.iter().sum::<f64>() / self.starts.len() as f64
    }
}

/// Episodes on states 0..5 (6 is never visited). Action 1 is costly and fast, action 2 ends soon with reward 1/2:
/// the most per step. An episode ends with reward 1 from state 5: the most per episode.
fn simulate(episodes: usize) -> Columns {
    let mut random = rng::stream(3, "simulated logs", 0);
    let mut c = Columns::default();
    for _ in 0..episodes {
        c.starts.push(c.state.len());
        let mut s = random.random_range(0..3_u32);
        loop {
            let action = random.random_range(0..3_u32);
            let (p_end, stride) = [(0.05, 1), (0.05, 2), (0.4, 1)][action as usize];
            let costs = [f64::from(u8::from(action == 1)), f64::from(s) * 0.1];
            let done = s == 5 || random.random::<f64>() < p_end;
            let next = if random.random::<f64>() < 0.7 { (s + stride).min(5) } else { s.saturating_sub(1) };
            let reward = if s == 5 { 1.0 } else { f64::from(u8::from(action == 2 && done)) * 0.5 };
            c.push(s, action, reward, costs, next, done);
            if done {
                break;
            }
            s = next;
        }
    }
    c
}

fn per_episode(limits: [f64; 2], columns: &Columns) -> Vec<CostLimit> {
    let horizon = columns.logs().horizon();
    limits.map(|l| CostLimit::new(l, LimitUnit::Episode, horizon).unwrap()).to_vec()
}

fn options(algorithm: LogAlgorithm, limits: Vec<CostLimit>) -> LogOptions<'static> {
    LogOptions {
        algorithm,
        gamma: 1.0,
        limits,
        divergence: Divergence::Chi2,
        objective: None,
        alpha: None,
        epsilon: None,
        wedge: 5.0,
        behaviour: None,
        effort: Effort::default(),
    }
}

/// In the restart chain the occupancy of the logged frequencies is the empirical distribution itself, as every
/// episode ends: what is read off the estimated CMDP must equal plain averages over the file.
#[test]
fn behaviour_reads_as_the_logs_do() {
    let c = simulate(400);
    let found = solve(&c.logs(), &options(LogAlgorithm::Bc, per_episode([9.0, 9.0], &c))).unwrap();
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-10, "{a} {b}");
    for reading in [&found.behaviour, &found.estimate] {
        close(reading.reward_per_episode.unwrap(), c.per_episode(&c.reward));
        close(reading.steps_per_episode.unwrap(), c.state.len() as f64 / 400.0);
        for k in 0..2 {
            close(reading.costs[k].per_episode.unwrap(), c.per_episode(&c.costs[k]));
            close(reading.costs[k].per_step, c.costs[k].iter().sum::<f64>() / c.state.len() as f64);
        }
    }
    let n =
        |s: u32, a: u32| (0..c.state.len()).filter(|&i| c.state[i] == s && c.action[i] == a).count() as f64;
    let here: f64 = (0..3).map(|a| n(2, a)).sum();
    close(found.policy.row(2)[1], n(2, 1) / here);
    assert_eq!(found.sources[6], RowSource::Unseen);
    assert_eq!(found.policy.row(6), [1.0 / 3.0; 3]);
    assert!(found.dead_ends.is_empty());
}

/// Limits per episode hold on the estimated CMDP, exactly where they bind; in the bound for `coptidice`.
#[test]
fn limits_per_episode_hold() {
    let c = simulate(400);
    let limits = [0.5 * c.per_episode(&c.costs[0]), 0.8 * c.per_episode(&c.costs[1])];
    for algorithm in [LogAlgorithm::Naive, LogAlgorithm::Coptidice, LogAlgorithm::Lp] {
        let found = solve(&c.logs(), &options(algorithm, per_episode(limits, &c))).unwrap();
        assert_eq!(found.outcome, Outcome::Solved, "{algorithm:?}");
        assert!(found.certificate.unwrap().worst() <= 1e-8, "{algorithm:?} {:?}", found.certificate);
        let mut binding = 0;
        for k in 0..2 {
            let reading = &found.estimate.costs[k];
            let held = reading.upper_bound.unwrap_or(reading.constrained);
            assert!(held <= reading.constraint_limit + 1e-8, "{algorithm:?} {reading:?}");
            assert!(reading.per_episode.unwrap() <= limits[k] + 1e-7, "{algorithm:?} {reading:?}");
            if found.lambda[k] > 1e-6 {
                binding += 1;
                assert!((held - reading.constraint_limit).abs() <= 1e-8, "{algorithm:?} {reading:?}");
            }
            if algorithm == LogAlgorithm::Coptidice {
                assert!(reading.upper_bound.unwrap() >= reading.constrained - 1e-9);
            }
        }
        assert!(binding > 0, "{algorithm:?} has a binding limit to check");
    }
    let free = solve(&c.logs(), &options(LogAlgorithm::Optidice, per_episode(limits, &c))).unwrap();
    let naive = solve(&c.logs(), &options(LogAlgorithm::Naive, per_episode(limits, &c))).unwrap();
    assert!(free.estimate.reward_per_episode > naive.estimate.reward_per_episode);
}

/// Per episode: the offset is the solution's own reward per episode, and no other objective earns more of it.
#[test]
fn reward_per_episode_is_a_fixed_point() {
    let c = simulate(400);
    let limits = per_episode([9.0, 9.0], &c);
    let mut o = options(LogAlgorithm::Naive, limits);
    o.alpha = Some(1e-3);
    let episode = solve(&c.logs(), &o).unwrap();
    assert_eq!(episode.objective, Objective::PerEpisode);
    assert!((episode.reward_offset - episode.estimate.reward_per_episode.unwrap()).abs() < 1e-6);
    o.objective = Some(Objective::PerStep);
    let step = solve(&c.logs(), &o).unwrap();
    assert_eq!(step.reward_offset, 0.0);
    assert!(episode.estimate.reward_per_episode.unwrap() > step.estimate.reward_per_episode.unwrap());
    assert!(step.estimate.reward_per_step > episode.estimate.reward_per_step);
}

/// Discounted: a limit per step, terminals absorbed; the value of the first states follows from the logs' own
/// discounted sums when the behaviour is evaluated on as many episodes as estimated it.
#[test]
fn discounted_logs_with_ends() {
    let c = simulate(4000);
    let horizon = EpisodeHorizon::Varying { logged_mean: 4.0 };
    let limits: Vec<CostLimit> =
        [0.02, 1.0].map(|l| CostLimit::new(l, LimitUnit::Step, horizon).unwrap()).to_vec();
    let mut o = options(LogAlgorithm::Coptidice, limits);
    o.gamma = 0.9;
    let found = solve(&c.logs(), &o).unwrap();
    assert_eq!(found.outcome, Outcome::Solved);
    assert_eq!(found.objective, Objective::PerStep);
    // Of the cost less the limit in every step, of which episodes take about four: held against the sum, a limit of .02
    // would let a step cost .06.
    let cost = &found.estimate.costs[0];
    assert_eq!(cost.constraint_limit, 0.0);
    assert!(cost.upper_bound.unwrap() <= 1e-9 && cost.per_step <= 0.02 && cost.per_step > 0.01, "{cost:?}");
    let (mut discounted, mut costs, mut steps) = (0.0, 0.0, 0.0);
    for (i, &start) in c.starts.iter().enumerate() {
        let end = c.starts.get(i + 1).copied().unwrap_or(c.state.len());
        for row in start..end {
            let weight = 0.1 * 0.9_f64.powi((row - start) as i32);
            discounted += weight * c.reward[row];
            costs += weight * c.costs[0][row];
            steps += weight;
        }
    }
    // A ratio of two such sums: a third, known to a few times 1/√16000 times a half.
    let logged = &found.behaviour;
    assert!((logged.costs[0].per_step - costs / steps).abs() < 0.02, "{logged:?}");
    assert!((logged.mass - steps / 4000.0).abs() < 0.01, "{logged:?}");
    // The estimated CMDP is Markov in the state, as the simulated one is: the two agree up to sampling error, a few
    // standard errors of 0.1·1/√4000 over a mass of a third.
    assert!((logged.reward_per_step - discounted / steps).abs() < 0.015, "{logged:?}");
}

/// Discounted, with limits on the undiscounted totals of episodes of varying length: they hold for the policy found,
/// and exactly where they bind, up to the tolerance of the iteration.
#[test]
fn limits_per_episode_hold_under_a_discount() {
    let c = simulate(1000);
    let limits = [0.5 * c.per_episode(&c.costs[0]), 0.8 * c.per_episode(&c.costs[1])];
    for algorithm in [LogAlgorithm::Naive, LogAlgorithm::Coptidice, LogAlgorithm::Lp, LogAlgorithm::Spibb] {
        let mut o = options(algorithm, per_episode(limits, &c));
        o.gamma = 0.9;
        let found = solve(&c.logs(), &o).unwrap();
        assert_eq!(found.outcome, Outcome::Solved, "{algorithm:?}");
        for (k, limit) in limits.into_iter().enumerate() {
            let cost = found.estimate.costs[k].per_episode.unwrap();
            assert!(cost <= limit * 1.002, "{algorithm:?} {k}: {cost} for {limit}");
            if found.lambda[k] > 1e-6 && algorithm != LogAlgorithm::Coptidice {
                assert!((cost - limit).abs() <= 2e-3 * limit, "{algorithm:?} {k}: {cost} for {limit}");
            }
        }
        assert!(found.lambda.iter().any(|&l| l > 1e-6), "{algorithm:?}");
        // The behaviour's totals are the plain averages over the file, whatever the discount.
        let logged = found.behaviour.costs[0].per_episode.unwrap();
        assert!((logged - c.per_episode(&c.costs[0])).abs() < 1e-9);
    }
}

/// Episodes that all go on for three steps and end with the fourth: `stay` earns and costs one, `end` costs four. A
/// policy that stays with probability `p` costs `4 + p/(1−p)` an episode, whatever the lengths in the log.
#[test]
fn equal_lengths_are_no_fixed_length_where_episodes_end_by_themselves() {
    let mut c = Columns::default();
    for _ in 0..50 {
        c.starts.push(c.state.len());
        for step in 0..4 {
            let ends = step == 3;
            let (reward, cost) = if ends { (0.0, 4.0) } else { (1.0, 1.0) };
            c.push(0, u32::from(ends), reward, [cost, 0.0], 0, ends);
        }
    }
    assert_eq!(c.logs().horizon(), EpisodeHorizon::Varying { logged_mean: 4.0 });
    for (gamma, limit) in [(1.0, 6.0), (1.0, 5.0), (0.9, 6.0)] {
        for algorithm in [LogAlgorithm::Naive, LogAlgorithm::Coptidice, LogAlgorithm::Lp, LogAlgorithm::Spibb]
        {
            let mut o = options(algorithm, per_episode([limit, 100.0], &c));
            o.gamma = gamma;
            let found = solve(&c.logs(), &o).unwrap();
            let cost = found.estimate.costs[0].in_limit_unit();
            let kept = cost.is_some_and(|cost| cost <= limit * 1.002);
            assert!(kept || found.outcome != Outcome::Solved, "{algorithm:?}, {limit}: {cost:?}");
            if (algorithm, gamma) == (LogAlgorithm::Lp, 1.0) {
                let stays = found.policy.row(0)[0];
                assert!((stays / (1.0 - stays) - (limit - 4.0)).abs() < 1e-5, "{limit}: {stays}");
            }
        }
    }
}

/// Where the recording ends episodes, a limit is one on that many steps.
#[test]
fn lengths_that_the_recording_sets_are_fixed() {
    let mut c = Columns::default();
    for episode in 0..20 {
        c.starts.push(c.state.len());
        for _ in 0..4 {
            let action = episode % 2;
            c.push(0, action, f64::from(action), [f64::from(action), 0.0], 0, false);
        }
    }
    for gamma in [1.0, 0.9] {
        let mut o = options(LogAlgorithm::Lp, per_episode([1.0, 100.0], &c));
        o.gamma = gamma;
        let found = solve(&c.logs(), &o).unwrap();
        assert_eq!(found.outcome, Outcome::Solved);
        let cost = &found.estimate.costs[0];
        assert!(
            (cost.per_step - 0.25).abs() < 1e-6 && (cost.per_episode.unwrap() - 1.0).abs() < 1e-6,
            "{cost:?}"
        );
    }
}

/// From state 0 `end` costs one at once, and `go` earns one and costs ten after five steps: 19 of 20 episodes go. Under
/// a discount what comes late costs less, so that by the behaviour's ratio of discounted to total cost a limit of 1.5
/// an episode is below the discounted cost of ending at once. It is met by going in one of 18 episodes.
#[test]
fn a_limit_out_of_reach_by_the_behaviours_ratio_is_met_by_another() {
    let mut c = Columns::default();
    for episode in 0..40 {
        c.starts.push(c.state.len());
        if episode % 20 == 0 {
            c.push(0, 0, 0.0, [1.0, 0.0], 6, true);
            continue;
        }
        c.push(0, 1, 1.0, [0.0, 0.0], 1, false);
        for state in 1..5 {
            c.push(state, 0, 0.0, [0.0, 0.0], state + 1, false);
        }
        c.push(5, 0, 0.0, [10.0, 0.0], 6, true);
    }
    for algorithm in [LogAlgorithm::Lp, LogAlgorithm::Naive] {
        let mut o = options(algorithm, per_episode([1.5, 100.0], &c));
        o.gamma = 0.8;
        o.alpha = Some(1e-3);
        let found = solve(&c.logs(), &o).unwrap();
        assert_eq!(found.outcome, Outcome::Solved, "{algorithm:?}");
        let cost = found.estimate.costs[0].per_episode.unwrap();
        assert!((1.4..1.5 * 1.002).contains(&cost), "{algorithm:?}: {cost}");
    }
    // Below the cost of ending at once there is none.
    for (limit, algorithm) in [(0.9, LogAlgorithm::Lp), (0.9, LogAlgorithm::Coptidice)] {
        let mut o = options(algorithm, per_episode([limit, 100.0], &c));
        o.gamma = 0.8;
        assert_eq!(solve(&c.logs(), &o).unwrap().outcome, Outcome::Infeasible, "{algorithm:?}");
    }
}

/// Half of what the behaviour costs can be kept by the estimate, but not if the truth may be as far from it as a
/// radius of one allows.
#[test]
fn a_bound_that_no_policy_brings_under_the_limit_is_told_from_limits_that_none_keeps() {
    let c = simulate(200);
    let limits = per_episode([0.5 * c.per_episode(&c.costs[0]), 100.0], &c);
    assert_eq!(
        solve(&c.logs(), &options(LogAlgorithm::Lp, limits.clone())).unwrap().outcome,
        Outcome::Solved
    );
    let mut o = options(LogAlgorithm::Coptidice, limits);
    o.epsilon = Some(1.0);
    assert_eq!(solve(&c.logs(), &o).unwrap().outcome, Outcome::BoundOverLimit);
}

/// Where every episode earns the same, what is left of the rewards per episode is rounding.
#[test]
fn episodes_that_all_earn_the_same_are_no_riddle_to_linear_programs() {
    let mut c = simulate(200);
    c.reward = c.terminal.iter().map(|&ends| if ends { 1.0 } else { 0.0 }).collect();
    for algorithm in [LogAlgorithm::Lp, LogAlgorithm::Spibb] {
        let limits = per_episode([0.9 * c.per_episode(&c.costs[0]), 100.0], &c);
        let found = solve(&c.logs(), &options(algorithm, limits)).unwrap();
        assert_eq!(found.outcome, Outcome::Solved, "{algorithm:?}");
        assert!((found.estimate.reward_per_episode.unwrap() - 1.0).abs() < 1e-9, "{algorithm:?}");
    }
}

/// A log on which the search over prices ends where the exponential divergence's weights are beyond all numbers.
#[test]
fn weights_beyond_all_numbers_are_no_policy() {
    let mut c = Columns::default();
    let mut episode = "";
    for line in include_str!("../../../fixtures/tabular/overflow.csv").lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        if cells[0] != episode {
            episode = cells[0];
            c.starts.push(c.state.len());
        }
        let id = |column: usize| cells[column].parse::<u32>().unwrap();
        let number = |column: usize| cells[column].parse::<f64>().unwrap();
        c.push(id(1), id(2), number(3), [number(4), number(5)], id(6), cells[7] == "1");
    }
    let mut o = options(LogAlgorithm::Coptidice, per_episode([0.855, 1.035], &c));
    o.divergence = Divergence::Kl;
    let found = solve(&c.logs(), &o).unwrap();
    let ended_at = found.solution.unwrap().occupancy;
    assert!(ended_at.iter().any(|d| !d.is_finite()), "the log is one of another kind: {ended_at:?}");
    assert!(!found.outcome.is_usable(), "{:?}", found.certificate);
    assert!(found.policy.probabilities().iter().all(|p| p.is_finite()));
}

/// From the first state one leads by luck into a good part or a bad one, which are never left. A program at `γ = 1` shares
/// the mass between them as it likes; no policy does.
#[test]
fn parts_that_are_never_left_are_not_shared_out() {
    let mut c = Columns::default();
    for episode in 0..40 {
        c.starts.push(c.state.len());
        let (action, part) = (episode % 2, if (episode / 2) % 5 < 1 + 3 * (episode % 2) { 1 } else { 2 });
        c.push(0, action as u32, 0.0, [0.0, 0.0], part, false);
        for step in 0..20 {
            c.push(part, step % 2, f64::from(2 - part), [0.1, 0.0], part, false);
        }
    }
    let per_step = [5.0, 5.0].map(|limit| CostLimit::PerStep { limit });
    for algorithm in [LogAlgorithm::Lp, LogAlgorithm::Naive, LogAlgorithm::Optidice] {
        let mut o = options(algorithm, per_step.to_vec());
        o.alpha = Some(0.01);
        assert_eq!(solve(&c.logs(), &o).unwrap().outcome, Outcome::Unconfirmed, "{algorithm:?}");
        o.gamma = 0.99;
        let found = solve(&c.logs(), &o).unwrap();
        assert_eq!(found.outcome, Outcome::Solved, "{algorithm:?}");
        assert!(found.policy.row(0)[1] > 0.9, "{algorithm:?}: {:?}", found.policy.row(0));
    }
}

/// From state 1 no logged step leads to the end, and the behaviour is sure to enter it.
#[test]
fn behaviour_that_never_ends_has_no_totals() {
    let mut c = Columns::default();
    for episode in 0..4 {
        c.starts.push(c.state.len());
        if episode == 3 {
            c.push(0, 1, 1.0, [1.0, 0.0], 6, true);
        } else {
            c.push(0, 0, 1.0, [0.0, 0.0], 1, false);
            c.push(1, 0, 1.0, [1.0, 0.0], 1, false);
        }
    }
    for (gamma, algorithm) in [(1.0, LogAlgorithm::Lp), (1.0, LogAlgorithm::Naive), (0.95, LogAlgorithm::Lp)]
    {
        let mut o = options(algorithm, per_episode([1.0, 100.0], &c));
        o.gamma = gamma;
        assert_eq!(solve(&c.logs(), &o), Err(LogError::NeverEnds), "{algorithm:?} {gamma}");
    }
}

/// States 1 to 6 have no rows. `common` ends at a cost of one in 19 of 20 episodes, `rare` at a cost of two in one.
fn one_step_episodes() -> Columns {
    let mut c = Columns::default();
    for episode in 0..20 {
        c.starts.push(c.state.len());
        let action = u32::from(episode == 7);
        c.push(0, action, 1.0, [1.0 + f64::from(action), f64::from(episode % 2)], 6, true);
    }
    c
}

fn appraisal(c: &Columns, action: usize, gamma: f64, limits: Vec<CostLimit>) -> Appraisal {
    let mut probabilities = vec![0.0; STATES * ACTIONS];
    (0..STATES).for_each(|s| probabilities[s * ACTIONS + action] = 1.0);
    let policy = Policy::new(STATES, ACTIONS, probabilities).unwrap();
    let options = AppraisalOptions { gamma, limits, confidence: 0.95, resamples: 100, seed: 0 };
    appraise(&c.logs(), &policy, &options).unwrap()
}

/// States without rows leave the bound as it is, and a pair that a resample lacks is not free in it.
#[test]
fn what_a_resample_or_the_log_lacks_is_not_free() {
    let c = one_step_episodes();
    let rare = appraisal(&c, 1, 1.0, per_episode([3.0, 100.0], &c));
    let cost = &rare.costs[0];
    assert!(cost.outcome.is_usable(), "{cost:?}");
    // Every row of the pair costs two: nothing varies. Two less the credit of three for the end.
    assert!((cost.coindice.0 + 1.0).abs() < 1e-9 && (cost.coindice.1 + 1.0).abs() < 1e-9, "{cost:?}");
    let spread = cost.bootstrap.unwrap();
    assert!((spread.lower + 1.0).abs() < 1e-9 && (spread.upper + 1.0).abs() < 1e-9, "{spread:?}");
    assert!(rare.within_limit(0) && rare.within_limit_with_confidence(0));
    assert!(!appraisal(&c, 1, 1.0, per_episode([1.9, 100.0], &c)).within_limit(0));
}

/// A policy that only does what was never logged.
#[test]
fn nothing_is_known_off_the_log() {
    let c = one_step_episodes();
    let step =
        |limit| [limit, 100.0].map(|l| CostLimit::new(l, LimitUnit::Step, c.logs().horizon()).unwrap());
    let off = appraisal(&c, 2, 0.9, step(0.5).to_vec());
    assert!((off.unsupported - 1.0).abs() < 1e-9 && !off.is_supported());
    assert!(off.costs[0].estimate < 1e-12 && !off.within_limit(0), "{off:?}");
    assert!(!off.within_limit_with_confidence(1), "however high the limit");
    let endless = appraisal(&c, 2, 1.0, per_episode([3.0, 100.0], &c));
    assert!(!endless.within_limit(0) && !endless.within_limit(1));
    // Within the log the policy is as before.
    assert!(appraisal(&c, 0, 0.9, step(0.5).to_vec()).is_supported());
}

/// One pair with one cost, of which a tenth of 200 rows end: all that is in doubt is that share `e`. The bounds on
/// `1 − L·e` are at the two shares whose Kullback-Leibler divergence from a tenth is the radius.
#[test]
fn bounds_know_that_ends_are_in_doubt() {
    let mut c = Columns::default();
    for episode in 0..40 {
        c.starts.push(c.state.len());
        for step in 0..5 {
            c.push(0, 0, 1.0, [1.0, 0.0], 0, episode % 2 == 0 && step == 4);
        }
    }
    let limit = 12.0;
    let found = appraisal(&c, 0, 1.0, per_episode([limit, 100.0], &c)).costs[0];
    let radius = likelihood_radius(0.95, 200);
    let kl = |q: f64| q * (q / 0.1).ln() + (1.0 - q) * ((1.0 - q) / 0.9).ln();
    let share = |mut outside: f64| {
        let mut inside = 0.1;
        for _ in 0..60 {
            let middle = 0.5 * (inside + outside);
            if kl(middle) > radius { outside = middle } else { inside = middle }
        }
        inside
    };
    let (low, high) = (1.0 - limit * share(0.5), 1.0 - limit * share(1e-9));
    assert!(found.outcome.is_usable(), "{found:?}");
    assert!(
        (found.coindice.0 - low).abs() < 1e-8 && (found.coindice.1 - high).abs() < 1e-8,
        "{low} {high} {found:?}"
    );
}

/// One of 20 episodes ends: many resamples have no end at all.
#[test]
fn resamples_without_an_end_are_no_error() {
    let mut c = Columns::default();
    for episode in 0..20 {
        c.starts.push(c.state.len());
        let last = if episode == 0 { 2 } else { 4 };
        for step in 0..=last {
            c.push(0, 0, 1.0, [1.0, 0.0], 0, episode == 0 && step == last);
        }
    }
    let found = appraisal(&c, 0, 1.0, per_episode([30.0, 100.0], &c));
    let spread = found.costs[0].bootstrap.unwrap();
    assert!(spread.lower < spread.estimate && spread.estimate < spread.upper, "{spread:?}");
}

/// Limits below what any policy costs are an outcome.
#[test]
fn impossible_limits_are_an_outcome() {
    let c = simulate(200);
    for algorithm in [LogAlgorithm::Naive, LogAlgorithm::Coptidice, LogAlgorithm::Lp, LogAlgorithm::Spibb] {
        let found = solve(&c.logs(), &options(algorithm, per_episode([-1.0, 9.0], &c))).unwrap();
        assert_eq!(found.outcome, Outcome::Infeasible, "{algorithm:?}");
    }
}

/// A time-out into a state without rows is a dead end, declared; one into a known state is not an end.
#[test]
fn dead_ends_are_declared() {
    let mut c = simulate(50);
    c.starts.push(c.state.len());
    c.push(0, 0, 0.0, [0.0, 0.0], 6, false);
    let found = solve(&c.logs(), &options(LogAlgorithm::Naive, per_episode([9.0, 9.0], &c))).unwrap();
    assert_eq!(found.dead_ends, [6]);
    assert_eq!(found.sources[6], RowSource::Unseen);
    *c.next.last_mut().unwrap() = 1;
    let found = solve(&c.logs(), &options(LogAlgorithm::Naive, per_episode([9.0, 9.0], &c))).unwrap();
    assert!(found.dead_ends.is_empty());
}

/// States off the solution's path keep the known behaviour's choice.
#[test]
fn known_behaviour_fills_the_gaps() {
    let c = simulate(300);
    let behaviour = Policy::new(STATES, ACTIONS, [0.2, 0.3, 0.5].repeat(STATES)).unwrap();
    let mut o = options(LogAlgorithm::Naive, per_episode([9.0, 9.0], &c));
    o.behaviour = Some(&behaviour);
    let found = solve(&c.logs(), &o).unwrap();
    assert_eq!(found.policy.row(6), [0.2, 0.3, 0.5]);
    assert_eq!(found.sources[6], RowSource::Unseen);
    assert!(found.sources.contains(&RowSource::Solution));
    // Ended episodes and pairs never logged leave no gap in the data's distribution, at any discount.
    for gamma in [1.0, 0.9] {
        let mut o = options(LogAlgorithm::Coptidice, vec![CostLimit::PerStep { limit: 0.5 }; 2]);
        (o.behaviour, o.gamma) = (Some(&behaviour), gamma);
        let found = solve(&c.logs(), &o).unwrap();
        assert_eq!(found.outcome, Outcome::Solved);
        let reading = &found.estimate.costs[0];
        assert!(
            reading.upper_bound.unwrap() >= reading.constrained && reading.upper_bound.unwrap() <= 0.5 + 1e-8
        );
    }
}

#[test]
fn unusable_logs_are_refused_by_name() {
    let c = simulate(20);
    let limits = || per_episode([9.0, 9.0], &c);
    let refused = |change: &dyn Fn(&mut Columns)| {
        let mut broken = c.clone();
        change(&mut broken);
        solve(&broken.logs(), &options(LogAlgorithm::Bc, limits())).unwrap_err()
    };
    assert_eq!(solve(&Columns::default().logs(), &options(LogAlgorithm::Bc, vec![])), Err(LogError::Empty));
    assert!(matches!(
        refused(&|c| {
            c.action.pop();
        }),
        LogError::Column { column: "action", .. }
    ));
    assert!(matches!(
        refused(&|c| c.reward[3] = f64::NAN),
        LogError::NotFinite { column: "reward", row: 3, .. }
    ));
    assert!(matches!(
        refused(&|c| c.costs[1][2] = f64::INFINITY),
        LogError::NotFinite { column: "cost", row: 2, .. }
    ));
    assert!(matches!(refused(&|c| c.reward[1] = 1e300), LogError::TooLarge { column: "reward", row: 1, .. }));
    assert!(matches!(refused(&|c| c.starts[1] = 0), LogError::EpisodeStart { episode: 1, start: 0 }));
    assert!(matches!(refused(&|c| c.action[0] = 3), LogError::Cmdp(_)));
    assert!(matches!(refused(&|c| c.state[0] = 7), LogError::Cmdp(_)));
    let mut o = options(LogAlgorithm::Naive, limits());
    o.limits.pop();
    assert!(matches!(solve(&c.logs(), &o), Err(LogError::Dice(_))));
    let mut endless = c.clone();
    endless.terminal.fill(false);
    let o = options(LogAlgorithm::Naive, limits());
    assert_eq!(solve(&endless.logs(), &o).unwrap_err(), LogError::NoEnds { index: 0 });
    let mut o = options(LogAlgorithm::Naive, limits());
    (o.objective, o.gamma) = (Some(Objective::PerEpisode), 0.9);
    o.limits = [0.5; 2].map(|l| CostLimit::PerStep { limit: l }).to_vec();
    assert_eq!(solve(&c.logs(), &o).unwrap_err(), LogError::Objective);
}

/// Limits far above what anything costs are no limits: the answer is that of limits just out of reach.
#[test]
fn enormous_limits_are_no_limits() {
    let c = simulate(400);
    for algorithm in [LogAlgorithm::Lp, LogAlgorithm::Spibb, LogAlgorithm::Naive, LogAlgorithm::Coptidice] {
        for gamma in [1.0, 0.9] {
            for unit in [LimitUnit::Step, LimitUnit::Episode] {
                let found = |limit: f64| {
                    let limit = CostLimit::new(limit, unit, c.logs().horizon()).unwrap();
                    let o = LogOptions { gamma, ..options(algorithm, vec![limit; 2]) };
                    solve(&c.logs(), &o).unwrap()
                };
                let modest = found(1e3);
                assert_eq!(modest.outcome, Outcome::Solved, "{algorithm:?} {gamma} {unit:?}");
                for limit in [1e6, 1e9, 1e12, 1e15] {
                    let enormous = found(limit);
                    let report = (algorithm, gamma, unit, limit, enormous.outcome, &enormous.certificate);
                    assert_eq!(enormous.outcome, Outcome::Solved, "{report:?}");
                    let (a, b) = (enormous.estimate.reward_per_step, modest.estimate.reward_per_step);
                    assert!((a - b).abs() <= 1e-7, "{report:?} {a} {b}");
                }
            }
        }
    }
}

/// Linear programs do not depend on the units of rewards and costs, however far apart.
#[test]
fn units_do_not_matter_to_linear_programs() {
    let c = simulate(400);
    for gamma in [1.0, 0.9] {
        let found = |reward: f64, cost: f64| {
            let mut scaled = c.clone();
            scaled.reward.iter_mut().for_each(|r| *r *= reward);
            scaled.costs[0].iter_mut().for_each(|c| *c *= cost);
            let limits = [0.1 * cost, 1.0].map(|limit| CostLimit::PerStep { limit }).to_vec();
            let o = LogOptions { gamma, ..options(LogAlgorithm::Lp, limits) };
            let solution = solve(&scaled.logs(), &o).unwrap();
            assert_eq!(
                solution.outcome,
                Outcome::Solved,
                "{gamma} {reward} {cost} {:?}",
                solution.certificate
            );
            (solution.estimate.reward_per_step / reward, solution.estimate.costs[0].per_step / cost)
        };
        let (reward, cost) = found(1.0, 1.0);
        assert!((cost - 0.1).abs() <= 1e-9, "the limit binds: {cost}");
        for (r, k) in [(1e-9, 1.0), (1e9, 1.0), (1e90, 1.0), (1.0, 1e9), (1.0, 1e-9), (1e9, 1e9)] {
            let scaled = found(r, k);
            assert!((scaled.0 - reward).abs() <= 1e-7, "{gamma} {r} {k}: {} {reward}", scaled.0);
            assert!((scaled.1 - cost).abs() <= 1e-7, "{gamma} {r} {k}: {} {cost}", scaled.1);
        }
    }
}

/// A radius of zero is no bound: the answer is the naive one, its bounds the costs themselves.
#[test]
fn a_radius_of_zero_is_no_bound() {
    let c = simulate(400);
    for gamma in [1.0, 0.9] {
        let limits = || [0.2, 0.3].map(|limit| CostLimit::PerStep { limit }).to_vec();
        let naive =
            solve(&c.logs(), &LogOptions { gamma, ..options(LogAlgorithm::Naive, limits()) }).unwrap();
        let o = LogOptions { gamma, epsilon: Some(0.0), ..options(LogAlgorithm::Coptidice, limits()) };
        let found = solve(&c.logs(), &o).unwrap();
        assert_eq!(found.outcome, Outcome::Solved);
        for (a, b) in found.estimate.costs.iter().zip(&naive.estimate.costs) {
            assert!((a.per_step - b.per_step).abs() <= 1e-9, "{} {}", a.per_step, b.per_step);
            let bound = a.upper_bound.unwrap();
            assert!((bound - a.constrained).abs() <= 1e-9, "{bound} {}", a.constrained);
        }
    }
}

/// C-SPIBB repeats the behaviour where little was logged: everywhere under a wedge beyond every count, and nowhere
/// under a wedge of zero, where it is the linear program.
#[test]
fn spibb_lies_between_cloning_and_the_linear_program() {
    let c = simulate(400);
    let limits = || per_episode([9.0, 9.0], &c);
    let value = |algorithm, wedge| {
        let mut o = options(algorithm, limits());
        o.wedge = wedge;
        solve(&c.logs(), &o).unwrap().estimate.reward_per_episode.unwrap()
    };
    let (bc, lp) = (value(LogAlgorithm::Bc, 5.0), value(LogAlgorithm::Lp, 5.0));
    let between = value(LogAlgorithm::Spibb, 90.0);
    assert!((value(LogAlgorithm::Spibb, 1e9) - bc).abs() < 1e-9);
    assert!((value(LogAlgorithm::Spibb, 1.0) - lp).abs() < 1e-6);
    assert!(bc < between && between < lp, "{bc} {between} {lp}");
}

/// Searching ends by its own limit, and says so.
#[test]
fn an_effort_limit_is_an_outcome() {
    let c = simulate(400);
    for algorithm in [LogAlgorithm::Naive, LogAlgorithm::Coptidice] {
        let tight = options(algorithm, per_episode([0.2, 9.0], &c));
        let enough = solve(&c.logs(), &tight).unwrap();
        assert_eq!(enough.outcome, Outcome::Solved);
        let effort = Effort { total_steps: 2, ..Effort::default() };
        let found = solve(&c.logs(), &LogOptions { effort, ..tight }).unwrap();
        assert_eq!(found.outcome, Outcome::IterationLimit);
    }
}

/// Where the same pair always has the same reward and successor, the deviation within pairs is rounding, and no measure of
/// noise: `alpha` is one over the number of episodes, as documented.
#[test]
fn deterministic_logs_get_the_documented_alpha() {
    for seed in 0..6 {
        let mut random = rng::stream(seed, "deterministic logs", 0);
        let table: Vec<(u32, f64)> = (0..STATES * ACTIONS)
            .map(|_| {
                let reward: f64 = random.random();
                (random.random_range(0..STATES as u32), (reward * 100.0).round() / 100.0)
            })
            .collect();
        let mut c = Columns::default();
        for _ in 0..60 {
            c.starts.push(c.state.len());
            let mut s = random.random_range(0..STATES as u32);
            for _ in 0..30 {
                let action = random.random_range(0..ACTIONS as u32);
                let (next, reward) = table[s as usize * ACTIONS + action as usize];
                c.push(s, action, reward, [f64::from(u8::from(action == 2)), 0.0], next, next == 0);
                if next == 0 {
                    break;
                }
                s = next;
            }
        }
        for gamma in [1.0, 0.95] {
            let limits = [CostLimit::PerStep { limit: 0.9 }, CostLimit::PerStep { limit: 1.0 }].to_vec();
            let asked = LogOptions { gamma, ..options(LogAlgorithm::Coptidice, limits) };
            let found = solve(&c.logs(), &asked).unwrap();
            assert_eq!(found.alpha, 1.0 / 60.0, "seed {seed}, gamma {gamma}");
            // Or not confirmed: a policy that stays away from the end for ever may leave the class that was solved for.
            assert!(
                matches!(found.outcome, Outcome::Solved | Outcome::Unconfirmed),
                "seed {seed}, gamma {gamma}"
            );
        }
    }
}
