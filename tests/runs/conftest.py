from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings

from controlplane.catalogue.hardware import host_commands
from runs.engine import hints
from workers.contract.wire.names import Task


@dataclass
class Sent:
    """What would have gone to hosts: (host, task, arguments)."""

    messages: list[tuple[str, Task, list[Any]]] = field(default_factory=list)
    down: bool = False

    def send(self, host_name: str, task: Task, args: list[Any]) -> None:
        if self.down:
            raise host_commands.BrokerDown
        self.messages.append((host_name, task, list(args)))

    def of(self, task: Task) -> list[list[Any]]:
        return [args for _, sent, args in self.messages if sent == task]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """The seam to Celery."""
    catcher = Sent()
    monkeypatch.setattr(host_commands, "send", catcher.send)
    return catcher


@pytest.fixture
def commits(django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks) -> DjangoCaptureOnCommitCallbacks:
    """`with commits(execute=True)`: what waits for a commit runs, as it would without the test's own transaction."""
    return django_capture_on_commit_callbacks


@pytest.fixture
def redis_url(valkey: str, settings: Settings) -> Iterator[str]:
    """A real Valkey behind the settings."""
    settings.REDIS_URL = valkey
    hints.forget()
    yield valkey
    hints.forget()


@pytest.fixture(autouse=True)
def quick_passwords(settings: Settings) -> None:
    """The real hasher is slow on purpose; these tests sign in a hundred times."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
