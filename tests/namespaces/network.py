"""Machines of one network, made of network namespaces: a bridge at the control plane, a cable to each host."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CONTROL = "10.77.0.1"
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET


@dataclass(frozen=True)
class Network:
    """`network.cut("one")`, `network.heal("one")`; processes started with `network.at("one")` before are there."""

    prefix: str

    def at(self, host: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.prefix}-{host}", "--"]

    def cut(self, host: str) -> None:
        _ip("-n", self.prefix, "link", "set", f"to-{host}", "down")

    def heal(self, host: str) -> None:
        _ip("-n", self.prefix, "link", "set", f"to-{host}", "up")


def missing() -> str:
    """Why no namespaces can be made here, or nothing."""
    absent = [name for name in ("ip", "nsenter") if not shutil.which(name)]
    if absent:
        return f"{' and '.join(absent)} not found (packages iproute2 and util-linux)"
    name = f"grpo-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if tried.returncode:
        return f"network namespaces are refused here: {tried.stderr.strip()}"
    made = subprocess.run(["ip", "-n", name, "link", "add", "bridge", "type", "bridge"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True)
    return f"no bridge can be made here: {made.stderr.strip()}" if made.returncode else ""


@contextmanager
def of(*hosts: str) -> Iterator[Network]:
    """This thread, and what it starts, is the control plane's machine meanwhile."""
    prefix = f"grpo-{os.getpid()}"
    names = [prefix, *(f"{prefix}-{host}" for host in hosts)]
    try:
        for name in names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", prefix, "link", "add", "bridge", "type", "bridge")
        _ip("-n", prefix, "address", "add", f"{CONTROL}/24", "dev", "bridge")
        _ip("-n", prefix, "link", "set", "bridge", "up")
        for number, host in enumerate(hosts, start=2):
            far = f"{prefix}-{host}"
            _ip("-n", prefix, "link", "add", f"to-{host}", "type", "veth", "peer", "name", "eth0", "netns", far)
            _ip("-n", prefix, "link", "set", f"to-{host}", "master", "bridge", "up")
            _ip("-n", far, "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
            _ip("-n", far, "link", "set", "eth0", "up")
        with _inside(Path("/run/netns") / prefix):
            yield Network(prefix)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@contextmanager
def _inside(namespace: Path) -> Iterator[None]:
    with Path("/proc/thread-self/ns/net").open("rb") as ours, namespace.open("rb") as theirs:
        _enter(theirs.fileno())
        try:
            yield
        finally:
            _enter(ours.fileno())


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
