"""`make chaos KILLS=n`: prints one JSON object; exit 1 when anything is wrong."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys

from tests.chaos.run import run_chaos


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None, help="for the same order of kills again (moments still vary)")
    given = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    report = asyncio.run(run_chaos(given.kills, seed=seed))
    sys.stdout.write(json.dumps(report.to_json() | {"seed": seed}, indent=1) + "\n")
    return 1 if report.findings.problems else 0


if __name__ == "__main__":
    sys.exit(main())
