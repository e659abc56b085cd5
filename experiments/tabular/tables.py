"""Writes the tables of README.md anew from the results beside it.

    python experiments/tabular/tables.py

A table stands below a comment that says which it is, `<!-- table: fig1 0.09 reward -->`, and ends at the first line that
does not start with a bar.
"""

import csv
import re
from pathlib import Path

HERE = Path(__file__).parent
ALGORITHMS = {
    "bc": "BC",
    "baseline": "Baseline",
    "c-spibb": "C-SPIBB",
    "naive-coptidice": "COptiDICE (naive)",
    "coptidice": "COptiDICE",
}
SIZES = ["10", "20", "50", "100", "200", "500", "1000", "2000"]
SHOWN_SIZES = ["10", "100", "2000"]
QUANTITIES = {
    "reward": lambda r: f"{signed(r['normalized_reward_mean'])} ± {float(r['normalized_reward_stderr']):.3f}",
    "cost": lambda r: f"{float(r['cost_mean']):.4f} ± {float(r['cost_stderr']):.4f}",
    "share": lambda r: f"{100 * float(r['share_violating']):.0f}%",
}
# Names of the rows of an experiment, and the first column's name.
ROWS = {
    "thresholds": ("limit, data", lambda r: f"limit {float(r['limit']):.2f}, data {float(r['behaviour_cost']):.2f}"),
    "mixture": ("shares", lambda r: r["row"]),
    "support": ("actions, data", lambda r: f"{r['row']}, data {float(r['behaviour_cost']):.2f}"),
}


def signed(text):
    return f"{float(text):.3f}".replace("-", "−")


def results(experiment):
    with open(HERE / experiment / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


def table(head, rows):
    line = lambda cells: ("| " + " | ".join(cells) + " |").replace("|  |", "| |")
    return [line(head), "|" + "---|" * len(head), *map(line, rows)]


def by_size(experiment, behaviour_cost, quantity):
    """Algorithms by dataset sizes."""
    found = {(r["algorithm"], r["trajectories"]): r for r in results(experiment) if r["behaviour_cost"] == behaviour_cost}
    show = QUANTITIES[quantity]
    return table(
        ["", *SIZES], [[name, *(show(found[algorithm, size]) for size in SIZES)] for algorithm, name in ALGORITHMS.items()]
    )


def by_row(experiment):
    """Settings and dataset sizes by algorithms: mean cost and share of runs over the limit."""
    title, name = ROWS[experiment]
    rows = {}
    for r in results(experiment):
        if r["trajectories"] in SHOWN_SIZES:
            rows.setdefault((name(r), r["trajectories"]), {})[r["algorithm"]] = r
    show = lambda r: f"{float(r['cost_mean']):.4f} ({100 * float(r['share_violating']):.0f}%)"
    return table(
        [title, "trajectories", *ALGORITHMS.values()],
        [[row, size, *(show(found[algorithm]) for algorithm in ALGORITHMS)] for (row, size), found in rows.items()],
    )


def main():
    page = HERE / "README.md"
    lines, out = page.read_text().splitlines(), []
    while lines:
        out.append(lines.pop(0))
        found = re.fullmatch(r"<!-- table: (\S+)(?: (\S+) (\S+))? -->", out[-1])
        if found:
            experiment, behaviour_cost, quantity = found.groups()
            out.append("")
            out += by_size(experiment, behaviour_cost, quantity) if quantity else by_row(experiment)
            while lines and not lines[0]:
                lines.pop(0)
            while lines and lines[0].startswith("|"):
                lines.pop(0)
    page.write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
