"""`python -m workers.host`: this host's worker in the foreground, for containers and services."""

from __future__ import annotations

import argparse
import logging
import sys

from workers.host import foreground
from workers.host.settings import HostSettings, SettingsError


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m workers.host", description=__doc__).parse_args(argv)
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
    try:
        settings = HostSettings.from_env()
    except SettingsError as error:
        sys.exit(str(error))
    return 1 if foreground.serve(foreground.worker_command(settings), settings) else 0


if __name__ == "__main__":
    sys.exit(main())
