"""`python -m controlplane.bootstrap.benchmarks` builds the environment of the standard benchmarks, unless it exists."""

from __future__ import annotations

import sys

from controlplane.bootstrap.console import Failed, interruptible
from controlplane.bootstrap.environments import LM_EVAL, build


def main() -> None:
    try:
        with interruptible():
            build(LM_EVAL)
    except Failed as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
