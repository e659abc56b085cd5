use coptidice_agents::policy::{Normalizer, PolicyParts};
use coptidice_core::rng::stream;
use coptidice_data::{CheckOptions, ReadOptions, Transitions};
use coptidice_sim::{EpisodeRecord, EpisodeRunner, EpisodeSink as _, make};

use super::*;

const TASK: &str = "nav/hazard";

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
fn shares_are_exact_and_policies_take_turns() {
    let costs = [0.0, 0.1, 0.1 + 1e-9, 0.5, 0.05, 0.2, 0.9];
    let folder = tempfile::tempdir().expect("a folder");
    let pool = pool(folder.path(), &costs);
    for (episodes, beta, safe) in [(1000, 0.8, 800), (7, 0.5, 4), (10, 0.0, 0), (10, 1.0, 10), (3, 0.2, 1)] {
        let plan = drawn(&pool, &request(episodes, beta));
        assert_eq!(plan.members.len(), episodes);
        assert_eq!((0..episodes).filter(|&episode| plan.is_safe(episode)).count(), safe);
        let counts = plan.counts();
        for (kept, count) in [(true, safe), (false, episodes - safe)] {
            let part = || (0..costs.len()).filter(|&i| (costs[i] <= 0.1) == kept).map(|i| counts[i]);
            assert_eq!(part().sum::<usize>(), count);
            assert!(part().max() <= part().min().map(|least| least + 1), "{counts:?}");
        }
    }
    let plan = |seed| drawn(&pool, &Request { seed, ..request(50, 0.8) }).members;
    assert_eq!(plan(3), plan(3));
    assert_ne!(plan(3), plan(4));
}

/// The episodes, each run on its own by the policy that the plan names.
fn rolled_out(pool: &Pool, folder: &Path, request: &Request) -> Transitions {
    let env = env();
    let plan = drawn(pool, request);
    let mut log = CollectedLog::new(env.spec()).expect("costs have names");
    for (episode, &member) in plan.members.iter().enumerate() {
        let policy = crate::policies::load(&pool.members[member].policy_path(folder));
        let mut actor = policy.unwrap_or_else(|_| panic!("it is there")).actor();
        let mut act = |observation: &[f32], rng: &mut Rng, action: &mut [f32]| {
            actor.act(observation, rng, action).expect("observations are finite");
        };
        let episode = episode as u64;
        let [mut start, mut acts] =
            ["episode", "actor"].map(|purpose| stream(request.seed, purpose, episode));
        let mut record = EpisodeRecord::new(env.spec());
        let mut runner = EpisodeRunner::new(env.as_ref());
        let ran = runner.run(episode, &mut act, &mut start, &mut acts, |step| record.step(step));
        assert_eq!(ran, Ok(()));
        log.push(&record).expect("it fits");
    }
    log.finish().expect("there are episodes")
}

/// More episodes than are written together.
#[test]
fn the_file_is_the_rollouts_whatever_the_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let pool = pool(folder, &[0.0, 0.3, 0.02]);
    let request = request(70, 0.7);
    let paths = [1, 2].map(|threads| {
        let path = folder.join(format!("{threads}.hdf5"));
        let mixture =
            mixed(&pool, folder, &request, &path, threads).unwrap_or_else(|_| panic!("it is mixed"));
        assert_eq!((mixture.safe.episodes, mixture.unsafe_.episodes), (49, 21));
        assert_eq!((mixture.safe.policies, mixture.unsafe_.policies), (2, 1));
        assert_eq!(mixture.policies.iter().map(|share| share.episodes).sum::<usize>(), 70);
        (path, mixture)
    });
    let bytes = |path: &Path| std::fs::read(path).expect("it is there");
    assert!(bytes(&paths[0].0) == bytes(&paths[1].0), "the same file");
    let (path, mixture) = &paths[0];
    assert_eq!(mixture.bytes, bytes(path).len() as u64);

    let expected = rolled_out(&pool, folder, &request);
    let found = coptidice_data::load(path, &ReadOptions::default(), &CheckOptions::default());
    let found = found.expect("it is a log").transitions;
    assert_eq!(found.fingerprint(), expected.fingerprint());
    assert_eq!((found.len(), found.episodes()), (mixture.transitions, expected.episodes()));

    // What the summary says, from the log: single precision, up to 200 steps of rewards.
    let plan = drawn(&pool, &request);
    for (safe, part) in [(true, &mixture.safe), (false, &mixture.unsafe_)] {
        let episodes =
            || found.episodes().iter().enumerate().filter(|&(i, _)| plan.is_safe(i) == safe).map(|(_, e)| e);
        let rows = || episodes().flat_map(|episode| episode.rows());
        let total: f64 = rows().map(|row| f64::from(found.reward(row))).sum();
        let mean = total / episodes().count() as f64;
        assert!(part.return_mean.is_some_and(|found| (found - mean).abs() < 1e-4 * mean.abs().max(1.0)));
        let cost: f64 = rows().map(|row| f64::from(found.costs(row)[0])).sum();
        let expected = cost / rows().count() as f64;
        assert!(part.cost_per_step.as_ref().is_some_and(|found| (found[0] - expected).abs() < 1e-9));
    }
}

#[test]
fn a_pool_without_policies_for_a_part_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let out = folder.join("log.hdf5");
    let refused = |pool: &Pool, beta| {
        let Err(failure) = mixed(pool, folder, &request(10, beta), &out, 1) else { panic!("it is refused") };
        message(failure)
    };
    let [costly, safe] = [pool(folder, &[0.3, 0.2]), pool(folder, &[0.01, 0.0])];
    assert!(refused(&costly, 0.8).contains("0.2000"), "the least cost");
    assert!(refused(&safe, 0.8).contains("0.0100"), "the largest cost");
    let none = pool(folder, &[]);
    assert!(refused(&none, 0.8).contains("no policies"));
    assert!(!out.exists());
    assert!(
        mixed(&costly, folder, &request(2, 0.0), &out, 1)
            .is_ok_and(|mixture| mixture.safe.return_mean.is_none())
    );
}

/// A policy that cannot act, in the second part that is written.
#[test]
fn nothing_is_left_of_a_mixture_that_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let pool = pool(folder, &[0.0, 0.3]);
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
    let mut requests = (0..).map(|seed| Request { seed, ..request(100, 0.99) });
    let late = |request: &Request| {
        drawn(&pool, request)
            .members
            .iter()
            .position(|&member| member == 1)
            .is_some_and(|first| first > TOGETHER)
    };
    let request = requests.find(late).expect("some seed does it");
    let Err(failure) = mixed(&pool, folder, &request, &folder.join("log.hdf5"), 2) else {
        panic!("it fails")
    };
    assert!(message(failure).contains("could not act"));
    assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), before);
}
