"""Solve recorded cases with the program and compare with exact solutions.

    python3 scripts/check_vectors.py [DIRECTORY] [--program PATH]

DIRECTORY holds cases (`s*_b*_n*.json.gz`) and `exact.json` or `exact.json.gz`; by default `fixtures/vectors`.
Tolerances: multipliers 1e-6, constrained costs 1e-8, true values 1e-6, optimal values of the linear program 1e-7.

True values are compared twice. The recorded solutions keep up to 3e-12 of mass in states without flow, which beside
the 1e-10 that is added to every pair turns their policies there; `true values` takes the recorded rows in states in
which ours has no mass, `as printed` does not, and does not count for success.
"""

import argparse
import gzip
import json
import pathlib
import subprocess
import sys

TOLERANCES = {"lambda": 1e-6, "cost": 1e-8, "true values": 1e-6, "as printed": 1e-6, "linear program": 1e-7}


def read(path):
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def solve(program, case, algorithm):
    command = [program, "tabular", "solve", "--case", str(case), "--algo", algorithm, "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    if found["outcome"] != "solved":
        sys.exit(f"{case.name} {algorithm}: {found['outcome']}")
    return found


def evaluate(case, policy, transitions=None):
    """Normalised reward and cost of a policy, by Gauss-Seidel sweeps to rounding."""
    states, actions, gamma = case["num_states"], case["num_actions"], case["gamma"]
    rows = transitions or case["true_transition"]
    chain = [{} for _ in range(states)]
    for s, a, t, p in rows:
        s, a, t = int(s), int(a), int(t)
        if policy[s][a] > 0:
            chain[s][t] = chain[s].get(t, 0.0) + policy[s][a] * p
    values = []
    for table in (case["reward"], case["cost"]):
        now = [sum(policy[s][a] * table[s][a] for a in range(actions)) for s in range(states)]
        v = [0.0] * states
        for _ in range(2000):
            change = 0.0
            for s in range(states):
                new = now[s] + gamma * sum(p * v[t] for t, p in chain[s].items())
                change, v[s] = max(change, abs(new - v[s])), new
            if change < 1e-14:
                break
        values.append((1 - gamma) * v[case["initial_state"]])
    return values


def estimated(case):
    """Rows of the maximum-likelihood CMDP; pairs never seen lead to the absorbing state."""
    total = {}
    for s, a, _, n in case["mle_counts"]:
        total[s, a] = total.get((s, a), 0) + n
    rows = [[s, a, t, n / total[s, a]] for s, a, t, n in case["mle_counts"]]
    pairs = [(s, a) for s in range(case["num_states"]) for a in range(case["num_actions"])]
    return rows + [[s, a, case["absorbing_state"], 1.0] for s, a in pairs if (s, a) not in total]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("directory", nargs="?", type=pathlib.Path, default=root / "fixtures/vectors")
    parser.add_argument("--program", default=str(root / "target/release/coptidice"))
    options = parser.parse_args()
    exact_path = next(p for p in sorted(options.directory.glob("exact.json*")))
    worst = dict.fromkeys(TOLERANCES, (0.0, ""))
    seconds = []
    apart = 0

    def note(what, error, where):
        worst[what] = max(worst[what], (abs(error), where))

    exact = read(exact_path)
    for name, solutions in sorted(exact.items()):
        path = options.directory / f"{name}.json.gz"
        case = read(path)
        actions = case["num_actions"]
        for algorithm in ("vanilla", "conservative"):
            found, wanted, where = solve(options.program, path, algorithm), solutions[algorithm], f"{name} {algorithm}"
            seconds.append(found["seconds"])
            note("lambda", found["lambda"] - wanted["lambda"], where)
            note("cost", found["cost_upper_bound"] - wanted["cost_value"], where)
            for value in ("true_reward", "true_cost"):
                note("as printed", found[value] - wanted[value], where)
                apart += abs(found[value] - wanted[value]) > TOLERANCES["as printed"]
            rows = []
            for s, row in enumerate(found["policy"]):
                mass = sum(found["w"][s * actions + a] * case["d_b"][s * actions + a] for a in range(actions))
                rows.append(wanted["policy"][s] if mass < 1e-11 else row)
            reward, cost = evaluate(case, rows)
            note("true values", reward - wanted["true_reward"], where)
            note("true values", cost - wanted["true_cost"], where)
        found = solve(options.program, path, "basic")
        seconds.append(found["seconds"])
        reward, _ = evaluate(case, found["policy"], estimated(case))
        note("linear program", reward - case["basic"]["mle_V_R"], f"{name} basic")
    failed = False
    for what, (error, where) in worst.items():
        within = error <= TOLERANCES[what]
        failed |= not within and what != "as printed"
        print(f"{what:15} off by at most {error:.1e} (tolerance {TOLERANCES[what]:.0e}) in {where}"
              f"{'' if within else '   OVER'}")
    print(f"{apart} of {4 * len(exact)} true values as printed are over their tolerance")
    print(f"{len(exact)} cases, {len(seconds)} solves, {max(seconds):.4f} s the longest")
    sys.exit(failed)


if __name__ == "__main__":
    main()
