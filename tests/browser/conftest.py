"""A real Chromium, and the whole product behind it with a trainer that goes on until it is stopped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.benchmarks._chromium import FLAGS
from tests.browser import real_runs
from tests.browser.tiny_folder import write_model
from tests.stack import FAKE_TRAINER, Stack, command_of
from tests.waiting import LIMIT_MS, wait_until


@dataclass
class Complaints:
    """What a page must not do: log an error, throw, or ask for something that isn't there."""

    heard: list[str] = field(default_factory=list)

    def listen(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.heard.append(f"thrown: {error}"))
        page.on("response", lambda r: self.heard.append(f"{r.status} {r.url}") if r.status >= 400 else None)

    def _console(self, message: ConsoleMessage) -> None:
        # A page that is left, or that reads its series again, closes its socket even while that connects.
        if message.type in ("error", "warning") and "closed before the connection is established" not in message.text:
            self.heard.append(f"{message.type}: {message.text}")


def sign_in(stack: Stack, context: BrowserContext, role: str = "operator") -> None:
    context.add_cookies([{"name": k, "value": v, "url": stack.url} for k, v in stack.cookies(role).items()])


@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    """Gone with the last browser test: while Playwright runs, no other test of the process may run an event loop."""
    expect.set_options(timeout=LIMIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def site(trainer_python: Path) -> Iterator[Stack]:
    """The trainer is the fake one, with a step every 50 ms; the form's fields are those of the real GRPOConfig."""
    environment = {
        # Its own words go with the command: what else stands in a host's environment doesn't reach a trainer.
        "GRPO_TRAINER_COMMAND": command_of(
            FAKE_TRAINER, FAKE_TRAINER="forever,pause:0.05,samples:1", FAKE_TRAINER_LIFETIME="290"
        ),
        "GRPO_TRAINER_PYTHON": str(trainer_python),
        # Nobody speaks for runs that a test makes: none shall be unreachable before its test is over.
        "CONTROLPLANE_SILENT_AFTER_S": "30",
    }
    stack = Stack.start(Path(tempfile.mkdtemp(prefix="gt-")), environment)
    try:
        write_model(stack.installation.models_dir / "tiny")
        yield stack
    finally:
        stack.stop()


@pytest.fixture(scope="package")
def training_site(trainer_python: Path) -> Iterator[Stack]:
    """With the real trainer, a tiny model that has learned a little, and room for two runs at a time."""
    environment = {"GRPO_TRAINER_PYTHON": str(trainer_python), "GRPO_CPU_SLOTS": "2"}
    stack = Stack.start(Path(tempfile.mkdtemp(prefix="gt-")), environment)
    try:
        real_runs.prepare(stack, trainer_python)
        yield stack
    finally:
        stack.stop()


LEFT = """
from controlplane.platform.accounts.models import User
from runs.engine.scheduling import stopping
from runs.engine.models import Attempt
from runs.engine.states import ACTIVE
from workers.contract.wire.names import StopMode
left = Attempt.objects.filter(status__in=ACTIVE, leases__state="held").distinct()
for attempt in left.exclude(stop_mode=StopMode.NOW):
    stopping.request_stop(attempt, StopMode.NOW, User.objects.get(username="admin"))
result = list(left.values_list("pk", flat=True))
"""


@pytest.fixture(autouse=True)
def nothing_trains_on(request: pytest.FixtureRequest) -> Iterator[None]:
    """The host has one CPU slot: the run of a test that failed would keep the next test's waiting."""
    site = request.getfixturevalue("site") if "site" in request.fixturenames else None
    yield
    if site is not None:
        wait_until(lambda: not site.django(LEFT), lambda: f"{site.django(LEFT)} don't end")


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(LIMIT_MS)
    yield context
    context.close()


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture
def page(context: BrowserContext, complaints: Complaints) -> Page:
    page = context.new_page()
    complaints.listen(page)
    return page
