//! A pool: policies that one online training run after another left behind, with what each earns and costs.
//!
//! `POOL/pool.json` is a [`Pool`]. The policies it names lie beside it; each is an ordinary policy file. Nothing about a
//! policy is in the file only: the figures say by which episodes they were measured, and can be measured again.

use std::path::{Path, PathBuf};

use coptidice_sim::EnvOptions;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::run_directory::write_json;

/// The format that this program writes and reads.
const FORMAT: u32 = 1;

/// `POOL/pool.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pool {
    /// Format of the file.
    format: u32,
    /// Registered name of the environment that the policies were trained and measured in.
    pub(crate) environment: String,
    /// Its parameters.
    pub(crate) options: EnvOptions,
    /// Names of its costs, `[K]`, in order.
    pub(crate) costs: Vec<String>,
    /// The policies: by limit, then seed, then steps.
    pub(crate) members: Vec<Member>,
}

/// One policy of a pool: a checkpoint of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Member {
    /// Its file, relative to the pool's folder, with `/` between the parts.
    pub(crate) policy: String,
    /// The limit that its run was to keep: average cost per step, of each of the environment's costs.
    pub(crate) limit: f64,
    /// Seed of its run.
    pub(crate) seed: u64,
    /// Environment steps that its run had taken.
    pub(crate) steps: u64,
    /// Episodes that the figures below are means of, numbers `0..episodes` of [`Member::episode_seed`].
    pub(crate) episodes: usize,
    /// Seed of these episodes.
    pub(crate) episode_seed: u64,
    /// Mean undiscounted return of an episode, acting in the policy's own way.
    pub(crate) return_mean: f64,
    /// Its standard error; none for one episode.
    pub(crate) return_stderr: Option<f64>,
    /// Average of each cost per step, `[K]`.
    pub(crate) cost_per_step: Vec<f64>,
    /// Their standard errors, `[K]`; none for one episode.
    pub(crate) cost_per_step_stderr: Vec<Option<f64>>,
}

impl Member {
    /// Whether every cost was measured to be at most `limit` per step.
    pub(crate) fn keeps(&self, limit: f64) -> bool {
        self.cost_per_step.iter().all(|&cost| cost <= limit)
    }

    /// The policy's file in the pool that lies in `folder`.
    pub(crate) fn policy_path(&self, folder: &Path) -> PathBuf {
        folder.join(&self.policy)
    }
}

impl Pool {
    /// A pool without members.
    pub(crate) fn new(environment: String, options: EnvOptions, costs: Vec<String>) -> Self {
        Pool { format: FORMAT, environment, options, costs, members: Vec::new() }
    }

    /// Where the file lies in the pool's folder.
    pub(crate) fn path(folder: &Path) -> PathBuf {
        folder.join("pool.json")
    }

    /// Reads the pool in `folder`.
    pub(crate) fn read(folder: &Path) -> Result<Self, Failure> {
        let path = Self::path(folder);
        let pool: Pool = read_file(&path)?;
        pool.defect().map_or(Ok(pool), |defect| {
            Err(Failure::usage(format!("{}: {defect}", path.display()), "collect the pool again"))
        })
    }

