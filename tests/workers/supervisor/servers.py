"""Attempts in server mode: as many fake vLLM servers as wanted, each with ways of its own to misbehave."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.workers.supervisor.attempts import FAKES, Attempt, attempt
from workers.contract.run.hardware import HardwareSpec, Rollout, ServerSpec, WeightSync
from workers.contract.run.spec import Placement
from workers.supervisor.processes.listening import port_is_free


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def vllm_command(misbehaviour: str = "") -> tuple[str, ...]:
    """`a|b` gives the first server `a` and all others `b`."""
    program = (sys.executable, str(FAKES / "fake_vllm.py"))
    first, _, others = misbehaviour.partition("|")
    if not others:
        return ("/usr/bin/env", f"FAKE_VLLM={first}", "FAKE_VLLM_LIFETIME=120", *program)
    # Servers of one attempt have one command: the later ones have their role in the name that they serve under.
    choose = f'case "$*" in *-vllm-[2-8]\\ *) export FAKE_VLLM={others};; *) export FAKE_VLLM={first};; esac; exec "$@"'
    return ("/usr/bin/env", "FAKE_VLLM_LIFETIME=120", "/bin/sh", "-c", choose, "sh", *program)


def server_hardware(**server: Any) -> HardwareSpec:
    values = {"gpus": 0, "ready_timeout_s": 30, "weight_sync": WeightSync.LORA, **server}
    return HardwareSpec("server", rollout=Rollout.SERVER, cpu_slots=1, server=ServerSpec(**values))


@contextmanager
def server_attempt(
    tmp_path: Path,
    *,
    server: str = "",
    trainer: str = "",
    ready_s: int = 30,
    port: int = 0,
    count: int = 1,
    **settings: Any,
) -> Iterator[Attempt]:
    ports = (port or free_port(), *(free_port() for _ in range(count - 1)))
    placement = Placement("testhost", cpu_slots=(0,), ports=ports)
    spec = {"hardware": server_hardware(count=count, ready_timeout_s=ready_s), "placement": placement}
    trainer = trainer or f"connect:{ports[0]}"
    with attempt(tmp_path, trainer=trainer, spec=spec, vllm_command=vllm_command(server), **settings) as made:
        yield made
    assert all(port_is_free(each) for each in ports)
