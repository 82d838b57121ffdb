"""The stages of an `up`: claim the folder and the port, prepare, start the children, watch them, stop them."""

import contextlib
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from django.conf import settings

from controlplane.setup.serving import valkey
from controlplane.setup.serving.claims import (
    DEFAULT_PORT,
    ServingRefused,
    children_lock,
    data_folder_lock,
    open_listener,
    refuse_full_disk,
)
from controlplane.setup.serving.embedded import Installation
from controlplane.setup.serving.preparing import prepare
from controlplane.setup.serving.processes import Fleet
from workers.contract.wire.joining import is_loopback
from workers.contract.wire.names import broker_url

TICK_S = 0.3
REPEAT_S = 1.0


@dataclass(frozen=True)
class Options:
    command: str
    bind: str = "127.0.0.1"
    port: int | None = None
    web_workers: int = 1


@dataclass
class RunningServices:
    """The running children of one installation, while a `served` block runs."""

    installation: Installation
    fleet: Fleet
    listener: socket.socket
    report: Callable[[str], None]

    def watch_until(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        """Watch the children until a condition holds. Return False if it didn't within `deadline_s` seconds."""
        deadline = time.monotonic() + deadline_s
        while not _holds(condition):
            if time.monotonic() > deadline:
                return False
            self.fleet.tick()
            time.sleep(TICK_S)
        return True

    def use_trainer(self, python: Path) -> None:
        """Restart this machine's worker with a trainer that has just been installed."""
        os.environ["GRPO_TRAINER_PYTHON"] = str(python)
        self.installation = replace(self.installation, trainer_python=python)
        self.fleet.stop(["host"])
        self.fleet.start(self.installation.host_worker())

    def watch(self) -> None:
        """Watch the children until Ctrl-C."""
        self.watch_until(lambda: False, math.inf)


def _holds(condition: Callable[[], bool]) -> bool:
    from django.db import Error, connection

    from controlplane.platform.http.outage import is_away

    try:
        return condition()
    except Error as error:
        if not is_away(error):
            raise
        connection.close()
        return False


@contextlib.contextmanager
def served(options: Options, report: Callable[[str], None]) -> Iterator[RunningServices]:
    """Serve while the block runs, and stop everything afterwards in any case. Raises ServingRefused if this machine
    can't serve as configured, and NotReady if a program doesn't start."""
    data = Path(settings.DATA_DIR)
    # The data folder may be readable by others, but files that we and our children write in it must not be.
    os.umask(0o077)
    with signals_interrupt(), data_folder_lock(data, options.command) as lock:
        refuse_full_disk(data)
        listener = open_listener(options.bind, options.port)
        if options.port is None and listener.getsockname()[1] != DEFAULT_PORT:
            report(f"Port {DEFAULT_PORT} is in use by another program; using the next free one.")
        installation = _installation(options, data, listener)
        configure_process(installation)
        lock.describe(url=installation.control_url)
        with contextlib.closing(listener), children_lock(data, report) as lock_handle:
            fleet = Fleet(report, pass_fds=(lock_handle,))
            try:
                _start(installation, fleet, listener, report)
                yield RunningServices(installation, fleet, listener, report)
            finally:
                with uninterrupted(report):
                    fleet.stop()


def bind_problem(host: str) -> str | None:
    """Explain why the web may not listen on `host`, with the remedy; return None if it may."""
    from controlplane.platform.accounts.models import Role, User

    admins = User.objects.filter(role=Role.ADMIN, is_active=True)
    if is_loopback(host) or any(admin.has_usable_password() for admin in admins):
        return None
    return (
        f"Refusing to listen on {host}: no admin has a password yet, so anybody who reads the sign-in link on the "
        "terminal could sign in. Start on 127.0.0.1, sign in, set a password in the user menu, "
        "then start again with this address."
    )


def configure_process(installation: Installation) -> None:
    """Configure this process to send messages and read rows as the children do."""
    from controlplane.celery import app

    os.environ.update(installation.environment())
    settings.REDIS_URL = installation.redis_url
    app.conf.broker_url = broker_url(installation.redis_url)  # it may have been imported before the address was known


def _installation(options: Options, data: Path, listener: socket.socket) -> Installation:
    trainer = os.environ.get("GRPO_TRAINER_PYTHON")
    redis = os.environ.get("REDIS_URL", "")
    return Installation(
        data=data,
        port=listener.getsockname()[1],
        redis_url=redis or valkey.redis_url(valkey.socket_path(data)),
        embedded_redis=not redis,
        host_name=os.environ.get("GRPO_HOST_NAME") or socket.gethostname(),
        trainer_python=Path(trainer) if trainer else None,
        bind=options.bind,
        web_workers=options.web_workers,
    )


def _start(installation: Installation, fleet: Fleet, listener: socket.socket, report: Callable[[str], None]) -> None:
    installation.make_folders()
    if installation.embedded_redis:
        fleet.start(valkey.program(installation.data))
    else:
        valkey.check(installation.redis_url)
    prepare(installation, report)
    if problem := bind_problem(installation.bind):
        raise ServingRefused(problem)
    fleet.wait_ready(fleet.pids())
    for program in (installation.web(listener), installation.control_worker(), installation.host_worker()):
        fleet.start(program)
    fleet.wait_ready(["web"])


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """Make SIGTERM and a closed terminal end the process as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        # Python drops exceptions that are raised while it finalizes an object: then the alarm raises it again.
        signal.setitimer(signal.ITIMER_REAL, REPEAT_S)
        raise KeyboardInterrupt

    with _signal_handler(interrupt, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


@contextlib.contextmanager
def uninterrupted(report: Callable[[str], None]) -> Iterator[None]:
    """Ignore Ctrl-C while the block runs, so that a second one doesn't leave half of the children behind."""

    def wait(number: int, frame: FrameType | None) -> None:
        report("Stopping, please wait …")

    signal.setitimer(signal.ITIMER_REAL, 0)
    with _signal_handler(wait, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        yield


@contextlib.contextmanager
def _signal_handler(handler: Callable[[int, FrameType | None], None], *signals: signal.Signals) -> Iterator[None]:
    previous_handlers = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, previous in previous_handlers.items():
            signal.signal(number, previous)
