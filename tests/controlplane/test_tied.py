"""The beat ends with its worker, at whatever moment that one ends: a fork of it, as Celery makes one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT

WORKER = """
import os, signal, sys, time
import controlplane.celery
from celery.signals import beat_embedded_init

worker = os.getpid()
reader, writer = os.pipe()
if not os.fork():
    signal.alarm(60)
    while sys.argv[1] == "before" and os.getppid() == worker:
        time.sleep(0.01)
    beat_embedded_init.send(sender=None)
    os.write(writer, b"!")
    while os.getppid() == worker:
        time.sleep(0.01)
    time.sleep(1)  # where nothing ends it, it goes on
    print("beats", flush=True)
elif sys.argv[1] == "after":
    os.read(reader, 1)
os.kill(worker, signal.SIGKILL)
"""


@pytest.mark.processes
@pytest.mark.parametrize("worker_ends", ["before", "after"])
def test_beat_never_outlives_its_worker(worker_ends: str) -> None:
    """`before`: while the fork still has the worker's own handlers, which swallow what it would be told."""
    argv = [sys.executable, "-c", WORKER, worker_ends]
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "controlplane.settings"}
    # It answers once both have ended: both have the pipe.
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("", "")
