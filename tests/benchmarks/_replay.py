"""A supervisor's way of handing over a long outbox: its own Outbox, Control and Syncer, and nothing beside them.

Arguments: FOLDER. Standard input: {"url", "token", "attempt", "host"}. Prints what it took.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workers.contract.wire.names import SCHEMA, FileName
from workers.settings import HostSettings
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.reports.control import Control
from workers.supervisor.reports.outbox import Outbox
from workers.supervisor.reports.sync import Syncer


def main(folder: AttemptFolder) -> dict[str, float]:
    said = json.loads(sys.stdin.read())
    settings = HostSettings(runs_dir=folder.path, control_url=said["url"])
    control = Control(url=said["url"], token=said["token"], timeout_s=settings.http_timeout_s)
    claim = control.claim(said["attempt"], schema=SCHEMA, host=said["host"], pid=os.getpid(), boot_id="bench")
    if not claim.go:
        raise SystemExit(f"the attempt may not go: {claim.why}")
    begin = time.monotonic()
    outbox = Outbox(folder / FileName.OUTBOX, first_seq=1)
    opened = time.monotonic()
    syncer = Syncer(
        said["attempt"],
        outbox,
        control,
        settings,
        acked=claim.ack,
        on_response=lambda response: None,
        write_ack=lambda seq: folder.write_if_possible(FileName.ACK, str(seq)),
    )
    failures = 0
    while not syncer.is_drained():
        wait = syncer.tick(time.monotonic())
        failures += syncer.failing
        if not syncer.is_drained():
            time.sleep(wait)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "lines": outbox.last_seq,
        "open_s": opened - begin,
        "seconds": time.monotonic() - opened,
        "cpu_s": used.ru_utime + used.ru_stime,
        "failures": failures,
        "max_rss_mib": used.ru_maxrss / 1024,
    }


if __name__ == "__main__":
    print(json.dumps(main(AttemptFolder(Path(sys.argv[1])))))
