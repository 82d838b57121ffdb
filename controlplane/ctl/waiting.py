"""Waiting for a run: reports its status until it ends, and prints its log as it grows."""

import sys
import time
from collections.abc import Callable
from typing import Any

from controlplane.ctl.client import Client, ServerUnreachable, path_of
from controlplane.ctl.output import without_controls

SUCCEEDED, REFUSED, USAGE, FAILED, STOPPED, UNREACHABLE = 0, 1, 2, 3, 4, 5
"""Exit codes, of which argparse itself uses 2."""
EXIT = {"succeeded": SUCCEEDED, "failed": FAILED, "stopped": STOPPED}
POLL_S = 2.0
PATIENCE_S = 120.0
"""Seconds for which the control plane may be unreachable."""


def until_end(
    client: Client, run_id: str, report: Callable[[str], object], *, patience: float = PATIENCE_S
) -> tuple[int, dict[str, Any]]:
    """Report each change until the run ends, and return the exit code and the run. Raises ServerUnreachable after
    `patience` seconds without a response."""
    last_line, unreachable_since = "", 0.0
    while True:
        try:
            run, unreachable_since = client.get(path_of("runs", run_id)), 0.0
        except ServerUnreachable:
            unreachable_since = unreachable_since or time.monotonic()
            if time.monotonic() - unreachable_since > patience:
                raise
        else:
            if (line := describe(run)) != last_line:
                report(last_line := line)
            if run["status"] in EXIT and not run["resumes_at"]:
                return EXIT[run["status"]], run
        client.pause(POLL_S)


def follow_log(client: Client, run_id: str, name: str, attempt: int, *, follow: bool) -> None:
    """Print the end of a log. With `follow`, continue until its attempt has ended and everything has been printed."""
    offset = -65_536
    while True:
        # The status is read before the log, which then has the last lines of an ended run.
        has_ended = not follow or client.get(path_of("runs", run_id))["status"] in EXIT
        excerpt = client.get(path_of("runs", run_id, "logs", name), offset=offset, attempt=attempt)
        sys.stdout.write(without_controls(excerpt["text"]))
        sys.stdout.flush()
        offset, attempt = excerpt["next_offset"], excerpt["attempt"]
        if excerpt["text"] and offset < excerpt["size"]:
            continue
        if has_ended:
            return
        client.pause(POLL_S / 2)


def describe(run: dict[str, Any]) -> str:
    parts = [run["status"]]
    if run["status"] == "queued":
        parts += [run["place"], run["waits_for"]]
    elif run["status"] in EXIT:
        parts += [run["sentence"], run["detail"]]
    else:
        total = f" of {run['max_steps']}" if run["max_steps"] else ""
        parts += [run["phase"], f"step {run['step']}{total}" if run["step"] else ""]
        parts += [f"reward {run['reward']:.3f}" if run["reward"] is not None else "", f"on {run['host']}"]
    return " · ".join(part for part in parts if part)
