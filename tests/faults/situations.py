"""Situations that several fault tests bring about: a host that hears nothing, programs with another environment,
several calls in one instant."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from controlplane.setup.serving.processes import ServedProgram
from tests.faults.harness import ARun, Product
from tests.waiting import LIMIT_S
from workers.supervisor.processes import procfs


@contextlib.contextmanager
def deaf_host(product: Product, *runs: ARun) -> Iterator[None]:
    """The host's worker takes no message and announces nothing; nor do the processes of these runs do anything."""
    held = [procfs.identity(product.fleet.pids()["host"])]
    held += [procfs.identity(pid) for run in runs for pid in run.living()]
    stopped = [each for each in held if each is not None]
    for each in stopped:
        procfs.send(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in stopped:
            procfs.send(each, signal.SIGCONT)


@contextlib.contextmanager
def changed(product: Product, *names: str, **environment: str) -> Iterator[None]:
    """These programs of the installation run with another environment; afterwards they are as they were."""
    try:
        _again(product, names, environment)
        yield
    finally:
        _again(product, names, {})


@contextlib.contextmanager
def booted_anew(product: Product, runs: Sequence[ARun], folder: Path) -> Iterator[None]:
    """Everything of the host is gone, and it comes back with another boot id, as its kernel shows it."""
    (folder / "boot_id").write_text("00000000-0000-4000-8000-000000000000\n")
    shown = f'mount --bind {folder / "boot_id"} /proc/sys/kernel/random/boot_id && exec "$@"'
    inside = ["unshare", "--mount", "sh", "-c", shown, "sh"]
    tried = subprocess.run([*inside, "true"], capture_output=True)
    if tried.returncode:
        pytest.skip(f"another boot id cannot be shown here: {tried.stderr.decode().strip()}")
    product.kill("host")
    for each in [procfs.identity(pid) for run in runs for pid in run.living()]:
        if each is not None:
            procfs.send(each, signal.SIGKILL)
    wait(lambda: not any(run.living() for run in runs), "processes are left")
    host = _program(product, "host")
    try:
        product.fleet.stop(["host"])
        product.fleet.start(replace(host, argv=[*inside, *host.argv], env=product.stack.environment))
        yield
    finally:
        _again(product, ("host",), {})


def _again(product: Product, names: tuple[str, ...], environment: dict[str, str]) -> None:
    product.fleet.stop(names)
    for name in names:
        product.fleet.start(replace(_program(product, name), env={**product.stack.environment, **environment}))
    product.fleet.wait_ready(names)
    product.healthy()


def _program(product: Product, name: str) -> ServedProgram:
    here, listener = product.stack.installation, product.stack.listener
    if name == "web":
        assert listener is not None
        return here.web(listener)
    if name == "control":
        return here.control_worker()
    host = here.host_worker()
    return replace(
        host, argv=["tests.fakes.host_with_gpus" if word == "workers.host.celery" else word for word in host.argv]
    )


def wait(condition: Callable[[], object], problem: Callable[[], str] | str) -> None:
    """As `product.until`, but what is dead stays dead."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(problem if isinstance(problem, str) else problem())
        time.sleep(0.01)


def at_once(*calls: Callable[[], None]) -> None:
    """From as many threads, none of which begins before all are there; what one raises is raised here."""
    barrier = threading.Barrier(len(calls))
    errors: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        barrier.wait()
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def ask_to_stop(client: httpx.Client, run: ARun, mode: str) -> None:
    """As a click on the run's page does."""
    answer = client.post(f"/runs/{run.run}/stop", data={"mode": mode})
    assert answer.status_code == 302, answer.text


def pool_of(product: Product, program: str, size: int) -> list[procfs.Identity]:
    """The processes of a Celery worker that execute its tasks, in a moment in which it has no others: the host's asks
    the trainer's interpreter what it is."""
    worker = os.getpgid(product.fleet.pids()[program])
    found: list[procfs.Identity] = []

    def alone() -> bool:
        found[:] = [row.identity for row in procfs.table() if row.group == worker and row.pid != worker]
        return len(found) == size

    product.until(alone, lambda: f"{program} has {len(found)} processes")
    return found
