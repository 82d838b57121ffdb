"""The lines that travel from a trainer and its supervisor to the control plane, the kill receipt, and the responses.

A line is written once, by `event_line` or `metrics_line`: its time, kind, step and data, in this order. The supervisor
adds a seq in front. After that its bytes don't change until the control plane parses them.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple

from workers.contract.reports.chat import ChatNews
from workers.contract.reports.metric_names import (
    MAX_METRICS,
    MAX_NAME_LENGTH,
    is_finite,
    is_metric,
    metrics_problem,
    quoted_key,
)
from workers.contract.reports.waterfall import are_spans, is_seconds
from workers.contract.run.jobs import WarmNews
from workers.contract.wire.names import METRIC_KINDS, EventKind

MAX_SYNC_PAUSE_S = 3.0
"""Maximum seconds between syncs that the control plane requests: a stop whose message was lost reaches the supervisor
with the next response."""
_MAX_STEP = 2**31 - 1
_MAX_COUNT = 2**53


@dataclass(frozen=True)
class GpuReceipt:
    gpu: str
    before_mib: int
    """MiB in use before the attempt started anything."""
    peak_mib: int
    after_mib: int
    seconds_to_free: float | None
    """Seconds until the GPU was free; None if that wasn't proved in time and the lease is quarantined."""


@dataclass(frozen=True)
class Receipt:
    """The kill receipt: evidence of what, if anything, is left of the attempt."""

    seconds_to_gone: float
    """Seconds from the first signal (or the natural end) until two checks found the process tree empty."""
    processes_ended: int
    orphans_found: int
    """Descendants outside the process groups that the supervisor started."""
    survivors: tuple[int, ...]
    gpus: tuple[GpuReceipt, ...]
    port_free: bool | None
    """True if the server's port is free; None if the attempt had no server."""
    free: bool
    """True without survivors and with every leased GPU within 300 MiB of its baseline in two samples."""


@dataclass(frozen=True)
class OutboxLine:
    """A line of outbox.jsonl, and an element of a sync request's `lines`."""

    seq: int
    t: float
    """Unix seconds."""
    kind: str
    step: int | None
    data: dict[str, Any]


@dataclass(frozen=True)
class SyncAnswer:
    ack: int
    """The last seq stored without a gap."""
    stop: str | None
    watched: bool
    chat: ChatNews | None = None
    """News for a served model that requests it; omitted otherwise, since earlier supervisors don't know the field."""
    warm: WarmNews | None = None
    """News for a warm server; omitted otherwise."""
    again_s: float | None = None
    """Seconds to wait before sending the next lines while nobody is watching, for a supervisor that reports that it is
    `paced`; None if it may send at any time."""


@dataclass(frozen=True)
class ClaimAnswer:
    go: bool
    why: str
    ack: int
    """The last seq stored for the run; first_seq - 1 for a new attempt."""
    stop: str | None
    spec_sha256: str
    """`digest` of the attempt's spec, to verify the spec in the launch message, which came through a broker."""
    secrets: dict[str, str] = field(repr=False)
    """Environment variables for the processes that need the secrets; never stored."""


# --- writing --------------------------------------------------------------------------------------------------

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False).encode


def as_bytes(value: Any) -> bytes:
    """Encode a value as compact JSON. Raises ValueError or TypeError for what JSON can't represent, such as NaN."""
    return _encode(value).encode(errors="replace")


def event_line(kind: EventKind, data: Mapping[str, Any], *, t: float, step: int | None = None) -> bytes:
    return as_bytes({"t": t, "kind": kind, "step": step, "data": data})


def metrics_line(
    kind: EventKind, values: Mapping[str, float | None], *, t: float, step: int | None = None
) -> tuple[bytes, list[str]]:
    """Return a line of metrics, and the names of the values left out of it: those that aren't finite, have too long a
    name, or are beyond MAX_METRICS. `values` are Python's own ints and floats; None is skipped.

    The line is formatted by hand, which is a third faster than the encoder, because every step has such a line.
    """
    pairs: list[str] = []
    omitted_names: list[str] = []
    for name, value in values.items():
        key = quoted_key(name)
        # Nearly all are floats, which are checked without calling is_finite.
        if key and (isfinite(value) if value.__class__ is float else is_finite(value)):
            pairs.append(f"{key}{value!r}")
        elif value is not None:
            omitted_names.append(name[:MAX_NAME_LENGTH])
    if len(pairs) > MAX_METRICS:
        omitted_names += [name for name in values if is_metric(name, values[name])][MAX_METRICS:]
        del pairs[MAX_METRICS:]
    number = "null" if step is None else step
    line = f'{{"t":{t!r},"kind":"{kind}","step":{number},"data":{{{",".join(pairs)}}}}}'
    return line.encode(errors="replace"), omitted_names


