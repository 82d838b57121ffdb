"""The facts on a model's page: quality, files, lineage, and the reason if it can't be used."""

from collections.abc import Iterable, Iterator

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from controlplane.platform.templatetags.figures import ago, change, fixed, percent, sig, size
from controlplane.platform.templatetags.lucide import lucide
from controlplane.platform.templatetags.optional import link
from runs.engine.artifacts.saved_models import SavedModel
from runs.insight.evaluations.results import EvaluationResult
from runs.insight.quality import Quality

Fact = tuple[str, str | SafeString]


def quality_facts(model: SavedModel, quality: Quality, newest: EvaluationResult | None) -> Iterator[Fact]:
    """Yield the facts about a model's quality. `newest` is the newest evaluation of the model itself."""
    run = reverse("run", args=[model.trained_by.pk])
    steps = model.trained_by.max_steps
    yield "Step", _append(sig(model.checkpoint.step, 9), f"of {sig(steps, 9)}" if steps else "")
    for index, (label, value) in enumerate(quality.figures):
        gain = quality.gain if index == 0 else None
        yield label, _append(sig(value), "" if gain is None else f"{change(gain)} since the start", GAIN_HELP)
    if quality.last is not None:
        rewards = link(f"{run}?tab=charts", f"last {sig(quality.last)}, best {sig(quality.best)}")
        yield "Run’s reward", _append(rewards, f"at step {sig(quality.best_step, 9)}")
    yield "Evaluation", _evaluation(newest)
    if quality.health:
        findings = quality.health.findings
        yield "Run’s health", _append(link(run, quality.health.word), findings[0]["title"] if findings else "")


def model_facts(model: SavedModel) -> Iterator[Fact]:
    checkpoint = model.checkpoint
    yield "Kind", checkpoint.kind
    yield "Size", size(model.bytes)
    yield "Saved", format_html("{} ago", ago(checkpoint.event.at))
    if model.host:
        yield "Host", link(reverse("hardware"), model.host.name)
    if checkpoint.stored:
        yield "Store", "a copy that any host can use"
    yield "Folder", _folder(checkpoint.path or checkpoint.folder)


def lineage_facts(model: SavedModel, siblings: Iterable[SavedModel]) -> Iterator[Fact]:
    run, checkpoint, version = model.run, model.checkpoint, model.run.dataset_version
    yield "Base model", format_html("<code>{}</code>", model.base)
    trained_by = link(reverse("run", args=[model.trained_by.pk]), model.trained_by.name)
    yield "Trained by", format_html("{}, step {}", trained_by, sig(checkpoint.step, 9))
    if run != model.trained_by:
        yield "Merged by", link(reverse("run", args=[run.pk]), run.pk)
    dataset = link(reverse("dataset_version", args=[version.dataset_id, version.number]), str(version))
    checksum = str(run.spec.get("data", {}).get("sha256", ""))[:12]
    code = format_html('<code class="muted small" title="sha256 of its rows">{}</code>', checksum)
    yield "Dataset", format_html("{} {}", dataset, code)
    rewards = run.reward_version
    deleted = SafeString('<span class="muted">deleted since</span>')
    yield (
        "Rewards",
        link(reverse("reward_version", args=[rewards.config_id, rewards.number]), str(rewards)) if rewards else deleted,
    )
    steps = [
        (reverse("model", args=[sibling.checkpoint.event.pk]), sig(sibling.checkpoint.step, 9)) for sibling in siblings
    ]
    if steps:
        yield "Other steps", format_html_join(" ", '<a href="{}">{}</a>', steps)
    if checkpoint.is_adapter:
        lora = run.spec.get("lora") or {}
        yield "LoRA", f"rank {lora.get('r')}, α {lora.get('alpha')}"


def why_unusable(model: SavedModel) -> str | SafeString:
    """Return why a checkpoint can't be used, or "" if it can."""
    checkpoint, deletion = model.checkpoint, model.checkpoint.deletion
    if checkpoint.usable:
        return ""
    if checkpoint.removed and deletion:
        return format_html("This model was deleted {} ago.", ago(deletion.at))
    if checkpoint.removed:
        return "This model no longer exists on its host."
    if checkpoint.is_being_deleted and deletion:
        text = (
            "{} asked {} {} ago to delete this model; the host has not responded yet. If it doesn’t, delete the model "
            "again."
        )
        return format_html(text, deletion.actor, model.host.name if model.host else "", ago(deletion.at))
    if checkpoint.superseded:
        return "This checkpoint is obsolete: the run was later resumed from an earlier step."
    return "A host refused to use this checkpoint: a file is missing or truncated, or it doesn’t fit the run."


GAIN_HELP = "Mean of the 10 steps up to this model minus mean of the first 10"


def _evaluation(newest: EvaluationResult | None) -> str | SafeString:
    if newest is None:
        return SafeString('<span class="muted">no evaluation of this model yet</span>')
    run = reverse("run", args=[newest.run.pk])
    if newest.live:
        return link(run, "in progress")
    pass_rate = format_html("pass@1 {}, ", percent(newest.pass_1)) if newest.pass_1 is not None else ""
    figures = format_html("{}reward {}", pass_rate, fixed(newest.reward))
    gain = change(newest.gain.mean) if newest.gain else ""
    return _append(link(f"{run}?tab=completions", figures), gain, "Change in reward from the model before training")


def _folder(path: str) -> SafeString:
    return format_html(
        '<span class="folder"><code>{}</code> <button class="button icon small quiet" type="button" data-copy="{}" '
        'aria-label="Copy the folder" title="Copy">{}</button></span>',
        path,
        path,
        lucide("copy", size=12),
    )


def _append(text: str | SafeString, detail: str, title: str = "") -> SafeString:
    title_attribute = format_html(' title="{}"', title) if title else ""
    detail_html = format_html(' <span class="muted"{}>{}</span>', title_attribute, detail) if detail else ""
    return format_html("{}{}", text, detail_html)
