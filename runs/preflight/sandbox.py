"""Rewards that run code, and a host that can hold it."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft, HostFacts
from runs.preflight.finding import Finding, note, stop, warn
from runs.preflight.hosts import fitting_hosts
from runs.scheduling.leasing import runs_code

FIX = (
    "Make bubblewrap or Landlock work there (docker/README.md says what each needs), choose another host, leave these "
    "rewards out, or let an admin allow code without a sandbox on the Hardware page."
)


def check(draft: Draft) -> Iterator[Finding]:
    rewards = [reward.name for reward in draft.rewards or () if runs_code(reward)]
    hosts = fitting_hosts(draft)
    if not rewards or not hosts:
        return
    holding = [host for host in hosts if host.sandbox.runs_code]
    untold = [host for host in hosts if not host.sandbox.known]
    if not holding and not untold:
        yield from (_none(host, rewards) for host in hosts)
        return
    if not holding:
        names = _listed([host.name for host in untold])
        yield note(
            "host", f"{names} has not told yet how it holds code, which {_run(rewards)}.", "The run waits for it."
        )
    elif draft.host_chosen is False and (without := [host.name for host in hosts if host not in holding + untold]):
        yield note("host", f"Without a sandbox for {_listed(rewards)}: {', '.join(without)}.")
    for host in holding:
        if host.sandbox.bare:
            yield warn(
                "host",
                f"{host.name} has no sandbox, and an admin allows code there: what the model writes runs without one "
                f"({_listed(rewards)}).",
                host.sandbox.reach,
            )


def _none(host: HostFacts, rewards: list[str]) -> Finding:
    why = host.sandbox.why_not
    words = f"{host.name} has no sandbox for code, which {_run(rewards)}"
    return stop("host", f"{words}: {why}." if why else f"{words}.", FIX)


def _run(rewards: list[str]) -> str:
    return f"{_listed(rewards)} {'runs' if len(rewards) == 1 else 'run'}"


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
