"""A host's card on the Hardware page: all states, sentences and buttons that its template renders."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from controlplane.catalogue.hardware.prices import gpu_hour
from controlplane.platform.accounts.models import User
from controlplane.platform.templatetags.figures import ago, clock, mib, significant, size_in_words
from controlplane.platform.templatetags.optional import link
from runs.engine.disk import HostDiskUse
from runs.engine.hosts import membership
from runs.engine.hosts.view import MIN_SHM_MIB, GpuView, Holder, HostView, SlotView
from runs.engine.sentences import counted

MODELS_LISTED = 6


@dataclass(frozen=True)
class Button:
    label: str
    url: str
    id: str
    tone: str = ""
    """`danger`, `quiet` or ""."""


@dataclass(frozen=True)
class Notice:
    grade: str
    icon: str
    title: str
    text: str = ""
    lines: tuple[str, ...] = ()
    after: Holder | None = None
    """The run that caused it, linked at the start of the text."""
    button: Button | None = None


@dataclass(frozen=True)
class Fact:
    label: str
    texts: tuple[str, ...]
    inline: bool = False

    bar: list[dict[str, Any]] | None = None
    total_mib: int = 0

    @property
    def css(self) -> str:
        return "nowrap" if self.inline else ""

    @property
    def separator(self) -> SafeString:
        return SafeString(" · " if self.inline else "<br>")


@dataclass(frozen=True)
class GpuTile:
    gpu: GpuView

    @property
    def css(self) -> str:
        if self.gpu.holder:
            return "gpu-tile quarantined" if self.gpu.holder.quarantined else "gpu-tile held"
        return "gpu-tile busy" if self.gpu.busy else "gpu-tile"

    @property
    def run_memory(self) -> SafeString | str:
        if self.gpu.holder is None:
            return ""
        return format_html("{} {}", "left over" if self.gpu.holder.quarantined else "run", mib(self.gpu.held_mib))

    @property
    def used_by_another(self) -> bool:
        return self.gpu.busy and self.gpu.holder is None


def host_card(host: HostView, user: User, disk_use: HostDiskUse | None = None) -> dict[str, Any]:
    """Describe a host for its card. `disk_use` is None if the host has not measured the disk use of its runs."""
    notice, slots = _stale_notice(host), () if host.gpus else host.slots
    return {
        "id": host.row.pk,
        "name": host.name,
        "hardware": _hardware(host),
        "css": "card host stale" if notice else "card host",
        "chips": list(_chips(host)),
        "buttons": list(_buttons(host)) if user.may_operate else [],
        "draining": host.row.draining,
        "stale": notice,
        "quarantines": list(_quarantines(host, user)),
        "notices": list(_notices(host, user)),
        "gpus": list(map(GpuTile, host.gpus)),
        "slots": slots,
        "idle_word": "unknown: unreachable" if notice else "free",
        "last_seen": f"{'GPUs' if host.gpus else 'CPU slots'} as last seen" if notice and (host.gpus or slots) else "",
        "links": host.links,
        "summary": format_html_join(" · ", "{}", ((part,) for part in _summary(host))),
        "facts": [list(_resources(host, user, disk_use)), list(_software(host, user))],
        "taken": disk_use,
    }


def these_end(runs: int) -> str:
    return "This run ends" if runs == 1 else f"These {runs} runs end"


def _hardware(host: HostView) -> str:
    if host.gpus:
        free_note = f", {host.free_gpus} free" if host.fresh else ""
        return f"{len(host.gpus)} × {', '.join(host.gpu_names)}{free_note}"
    return "GPUs unknown" if host.gpu_error else f"CPU host, {counted(len(host.slots), 'slot')}"


def _chips(host: HostView) -> Iterator[tuple[str, str]]:
    yield ("good", "reachable") if host.fresh else ("warn", "unreachable")
    yield from membership.troubles(host.credential)
    if host.trainer == "missing":
        yield "bad", "trainer missing"
    elif host.trainer != "ready":
        yield "checking", "trainer: checking"
    if host.sandbox.bare:
        yield "bad", "code runs without a sandbox"
    elif host.sandbox.reported and not host.sandbox.backend:
        yield "warn", "no sandbox"
    if host.row.draining:
        yield "warn", "accepts no new runs"


def _buttons(host: HostView) -> Iterator[Button]:
    pk = host.row.pk
    if not host.fresh and host.running:
        yield Button("Mark host as lost…", reverse("give_up_host", args=[pk]), f"give-up-{pk}", "danger")
    if host.credential is not None and host.credential.revoked_at is None:
        yield Button("Revoke…", reverse("revoke_host", args=[pk]), f"revoke-{pk}", "quiet")
    if host.removable:
        yield Button("Remove…", reverse("remove_host", args=[pk]), f"remove-{pk}")


def _stale_notice(host: HostView) -> str:
    if host.fresh:
        return ""
    if reason := membership.out_of_service(host.credential):
        return reason
    effect = "No new runs can be launched on it; its current runs continue."
    if host.announced_at is None:
        return f"Never connected. {effect}"
    sentence = "Unreachable since {} ({} ago); the details below date from then. " + effect
    return format_html(sentence, clock(host.announced_at), ago(host.announced_at))


def _quarantines(host: HostView, user: User) -> Iterator[Notice]:
    for quarantine in host.quarantines:
        is_plural, holder = quarantine.several, quarantine.holder
        address = reverse("release_lease", args=[holder.lease_id])
        yield Notice(
            "warn",
            "triangle-alert",
            f"{quarantine.label} of {host.name} {'are' if is_plural else 'is'} in quarantine.",
            f"{'they were' if is_plural else 'it was'} not proved free, so no run gets "
            f"{'them' if is_plural else 'it'}.",
            after=holder,
            button=Button("Release…", address, f"release-{holder.lease_id}") if user.may_operate else None,
        )


def _notices(host: HostView, user: User) -> Iterator[Notice]:
    if host.gpu_error:
        advice = format_html(
            "The driver reports: {}. Check <code>nvidia-smi</code> and the kernel log there. Until the GPUs respond, "
            "no runs start on them.",
            host.gpu_error,
        )
        yield Notice("bad", "circle-alert", f"The GPUs of {host.name} aren't responding.", advice)
    if host.sandbox.reported and not host.sandbox.backend:
        yield _no_sandbox(host, user)


def _no_sandbox(host: HostView, user: User) -> Notice:
    box, address, id_ = host.sandbox, reverse("host_unsandboxed", args=[host.row.pk]), f"unsandboxed-{host.row.pk}"
    allowed_by, grade, button = host.row.unsandboxed_by, "warn", Button("Allow it…", address, id_, "danger")
    title, text = f"{host.name} has no sandbox.", "Runs with rewards that run code don’t start there."
    if box.allowed:
        grade, button = "bad", Button("Forbid it…", address, id_)
        title = f"Code that models write runs on {host.name} without a sandbox."
        text = f"{allowed_by.username} allowed it. {box.reach}" if allowed_by else box.reach
    lines = tuple(f"{name}: {why}" for name, why in box.lacks)
    return Notice(grade, "shield-alert", title, text, lines, button=button if user.may_administer else None)


def _summary(host: HostView) -> Iterator[str]:
    if host.memory_mib:
        yield format_html("{} of {} memory", mib(host.memory_used_mib), mib(host.memory_mib))
    if host.disk_free_mib is not None:
        yield format_html("{} disk free", mib(host.disk_free_mib))
    if host.cpu_count:
        yield counted(host.cpu_count, "core")
    if host.driver:
        yield f"driver {host.driver}"
    for package, name in (("torch", "torch"), ("vllm", "vLLM")):
        if host.versions.get(package):
            yield f"{name} {host.versions[package]}"
    yield counted(len(host.models), "model")


def _resources(host: HostView, user: User, disk_use: HostDiskUse | None) -> Iterator[Fact]:
    yield _memory(host)
    yield _disk(host, disk_use)
    if host.sharing:
        yield Fact("Runs folder", (f"shared with {', '.join(host.sharing)}",))
    yield Fact("CPU", (_cpu(host),))
    if host.gpus:
        yield Fact("CPU slots", tuple(_slot(slot, host) for slot in host.slots) or (_muted("none"),), inline=True)
        if gpu_hour(host.row) or user.may_administer:
            yield Fact("GPU-hour", tuple(_price(host, user)), inline=True)
    if user.may_administer:
        change = link(reverse("host_serving", args=[host.row.pk]), "Change…")
        yield Fact("Served models", (f"listen on {host.row.serve_address or '127.0.0.1'}", change), inline=True)


def _price(host: HostView, user: User) -> Iterator[str]:
    hour = gpu_hour(host.row)
    yield str(hour) if hour else _muted("no price")
    if user.may_administer:
        yield link(reverse("host_price", args=[host.row.pk]), "Change…" if hour else "Set…")


def _cpu(host: HostView) -> str:
    cores = counted(host.cpu_count, "core") if host.cpu_count else "–"
    if host.cpu_percent is None:
        return cores
    return format_html('{}, {}<span class="unit">%</span> busy', cores, significant(host.cpu_percent, 2))


def _memory(host: HostView) -> Fact:
    if not host.memory_mib:
        return Fact("Memory", ("–",))
    usage = format_html("{} of {} in use", mib(host.memory_used_mib), mib(host.memory_mib))
    return Fact("Memory", (usage,), bar=host.memory_parts, total_mib=host.memory_mib)


def _disk(host: HostView, disk_use: HostDiskUse | None) -> Fact:
    if host.disk_free_mib is None:
        return Fact("Disk", ("–",))
    if not host.disk_total_mib:
        return Fact("Disk", (format_html("{} free", mib(host.disk_free_mib)),))
    free_space = format_html("{} of {} free", mib(host.disk_free_mib), mib(host.disk_total_mib))
    texts, parts = [free_space], host.disk_parts
    if disk_use is not None:
        texts.append(_muted(f"{counted(disk_use.runs, 'run')} take {size_in_words(disk_use.bytes)}"))
        runs = min(disk_use.bytes / 2**20, parts[0]["value"])
        parts = [{"label": "runs", "value": runs, "colour": "c1"}, {**parts[0], "value": parts[0]["value"] - runs}]
    return Fact("Disk", tuple(texts), bar=parts, total_mib=host.disk_total_mib)


def _slot(slot: SlotView, host: HostView) -> str:
    idle_word, holder = "free" if host.fresh else "unknown", slot.holder
    run = link(reverse("run", args=[holder.run_id]), holder.run_name) if holder else _muted(idle_word)
    return format_html("{} {}", slot.index, run)


def _software(host: HostView, user: User) -> Iterator[Fact]:
    if host.driver:
        yield Fact("Driver", (host.driver,))
    if host.cuda is not None:
        yield Fact("CUDA", (_cuda(host.cuda),))
    if host.shm_mib is not None and host.shm_mib < MIN_SHM_MIB:
        size = format_html("{} (/dev/shm): not enough for vLLM and several ranks", mib(host.shm_mib))
        yield Fact("Shared memory", (_muted(size),))
    yield Fact("Sandbox", tuple(_sandbox(host, user)))
    yield Fact("Boot", tuple(_boot(host)) or (_muted("not reported"),), inline=True)
    versions = tuple(f"{name} {version}" for name, version in host.versions.items())
    yield Fact("Versions", versions or (_muted("not reported"),), inline=True)
    yield Fact("Models", tuple(_models(host)))
    for label, text in membership.facts(host.credential):
        yield Fact(label, (text,))


def _cuda(cuda: dict[str, Any]) -> str:
    if not cuda["built_for"]:
        return _muted("none: torch is a CPU build, and the trainer can't use the GPUs")
    if cuda["usable"]:
        return f"{cuda['built_for']}, torch can use the GPUs"
    return _muted(f"{cuda['built_for']}, torch can't use the GPUs with this driver")


def _sandbox(host: HostView, user: User) -> Iterator[str]:
    box = host.sandbox
    if not box.backend:
        yield _muted("none that works" if box.reported else "not reported yet")
        return
    yield box.backend
    for name, why in box.lacks:
        yield _muted(f"{name}: {why}")
    if box.allowed:
        yield _muted("Not required: an admin allowed code to run without it.")
        if user.may_administer:
            yield link(reverse("host_unsandboxed", args=[host.row.pk]), "Forbid it…")


def _boot(host: HostView) -> Iterator[str]:
    if host.booted_at:
        yield format_html("{} ago", ago(host.booted_at))
    if host.boot_id:
        yield format_html('id <code title="{}">{}</code>', host.boot_id, host.boot_id[:8])


def _models(host: HostView) -> Iterator[str]:
    if not host.models:
        location = f" in {', '.join(host.model_roots)}" if host.model_roots else ""
        yield _muted(f"none found{location}")
    for model in host.models[:MODELS_LISTED]:
        yield format_html("<code>{}</code>", model)
    if len(host.models) > MODELS_LISTED:
        yield _muted(f"and {len(host.models) - MODELS_LISTED} more")


def _muted(text: str) -> SafeString:
    return format_html('<span class="muted">{}</span>', text)
