"""Estimates of the usual models that fit a hardware profile on GPUs of a given memory size."""

from dataclasses import dataclass, replace
from math import inf
from typing import Any

from django.utils import timezone

from controlplane.catalogue.hardware.inventory import number
from controlplane.catalogue.hardware.models import HardwareProfile, Host, ModelInspection
from controlplane.catalogue.hardware.profile_pages.memory_bars import MemoryView, view
from controlplane.catalogue.hardware.profiles import DIVISION_FIELDS, Profile, profile_of
from controlplane.catalogue.hardware.shipped import SHIPPED_PROFILES, Shipped
from controlplane.platform.templatetags.figures import significant
from workers.contract.memory import Estimate, estimate
from workers.contract.memory.known import LADDER, known_shape
from workers.contract.memory.parts import Settings
from workers.contract.memory.room import Division, is_roomy, quickest
from workers.contract.memory.shapes import Shape, shape_of
from workers.contract.run.hardware import HardwareSpec, Rollout
from workers.contract.stack.step_time import StepWorkload, step_s
from workers.contract.wire.documents import ContractError

PROMPT_TOKENS = 256
COMPLETION_TOKENS = 512
"""Completion length if the profile sets none."""
USUAL_CARD_GIB = 24.0
LARGEST_CARD_GIB = 1024.0
MAX_INSPECTED = 40


@dataclass(frozen=True)
class FittedModel:
    name: str
    needed_gib: float
    """Memory needed on the fullest GPU, without the allocator's cache."""
    fits: bool


def shipped_with(spec: HardwareSpec) -> list[Shipped]:
    """Find the built-in profiles with these hardware settings; some of them differ only in name, LoRA or batch."""
    return [built_in for built_in in SHIPPED_PROFILES if replace(built_in.spec, profile=spec.profile) == spec]


def shipped_as(row: HardwareProfile) -> Shipped | None:
    """Find the built-in profile that best matches a row's hardware settings, even if names differ; return None if none
    matches."""
    try:
        own_profile = profile_of(row)
    except ContractError:
        return None
    return max(
        shipped_with(own_profile.spec),
        key=lambda built_in: (
            built_in.name == own_profile.name,
            built_in.lora == own_profile.lora,
            built_in.batch == own_profile.batch,
        ),
        default=None,
    )


def card_of(row: HardwareProfile) -> tuple[float, str]:
    """Return the GPU memory in GiB that a profile is meant for, and the name of the host that has such a GPU. For a
    built-in profile, that is its setup's GPU, without a host; otherwise the largest of reachable hosts, or
    USUAL_CARD_GIB."""
    built_in = shipped_as(row)
    if built_in is not None and built_in.card_gib:
        return built_in.card_gib, ""
    now = timezone.now()
    cards = [
        (size / 1024, host.name)
        for host in Host.objects.all()
        if host.is_fresh(now)
        for gpu in (host.inventory or {}).get("gpus") or ()
        if isinstance(gpu, dict) and (size := number(gpu.get("memory_mib")))
    ]
    return max(cards, default=(USUAL_CARD_GIB, ""))


def estimated(profile: Profile, shape: Shape, card_gib: float) -> Estimate:
    """Estimate the memory that a model needs with the profile's batch and LoRA on GPUs of one size."""
    spec, batch = profile.spec, profile.batch
    micro_batch, passes = batch.get("per_device_train_batch_size", 8), batch.get("gradient_accumulation_steps", 1)
    settings = Settings(
        batch=max(micro_batch, 1),
        prompt_tokens=PROMPT_TOKENS,
        completion_tokens=max(batch.get("max_completion_length", COMPLETION_TOKENS), 1),
        passes=max(passes, 1),
        generated=micro_batch * passes if spec.rollout is Rollout.TRANSFORMERS else 0,
        lora=profile.lora,
        optimizer=spec.optimizer,
        checkpointing=spec.gradient_checkpointing is not False,
    )
    cards, servers = [card_gib] * spec.trainer_gpus, [card_gib] * spec.server_gpus
    return estimate(shape, spec, settings, cards=cards, servers=servers)


