"""Ways to draw the policy on logged stays of sepsis patients, through function approximation.

    icu_sepsis.py STAYS.csv DYNAMICS.npz OUT [--program coptidice] [--seeds 5] [--steps N]

STAYS.csv holds simulated stays of the ICU-Sepsis benchmark (716 states, 25 actions; columns stay, state, action, reward,
cost_max_vasopressor, cost_high_sofa, next_state, terminal). DYNAMICS.npz is that of the `icu-sepsis` package on PyPI, 2.0.1
(icu_sepsis/envs/assets/dynamics.npz). States are handed to the learners one-hot, and nothing else is said of them.

Every method is trained with every seed, under limits of .3 a stay on both costs, and its policy is valued in the model
itself, exactly: expected totals of a stay by a linear system. OUT/icu-results.csv; runs that are there are kept.
Needs numpy.
"""

import argparse
import csv
import json
import subprocess
from pathlib import Path

import numpy as np

LIMIT = 0.3
COSTS = ["max_vasopressor", "high_sofa"]
METHODS = {
    "critic_guided": ["extraction=critic_guided"],
    "bc": ["algo=bc"],
    "weighted_bc": ["extraction=weighted_bc"],
    "state_normalized": ["extraction=state_normalized"],
    "information_projection": ["extraction=information_projection"],
    "guided_selection": ["extraction=guided_selection"],
    # A fifth of the stays is kept from training, for fitted Q evaluation.
    "held_out": ["extraction=critic_guided", "holdout=0.2"],
}


class Model:
    """The benchmark's model; the last state is where stays have ended."""

    def __init__(self, path):
        arrays = np.load(path)
        self.transitions = arrays["tx_mat"].astype(float)
        self.initial = arrays["d_0"].astype(float)
        states, actions, _ = self.transitions.shape
        self.live = np.arange(states - 1)
        reward = (self.transitions * arrays["r_mat"]).sum(axis=2)
        highest_level = np.tile(np.arange(actions) % 5 == 4, (states, 1))
        severe = np.repeat((arrays["sofa_scores"] >= 12)[:, None], actions, axis=1)
        self.quantities = [reward, highest_level.astype(float), severe.astype(float), np.ones((states, actions))]

    def values(self, policy):
        """Expected totals of a stay: reward, both costs, steps. `policy` is [states, actions]."""
        live = self.live
        chain = np.einsum("sa,sat->st", policy, self.transitions)[np.ix_(live, live)]
        visits = np.linalg.solve(np.eye(len(live)) - chain.T, self.initial[live])
        return [float(visits @ (policy[live] * x[live]).sum(axis=1)) for x in self.quantities]


def write_log(stays, states, path):
    """The stays as arrays, states one-hot."""
    with open(stays, newline="") as file:
        rows = list(csv.DictReader(file))

    def one_hot(name):
        hot = np.zeros((len(rows), states), np.float32)
        hot[np.arange(len(rows)), [int(row[name]) for row in rows]] = 1
        return hot

    def column(name, kind):
        return np.array([float(row[name]) for row in rows]).astype(kind)

    np.savez(
        path,
        observations=one_hot("state"),
        next_observations=one_hot("next_state"),
        actions=column("action", np.int64),
        rewards=column("reward", np.float32),
        terminals=column("terminal", bool),
        timeouts=np.zeros(len(rows), bool),
        **{f"cost_{cost}": column(f"cost_{cost}", np.float32) for cost in COSTS},
    )


def train(program, log, run, settings):
    """Trains where that has not been done."""
    if (run / "policy.safetensors").exists():
        return
    command = [program, "train", str(log), "--action-kind", "discrete", "--out", str(run), "--resume"]
    for cost in COSTS:
        command += ["--limit", f"{cost}={LIMIT}"]
    command += ["--limit-unit", "episode"]
    for setting in settings:
        command += ["--set", setting]
    # 3: there is a policy, and by its estimate it exceeds a limit.
    done = subprocess.run(command)
    if done.returncode not in (0, 3):
        raise subprocess.CalledProcessError(done.returncode, command)


def policy_of(program, run, observations, states, actions):
    """The policy's own way of acting, [states, actions]; one that draws is drawn from."""
    ways = json.loads((run / "policy_estimate.json").read_text())["ways"]
    draws = 400 if ways and ways[0]["acting"] == "sample" else 1
    policy = np.zeros((states, actions))
    for seed in range(draws):
        to = run / "actions.npy"
        subprocess.run(
            [program, "act", str(run), "--observations", str(observations), "--to", str(to), "--seed", str(seed), "--overwrite"],
            check=True,
        )
        policy[np.arange(states), np.load(to).astype(int)] += 1 / draws
    return policy


def figures(run):
    """Of the dual and of fitted Q evaluation: reward per step, totals of both costs."""
    found = {}
    if (run / "estimates.json").exists():
        dual = json.loads((run / "estimates.json").read_text())
        found["dual_reward_per_step"] = dual["reward_per_step"]
        found.update({f"dual_{cost['name']}": cost["per_episode"] for cost in dual["costs"]})
    ways = json.loads((run / "policy_estimate.json").read_text())["ways"]
    if ways:
        found["acting"] = ways[0]["acting"]
        found["estimated_reward_per_step"] = ways[0]["reward"]
        found.update({f"estimated_{cost['name']}": cost["per_episode"] for cost in ways[0]["costs"]})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stays")
    parser.add_argument("dynamics")
    parser.add_argument("out", type=Path)
    parser.add_argument("--program", default="coptidice")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    model = Model(options.dynamics)
    states, actions, _ = model.transitions.shape
    log, observations = options.out / "log.npz", options.out / "states.npy"
    if not log.exists():
        write_log(options.stays, states, log)
        np.save(observations, np.eye(states, dtype=np.float32))
    rows = []
    for method in options.methods:
        for seed in range(options.seeds):
            run = options.out / f"{method}-{seed}"
            steps = [f"steps={options.steps}"] if options.steps else []
            train(options.program, log, run, METHODS[method] + [f"seed={seed}", "threads=1"] + steps)
            policy = policy_of(options.program, run, observations, states, actions)
            reward, vasopressor, sofa, length = model.values(policy)
            row = {
                "method": method,
                "seed": seed,
                "survival": reward,
                "max_vasopressor": vasopressor,
                "high_sofa": sofa,
                "steps": length,
                "reward_per_step": reward / length,
                **figures(run),
            }
            print(row, flush=True)
            rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(options.out / "icu-results.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
