use coptidice_agents::policy::{Normalizer, PolicyParts};
use coptidice_core::rng::stream;
use coptidice_data::{CheckOptions, ReadOptions, Transitions};
use coptidice_sim::{EpisodeRecord, EpisodeRunner, EpisodeSink as _, make};

use super::*;

const TASK: &str = "rwrl/cartpole-swingup";

fn env() -> Box<dyn Environment> {
    make(TASK).expect("it is registered")
}

/// A pool of random policies that, says the pool, cost so much per step.
fn pool(folder: &Path, costs: &[f64]) -> Pool {
    let env = env();
    let mut pool = Pool::new(TASK.to_owned(), EnvOptions::default(), env.spec().cost_names());
    for (seed, &cost) in costs.iter().enumerate() {
        let name = format!("{seed}.safetensors");
        let policy = crate::testing::policy(env.as_ref(), seed as u64, Acting::Sample);
        std::fs::write(folder.join(&name), policy.to_bytes().expect("it has bytes")).expect("written");
        pool.insert(member(&name, seed as u64, cost));
    }
    pool
}

fn member(policy: &str, seed: u64, cost: f64) -> Member {
    Member {
        policy: policy.to_owned(),
        limit: 0.1,
        seed,
        steps: 1000,
        episodes: 1,
        episode_seed: 0,
        return_mean: 1.0,
        return_stderr: None,
        cost_per_step: vec![cost],
        cost_per_step_stderr: vec![None],
    }
}

fn request(episodes: usize, beta: f64) -> Request {
    Request { episodes, beta, limit: 0.1, seed: 3, acting: Acting::Sample }
}

/// Mixes on so many threads.
fn mixed(
    pool: &Pool,
    folder: &Path,
    request: &Request,
    out: &Path,
    threads: usize,
) -> Result<Mixture, Failure> {
    let threads = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
    threads.install(|| mix(pool, folder, env().as_ref(), request, out, &WriteOptions::default()))
}

fn drawn(pool: &Pool, request: &Request) -> Plan {
    Plan::draw(pool, request).unwrap_or_else(|_| panic!("both parts have policies"))
}

fn message(failure: Failure) -> String {
    let (Failure::Input(explained) | Failure::Work(explained)) = failure else { panic!("it is explained") };
    explained.to_string()
}

#[test]
fn places_are_shared_out_exactly_and_policies_take_turns() {
    let costs = [0.0, 0.1, 0.1 + 1e-9, 0.5, 0.05, 0.2, 0.9];
    let folder = tempfile::tempdir().expect("a folder");
    let pool = pool(folder.path(), &costs);
    for (episodes, beta, safe) in [(1000, 0.8, 800), (7, 0.5, 4), (10, 0.0, 0), (10, 1.0, 10), (3, 0.2, 1)] {
        let plan = drawn(&pool, &request(episodes, beta));
        assert_eq!(plan.places.len(), episodes);
        assert_eq!(plan.places.iter().filter(|place| place.0).count(), safe);
        let mut counts = [0; 7];
        let fresh = Trials::new(costs.len());
        (0..episodes)
            .filter_map(|place| plan.member(&fresh, place, 0))
            .for_each(|member| counts[member] += 1);
        for (kept, count) in [(true, safe), (false, episodes - safe)] {
            let part = || (0..costs.len()).filter(|&i| (costs[i] <= 0.1) == kept).map(|i| counts[i]);
            assert_eq!(part().sum::<usize>(), count);
            assert!(part().max() <= part().min().map(|least| least + 1), "{counts:?}");
        }
        // Each policy of the part has ten tries after the other, until it is given up; then come those of the other part.
        let safe = plan.places[0].0;
        let (group, mut trials) = (if safe { 3 } else { 4 }, Trials::new(costs.len()));
        let tries: Vec<usize> =
            (0..group * plan::TRIES_EACH).filter_map(|k| plan.member(&trials, 0, k)).collect();
        assert_eq!(tries.len(), group * plan::TRIES_EACH);
        assert!(tries.chunks(plan::TRIES_EACH).all(|each| each.iter().all(|member| *member == each[0])));
        let mut members: Vec<usize> = tries.iter().copied().step_by(plan::TRIES_EACH).collect();
        assert!(members.iter().all(|&member| (costs[member] <= 0.1) == safe));
        while let Some(member) = plan.member(&trials, 0, 0) {
            (0..plan::TRIES_LEAST).for_each(|_| trials.note(member, safe, false));
            members.push(member);
        }
        members.drain(..group);
        let (own, others) = members.split_at(group);
        assert!(own.iter().all(|&member| (costs[member] <= 0.1) == safe), "{members:?}");
        assert!(others.len() == 7 - group && others.iter().all(|&member| (costs[member] <= 0.1) != safe));
    }
    let members = |seed| -> Vec<Option<usize>> {
        let plan = drawn(&pool, &Request { seed, ..request(50, 0.8) });
        (0..50).map(|place| plan.member(&Trials::new(7), place, 0)).collect()
    };
    assert_eq!(members(3), members(3));
    assert_ne!(members(3), members(4));
}