    /// Writes the pool, replacing the file in one step.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), Failure> {
        write_json(&Self::path(folder), self)
    }

    /// Adds a member at its place, replacing the one of the same file.
    pub(crate) fn insert(&mut self, member: Member) {
        self.members.retain(|other| other.policy != member.policy);
        self.members.push(member);
        let by_run = |a: &Member, b: &Member| a.limit.total_cmp(&b.limit).then(a.seed.cmp(&b.seed));
        self.members.sort_by(|a, b| by_run(a, b).then(a.steps.cmp(&b.steps)));
    }

    /// Takes out the members that a run left after more than `steps`.
    pub(crate) fn forget_after(&mut self, limit: f64, seed: u64, steps: u64) {
        self.members.retain(|m| m.limit != limit || m.seed != seed || m.steps <= steps);
    }

    /// Takes out the members whose policies are not in `folder` any more; their files, in order.
    pub(crate) fn forget_lost(&mut self, folder: &Path) -> Vec<String> {
        let lost = |member: &Member| !member.policy_path(folder).is_file();
        let files = self.members.iter().filter(|member| lost(member)).map(|member| member.policy.clone());
        let files: Vec<String> = files.collect();
        self.members.retain(|member| !lost(member));
        files
    }

    /// Whether `file` is one of the pool in `folder`, by whatever name.
    pub(crate) fn holds(&self, folder: &Path, file: &Path) -> bool {
        let Ok(file) = file.canonicalize() else { return false };
        let same = |other: PathBuf| other.canonicalize().is_ok_and(|other| other == file);
        same(Self::path(folder)) || self.members.iter().any(|member| same(member.policy_path(folder)))
    }

    /// What is wrong with a file that parsed.
    fn defect(&self) -> Option<String> {
        if self.format != FORMAT {
            return Some(format!("format {}, this version reads {FORMAT}", self.format));
        }
        let costs = self.costs.len();
        self.members.iter().find_map(|member| {
            let Member { policy, cost_per_step, cost_per_step_stderr, .. } = member;
            // A pool names files of its own folder.
            let inside = Path::new(policy).components().all(|c| matches!(c, std::path::Component::Normal(_)));
            if !inside || policy.is_empty() {
                Some(format!("policy {policy:?} is not inside the pool"))
            } else if cost_per_step.len() != costs || cost_per_step_stderr.len() != costs {
                Some(format!("{policy} does not have {costs} cost(s)"))
            } else {
                None
            }
        })
    }
}

fn read_file(path: &Path) -> Result<Pool, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(
            format!("{}: {error}", path.display()),
            "a pool is a folder that `coptidice collect --out` made",
        )
    })?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::usage(
            format!("{}: {error}", path.display()),
            "the file was changed; take it away, and the `coptidice collect` that made the pool measures its policies anew",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(policy: &str, limit: f64, steps: u64) -> Member {
        Member {
            policy: policy.to_owned(),
            limit,
            seed: 0,
            steps,
            episodes: 5,
            episode_seed: 1,
            return_mean: 812.5,
            return_stderr: Some(0.3),
            cost_per_step: vec![0.07],
            cost_per_step_stderr: vec![None],
        }
    }

    fn pool() -> Pool {
        Pool::new("rwrl/cartpole-swingup".into(), EnvOptions::default(), vec!["slider_position".into()])
    }

    #[test]
    fn a_pool_is_sorted_and_comes_back_as_it_was_written() {
        let mut pool = pool();
        pool.insert(member("b.safetensors", 0.1, 20));
        pool.insert(member("c.safetensors", 0.05, 30));
        pool.insert(member("a.safetensors", 0.1, 10));
        pool.insert(Member { return_mean: 1.0, ..member("b.safetensors", 0.1, 20) });
        let order: Vec<_> = pool.members.iter().map(|m| (m.policy.as_str(), m.return_mean)).collect();
        assert_eq!(order, [("c.safetensors", 812.5), ("a.safetensors", 812.5), ("b.safetensors", 1.0)]);
        assert!(pool.members[0].keeps(0.07) && !pool.members[0].keeps(0.06));
        let mut restarted = pool.clone();
        restarted.forget_after(0.1, 0, 10);
        let left: Vec<_> = restarted.members.iter().map(|m| (m.limit, m.steps)).collect();
        assert_eq!(left, [(0.05, 30), (0.1, 10)]);
        let folder = tempfile::tempdir().expect("a folder");
        assert!(pool.write(folder.path()).is_ok());
        let Ok(read) = Pool::read(folder.path()) else { panic!("just written") };
        assert_eq!(read, pool);
        assert!(read.members[0].policy_path(folder.path()).ends_with("c.safetensors"));
        std::fs::write(folder.path().join("b.safetensors"), "a policy").expect("it can be written");
        assert_eq!(pool.forget_lost(folder.path()), ["c.safetensors", "a.safetensors"]);
        assert_eq!(pool.members.len(), 1);
    }

    #[test]
    fn files_that_are_no_pool_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(Pool::read(folder.path()).is_err());
        for policy in ["../p.safetensors", "/p.safetensors", ""] {
            let mut pool = pool();
            pool.insert(member(policy, 0.1, 1));
            assert!(pool.defect().is_some(), "{policy}");
        }
        let two = Pool { costs: vec!["a".into(), "b".into()], members: vec![member("p", 0.1, 1)], ..pool() };
        assert!(two.defect().is_some());
        assert!(Pool { format: 9, ..pool() }.defect().is_some());
    }
}
