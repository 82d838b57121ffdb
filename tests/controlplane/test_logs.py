"""Log records as JSON lines, with the run that they are about."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse

from controlplane.platform.logs import JsonLines, MaskLinkTokens, RunsInLogs

RUN = "rabcdefgh2"


def line(message: str, *args: object, **more: Any) -> dict[str, Any]:
    record = logging.LogRecord("runs.tick", logging.WARNING, __file__, 1, message, args, more.pop("exc_info", None))
    vars(record).update(more)
    MaskLinkTokens().filter(record)
    text = JsonLines().format(record)
    assert "\n" not in text
    return dict(json.loads(text))


def test_a_record_is_one_line_of_json() -> None:
    said = line("two\nlines with “%s”", "quotes")
    assert said["message"] == "two\nlines with “quotes”"
    assert (said["level"], said["logger"]) == ("warning", "runs.tick")
    assert "run" not in said


@pytest.mark.parametrize("named", [RUN, f"{RUN}-3"])
def test_a_run_in_the_arguments_is_named(named: str) -> None:
    assert line("the reap of %s was not sent: %s", named, "no broker")["run"] == RUN


def test_a_record_may_name_its_run() -> None:
    assert line("folded", run=RUN)["run"] == RUN


def test_what_a_view_logs_is_about_its_run() -> None:
    said = []

    def answer(request: HttpRequest) -> HttpResponse:
        middleware.process_view(request, answer, (), {"attempt_id": f"{RUN}-1"})
        said.append(line("something odd"))
        return HttpResponse()

    middleware = RunsInLogs(answer)
    middleware(HttpRequest())
    assert said[0]["run"] == RUN
    assert "run" not in line("something else")


def test_tokens_of_links_stay_masked_in_tracebacks() -> None:
    try:
        raise ValueError("/sign-in/once/geheim/")
    except ValueError as error:
        said = line("failed", exc_info=(ValueError, error, error.__traceback__))
    assert "ValueError" in said["traceback"]
    assert "geheim" not in said["traceback"]