@dataclass(frozen=True)
class FasterDivision:
    """A faster division of a profile's batch, and the share of GPU memory for vLLM."""

    gain: float
    """Estimated speed-up: the ratio of steps per second."""
    text: str
    values: dict[str, str]
    """Fields of the profile's form with their new values."""

    @property
    def expected(self) -> str:
        return f"As a rule of thumb, this gives {self.gain:.2g} times as many steps per second."


def room(profile: Profile, shape: Shape, card_gib: float) -> FasterDivision | None:
    """Find a faster division of the batch for a model on GPUs of one size; return None if the current one is best or
    doesn't fit."""
    current, faster, gain = division(profile, shape, card_gib)
    if faster is None:
        return None
    passes = "1 pass" if faster.passes == 1 else f"{faster.passes} passes"
    changes = [f"{faster.micro_batch} per process, {passes}"]
    values = dict(zip(DIVISION_FIELDS, (str(faster.micro_batch), str(faster.passes)), strict=True))
    if faster.share != current.share:
        has_server = profile.spec.vllm_server is not None
        name = "server_gpu_memory_utilization" if has_server else "colocate_memory_utilization"
        changes.append(f"vLLM’s share {faster.share:g}")
        values[name] = f"{faster.share:g}"
    if profile.spec.vllm_server and profile.spec.vllm_server.all_graphs:
        changes.append("CUDA graphs only up to a step’s completions")
        values["server_all_graphs"] = ""
    return FasterDivision(gain, ", ".join(changes), values)


def division(
    profile: Profile, shape: Shape, card_gib: float, *, any_share: bool = True
) -> tuple[Division, Division | None, float]:
    """Return the batch's current division, a faster one (None if there is none), and the speed-up as a factor. With
    `any_share`, vLLM's share may change, too."""
    batch, spec = profile.batch, profile.spec
    micro_batch, passes = (batch.get(name) for name in DIVISION_FIELDS)
    current = Division(micro_batch or 8, passes or 1, spec.vllm_share)
    length = _length(profile)

    def seconds(candidate: Division) -> float | None:
        if candidate.share != current.share and not any_share:
            return None
        batch_sizes = dict(zip(DIVISION_FIELDS, (candidate.micro_batch, candidate.passes), strict=True))
        changed_profile = replace(profile, spec=spec.with_vllm_share(candidate.share), batch={**batch, **batch_sizes})
        memory = estimated(changed_profile, shape, card_gib)
        if not is_roomy(memory, longest=length, servers_too=candidate.share != current.share):
            return None
        cache = inf if memory.serving is None else memory.serving.sequences(length)
        return step_s(_work(changed_profile, length), changed_profile.spec, shape.total, room=cache)

    faster_division = None if spec.trainer_gpus < 1 or spec.deepspeed else quickest(current, seconds)
    before_s, after_s = seconds(current), seconds(faster_division) if faster_division else None
    return current, faster_division, before_s / after_s if before_s and after_s else 1.0


def _length(profile: Profile) -> int:
    return PROMPT_TOKENS + profile.batch.get("max_completion_length", COMPLETION_TOKENS)


def _work(profile: Profile, length: int) -> StepWorkload:
    batch = profile.batch
    micro_batch, passes = (batch[name] for name in DIVISION_FIELDS)
    repeats = batch.get("num_iterations", 1)
    completions = micro_batch * passes * max(profile.spec.processes, 1) / repeats
    return StepWorkload(completions, length, micro_batch, passes, length - PROMPT_TOKENS, 1 / repeats)


def fitted_models(profile: Profile, card_gib: float) -> list[FittedModel]:
    """Estimate the usual models under a profile, smallest first."""
    return [_fitted(profile, name, card_gib) for name in LADDER]


@dataclass(frozen=True)
class ProfileMemory:
    """Memory section of the profile's page."""

    sentence: str
    unmeasured: bool
    models: list[str]
    model: str
    card_gib: float
    view: MemoryView
    room: FasterDivision | None
    guide: dict[str, int]
    """Form fields with the batch division of a built-in profile's original setup; {} if the profile uses it."""
    divided_for: str
    """Model for which a built-in profile's batch was divided, or ""."""

    def values_to(self, use: str) -> dict[str, Any]:
        """Return the form fields that the page's button `use` changes, with their new values."""
        values: dict[str, dict[str, Any]] = {"memory": self.room.values if self.room else {}, "guide": {**self.guide}}
        return values.get(use, {})


