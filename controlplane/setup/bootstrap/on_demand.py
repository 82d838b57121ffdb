"""The command `python -m controlplane.setup.bootstrap.on_demand NAME`, which builds an environment unless it exists:
the trainer's, or one that only some installations need (lm-eval, environments, atropos, sinks)."""

import argparse
import sys

from controlplane.setup.bootstrap.console import Failed, interruptible
from controlplane.setup.bootstrap.environments import ON_DEMAND, TRAINER, build


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m controlplane.setup.bootstrap.on_demand", description=__doc__)
    environments = {"trainer": TRAINER, **ON_DEMAND}
    parser.add_argument("name", choices=environments)
    name = parser.parse_args().name
    try:
        with interruptible():
            build(environments[name])
    except Failed as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
