"""One thread for each sink of an attempt, so that one that hangs holds up no other; the process ends with the last."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.contract.run import sinks
from workers.contract.run.sinks import SinkSpec
from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import FileName
from workers.sinks.following import Follower
from workers.sinks.library import Library
from workers.sinks.outbox import wrote_whole
from workers.sinks.sink import About, about_of

TELL_S = 1.0
UNSENT = 4
"""The exit code if the attempt has ended and a sink refuses what is left."""


def run(folder: Path, library: Library) -> int:
    """Follow until every sink has everything. The supervisor ends the process of those that never do."""
    spec = from_dict(AttemptSpec, json.loads((folder / FileName.SPEC).read_text()))
    places = folder / FileName.SINKS
    places.mkdir(mode=0o700, exist_ok=True)
    secrets = _take_secrets(os.environ)
    followers: dict[str, Follower] = {}
    for number, sink in enumerate(spec.run.sinks, 1):
        own = places / f"{number}-{sink.kind}"
        own.mkdir(mode=0o700, exist_ok=True)
        about = _about(spec, sink, own, secrets)
        follower = Follower(folder / FileName.OUTBOX, own / "cursor.json", library[sink.kind], about)
        followers[f"{number} {sinks.TITLES[sink.kind]}"] = follower
        threading.Thread(target=follower.run, name=own.name, daemon=True).start()
    told: dict[str, str] | None = None
    while not all(follower.finished.wait(TELL_S / len(followers)) for follower in followers.values()):
        told = _tell(places, followers, told)
    _tell(places, followers, told)
    sys.stdout.flush()
    # A thread of a sink's own that hangs must not keep the process.
    os._exit(UNSENT if any(follower.problem for follower in followers.values()) else 0)


def _tell(places: Path, followers: Mapping[str, Follower], told: dict[str, str] | None) -> dict[str, str]:
    now = {title: follower.problem for title, follower in followers.items()}
    if now != told:
        wrote_whole(places / sinks.STATE, json.dumps(now))
    return now


def _take_secrets(environment: Any) -> dict[str, dict[str, str]]:
    """The endpoints by name, taken out of the environment: a sink's own programs would inherit it."""
    names = [name for name in environment if name.startswith(sinks.SECRET_PREFIX)]
    return {name.removeprefix(sinks.SECRET_PREFIX): json.loads(environment.pop(name)) for name in names}


def _about(spec: AttemptSpec, sink: SinkSpec, own: Path, secrets: Mapping[str, Mapping[str, str]]) -> About:
    endpoint = secrets.get(sink.secret, {}) if sink.secret else {}
    address, key = endpoint.get("address", ""), endpoint.get("key", "")
    return about_of(spec, sink, own, link=os.environ.get(sinks.LINK, ""), address=address, key=key)
