"""A smaller pool: the policies of a pool that were left at given steps.

    pick.py POOL OUT STEPS[,STEPS...]

OUT gets their files and a pool.json that lists them, as `coptidice collect mix` reads it.
"""

import json
import shutil
import sys
from pathlib import Path


def main():
    pool, out = Path(sys.argv[1]), Path(sys.argv[2])
    steps = {int(text) for text in sys.argv[3].split(",")}
    listing = json.loads((pool / "pool.json").read_text())
    listing["members"] = [member for member in listing["members"] if member["steps"] in steps]
    for member in listing["members"]:
        target = out / member["policy"]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(pool / member["policy"], target)
    (out / "pool.json").write_text(json.dumps(listing, indent=2) + "\n")


if __name__ == "__main__":
    main()
