"""A host's card on the Hardware page: every state, word and button that its template draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from controlplane.catalogue.hardware.prices import gpu_hour
from controlplane.platform.accounts.models import User
from controlplane.platform.templatetags.figures import ago, clock, mib, significant, size_in_words
from controlplane.platform.templatetags.optional import attr, link
from runs.engine.disk import HostDiskUse
from runs.engine.hosts import standing
from runs.engine.hosts.view import LEAST_SHM_MIB, GpuView, Holder, HostView, SlotView
from runs.engine.sentences import counted

MODELS_LISTED = 6


@dataclass(frozen=True)
class Chip:
    status: str
    word: str


@dataclass(frozen=True)
class Button:
    label: str
    url: str
    id: str
    tone: str = ""
    """danger | quiet"""


@dataclass(frozen=True)
class Notice:
    grade: str
    icon: str
    title: str
    text: str = ""
    lines: tuple[str, ...] = ()
    after: Holder | None = None
    """The run that left it so; its link opens the text."""
    button: Button | None = None


@dataclass(frozen=True)
class FactText:
    text: str
    kind: str = ""
    """muted | code | link"""
    before: str = ""
    title: str = ""
    url: str = ""

    @property
    def html(self) -> str | SafeString:
        if self.kind == "muted":
            return format_html('<span class="muted">{}</span>', self.text)
        if self.kind == "code":
            return format_html("<code{}>{}</code>", attr("title", self.title), self.text)
        return link(self.url, self.text)


@dataclass(frozen=True)
class Fact:
    label: str
    texts: tuple[FactText, ...]
    inline: bool = False
    """Texts share a line."""

    @property
    def css(self) -> str:
        return "nowrap" if self.inline else ""

    @property
    def separator(self) -> SafeString:
        return SafeString(" · " if self.inline else "<br>")

    bar: list[dict[str, Any]] | None = None
    total_mib: int = 0


@dataclass(frozen=True)
class GpuTile:
    gpu: GpuView

    @property
    def css(self) -> str:
        if self.gpu.holder:
            return "gpu-tile quarantined" if self.gpu.holder.quarantined else "gpu-tile held"
        return "gpu-tile busy" if self.gpu.busy else "gpu-tile"

    @property
    def held(self) -> SafeString | str:
        """Memory of the run that holds the GPU."""
        if self.gpu.holder is None:
            return ""
        words = "left over" if self.gpu.holder.quarantined else "run"
        return format_html("{} {}", words, mib(self.gpu.held_mib))

    @property
    def used_by_another(self) -> bool:
        return self.gpu.busy and self.gpu.holder is None


@dataclass(frozen=True)
class HostCard:
    id: int
    name: str
    hardware: str
    """2 × H200, 1 free"""
    chips: tuple[Chip, ...]
    buttons: tuple[Button, ...]
    draining: bool
    stale: str
    """Why its details may be out of date; "" for a host in reach."""
    quarantines: tuple[Notice, ...]
    notices: tuple[Notice, ...]
    gpus: tuple[GpuTile, ...]
    slots: tuple[SlotView, ...]
    """CPU slots of a host without GPUs."""
    links: Any
    summary: str
    facts: tuple[tuple[Fact, ...], tuple[Fact, ...]]
    """The left and the right column."""
    taken: HostDiskUse | None = None
    """None: the host has not measured its runs."""

    @property
    def css(self) -> str:
        return "card host stale" if self.stale else "card host"

    @property
    def idle_word(self) -> str:
        """State of a GPU or slot that no run holds."""
        return "unknown: out of reach" if self.stale else "free"

    @property
    def last_seen(self) -> str:
        """Heading of the GPUs or slots of a host out of reach."""
        if not self.stale or not (self.gpus or self.slots):
            return ""
        return f"{'GPUs' if self.gpus else 'CPU slots'} as last seen"


def host_card(host: HostView, user: User, taken: HostDiskUse | None = None) -> HostCard:
    return HostCard(
        id=host.row.pk,
        name=host.name,
        hardware=_hardware(host),
        chips=tuple(_chips(host)),
        buttons=tuple(_buttons(host)) if user.may_operate else (),
        draining=host.row.draining,
        stale=_stale(host),
        quarantines=tuple(_quarantines(host, user)),
        notices=tuple(_notices(host, user)),
        gpus=tuple(map(GpuTile, host.gpus)),
        slots=() if host.gpus else host.slots,
        links=host.links,
        summary=format_html_join(" · ", "{}", ((part,) for part in _summary(host))),
        facts=(tuple(_resources(host, user, taken)), tuple(_software(host, user))),
        taken=taken,
    )


def these_end(runs: int) -> str:
    """Begin a sentence about the runs that end with a host."""
    return "This run ends" if runs == 1 else f"These {runs} runs end"


def _hardware(host: HostView) -> str:
    if host.gpus:
        free = f", {host.free_gpus} free" if host.fresh else ""
        return f"{len(host.gpus)} × {', '.join(host.gpu_names)}{free}"
    return "GPUs unknown" if host.gpu_error else f"CPU host, {counted(len(host.slots), 'slot')}"


def _chips(host: HostView) -> Iterator[Chip]:
    yield Chip("good", "in reach") if host.fresh else Chip("warn", "out of reach")
    for grade, word in standing.troubles(host.credential):
        yield Chip(grade, word)
    if host.trainer == "missing":
        yield Chip("bad", "trainer missing")
    elif host.trainer != "ready":
        yield Chip("checking", "trainer: checking")
    if host.sandbox.bare:
        yield Chip("bad", "code runs without a sandbox")
    elif host.sandbox.reported and not host.sandbox.backend:
        yield Chip("warn", "no sandbox")
    if host.row.draining:
        yield Chip("warn", "accepts no new runs")


def _buttons(host: HostView) -> Iterator[Button]:
    pk = host.row.pk
    if not host.fresh and host.running:
        yield Button("Mark host as lost…", reverse("give_up_host", args=[pk]), f"give-up-{pk}", "danger")
    if host.credential is not None and host.credential.revoked_at is None:
        yield Button("Revoke…", reverse("revoke_host", args=[pk]), f"revoke-{pk}", "quiet")
    if host.removable:
        yield Button("Remove…", reverse("remove_host", args=[pk]), f"remove-{pk}")


def _stale(host: HostView) -> str:
    if host.fresh:
        return ""
    if words := standing.out_of_service(host.credential):
        return words
    effect = "Launches can't reach it; its runs continue."
    if host.announced_at is None:
        return f"Never connected. {effect}"
    words = "Out of reach since {} ({} ago): the details below date from then. " + effect
    return format_html(words, clock(host.announced_at), ago(host.announced_at))


def _quarantines(host: HostView, user: User) -> Iterator[Notice]:
    for quarantine in host.quarantines:
        several, holder = quarantine.several, quarantine.holder
        address = reverse("release_lease", args=[holder.lease_id])
        yield Notice(
            "warn",
            "triangle-alert",
            f"{quarantine.label} of {host.name} {'are' if several else 'is'} in quarantine.",
            f"{'they were' if several else 'it was'} not proved free, so no run gets {'them' if several else 'it'}.",
            after=holder,
            button=Button("Release…", address, f"release-{holder.lease_id}") if user.may_operate else None,
        )


def _notices(host: HostView, user: User) -> Iterator[Notice]:
    if host.gpu_error:
        advice = format_html(
            "The driver reports: {}. Check <code>nvidia-smi</code> and the kernel log there; no runs start on them "
            "meanwhile.",
            host.gpu_error,
        )
        yield Notice("bad", "circle-alert", f"The GPUs of {host.name} do not respond.", advice)
    if host.sandbox.reported and not host.sandbox.backend:
        yield _no_sandbox(host, user)


def _no_sandbox(host: HostView, user: User) -> Notice:
    box, address, id_ = host.sandbox, reverse("host_unsandboxed", args=[host.row.pk]), f"unsandboxed-{host.row.pk}"
    lines = tuple(f"{name}: {why}" for name, why in box.lacks)
    if box.allowed:
        by = host.row.unsandboxed_by
        title = f"Code that models write runs on {host.name} without a sandbox."
        text = " ".join([*([f"{by.username} allowed it."] if by else []), box.reach])
        button = Button("Forbid it…", address, id_)
        return Notice("bad", "shield-alert", title, text, lines, button=button if user.may_administer else None)
    button = Button("Allow it…", address, id_, "danger")
    return Notice(
        "warn",
        "shield-alert",
        f"{host.name} has no sandbox.",
        "Runs whose rewards run code don’t start there.",
        lines,
        button=button if user.may_administer else None,
    )


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


def _resources(host: HostView, user: User, taken: HostDiskUse | None) -> Iterator[Fact]:
    yield _memory(host)
    yield _disk(host, taken)
    if host.sharing:
        yield Fact("Runs folder", (FactText(f"shared with {', '.join(host.sharing)}"),))
    yield Fact("CPU", (FactText(_cpu(host)),))
    if host.gpus:
        yield Fact("CPU slots", tuple(_slot(slot, host) for slot in host.slots) or _muted("none"), inline=True)
        if gpu_hour(host.row) or user.may_administer:
            yield Fact("GPU-hour", tuple(_price(host, user)), inline=True)
    if user.may_administer:
        yield Fact("Served models", tuple(_serving(host)), inline=True)


def _price(host: HostView, user: User) -> Iterator[FactText]:
    hour = gpu_hour(host.row)
    yield FactText(str(hour)) if hour else FactText("no price", "muted")
    if user.may_administer:
        yield FactText("Change…" if hour else "Set…", "link", url=reverse("host_price", args=[host.row.pk]))


def _serving(host: HostView) -> Iterator[FactText]:
    yield FactText(f"listen on {host.row.serve_address or '127.0.0.1'}")
    yield FactText("Change…", "link", url=reverse("host_serving", args=[host.row.pk]))


def _cpu(host: HostView) -> str:
    cores = counted(host.cpu_count, "core") if host.cpu_count else "–"
    if host.cpu_percent is None:
        return cores
    return format_html('{}, {}<span class="unit">%</span> busy', cores, significant(host.cpu_percent, 2))


def _memory(host: HostView) -> Fact:
    if not host.memory_mib:
        return Fact("Memory", (FactText("–"),))
    words = format_html("{} of {} in use", mib(host.memory_used_mib), mib(host.memory_mib))
    return Fact("Memory", (FactText(words),), bar=host.memory_parts, total_mib=host.memory_mib)


def _disk(host: HostView, taken: HostDiskUse | None) -> Fact:
    if host.disk_free_mib is None:
        return Fact("Disk", (FactText("–"),))
    if not host.disk_total_mib:
        return Fact("Disk", (FactText(format_html("{} free", mib(host.disk_free_mib))),))
    words = format_html("{} of {} free", mib(host.disk_free_mib), mib(host.disk_total_mib))
    texts, parts = [FactText(words)], host.disk_parts
    if taken is not None:
        texts.append(FactText(f"{counted(taken.runs, 'run')} take {size_in_words(taken.bytes)}", "muted"))
        runs = min(taken.bytes / 2**20, parts[0]["value"])
        parts = [{"label": "runs", "value": runs, "colour": "c1"}, {**parts[0], "value": parts[0]["value"] - runs}]
    return Fact("Disk", tuple(texts), bar=parts, total_mib=host.disk_total_mib)


def _slot(slot: SlotView, host: HostView) -> FactText:
    if slot.holder is None:
        return FactText("free" if host.fresh else "unknown", "muted", before=str(slot.index))
    return FactText(slot.holder.run_name, "link", before=str(slot.index), url=reverse("run", args=[slot.holder.run_id]))


def _software(host: HostView, user: User) -> Iterator[Fact]:
    if host.driver:
        yield Fact("Driver", (FactText(host.driver),))
    if host.cuda is not None:
        yield Fact("CUDA", (_cuda(host.cuda),))
    if host.shm_mib is not None and host.shm_mib < LEAST_SHM_MIB:
        words = format_html("{} (/dev/shm): too little for vLLM and several ranks", mib(host.shm_mib))
        yield Fact("Shared memory", (FactText(words, "muted"),))
    yield Fact("Sandbox", tuple(_sandbox(host, user)))
    yield Fact("Boot", tuple(_boot(host)) or _muted("not reported"), inline=True)
    versions = tuple(FactText(f"{name} {version}") for name, version in host.versions.items())
    yield Fact("Versions", versions or _muted("not reported"), inline=True)
    yield Fact("Models", tuple(_models(host)))
    for label, text in standing.facts(host.credential):
        yield Fact(label, (FactText(text),))


def _cuda(cuda: dict[str, Any]) -> FactText:
    if not cuda["built_for"]:
        return FactText("none: torch is a CPU build, and the trainer can't use the GPUs", "muted")
    usable = "torch can use the GPUs" if cuda["usable"] else "torch can't use the GPUs with this driver"
    return FactText(f"{cuda['built_for']}, {usable}", "" if cuda["usable"] else "muted")


def _sandbox(host: HostView, user: User) -> Iterator[FactText]:
    box = host.sandbox
    if not box.backend:
        yield FactText("none works" if box.reported else "not reported yet", "muted")
        return
    yield FactText(box.backend)
    for name, why in box.lacks:
        yield FactText(f"{name}: {why}", "muted")
    if box.allowed:
        yield FactText("Not required: an admin allows code without one.", "muted")
        if user.may_administer:
            yield FactText("Forbid it…", "link", url=reverse("host_unsandboxed", args=[host.row.pk]))


def _boot(host: HostView) -> Iterator[FactText]:
    if host.booted_at:
        yield FactText(format_html("{} ago", ago(host.booted_at)))
    if host.boot_id:
        yield FactText(host.boot_id[:8], "code", before="id", title=host.boot_id)


def _models(host: HostView) -> Iterator[FactText]:
    if not host.models:
        where = f" in {', '.join(host.model_roots)}" if host.model_roots else ""
        yield FactText(f"none found{where}", "muted")
    for model in host.models[:MODELS_LISTED]:
        yield FactText(model, "code")
    if len(host.models) > MODELS_LISTED:
        yield FactText(f"and {len(host.models) - MODELS_LISTED} more", "muted")


def _muted(words: str) -> tuple[FactText, ...]:
    return (FactText(words, "muted"),)
