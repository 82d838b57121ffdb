"""Fixtures that several packages share: a real Valkey, the whole product running, the trainer's interpreter,
a browser."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from pytest_django.plugin import DjangoDbBlocker, blocking_manager_key
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from controlplane.setup.serving import valkey as valkey_server
from controlplane.setup.serving.processes import BASE_DIR as ROOT
from controlplane.setup.serving.processes import Fleet
from tests import confined_in_process, migrated, reader_in_process
from tests.selection import WHOLE_WAYS
from tests.stack import FAKE_TRAINER, Stack, command_of
from tests.trainer.preloaded import Preloaded

SHIPPED: list[str] = []
"""What migrations put into the test database, as Django writes it down."""
KEPT = {"contenttypes.contenttype", "auth.permission"}
"""What Django makes anew itself after a flush."""


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: None) -> None:
    """The test database in memory is a copy of a migrated one: Django finds nothing to migrate."""

    def fill(connection: BaseDatabaseWrapper, **kwargs: object) -> None:
        connection_created.disconnect(fill)
        migrated.fill(connection.connection)

    if connection.vendor == "sqlite":
        connection_created.connect(fill, weak=False)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    with django_db_blocker.unblock():
        rows = json.loads(connection.creation.serialize_db_to_string())
        SHIPPED.append(json.dumps([row for row in rows if row["model"] not in KEPT]))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Nothing that is collected becomes garbage: to look through it, now and later, takes a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


TOGETHER = ("real training", "pages")
TRAINING = frozenset(
    (
        *("tests/browser/test_real_run.py", "tests/browser/test_rewards.py"),
        *("tests/serving/test_demo.py", "tests/workers/models/test_hub_on_the_stack.py"),
        *("tests/workers/supervisor/test_server_mode.py", "tests/architecture/test_imports.py"),
        *("tests/runs/launch/trials/test_trials_on_the_stack.py", "tests/runs/launch/preflight/test_trl.py"),
        *("tests/workers/contract/test_dry_run_scripts.py", "tests/workers/models/test_hub_model.py"),
    )
)
"""Beside tests/trainer: files whose tests have TRL train, or load it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first: one that begins last would keep one worker of several waiting at the end."""
    slow = {item.path for item in items if any(item.get_closest_marker(name) for name in WHOLE_WAYS)}
    items.sort(key=lambda item: (_room(item.nodeid) not in TOGETHER, item.path not in slow))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Compressed bytes hold the second in which they were made: two workers would not agree on the tests."""
    return argname if isinstance(val, bytes) else None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """A file to one worker at a time, and the heaviest files, which each take a processor, all to the same."""
    return _Scheduling(config, log)


class _Scheduling(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return _room(nodeid)


def _room(nodeid: str) -> str:
    """What one worker does in a row: a file, or all that trains real models, or the other tests with a browser."""
    file = nodeid.partition("::")[0]
    if file.startswith("tests/trainer/") or file in TRAINING:
        return TOGETHER[0]
    return TOGETHER[1] if file.startswith("tests/browser/") else file


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """A test with real transactions leaves an empty database; the next one finds what an installation ships with."""
    yield
    if nextitem is None:
        return  # the database is gone
    marker = item.get_closest_marker("django_db")
    real = marker is not None and marker.kwargs.get("transaction")
    if SHIPPED and (real or "transactional_db" in getattr(item, "fixturenames", ())):
        with item.config.stash[blocking_manager_key].unblock():
            connection.creation.deserialize_db_from_string(SHIPPED[0])


@pytest.fixture(autouse=True)
def children_in_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only tests that are marked `processes` start the children that read datasets and other foreign input."""
    if request.node.get_closest_marker("processes") is None:
        reader_in_process.install(monkeypatch)
        confined_in_process.install(monkeypatch)


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """A temporary folder whose path leaves room for a socket's name."""
    folder = Path(tempfile.mkdtemp(prefix="gt-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def valkey(short_folder: Path) -> Iterator[str]:
    """The address of a real Valkey of this test session."""
    fleet = Fleet(report=print)
    fleet.start(valkey_server.program(short_folder))
    fleet.wait_ready(["valkey"])
    yield valkey_server.redis_url(valkey_server.socket_path(short_folder))
    fleet.stop()


@pytest.fixture(scope="module")
def make_stack() -> Iterator[Callable[..., Stack]]:
    """Starts whole products: `make_stack(GRPO_SAVE_DEADLINE_S="2")`. Each is stopped at the end of the module: one
    that nobody needs any more has a share of the machine all the same."""
    stacks: list[Stack] = []

    def make(**environment: str) -> Stack:
        stack = Stack.start(Path(tempfile.mkdtemp(prefix="gt-")), environment)
        stacks.append(stack)
        return stack

    yield make
    for stack in stacks:
        stack.stop()


@pytest.fixture(scope="module")
def stack(make_stack: Callable[..., Stack]) -> Stack:
    """Valkey, web, control worker with beat and host worker, all real; the trainer is the fake one."""
    return make_stack(GRPO_TRAINER_COMMAND=command_of(FAKE_TRAINER))


@pytest.fixture(scope="module")
def trainer_stack(make_stack: Callable[..., Stack], trainer_python: Path) -> Stack:
    """The same with the real trainer."""
    return make_stack(GRPO_TRAINER_PYTHON=str(trainer_python))


@pytest.fixture(scope="session")
def trainer_python() -> Path:
    """The trainer's interpreter, or a skip."""
    python = Path(os.environ.get("GRPO_TRAINER_PYTHON") or ROOT / ".venv-train" / "bin" / "python")
    if not python.exists():
        pytest.skip(f"no trainer environment at {python}: run `python3 manage.py test` once to build it")
    return python


@pytest.fixture(scope="session")
def preloaded(trainer_python: Path) -> Iterator[Preloaded]:
    """The trainer's interpreter with its libraries imported, for tests that don't need a real start of it."""
    server = Preloaded(trainer_python)
    yield server
    server.close()


@pytest.fixture(scope="session")
def tiny_model(preloaded: Preloaded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that loads and hardly knows anything."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    preloaded.run("-m", "workers.trainer.tiny", folder, "--quick")
    return folder


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium, or a skip."""
    from tests.benchmarks import _chromium

    found = _chromium.program(_chromium.SHELL, *_chromium.NAMES)
    if found is None:
        pytest.skip(f"no Chromium on PATH: install the package `{_chromium.SHELL}` or `chromium`")
    from playwright._impl._driver import compute_driver_executable

    node = subprocess.run([compute_driver_executable()[0], "--version"], capture_output=True, text=True)
    if node.returncode:
        pytest.skip(f"Playwright's driver can't start here, try installing libatomic1: {node.stderr.strip()}")
    return found
