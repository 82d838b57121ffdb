"""`python -m controlplane.bootstrap.on_demand NAME` builds an environment that only some installations need, unless it
exists: lm-eval, environments, atropos or sinks."""

from __future__ import annotations

import argparse
import sys

from controlplane.bootstrap.console import Failed, interruptible
from controlplane.bootstrap.environments import ON_DEMAND, build


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m controlplane.bootstrap.on_demand", description=__doc__)
    parser.add_argument("name", choices=ON_DEMAND)
    name = parser.parse_args().name
    try:
        with interruptible():
            build(ON_DEMAND[name])
    except Failed as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
