"""Background scoring of reference answers, one check at a time.

Results are stored after each batch; a check that was interrupted (a killed worker) continues after the last one.
"""

import json
import logging
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from controlplane.catalogue.datasets import reader_process
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.exporting import JSONL
from controlplane.catalogue.datasets.folders import try_lock
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.worker import slot
from controlplane.catalogue.references.judging import AnswerJudge, FailedAnswer, JudgedBatch, judge, judges
from controlplane.catalogue.references.models import ReferenceCheck, ReferenceFailure
from controlplane.catalogue.rewards import turns
from controlplane.catalogue.rewards.turns import TrialTurn
from workers.contract.run.dataset import row_for_rewards

log = logging.getLogger(__name__)

BATCH = 32
"""Number of rows scored at once."""
MAX_FAILED = 10_000
"""Maximum number of failed rows; with more, the config or column mapping is probably wrong, not the answers."""
TOO_MANY = f"More than {MAX_FAILED:,} answers fail, so the remaining rows were not checked."
CHECK_FAILED = "The check failed on the server; the worker's log shows the cause."


class _EndedEarly(Exception):
    """Signal that a check ends before its last row; the message is shown on its page."""


def score_waiting() -> None:
    """Run all checks that are queued or were interrupted, unless another process does so or no worker slot is free. The
    next call then tries again."""
    with try_lock(Path(settings.DATA_DIR) / "references.lock") as has_lock, slot() as has_slot:
        if not (has_lock and has_slot):
            return
        try:
            while check := ReferenceCheck.objects.filter(status__in=ReferenceCheck.LIVE).order_by("pk").first():
                _run(check)
        finally:
            turns.close()


def _run(check: ReferenceCheck) -> None:
    status, problem = ReferenceCheck.DONE, ""
    _live(check).update(status=ReferenceCheck.RUNNING)
    try:
        _score(check)
    except _EndedEarly as end:
        problem = str(end)
        status = ReferenceCheck.STOPPED if problem == TOO_MANY else ReferenceCheck.FAILED
    except DatasetError as error:
        status, problem = ReferenceCheck.FAILED, f"The rows can't be read: {error}"
    except Exception:  # loop boundary: a check that fails must not keep those behind it
        log.exception("Check %s of reference answers failed", check.pk)
        status, problem = ReferenceCheck.FAILED, CHECK_FAILED
    _live(check).update(status=status, problem=problem)


def _score(check: ReferenceCheck) -> None:
    """Score all rows; return early if the check was stopped or deleted."""
    turn = TrialTurn(until=math.inf, is_wanted=lambda: _live(check).exists())
    components = [component for component in judges(check.reward_version.components) if not component.skipped]
    if unjudged := next((component for component in components if component.unjudged), None):
        raise _EndedEarly(f"{unjudged.name} could not be checked now. {unjudged.unjudged} Then start the check again.")
    rows_left = _rows(check.dataset_version, after=check.done)
    while rows := list(islice(rows_left, BATCH)):
        answered = [row for row in rows if str(row["answer"] or "").strip()]
        name = check.dataset_version.dataset.name
        results = [(component, judge(component, answered, turn.tools, name)) for component in components if answered]
        if not turn.is_wanted():
            return
        for component, batch in results:
            if batch.unavailable:
                raise _EndedEarly(f"{component.name} can't be scored on this server: {batch.unavailable}")
        _store(check, len(rows), len(rows) - len(answered), results)
        if check.failed_rows > MAX_FAILED:
            raise _EndedEarly(TOO_MANY)


def _store(
    check: ReferenceCheck, checked_rows: int, unanswered: int, results: Sequence[tuple[AnswerJudge, JudgedBatch]]
) -> None:
    failures = [failed_answer for _, batch in results for failed_answer in batch.failed]
    check.done += checked_rows
    check.unanswered += unanswered
    check.failed_rows += len({failed_answer.row for failed_answer in failures})
    for component, batch in results:
        totals = check.counts.get(component.name, {})
        counts = {"scored": batch.scored, "failed": len(batch.failed), "total": batch.total}
        check.counts[component.name] = {name: totals.get(name, 0) + number for name, number in counts.items()}
    with transaction.atomic():
        progress = {name: getattr(check, name) for name in ("done", "unanswered", "failed_rows", "counts")}
        if _live(check).update(**progress):
            ReferenceFailure.objects.bulk_create([_failure_row(check, failed_answer) for failed_answer in failures])


def _failure_row(check: ReferenceCheck, failure: FailedAnswer) -> ReferenceFailure:
    message = failure.message.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    values = {"row": failure.row, "component": failure.component, "score": failure.score, "excerpt": failure.excerpt}
    return ReferenceFailure(check_of=check, message=message, **values)


def _rows(version: DatasetVersion, *, after: int) -> Iterator[dict[str, Any]]:
    """Yield the rows after the first `after` rows, in order and as rewards receive them. Closing the iterator kills the
    process that reads them. Raises DatasetError if that process fails."""
    chat = bool(version.mapping.get("chat", True))
    for line in islice(_lines(reader_process.stream(version.folder, "export", {"format": JSONL})), after, None):
        row = json.loads(line)
        yield row_for_rewards(row, row["metadata"], chat=chat)


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    partial_line: list[bytes] = []
    for piece in pieces:
        line_end, *lines = piece.split(b"\n")
        partial_line.append(line_end)
        if lines:
            yield b"".join(partial_line)
            yield from lines[:-1]
            partial_line = lines[-1:]


def _live(check: ReferenceCheck) -> Any:
    return ReferenceCheck.objects.filter(pk=check.pk, status__in=ReferenceCheck.LIVE)