/// The episodes, each run on its own: of each place, try after try, until one is on its side of the limit. Tries are
/// numbered as they come, 64 places at a time.
fn rolled_out(pool: &Pool, folder: &Path, request: &Request) -> (Transitions, u64) {
    let env = env();
    let plan = drawn(pool, request);
    let mut log = CollectedLog::new(env.spec()).expect("costs have names");
    let mut number = 0;
    let mut trials = Trials::new(pool.members.len());
    let places: Vec<usize> = (0..request.episodes).collect();
    for chunk in places.chunks(TOGETHER) {
        let mut found: Vec<Option<EpisodeRecord>> = vec![None; chunk.len()];
        for k in 0.. {
            let before = trials.clone();
            for (found, &place) in found.iter_mut().zip(chunk) {
                if found.is_some() {
                    continue;
                }
                let member = plan.member(&before, place, k).expect("some try succeeds");
                let policy = crate::policies::load(&pool.members[member].policy_path(folder));
                let mut actor = policy.unwrap_or_else(|_| panic!("it is there")).actor();
                let mut act = |observation: &[f32], rng: &mut Rng, action: &mut [f32]| {
                    actor.act(observation, rng, action).expect("observations are finite");
                };
                let [mut start, mut acts] =
                    ["episode", "actor"].map(|purpose| stream(request.seed, purpose, number));
                let mut record = EpisodeRecord::new(env.spec());
                let mut runner = EpisodeRunner::new(env.as_ref());
                let ran = runner.run(number, &mut act, &mut start, &mut acts, |step| record.step(step));
                assert_eq!(ran, Ok(()));
                number += 1;
                let safe = plan.places[place].0;
                let serves = (record.mean_cost(0) <= request.limit) == safe;
                trials.note(member, safe, serves);
                if serves {
                    *found = Some(record);
                }
            }
            if found.iter().all(Option::is_some) {
                break;
            }
        }
        found.iter().flatten().for_each(|record| log.push(record).expect("it fits"));
    }
    (log.finish().expect("there are episodes"), number)
}

/// Mean cost per step of one episode of each policy of a pool.
fn costs_of_episodes(pool: &Pool, folder: &Path, episodes: usize) -> Vec<Vec<f64>> {
    let env = env();
    let of_member = |member: &Member| {
        let policy = crate::policies::load(&member.policy_path(folder));
        let policy = policy.unwrap_or_else(|_| panic!("it is there"));
        let mut actor = policy.actor();
        let cost = |episode: u64| {
            let mut act = |observation: &[f32], rng: &mut Rng, action: &mut [f32]| {
                actor.act(observation, rng, action).expect("observations are finite");
            };
            let [mut start, mut acts] = ["episode", "actor"].map(|purpose| stream(9, purpose, episode));
            let mut record = EpisodeRecord::new(env.spec());
            let mut runner = EpisodeRunner::new(env.as_ref());
            let ran = runner.run(episode, &mut act, &mut start, &mut acts, |step| record.step(step));
            assert_eq!(ran, Ok(()));
            record.mean_cost(0)
        };
        (0..episodes as u64).map(cost).collect()
    };
    pool.members.iter().map(of_member).collect()
}

/// A pool that is measured, and a limit that splits the episodes of its policies.
fn measured_pool(folder: &Path) -> (Pool, f64) {
    let mut pool = pool(folder, &[0.0; 6]);
    let costs = costs_of_episodes(&pool, folder, 8);
    let means: Vec<f64> = costs.iter().map(|of| of.iter().sum::<f64>() / of.len() as f64).collect();
    for (member, &mean) in pool.members.iter_mut().zip(&means) {
        member.cost_per_step = vec![mean];
    }
    let mut all: Vec<f64> = costs.into_iter().flatten().collect();
    all.sort_by(f64::total_cmp);
    let (low, high) = (all[0], all[3 * all.len() / 4]);
    assert!(low < high, "episodes differ: {all:?}");
    (pool, 0.5 * (low + high))
}

