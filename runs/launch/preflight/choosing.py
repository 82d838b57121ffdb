"""Ranking of all profiles for this model on these hosts, by fit and expected speed, each with reasons.

Speed is ranked by what decides it most: who generates the completions, what lies in the host's memory, whether weights
are unpacked for each pass, and how many GPUs work.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from controlplane.platform.templatetags.figures import significant
from runs.engine.sentences import counted
from runs.launch.preflight.draft import Draft, HostFacts, OtherProfile
from runs.launch.preflight.estimating import Estimated, everywhere
from runs.launch.preflight.hosts import shortage
from runs.launch.preflight.memory import as_made_for, slowness
from workers.contract.memory.parts import Part
from workers.contract.run.hardware import HardwareSpec, Offload, Quantization, Rollout, Strategy

MAX_NAMES = 3


@dataclass(frozen=True)
class Choice:
    name: str
    fits: bool
    why: str
    """The host that it fits with its spare memory, or the reason why it doesn't fit."""
    reasons: tuple[str, ...]
    values: dict[str, str]
    """Form values that choose it."""
    fit: str
    """The fit in a few words: `fits h1`, `needs 2 more GPUs`."""
    chosen: bool = False


def choices(draft: Draft) -> list[Choice]:
    """Rank all profiles, the best first; those for the CPU and attached servers come after those that use the GPUs."""
    ranked = [(_choice(draft, profile), profile) for profile in draft.profiles]
    return [choice for choice, profile in sorted(ranked, key=lambda pair: _rank(*pair))]


def _rank(choice: Choice, profile: OtherProfile) -> tuple[bool, bool, tuple[bool, bool, bool, bool], int, str]:
    gpus = profile.spec.trainer_gpus + profile.spec.server_gpus
    return not choice.fits, gpus == 0, slowness(profile), -gpus, choice.name


def _choice(draft: Draft, profile: OtherProfile) -> Choice:
    spec = profile.spec
    having = [host for host in draft.hosts if not shortage(host, spec)]
    answers = everywhere(as_made_for(draft, profile)) if having else []
    fits, why = _fit(draft, spec, answers)
    chosen = draft.hardware is not None and draft.hardware.profile == spec.profile
    values = {"profile": profile.key, **profile.values}
    return Choice(
        spec.profile, fits, why, tuple(_reasons(profile)), values, _in_short(draft, spec, having, answers), chosen
    )


def _fit(draft: Draft, spec: HardwareSpec, answers: Sequence[Estimated]) -> tuple[bool, str]:
    short = [shortage(host, spec) for host in draft.hosts]
    if not draft.hosts or all(short):
        return False, f"{short[0]}." if short else "No host has announced itself."
    if spec.trainer_gpus < 1:
        return True, "On the CPU: for tiny models."
    answer = min(answers, key=lambda estimated: estimated.missing, default=None)
    if answer is None:
        return True, "The model's size is not known yet, so its memory can't be estimated."
    return answer.fits and _has_cache(answer), _memory(answer)


def _in_short(draft: Draft, spec: HardwareSpec, having: Sequence[HostFacts], answers: Sequence[Estimated]) -> str:
    """Describe the fit in a few words. `having`: the hosts that have its GPUs; `answers`: the estimates there, where
    the model's size is known."""
    if not draft.hosts:
        return "no host yet"
    if not having:
        missing = spec.trainer_gpus + spec.server_gpus - max(len(host.gpus) for host in draft.hosts)
        return f"needs {counted(missing, 'more GPU')}" if missing > 0 else "fits no host"
    names = [answer.host.name for answer in answers if answer.fits and _has_cache(answer)]
    if answers and not names:
        closest = min(answers, key=lambda answer: answer.missing)
        return "no room for vLLM’s cache" if closest.fits else f"needs {significant(max(closest.needed))} GiB a GPU"
    names = names or [host.name for host in having]
    return f"fits {', '.join(names[:MAX_NAMES])}{' …' if len(names) > MAX_NAMES else ''}"


def _has_cache(answer: Estimated) -> bool:
    vllm = answer.estimate.serving
    return vllm is None or vllm.tokens >= answer.settings.length


def _memory(answer: Estimated) -> str:
    fullest = max(answer.estimate.gpus, key=lambda gpu: gpu.needed / gpu.card_gib if gpu.card_gib else 0.0)
    use = (
        f"{significant(fullest.needed)} of {significant(fullest.card_gib)} GiB on the fullest GPU of {answer.host.name}"
    )
    if answer.fits and not _has_cache(answer):
        return f"vLLM's share leaves no room for its KV cache on {answer.host.name}."
    return f"{use}." if answer.fits else f"{use}, most of it {fullest.largest}."


def _reasons(profile: OtherProfile) -> Iterator[str]:
    """Yield arguments for and against a profile; generation first, since it takes most of a step."""
    spec, server = profile.spec, profile.spec.vllm_server
    if server and server.attached:
        yield "Completions come from an external server, which is neither started nor verified here."
    elif spec.rollout is Rollout.TRANSFORMERS:
        yield "Completions come from the trainer itself: many times slower than vLLM."
    elif server and not server.shared:
        yield "vLLM has GPUs of its own and shares no memory with the trainer."
    elif spec.rollout is Rollout.COLOCATE:
        sleeps = ", and sleeps while the weights are updated" if spec.colocate_sleep else ""
        yield f"vLLM inside the trainer: no GPU waits for the other{sleeps}."
    else:
        yield "vLLM and the trainer share one GPU, which both need at once."
    if spec.offload is not Offload.NONE:
        yield "Optimizer states in the host's memory: slow steps, and much of it is needed."
    if spec.quantization is not Quantization.NONE:
        yield "Weights quantized: least memory, slower passes."
    if spec.strategy in (Strategy.ZERO3, Strategy.FSDP2):
        yield "Weights split over the GPUs: each layer is gathered when it is needed."
    elif spec.strategy is Strategy.DDP:
        yield "A whole copy on each training GPU: the batch is split between them."
    yield "A LoRA is trained." if profile.lora else f"All weights are trained, with {Part.OPTIMIZER} for each."
