from __future__ import annotations

import ast
from itertools import product

import pytest
from django.db import connection
from django.db.models import Q
from django.test.utils import CaptureQueriesContext

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from runs.engine.models import Attempt
from runs.engine.records import RunEvent
from runs.engine.states import FINAL, RunStatus, final_status, may_move
from runs.engine.transitions import WrongReason, move
from tests.runs.builders import an_attempt
from workers.contract.wire.names import EndReason

pytestmark = pytest.mark.django_db
REASONS = {final_status(reason): reason for reason in EndReason}


def test_every_pair_of_states_moves_as_the_table_says(subtests: pytest.Subtests) -> None:
    for old, new in list(product(RunStatus, RunStatus)):
        with subtests.test(old=old):
            attempt = an_attempt(old)
            before = RunEvent.objects.filter(kind="status").count()

            moved = move(attempt, new, reason=REASONS.get(new, "test"), actor="test")

            assert moved == may_move(old, new)
            attempt.refresh_from_db()
            assert attempt.status == (new if moved else old)
            assert RunEvent.objects.filter(kind="status").count() == before + moved


def test_a_move_says_in_its_event_where_from_where_to_why_and_by_whom() -> None:
    attempt = an_attempt(RunStatus.RUNNING)
    move(attempt, RunStatus.FAILED, reason=EndReason.OOM, actor="supervisor", detail="GPU 0")
    event = RunEvent.objects.latest("id")
    assert event.data == {"from": "running", "to": "failed", "reason": "oom", "detail": "GPU 0"}
    assert event.actor == "supervisor"


def test_a_final_status_takes_only_a_reason_that_means_it() -> None:
    attempt = an_attempt(RunStatus.RUNNING)
    with pytest.raises(WrongReason):
        move(attempt, RunStatus.SUCCEEDED, reason=EndReason.OOM, actor="test")
    with pytest.raises(ValueError, match="bored"):
        move(attempt, RunStatus.STOPPED, reason="bored", actor="test")


def test_a_stale_copy_of_the_row_loses_the_race() -> None:
    attempt = an_attempt(RunStatus.RUNNING)
    stale = Attempt.objects.get(pk=attempt.pk)
    assert move(attempt, RunStatus.FAILED, reason=EndReason.OOM, actor="first")
    assert not move(stale, RunStatus.STOPPED, reason=EndReason.STOPPED_BY_USER, actor="second")


def test_a_move_locks_the_attempt_alone() -> None:
    attempt = an_attempt(RunStatus.RUNNING)
    with CaptureQueriesContext(connection) as queries:
        move(attempt, RunStatus.STOPPING, reason="test", actor="test")
    assert not [query["sql"] for query in queries if "JOIN" in query["sql"]]


def test_a_narrower_guard_that_does_not_hold_moves_nothing() -> None:
    attempt = an_attempt(RunStatus.STARTING)
    claimed = Q(claimed_at__isnull=False)
    assert not move(attempt, RunStatus.RUNNING, reason="test", actor="test", only_if=claimed)


def test_a_final_attempt_has_its_reason_and_end() -> None:
    attempt = an_attempt(RunStatus.SUCCEEDED)
    attempt.refresh_from_db()
    assert attempt.status in FINAL
    assert attempt.reason == EndReason.COMPLETED
    assert attempt.ended_at is not None


def test_no_other_module_writes_a_status() -> None:
    writers = {}
    for path in [*ROOT.glob("runs/*.py"), *ROOT.glob("controlplane/**/*.py")]:
        if path.name not in ("transitions.py", "models.py"):
            writers[path.name] = _status_writes(ast.parse(path.read_text()))
    assert not {name: lines for name, lines in writers.items() if lines}


def _status_writes(tree: ast.AST) -> list[int]:
    """Lines with `.update(status=...)` or `x.status = ...` of a RunStatus, and with status in update_fields."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("update", "create"):
            values = [keyword.value for keyword in node.keywords if keyword.arg == "status"]
        elif isinstance(node, ast.Assign):
            values = [node.value for target in node.targets if getattr(target, "attr", "") == "status"]
        else:
            continue
        found += [node.lineno for value in values if "RunStatus" in ast.unparse(value)]
    return found