def numbered(line: bytes, seq: int) -> bytes:
    return b'{"seq":%d,%s' % (seq, line[1:])


# --- reading --------------------------------------------------------------------------------------------------

_HEAD = re.compile(
    rb'\{(?:"seq":([1-9]\d{0,17}),)?"t":(-?\d{1,20}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?),"kind":"([a-z_]{1,24})",'
    rb'"step":(null|-?\d{1,18}),"data":(?=\{)'
)


class Line(NamedTuple):
    """A stored line, of which only the part before its data has been parsed."""

    text: bytes
    seq: int
    """Sequence number; 0 if the line has none yet."""
    t: float
    kind: str
    step: int | None
    data_at: int

    def data(self) -> dict[str, Any] | None:
        """Parse the data; return None if it is malformed."""
        return object_of(self.text[self.data_at : -1])


def read_line(raw: bytes) -> Line | None:
    """Parse a line; return None for anything that `event_line` and `metrics_line` don't write, such as zeros left by a
    power failure."""
    head = _HEAD.match(raw)
    if head is None or not raw.endswith(b"}}") or b"\0" in raw:
        return None
    seq, t, kind, step = head.groups()
    line = Line(raw, int(seq or 0), float(t), kind.decode(), None if step == b"null" else int(step), head.end())
    return line if is_finite(line.t) else None


def object_of(document: bytes) -> dict[str, Any] | None:
    """Parse a JSON object; return None for anything else. NaN and Infinity are not JSON."""
    try:
        value = _decode(document.decode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_no_constant).decode


# --- checking -------------------------------------------------------------------------------------------------


def is_step(value: object) -> bool:
    """Return whether a value is a step that every database's column can hold."""
    return _is_count(value) and value <= _MAX_STEP  # type: ignore[operator]  # it is an int


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_COUNT


# None comes from a trainer that doesn't report the field.


def _are_steps(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(is_step(step) for step in value))


def _are_versions(value: object) -> bool:
    return value is None or (isinstance(value, dict) and all(isinstance(number, str) for number in value.values()))


def _is_optional_count(value: object) -> bool:
    return value is None or _is_count(value)


EVENT_DATA: dict[str, dict[str, type | Callable[[object], bool]]] = {
    EventKind.PHASE: {"phase": str},
    EventKind.STAGE: {"stage": str},
    EventKind.TRAINING: {"max_steps": is_step, "step": is_step},
    EventKind.TRAINED: {"how": str},
    EventKind.SPANS: {"began": is_seconds, "seconds": is_seconds, "spans": are_spans},
    EventKind.CHECKPOINT: {
        "step": is_step,
        "path": str,
        "bytes": _is_optional_count,
        "kept": _are_steps,
        "versions": _are_versions,
    },
    EventKind.REWARD_FAILED: {
        "reward": str,
        "row": _is_optional_count,
        "kind": str,
        "message": str,
        "count": _is_count,
        "of": _is_count,
    },
    EventKind.METRICS_LEFT_OUT: {"names": str},
    EventKind.RESULT: {"text": str, "facts": dict},
    EventKind.ANSWER: {"turn": _is_count, "model": str, "piece": _is_count, "text": str, "end": dict},
    EventKind.DIAGNOSED: {"diagnoses": list, "first_errors": list},
    EventKind.HANG: {"text": str, "who": str},
    EventKind.LIMIT: {"text": str, "recommended": _is_optional_count},
    EventKind.ENDED: {"reason": str},
}
"""The fields that an event of each kind must have, each with its type or a predicate."""


def problem_of(kind: str, step: int | None, data: Mapping[str, Any]) -> str:
    """Explain why a line of this kind can't have this step or this data; return "" if it can."""
    if step is not None and not is_step(step):
        return f"step {step} is out of range"
    if kind in METRIC_KINDS:
        return metrics_problem(kind, data)
    bad_field = next((name for name, test in EVENT_DATA.get(kind, {}).items() if not _fits(test, data.get(name))), None)
    return "" if bad_field is None else f"data.{bad_field} of {kind} is missing, has the wrong type or is out of range"


def _fits(test: type | Callable[[object], bool], value: object) -> bool:
    return isinstance(value, test) if isinstance(test, type) else test(value)