/// More episodes than are written together.
#[test]
fn the_file_is_the_rollouts_whatever_the_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let (pool, limit) = measured_pool(folder);
    let request = Request { limit, ..request(70, 0.7) };
    let paths = [1, 2].map(|threads| {
        let path = folder.join(format!("{threads}.hdf5"));
        let mixture = mixed(&pool, folder, &request, &path, threads)
            .unwrap_or_else(|failure| panic!("{}", message(failure)));
        assert_eq!((mixture.safe.episodes, mixture.unsafe_.episodes), (49, 21));
        assert_eq!(mixture.policies.iter().map(|share| share.safe).sum::<usize>(), 49);
        assert_eq!(mixture.policies.iter().map(|share| share.unsafe_).sum::<usize>(), 21);
        (path, mixture)
    });
    let bytes = |path: &Path| std::fs::read(path).expect("it is there");
    assert!(bytes(&paths[0].0) == bytes(&paths[1].0), "the same file");
    let (path, mixture) = &paths[0];
    assert_eq!(mixture.bytes, bytes(path).len() as u64);

    let (expected, tried) = rolled_out(&pool, folder, &request);
    assert_eq!(mixture.tried as u64, tried);
    let found = coptidice_data::load(path, &ReadOptions::default(), &CheckOptions::default());
    let found = found.expect("it is a log").transitions;
    assert_eq!(found.fingerprint(), expected.fingerprint());
    assert_eq!((found.len(), found.episodes()), (mixture.transitions, expected.episodes()));

    // What the summary says, from the log: single precision, up to 1000 steps of rewards.
    let cost_of = |rows: std::ops::Range<usize>| {
        let steps = rows.len() as f64;
        rows.map(|row| f64::from(found.costs(row)[0])).sum::<f64>() / steps
    };
    let keeps = |episode: &coptidice_data::Episode| cost_of(episode.rows()) <= limit;
    for (safe, part) in [(true, &mixture.safe), (false, &mixture.unsafe_)] {
        let episodes = || found.episodes().iter().filter(|episode| keeps(episode) == safe);
        assert_eq!(episodes().count(), part.episodes, "by the episodes' own costs");
        let rows = || episodes().flat_map(|episode| episode.rows());
        let total: f64 = rows().map(|row| f64::from(found.reward(row))).sum();
        let mean = total / episodes().count() as f64;
        assert!(part.return_mean.is_some_and(|found| (found - mean).abs() < 1e-4 * mean.abs().max(1.0)));
        let cost: f64 = rows().map(|row| f64::from(found.costs(row)[0])).sum();
        let expected = cost / rows().count() as f64;
        assert!(part.cost_per_step.as_ref().is_some_and(|found| (found[0] - expected).abs() < 1e-9));
    }
}

/// The pool's word on which side of the limit policies are is the wrong way round: every episode comes of the others.
#[test]
fn where_no_policy_of_a_part_serves_it_the_others_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    // No cost is above 1, so that each episode keeps that limit; the pool says of none that it does.
    let pool = pool(folder, &[1.5, 1.5]);
    let request = Request { limit: 1.0, ..request(5, 1.0) };
    let mixture = mixed(&pool, folder, &request, &folder.join("log.hdf5"), 1);
    assert!(mixture.is_ok_and(|mixture| mixture.safe.episodes == 5 && mixture.tried == 5));
}

#[test]
fn a_part_that_no_episode_is_found_for_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let out = folder.join("log.hdf5");
    let refused = |pool: &Pool, beta, limit| {
        let request = Request { limit, ..request(10, beta) };
        let Err(failure) = mixed(pool, folder, &request, &out, 1) else { panic!("it is refused") };
        message(failure)
    };
    // No cost is below 0 or above 1.
    let pool = pool(folder, &[0.3, 0.2]);
    let none_kept = refused(&pool, 0.8, -0.1);
    assert!(none_kept.contains("0 of ") && none_kept.contains("0.2000"), "the least cost: {none_kept}");
    assert!(refused(&pool, 0.8, 1.0).contains("0.3000"), "the largest cost");
    let mut none = pool.clone();
    none.members.clear();
    assert!(refused(&none, 0.8, 0.1).contains("no policies"));
    assert!(!out.exists());
    let all = Request { limit: 1.0, ..request(2, 1.0) };
    assert!(mixed(&pool, folder, &all, &out, 1).is_ok_and(|mixture| mixture.unsafe_.return_mean.is_none()));
    assert!(pool.holds(folder, &folder.join("./pool.json")) == folder.join("pool.json").exists());
    assert!(pool.holds(folder, &folder.join("0.safetensors")) && !pool.holds(folder, &out));
}

/// A policy that cannot act, in the second part that is written.
#[test]
fn nothing_is_left_of_a_mixture_that_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    // Every episode keeps a limit of 1, and so does one of the policies.
    let pool = pool(folder, &[0.0, 1.5]);
    let parts = crate::testing::policy(env().as_ref(), 1, Acting::Mean).to_parts();
    let normalizer = Normalizer {
        mean: vec![3e38; parts.normalizer.columns()],
        scale: vec![3e38; parts.normalizer.columns()],
    };
    let broken =
        coptidice_agents::policy::Policy::new(PolicyParts { normalizer, ..parts }).expect("it is a policy");
    let path = pool.members[1].policy_path(folder);
    std::fs::write(path, broken.to_bytes().expect("it has bytes")).expect("written");
    let before = std::fs::read_dir(folder).expect("a folder").count();
    // The broken one is tried where an episode is to be over a limit: late, and it acts at once.
    let mut requests = (0..).map(|seed| Request { seed, limit: 1.0, ..request(100, 0.99) });
    let late = |request: &Request| {
        let plan = drawn(&pool, request);
        (0..100)
            .position(|place| plan.member(&Trials::new(2), place, 0) == Some(1))
            .is_some_and(|first| first > TOGETHER)
    };
    let request = requests.find(late).expect("some seed does it");
    let Err(failure) = mixed(&pool, folder, &request, &folder.join("log.hdf5"), 2) else {
        panic!("it fails")
    };
    assert!(message(failure).contains("could not act"));
    assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), before);
}
