"""`python -m tests.js tests` runs the unit tests of the pages' scripts; `python -m tests.js types` checks types."""

from __future__ import annotations

import sys

from tests.js import node

CHECKS = {"tests": node.run_tests, "types": node.check_types}


def main(name: str) -> int:
    try:
        done = CHECKS[name]()
    except node.Missing as missing:
        print(f"SKIPPED, nothing was checked. {missing}")
        return 0
    if done.returncode:
        print(done.stdout + done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
