"""The agreement between a control plane and a joining host: names, versions, the queue and its keys in Redis."""

import re
from enum import StrEnum
from ipaddress import ip_address

VERSION = "0.1.0"
"""Version of the product; control plane and hosts are released together."""
HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
HOST_NAME_WORDS = "letters, digits, dots, dashes and underscores, up to 64"
JOIN = "/api/hosts/join"
LEAVE_PATH = "/api/hosts/leave"
REVOKED = "revoked credentials"
"""The `where` of errors sent to a revoked host, whose runs then end."""
TOLERATED_SKEW_S = 30
"""Largest difference between clocks that isn't reported. Nothing depends on a host's clock."""


class Leaving(StrEnum):
    """The stages of a host that leaves permanently."""

    STOPPING = "stopping"
    """The host accepts no more runs, and its runs are ending."""
    STOPPED = "stopped"
    IDLE = "idle"


_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})(\.\d{1,6})?([.a-z+-].{0,40})?")
_PRIORITY = "\x06\x16"
"""Separator of a list's name and a priority, as kombu writes it."""


def version_problem(of_host: str, of_control: str = VERSION) -> str:
    """Explain why a control plane doesn't serve a host of that version; return "" if it does, within one minor
    version."""
    host, control = _VERSION.fullmatch(of_host), _VERSION.fullmatch(of_control)
    if host is None or control is None:
        return f"The host's version {of_host[:40]!r} can't be read. The control plane has {of_control}."
    is_near = host[1] == control[1] and abs(int(host[2]) - int(control[2])) <= 1
    if is_near:
        return ""
    is_older = (int(host[1]), int(host[2])) < (int(control[1]), int(control[2]))
    return (
        f"The host has version {of_host} and the control plane {of_control}; they may be one minor version apart. "
        f"Update the {'host' if is_older else 'control plane'}."
    )


def is_loopback(host: str) -> bool:
    """Return whether a host name or address, as written, leads to the machine itself."""
    name = host.strip("[]").rstrip(".").lower()
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def queue_of(host: str) -> str:
    return f"host.{host}"


def unacknowledged_keys(host: str) -> dict[str, str]:
    """Return the transport options that give a host its own kombu keys for unacknowledged deliveries. By default, all
    consumers share the same keys."""
    options = ("unacked_key", "unacked_index_key", "unacked_mutex_key")
    return {option: f"{option.removesuffix('_key')}.{queue_of(host)}" for option in options}


def redis_keys(host: str) -> tuple[str, ...]:
    """List the patterns of all keys that a host's worker uses in Redis."""
    queue = queue_of(host)
    bindings = (f"_kombu.binding.{queue}", f"_kombu.binding_permanent.{queue}")
    return (queue, f"{queue}{_PRIORITY}*", *bindings, *unacknowledged_keys(host).values())


def host_worker(python: str, host: str) -> list[str]:
    return celery_worker(python, "workers.host.celery", queue_of(host), f"host@{host}", concurrency=2)


def celery_worker(python: str, app: str, queue: str, node: str, *, concurrency: int) -> list[str]:
    argv = [python, "-m", "celery", "-A", app, "worker", "-Q", queue, "-n", node, "-c", str(concurrency)]
    # Workers don't need to know each other. Also, a worker that starts while its Redis is killed would retry its first
    # heartbeat forever and never exit.
    return [*argv, "--without-mingle", "--without-gossip", "--without-heartbeat", "--loglevel", "INFO"]
