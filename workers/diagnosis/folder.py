"""Diagnosis of an attempt's folder, a run's folder, or a single log."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workers.diagnosis.judging import Facts, Report, judge
from workers.diagnosis.matching import Log

EVIDENCE_KINDS = frozenset({"reward_failed", "metrics_left_out", "hang"})
MAX_LINE_BYTES = 1 << 20
_TRAINING_CONTINUES = re.compile(r": training (continues|goes on)\.")
"""Pattern for a note that training continues after a hang, in this and earlier versions."""


class NothingToRead(Exception):
    """Error for a path without logs; the message says where logs were expected."""


def diagnose(path: Path, limit: int | None = None) -> Report:
    """Diagnose a log, an attempt's folder, or the newest attempt in a run's folder, and return the report. `limit`: the
    number of bytes to read of each log. Raises NothingToRead, and OSError for a path that can't be read."""
    if path.is_file():
        return judge([Log(role_of(path), path)], Facts(), limit)
    attempts = [inner for inner in path.iterdir() if inner.is_dir() and inner.name.isdecimal()]
    folder = max(attempts, key=lambda inner: int(inner.name)) if attempts else path
    logs = _logs(folder)
    if not logs:
        raise NothingToRead(f"{path} has no logs. Expected a log, or a folder with logs such as logs/trainer.log.")
    return judge(logs, facts_of(folder), limit)


def role_of(path: Path) -> str:
    """Infer from a log's file name which process wrote it; return "" for an unknown name."""
    stem = path.stem
    return stem if path.suffix == ".log" and stem.partition("-")[0] in ("trainer", "vllm", "download") else ""


def facts_of(folder: Path) -> Facts:
    """Collect the facts that can be read from the outbox in an attempt's folder."""
    exits: dict[str, int] = {}
    events: list[tuple[str, str]] = []
    reason, trained, has_events = "", False, False
    for line in _lines(folder / "outbox.jsonl"):
        has_events = True
        kind, data = line.get("kind"), line.get("data")
        if not isinstance(data, dict):
            continue
        if kind == "process_exited" and isinstance(data.get("exit_code"), int) and not reason:
            exits.setdefault(str(data.get("role")), data["exit_code"])  # later exits are the supervisor's own kills
        elif kind == "training":
            trained = True
        elif kind in ("phase", "ended") and data.get("reason"):
            reason = reason or str(data["reason"])
        elif kind == "note" and _TRAINING_CONTINUES.search(str(data.get("text"))):
            events = [event for event in events if event[0] != "hang"]
        elif kind in EVIDENCE_KINDS:
            events.append((str(kind), json.dumps(data, ensure_ascii=False)))
    return Facts(reason, exits, tuple(events[:50]), trained if has_events else None, _ports(folder))


def _ports(folder: Path) -> frozenset[int]:
    """Return the ports of the attempt's own servers from its spec, or none if it can't be read."""
    try:
        placement = json.loads((folder / "spec.json").read_bytes())["placement"]
        return frozenset(map(int, [*placement["ports"], *(placement.get("warm") or {}).get("ports", ())]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return frozenset()


def _logs(folder: Path) -> list[Log]:
    where = folder / "logs" if (folder / "logs").is_dir() else folder
    paths = sorted(
        path for path in where.iterdir() if path.suffix in (".log", ".txt", ".out", ".err") and path.is_file()
    )
    return [Log(role_of(path), path) for path in paths if path.stem not in ("supervisor", "stacks")]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                if b'"kind":"train"' in line or b'"kind":"system"' in line or b'"kind":"vllm"' in line:
                    continue
                try:
                    value = json.loads(line)
                except ValueError:
                    continue
                if isinstance(value, dict):
                    yield value
    except OSError:
        return
