"""The facts in a run page's head: model, dataset, rewards, profile, place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.platform.templatetags.figures import ago
from controlplane.platform.templatetags.optional import link
from runs.engine.models import Run
from runs.engine.sentences import placement_text
from runs.engine.warm import overview as warm_servers
from runs.engine.warm.overview import WarmLine
from workers.contract.run import jobs

UNKNOWN = "–"


@dataclass(frozen=True)
class Making:
    label: str
    icon: str
    text: str | SafeString
    title: str = ""


def makings(run: Run) -> Iterator[Making]:
    model = _value_at(run.spec, "model", "path")
    yield Making("Model", "box", _model_name(model), model)
    if run.kind != jobs.WARM:
        version = run.dataset_version
        address = reverse("dataset_version", args=[version.dataset_id, version.number])
        yield Making("Dataset", "database", link(address, f"{version.dataset.name} v{version.number}"))
        yield Making("Rewards", "scale", _rewards(run))
    profile = _value_at(run.spec, "hardware", "profile")
    if run.profile or profile != UNKNOWN:
        yield Making("Profile", "sliders-horizontal", _profile(run, profile))
    yield Making("Where", "server", _where(run))
    if server := warm_servers.server_of(run.latest()):
        yield Making("Server", "flame", format_html("warm: {}", link(reverse("run", args=[server.pk]), server.name)))
    if run.kind == jobs.WARM and (line := warm_servers.line_of(run)):
        every = link(f"{reverse('hardware')}#warm-servers", "all warm servers")
        yield Making("Used by", "users", format_html("{} · {}", _warm_use(line), every))


def _model_name(path: str) -> str:
    """The hub id, or the folder's name."""
    return path.rstrip("/").rsplit("/", 1)[-1] if path.startswith("/") else path


def _rewards(run: Run) -> str | SafeString:
    version = run.reward_version
    if version is None or version.config.deleted_at:
        return SafeString('<span class="soft">deleted</span>')
    return link(reverse("reward_version", args=[version.config_id, version.number]), str(version))


def _profile(run: Run, name: str) -> str | SafeString:
    if run.profile and not run.profile.deleted_at:
        return link(reverse("profile", args=[run.profile_id]), run.profile.name)
    return format_html('{} <span class="soft">(deleted)</span>', name)


def _where(run: Run) -> str | SafeString:
    attempt = run.latest()
    if place := placement_text(attempt):
        bare = (attempt.placement or {}).get("unsandboxed")
        warning = SafeString(' <span class="bad">code runs without a sandbox</span>') if bare else ""
        return format_html("{}{}", link(reverse("hardware"), place), warning)
    return f"{run.host.name}, once it is free" if run.host else "any host that fits"


def _warm_use(line: WarmLine) -> str | SafeString:
    if line.user:
        return link(reverse("run", args=[line.user.pk]), line.user.name)
    if line.stops_at:
        return format_html("nobody for {}; it ends at {}", ago(line.row.idle_since), f"{line.stops_at:%H:%M}")
    return f"nobody: {line.row.leaving}" if line.row.leaving else "nobody"


def _value_at(spec: Any, *path: str) -> str:
    """A text of the frozen spec, which another version may have written."""
    for name in path:
        spec = spec.get(name) if isinstance(spec, dict) else None
    return spec if isinstance(spec, str) and spec else UNKNOWN
