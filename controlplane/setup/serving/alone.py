"""Execution of one program of the control plane in the foreground, for containers and services that watch each one."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

from django.conf import settings

from controlplane.setup.serving import valkey
from controlplane.setup.serving.claims import ServingRefused, data_folder_lock, open_listener, refuse_full_disk
from controlplane.setup.serving.embedded import Installation
from controlplane.setup.serving.preparing import prepare_store, raise_file_limit
from controlplane.setup.serving.processes import BASE_DIR, ServedProgram


def prepare(report: Callable[[str], None]) -> None:
    """Prepare the data folder, the database and the static files. It runs before other programs and after updates."""
    data = Path(settings.DATA_DIR)
    os.umask(0o077)
    with data_folder_lock(data, "serve prepare"):
        refuse_full_disk(data)
        prepare_store(_installation(), report)


def web(bind: str, port: int, web_workers: int) -> None:
    """Replace this process with the web. It prints no sign-in link, so it may listen anywhere, even if no admin has a
    password."""
    listener = open_listener(bind, port)
    listener.set_inheritable(True)
    _execute(_installation(bind, port, web_workers).web(listener))


def worker() -> None:
    """Replace this process with the control worker, with beat."""
    _execute(_installation().control_worker())


def _installation(bind: str = "127.0.0.1", port: int = 0, web_workers: int = 1) -> Installation:
    redis_url = os.environ.get("REDIS_URL", "")
    if not redis_url:
        raise ServingRefused(
            "REDIS_URL is not set. Programs that run alone share a Redis server; only `up` starts one."
        )
    return Installation(
        data=Path(settings.DATA_DIR),
        port=port,
        redis_url=redis_url,
        host_name=os.environ.get("GRPO_HOST_NAME") or socket.gethostname(),
        trainer_python=None,
        embedded_redis=False,
        bind=bind,
        web_workers=web_workers,
    )


def _execute(program: ServedProgram) -> None:
    os.umask(0o077)
    valkey.check(os.environ["REDIS_URL"])
    raise_file_limit()
    os.chdir(BASE_DIR)
    os.execve(program.argv[0], program.argv, {**os.environ, **(program.env or {})})  # noqa: S606
