"""Whatever fits the API's description, and much that doesn't, gets an answer below 500."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core import signals
from django.core.handlers.wsgi import WSGIHandler
from django.db import close_old_connections

from controlplane.platform.accounts.models import ApiScope
from runs.api import application
from tests.runs.api.clients import Program
from tests.runs.builders import an_attempt
from tests.runs.launch.new_run.launching_page import a_ready_host

pytestmark = pytest.mark.django_db

DJANGO = WSGIHandler()


def app(environ: Any, start: Any) -> list[bytes]:
    """Django, with each answer read to its end and closed, as a server does; and with it the files of its request."""
    answer = DJANGO(environ, start)
    body = b"".join(answer)
    answer.close()
    return [body]


EXAMPLES = 6
DESCRIBED: dict[str, dict[str, Any]] = {
    f"{method.upper()} {path}": operation
    for path, methods in application.api.get_openapi_schema(path_prefix="/api/v1/")["paths"].items()
    for method, operation in methods.items()
}


def test_every_route_is_described():
    routes = [view for router in application.routers for view in router.path_operations.values()]
    assert len(DESCRIBED) == sum(len(view.operations) for view in routes)


def test_each_operation_says_in_a_summary_of_its_own_what_it_does():
    summaries = [operation["summary"] for operation in DESCRIBED.values()]
    assert sorted(summaries) == sorted(set(summaries))


@pytest.fixture(scope="module", autouse=True)
def one_connection() -> Iterator[None]:
    """The test's own database is gone once its connection is closed."""
    ends = (signals.request_started, signals.request_finished)
    for end in ends:
        end.disconnect(close_old_connections)
    yield
    for end in ends:
        end.connect(close_old_connections)


@pytest.fixture(scope="module")
def operations(one_connection: None) -> dict[str, Any]:
    """Schemathesis's, by the same names. It is imported here: whoever collects the tests would wait for it."""
    import schemathesis

    schema = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", app, headers={"Host": "localhost"})
    found = [operation.ok() for operation in schema.get_all_operations()]
    return {operation.label: operation for operation in found}


def test_every_operation_is_sent_requests(operations: dict[str, Any]) -> None:
    assert set(operations) == set(DESCRIBED)


@pytest.mark.parametrize("label", DESCRIBED)
def test_no_request_breaks_the_api(
    operations: dict[str, Any], label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hypothesis import HealthCheck, Phase, given
    from hypothesis import settings as bounds

    monkeypatch.setattr(settings, "DATA_DIR", tmp_path)
    a_ready_host()
    run = an_attempt().run
    headers = {"Authorization": f"Bearer {Program(ApiScope.ADMIN).text}", "Host": "localhost"}

    no_limits = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}

    @bounds(max_examples=EXAMPLES, phases=[Phase.generate], **no_limits)
    @given(case=operations[label].as_strategy())
    def below_500(case: Any) -> None:
        for run_id in (None, run.pk):  # an id at random never finds one
            if "run_id" in case.path_parameters and run_id:
                case.path_parameters["run_id"] = run_id
            answer = case.call(headers=headers)
            assert answer.status_code < 500, answer.text

    below_500()
