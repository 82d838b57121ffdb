"""Checks of the packages in a host's trainer environment: those that the run needs, and known combinations."""

import re
from collections.abc import Iterator

from runs.launch.preflight.draft import Draft, HostFacts
from runs.launch.preflight.finding import Finding, Fix, note, stop, warn
from runs.launch.preflight.hosts import fitting_hosts
from workers.contract.run import sinks
from workers.contract.run.hardware import ZERO, HardwareSpec, Optimizer, Quantization, Rollout
from workers.contract.stack.packages import SETS

BITSANDBYTES = re.compile(r"(paged_)?(adamw(_bnb)?|ademamix|lion)_(8|32)bit|ademamix|rmsprop_bnb(_8bit|_32bit)?")
"""Pattern of TRL's optimizers that come from bitsandbytes (transformers/trainer_optimizer.py)."""

TRL_VLLM_RANGE = ((0, 22), (0, 31))
"""First and last minor version of vLLM that TRL 1.16 supports; TRL only warns of others."""
KNOWN_SETS = {(versions.torch, versions.vllm): versions.proved for versions in SETS.values() if versions.proved}
"""Day and card on which each pair of torch and vLLM trained, as tests/gpu/RESULTS.md describes."""


def check(draft: Draft) -> Iterator[Finding]:
    if draft.hardware is None:
        return
    # An environment that is missing or still being inspected is reported by another check.
    hosts = [host for host in fitting_hosts(draft) if host.usable and host.versions]
    optim = str(draft.grpo.get("optim") or "")
    missing_packages = {host.name: _required_but_missing(host, draft.hardware, optim) for host in hosts}
    if hosts and all(missing_packages.values()):
        for name, ((package, why), *_) in missing_packages.items():
            yield stop(
                "profile",
                f"{name} has no {package} in its trainer's environment, but the profile needs it for {why}.",
                f"Install {package} there, or choose another profile or host.",
            )
    if hosts and BITSANDBYTES.fullmatch(optim) and not any(host.versions.get("bitsandbytes") for host in hosts):
        names = ", ".join(host.name for host in hosts)
        yield stop(
            "optim",
            f"{optim} needs bitsandbytes, which {names} {'doesn’t' if len(hosts) == 1 else 'don’t'} have.",
            "Install it in the trainer's environment there, or choose another optimizer or host.",
            Fix("Use adamw_torch", {"optim": "adamw_torch"}),
        )
    if draft.hardware.rollout != Rollout.TRANSFORMERS:
        for host in hosts:
            yield from _pair(host)


def check_sinks(draft: Draft) -> Iterator[Finding]:
    for sink in draft.sinks:
        yield from not_installed(draft, sinks.DISTRIBUTIONS[sink.kind], sinks.TITLES[sink.kind], group=sinks.GROUP)


def not_installed(draft: Draft, package: str, needed_by: str, *, group: str) -> Iterator[Finding]:
    """Report the fitting hosts that lack a package, except those that haven't reported their packages."""
    hosts_lacking = [
        host
        for host in fitting_hosts(draft)
        if isinstance(packages := host.inventory.get("packages"), dict) and package not in packages
    ]
    if not hosts_lacking:
        return
    names = ", ".join(host.name for host in hosts_lacking)
    yield note(
        "host",
        f"{needed_by} needs {package}, which {names} {'doesn’t' if len(hosts_lacking) == 1 else 'don’t'} have yet.",
        f"The run installs it there first, which takes minutes and needs the network. To install it beforehand, run "
        f"`python3 -m controlplane.setup.bootstrap.on_demand {group}` on the host.",
    )


def _required_but_missing(host: HostFacts, hardware: HardwareSpec, optim: str) -> list[tuple[str, str]]:
    requirements: list[tuple[str, str]] = []
    if hardware.strategy in ZERO:
        requirements.append(("deepspeed", f"ZeRO-{hardware.strategy[-1]}"))
    if hardware.quantization != Quantization.NONE:
        requirements.append(("bitsandbytes", f"{hardware.quantization} weights"))
    if hardware.optimizer == Optimizer.ADAMW_8BIT and not optim:
        requirements.append(("bitsandbytes", "its 8-bit optimizer"))
    return [(package, why) for package, why in requirements if not host.versions.get(package)]


def _pair(host: HostFacts) -> Iterator[Finding]:
    vllm, torch = (
        _without_local_part(host.versions.get("vllm", "")),
        _without_local_part(host.versions.get("torch", "")),
    )
    minor = tuple(int(part) for part in vllm.split(".")[:2]) if re.match(r"\d+\.\d+", vllm) else ()
    oldest, newest = TRL_VLLM_RANGE
    if minor and not oldest <= minor <= newest:
        yield warn(
            "host",
            f"{host.name} has vLLM {vllm}; TRL supports {'.'.join(map(str, oldest))} to {'.'.join(map(str, newest))}.",
            "Weight updates may fail. Install a version in that range there.",
        )
    elif minor and torch and (torch, vllm) not in KNOWN_SETS:
        tested = "; ".join(f"vLLM {pair[1]} with torch {pair[0]} ({proved})" for pair, proved in KNOWN_SETS.items())
        yield note(
            "host",
            f"{host.name} has vLLM {vllm} with torch {torch}, an untested combination. Tested on GPUs: {tested}.",
        )


def _without_local_part(version: str) -> str:
    return version.partition("+")[0]