def on_page(row: HardwareProfile, model: str, card: str) -> ProfileMemory | None:
    """Build the section for a requested model and GPU size; return None for CPU profiles and those that can't be
    read."""
    try:
        profile = profile_of(row)
    except ContractError:
        return None
    if profile.spec.trainer_gpus < 1:
        return None
    intended_gib, host = card_of(row)
    shapes = {name: known_shape(name) for name in LADDER} | _inspected_shapes()
    shown_model = model if model in shapes else largest_fitting(profile, intended_gib) or LADDER[0]
    shown_gib = _size(card) or intended_gib
    memory = estimated(profile, shapes[shown_model], shown_gib)
    built_in = shipped_as(row)
    guide = built_in.guide if built_in is not None else {}
    has_guide = all(row.batch.get(name) == number for name, number in guide.items())
    return ProfileMemory(
        sentence(profile, intended_gib, host),
        built_in is not None and not built_in.measured,
        list(shapes),
        shown_model,
        shown_gib,
        view(memory, length=_length(profile), where=f"{shown_model} on GPUs with {shown_gib:.3g} GiB"),
        room(profile, shapes[shown_model], shown_gib),
        {} if has_guide else guide,
        built_in.model if built_in is not None else "",
    )


def largest_fitting(profile: Profile, card_gib: float) -> str:
    """Return the name of the largest usual model that fits, or "" if none does."""
    return next((model.name for model in reversed(fitted_models(profile, card_gib)) if model.fits), "")


def _size(entered_size: str) -> float | None:
    try:
        gib = float(entered_size)
    except ValueError:
        return None
    return gib if 1 <= gib <= LARGEST_CARD_GIB else None


def _inspected_shapes() -> dict[str, Shape]:
    rows = ModelInspection.objects.filter(answered_at__isnull=False).order_by("-answered_at")[:MAX_INSPECTED]
    facts = {row.model: row.answer for row in reversed(rows) if isinstance(row.answer, dict) and row.answer.get("ok")}
    shapes = {model: shape_of(config) for model, config in facts.items() if not config.get("quantization")}
    return {model: shape for model, shape in shapes.items() if shape is not None}


def _fitted(profile: Profile, name: str, card_gib: float) -> FittedModel:
    memory = estimated(profile, known_shape(name), card_gib)
    needed_gib = max((gpu.needed for gpu in memory.gpus if gpu.role != "server"), default=0.0)
    has_room = all(gpu.needed <= gpu.card_gib for gpu in memory.gpus)
    has_cache = memory.serving is None or memory.serving.sequences(PROMPT_TOKENS + COMPLETION_TOKENS) >= 1
    return FittedModel(name, needed_gib, has_room and has_cache)


def sentence(profile: Profile, card_gib: float, host: str = "") -> str:
    """Describe in a sentence which usual models fit on GPUs of this size (those of `host`); return "" for a CPU
    profile."""
    if profile.spec.trainer_gpus < 1:
        return ""
    models = fitted_models(profile, card_gib)
    fitting_models = [model for model in models if model.fits]
    too_large = next((model for model in models if not model.fits), None)
    plural = profile.spec.trainer_gpus + profile.spec.server_gpus > 1
    cards, hold = (f"GPUs with {card_gib:.3g} GiB", "hold") if plural else (f"a GPU with {card_gib:.3g} GiB", "holds")
    estimated_for = f"Estimated for {host}" if host else "Estimated"
    if not fitting_models:
        requirement = f"{models[0].name} needs {significant(models[0].needed_gib)} GiB"
        return f"{estimated_for}: {cards} {hold} none of the usual models; {requirement}."
    largest = fitting_models[-1]
    fit = f"{estimated_for}: {cards} {hold} models up to {largest.name} ({significant(largest.needed_gib)} GiB)"
    return f"{fit}; {too_large.name} does not fit." if too_large else f"{fit}."
