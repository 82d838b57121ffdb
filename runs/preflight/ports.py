"""Ports that a profile names for its vLLM servers: on each host that fits, free, and the host's to give."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft, HostFacts
from runs.preflight.finding import Finding, note, stop, warn
from runs.preflight.hosts import fitting_hosts
from workers.contract import WeightSync


def check(draft: Draft) -> Iterator[Finding]:
    server = draft.server
    if server is None or server.attached:
        return
    hosts = [host for host in fitting_hosts(draft) if host.usable]
    if server.port is None:
        yield from _any(hosts, server.count + (server.weight_sync == WeightSync.NCCL))
        return
    wanted = range(server.port, server.port + server.count)
    if not wanted or wanted[-1] > 65535:
        return  # the profile's own check says so
    problems = [_on(host, wanted) for host in hosts]
    if all(problems):
        yield from (finding for finding in problems if finding)
    yield from (_outside(host, wanted) for host in hosts if not _inside(host, wanted))


def _on(host: HostFacts, wanted: range) -> Finding | None:
    """What keeps the named ports from being used on one host."""
    for port in wanted:
        if port in host.ports_held:
            return warn(
                "profile",
                f"Port {port} on {host.name}, which the profile names, is held by the run {host.ports_held[port]}.",
                "The run waits for it. A profile without a port takes any that is free.",
            )
        if port in host.listening:
            return stop(
                "profile",
                f"Port {port} on {host.name}, which the profile names, is in use: another program listens there.",
                "Choose another port in the profile, or leave it empty to take any that is free.",
            )
    return None


def _inside(host: HostFacts, wanted: range) -> bool:
    first, last = host.port_range
    return first <= wanted[0] and wanted[-1] <= last


def _outside(host: HostFacts, wanted: range) -> Finding:
    first, last = host.port_range
    return note(
        "profile",
        f"{_words(wanted)} {'is' if len(wanted) == 1 else 'are'} outside what {host.name} keeps for vLLM servers "
        f"({first} to {last}): other programs may take {'it' if len(wanted) == 1 else 'them'} first.",
    )


def _any(hosts: list[HostFacts], count: int) -> Iterator[Finding]:
    """`count` is the servers' and, over NCCL, one for the weights."""
    for host in hosts:
        first, last = host.port_range
        free = sum(port not in host.ports_held and port not in host.listening for port in range(first, last + 1))
        if free < count:
            yield warn(
                "host",
                f"{host.name} keeps the ports {first} to {last} for vLLM servers, and {free} of them are free.",
                "Stop what uses them, or give the host a wider GRPO_PORT_RANGE.",
            )


def _words(wanted: range) -> str:
    return f"Port {wanted[0]}" if len(wanted) == 1 else f"The ports {wanted[0]} to {wanted[-1]}"
