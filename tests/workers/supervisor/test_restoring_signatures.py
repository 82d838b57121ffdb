"""A signature that the control plane couldn't give is requested again, so that an upload doesn't start over."""

from __future__ import annotations

from typing import Any

import pytest

from workers.artifactstore import StoreError
from workers.contract.wire.artifacts import Store, StoreAnswer, StoreRequest
from workers.supervisor.inputs import restoring
from workers.supervisor.reports.control import ControlRefused, Unreachable

REQUEST = StoreRequest("PUT", "/grpo/x")


class Signing:
    """A control plane that raises each of `errors` before it signs."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.requests = 0

    def ask_store(self, _attempt: str, **_: Any) -> StoreAnswer:
        return StoreAnswer(Store("http://127.0.0.1:1", "grpo"))

    def sign_for_store(self, _attempt: str, _request: StoreRequest) -> str:
        self.requests += 1
        if self.errors:
            raise self.errors.pop(0)
        return "signed"


def sign(control: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    made: list[Any] = []
    monkeypatch.setattr(restoring, "ArtifactStore", lambda _store, *, sign: made.append(sign))
    monkeypatch.setattr(restoring.time, "sleep", lambda _seconds: None)
    restoring.connect(control, "run-1")
    return str(made[0](REQUEST))


def test_a_signature_is_requested_again_after_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    control = Signing(Unreachable("HTTP 503"), Unreachable("HTTP 503"))
    assert sign(control, monkeypatch) == "signed"
    assert control.requests == 3


def test_a_long_outage_ends_the_upload(monkeypatch: pytest.MonkeyPatch) -> None:
    control = Signing(*[Unreachable("HTTP 503")] * 9)
    with pytest.raises(Unreachable):
        sign(control, monkeypatch)
    assert control.requests == restoring.MAX_TRIES


def test_a_refused_signature_is_not_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    control = Signing(ControlRefused(403, "no"))
    with pytest.raises(StoreError, match="didn't sign"):
        sign(control, monkeypatch)
    assert control.requests == 1
