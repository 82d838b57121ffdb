"""Ranking of all profiles for this model on these hosts, by fit and expected speed, each with reasons.

Speed is ranked by what affects it most: what generates the completions, what is offloaded to the host's memory, whether
weights are dequantized in each pass, and how many GPUs are used.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from controlplane.platform.templatetags.figures import significant
from runs.engine.sentences import counted
from runs.launch.preflight.draft import Draft, HostFacts, OtherProfile
from runs.launch.preflight.estimating import HostEstimate, on_each_host
from runs.launch.preflight.hosts import shortage
from runs.launch.preflight.memory import slowness, with_profile
from workers.contract.memory.parts import Part
from workers.contract.run.hardware import HardwareSpec, Offload, Quantization, Rollout, Strategy

MAX_NAMES = 3


@dataclass(frozen=True)
class Choice:
    name: str
    fits: bool
    why: str
    """The memory use on the host that suits the profile best, or the reason why the profile doesn't fit."""
    reasons: tuple[str, ...]
    values: dict[str, str]
    fit: str
    """Short label of the fit, such as `fits h1` or `needs 2 more GPUs`."""
    chosen: bool = False


def choices(draft: Draft) -> list[Choice]:
    """Rank all profiles, best first. Of those that fit, profiles without the hosts' GPUs come last."""
    ranking = [(_choice(draft, profile), profile) for profile in draft.profiles]
    return [choice for choice, profile in sorted(ranking, key=lambda pair: _rank(*pair))]


def _rank(choice: Choice, profile: OtherProfile) -> tuple[bool, bool, tuple[bool, bool, bool, bool], int, str]:
    gpus = profile.spec.trainer_gpus + profile.spec.server_gpus
    return not choice.fits, gpus == 0, slowness(profile), -gpus, choice.name


def _choice(draft: Draft, profile: OtherProfile) -> Choice:
    spec = profile.spec
    hosts = [host for host in draft.hosts if not shortage(host, spec)]
    estimates = on_each_host(with_profile(draft, profile)) if hosts else []
    fits, why = _fit(draft, spec, estimates)
    is_chosen = draft.hardware is not None and draft.hardware.profile == spec.profile
    values = {"profile": profile.key, **profile.values}
    return Choice(
        spec.profile, fits, why, tuple(_reasons(profile)), values, _fit_label(draft, spec, hosts, estimates), is_chosen
    )


def _fit(draft: Draft, spec: HardwareSpec, estimates: Sequence[HostEstimate]) -> tuple[bool, str]:
    shortages = [shortage(host, spec) for host in draft.hosts]
    if not draft.hosts or all(shortages):
        return False, f"{shortages[0]}." if shortages else "No host has announced itself."
    if spec.trainer_gpus < 1:
        return True, "Runs on the CPU, for tiny models."
    best_estimate = min(estimates, key=lambda estimated: estimated.missing, default=None)
    if best_estimate is None:
        return True, "The model's size is not known yet, so its memory can't be estimated."
    return best_estimate.fits and _has_cache(best_estimate), _memory(best_estimate)


def _fit_label(draft: Draft, spec: HardwareSpec, hosts: Sequence[HostFacts], estimates: Sequence[HostEstimate]) -> str:
    """Return a label for the fit. `hosts` have the profile's GPUs; `estimates` are those on these hosts, if the model's
    size is known."""
    if not draft.hosts:
        return "no host yet"
    if not hosts:
        missing_gpus = spec.trainer_gpus + spec.server_gpus - max(len(host.gpus) for host in draft.hosts)
        return f"needs {counted(missing_gpus, 'more GPU')}" if missing_gpus > 0 else "fits no host"
    names = [estimated.host.name for estimated in estimates if estimated.fits and _has_cache(estimated)]
    if estimates and not names:
        closest = min(estimates, key=lambda estimated: estimated.missing)
        return "no room for vLLM’s cache" if closest.fits else f"needs {significant(max(closest.needed))} GiB per GPU"
    names = names or [host.name for host in hosts]
    return f"fits {', '.join(names[:MAX_NAMES])}{' …' if len(names) > MAX_NAMES else ''}"


def _has_cache(host_estimate: HostEstimate) -> bool:
    vllm = host_estimate.estimate.serving
    return vllm is None or vllm.tokens >= host_estimate.settings.length


def _memory(host_estimate: HostEstimate) -> str:
    fullest_gpu = max(host_estimate.estimate.gpus, key=lambda gpu: gpu.needed / gpu.card_gib if gpu.card_gib else 0.0)
    amount = f"{significant(fullest_gpu.needed)} of {significant(fullest_gpu.card_gib)} GiB"
    use = f"{amount} on the fullest GPU of {host_estimate.host.name}"
    if host_estimate.fits and not _has_cache(host_estimate):
        return f"vLLM's share leaves no room for its KV cache on {host_estimate.host.name}."
    return f"{use}." if host_estimate.fits else f"{use}, most of it {fullest_gpu.largest}."


def _reasons(profile: OtherProfile) -> Iterator[str]:
    """Yield arguments for and against a profile; generation first, since it takes most of a step."""
    spec, server = profile.spec, profile.spec.vllm_server
    if server and server.attached:
        yield "Completions come from an external server, which is neither started nor verified here."
    elif spec.rollout is Rollout.TRANSFORMERS:
        yield "Completions come from the trainer itself, which is many times slower than vLLM."
    elif server and not server.shared:
        yield "vLLM has its own GPUs and shares no memory with the trainer."
    elif spec.rollout is Rollout.COLOCATE:
        sleeps = "; it sleeps while the weights are updated" if spec.colocate_sleep else ""
        yield f"vLLM runs inside the trainer, so no GPU waits for another{sleeps}."
    else:
        yield "vLLM and the trainer share one GPU, which both need at the same time."
    if spec.offload is not Offload.NONE:
        yield "Optimizer states are kept in the host's memory, which takes much of it and makes steps slow."
    if spec.quantization is not Quantization.NONE:
        yield "Weights are quantized, which takes the least memory but makes passes slower."
    if spec.strategy in (Strategy.ZERO3, Strategy.FSDP2):
        yield "Weights are split over the GPUs, and each layer is gathered when it is needed."
    elif spec.strategy is Strategy.DDP:
        yield "Each training GPU has a whole copy of the model; the batch is split between them."
    yield "A LoRA is trained." if profile.lora else f"All weights are trained, with {Part.OPTIMIZER} for each."
