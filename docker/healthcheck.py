"""Health checks of containers: `healthcheck.py web|worker|host` exits with 1 and prints the problem if there is one.

Standard library only, and quick: it runs every few seconds.

web     database, migrations, Redis and the tick are in order (/readyz says what isn't)
worker  the tick, which beat sends and the worker runs, has ended within the last minute
host    the control plane has accepted this host's announcement within the last minute
"""

import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

FRESH_S = 60.0


def main(part: str) -> str:
    if part == "web":
        return answer("http://127.0.0.1:8000/readyz")
    if part == "worker":
        return age(Path(os.environ["CONTROLPLANE_DATA"]) / "ticked", "the tick")
    if part == "host":
        return age(Path(os.environ["GRPO_RUNS_DIR"]) / ".announced", "an announcement that the control plane accepted")
    return "usage: healthcheck.py web|worker|host"


def answer(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310  # an address of our own
            return "" if response.status == 200 else f"{url} responded with status {response.status}"
    except urllib.error.HTTPError as error:
        return f"{url} responded with status {error.code}: {error.read(4000).decode(errors='replace')}"
    except (urllib.error.URLError, OSError) as error:
        return f"{url}: {error}"


def age(file: Path, what: str) -> str:
    try:
        seconds = time.time() - file.stat().st_mtime
    except OSError:
        return f"{what} has not happened yet"
    return "" if seconds < FRESH_S else f"{what} was {seconds:.0f} s ago"


if __name__ == "__main__":
    problem = main("".join(sys.argv[1:]))
    print(problem or "healthy")
    sys.exit(1 if problem else 0)
