"""The model card of a saved model, in the hub's format: README.md with YAML front matter.

All names are escaped, so that none can end the front matter, a table or a code block.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import yaml

from controlplane.catalogue.datasets.models import DatasetVersion
from runs.engine import checkpoints
from runs.engine.checkpoints import Checkpoint
from runs.engine.jobs import results as job_results
from runs.engine.models import Run
from runs.insight.comparing.comparison import part
from runs.insight.completions import solving
from runs.insight.evaluations import results
from runs.insight.evaluations.results import EvaluationResult
from workers.contract.run.batch_rules import Batch
from workers.contract.run.row_names import rows_of
from workers.contract.stack.training_rules import TRL_DEFAULTS
from workers.rewards.library import LIBRARY

MAX_BYTES = 64 * 1024
ALWAYS_LISTED = ("learning_rate", "beta", "loss_type", "num_generations", "max_completion_length", "temperature")
"""GRPOConfig arguments that readers look for, listed whether or not the run set them."""
HOUSEKEEPING = re.compile(r"(save|logging|eval|log|per_device_eval|dataloader)_.*|num_generations_eval|report_to")
"""Arguments that don't affect what the model learns."""
_HUB_ID = re.compile(r"([A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_CACHED = re.compile(r"models--(?P<owner>[\w.-]+?)--(?P<name>[\w.-]+)/snapshots/[0-9a-f]{40}", re.ASCII)
_MARKDOWN = re.compile(r"[\\`*{}\[\]<>()#!|~&$@]|(?<!\w)_|_(?!\w)|:(?=//)|(?<=www)\.", re.IGNORECASE)
"""Markdown's special characters within a line; names never begin a line."""
_DATE = "%-d %B %Y"
_LINKS = {
    "GRPO": "https://huggingface.co/papers/2402.03300",
    "TRL": "https://huggingface.co/docs/trl",
}


def text(checkpoint: Checkpoint) -> str:
    """Return the model's README.md, without facts that are unknown."""
    run = checkpoint.run.source or checkpoint.run
    parts = [
        _head(checkpoint, run),
        [f"# {_plain_text(run.name)}, step {checkpoint.step}", "", _summary(checkpoint, run)],
        _training(checkpoint, run),
        _rewards(run),
        _settings(run),
        _lora(run),
        _evaluations(checkpoint, run),
        _benchmarks(checkpoint),
        _versions(checkpoint),
        _loading(checkpoint, run),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def hub_id(path: str) -> str:
    """Return the hub id of a model given as a hub id or as a folder of the hub's cache, or "" for any other folder."""
    if match := _CACHED.search(path):
        return f"{match['owner']}/{match['name']}"
    return path if _HUB_ID.fullmatch(path) else ""


def base_name(checkpoint: Checkpoint) -> str:
    """Return the public name of the base model: its hub id, or the last part of its folder."""
    return _public_name(_base(checkpoint.run.source or checkpoint.run))


def _head(checkpoint: Checkpoint, run: Run) -> list[str]:
    base, dataset = _base(run), _hub_dataset(run.dataset_version)
    head: dict[str, Any] = {
        **({"base_model": base} if hub_id(base) else {}),
        "library_name": "peft" if checkpoint.is_adapter else "transformers",
        "pipeline_tag": "text-generation",
        **({"datasets": [dataset]} if dataset else {}),
        "tags": ["grpo", "trl", *(["lora"] if run.spec.get("lora") else [])],
    }
    lines = ["---"]
    for name, value in head.items():
        # Double quotes allow any string to be escaped within one line.
        flow = yaml.safe_dump(value, default_flow_style=True, default_style='"', width=10**6)
        value_text = str(flow).removesuffix("...\n").strip()
        lines.append(f"{name}: {value_text}")
    return [*lines, "---"]


def _summary(checkpoint: Checkpoint, run: Run) -> str:
    method = f"[GRPO]({_LINKS['GRPO']}) in [TRL]({_LINKS['TRL']})"
    if checkpoint.is_adapter:
        return f"A LoRA adapter of {_base_link(run)}, trained with {method}."
    if run != checkpoint.run:
        return f"The model {_base_link(run)} with a LoRA adapter merged into it, which was trained with {method}."
    return f"The model {_base_link(run)}, all weights trained with {method}."


def _training(checkpoint: Checkpoint, run: Run) -> list[str]:
    data, hardware = part(run.spec, "data"), part(run.spec, "hardware")
    total = f" of {run.max_steps}" if run.max_steps else ""
    revision = part(run.spec, "model").get("revision")
    started_at = run.attempts.exclude(started_at=None).order_by("number").values_list("started_at", flat=True).first()
    facts = [
        ("Run", f"{_plain_text(run.name)} (`{run.pk}`)"),
        ("Steps", f"{checkpoint.step}{total}"),
        ("Started", _date(started_at)),
        ("Saved", _date(checkpoint.event.at)),
        ("Base model", _base_link(run) + (f", revision {_plain_text(revision)}" if revision else "")),
        ("Began with", _starting_model(run)),
        ("Dataset", f"{_plain_text(data.get('name'))}, version {data.get('version')}, {data.get('rows')} rows"),
        ("sha256 of the rows", f"`{re.sub(r'[^0-9a-f]', '', str(data.get('sha256')))}`"),
        ("Hardware profile", f"{_plain_text(hardware.get('profile'))}{_gpus(run)}"),
    ]
    return ["## Training", "", *_table(facts)]


def _rewards(run: Run) -> list[str]:
    version = run.reward_version
    heading = [f"Reward config: {_plain_text(version)}.", ""] if version else []
    rows = []
    for reward in run.spec.get("rewards") or ():
        entry = LIBRARY.get(str(reward.get("function")))
        kind = entry.title if entry else reward.get("function")
        limit = f", only {rows_of(list(map(str, names)))}" if (names := reward.get("applies_to")) else ""
        rows.append(
            (_plain_text(reward.get("name")), _plain_text(f"{kind}{limit}"), _number(reward.get("weight", 1.0)))
        )
    return ["## Rewards", "", *heading, *_table(rows, "Component", "Kind", "Weight")]


def _settings(run: Run) -> list[str]:
    grpo, host = part(run.spec, "grpo"), run.latest().host
    defaults = {**TRL_DEFAULTS, **(part(host.trainer_schema or {}, "defaults") if host else {})}
    batch = Batch.of(grpo, int(part(run.spec, "hardware").get("processes") or 1))
    rows = [(f"`{name}`", _value(grpo.get(name, defaults.get(name)))) for name in ALWAYS_LISTED]
    rows.append(("Completions per generation", str(batch.completions)))
    for name, value in grpo.items():
        if name not in ALWAYS_LISTED and not HOUSEKEEPING.fullmatch(name) and value != defaults.get(name):
            rows.append((f"`{re.sub(r'[^A-Za-z0-9_]', '', name)}`", _value(value)))
    intro = "The most important settings, and all that differ from TRL's defaults."
    return ["## GRPO settings", "", intro, "", *_table(rows, "Setting", "Value")]


def _lora(run: Run) -> list[str]:
    lora = part(run.spec, "lora")
    if not lora:
        return []
    targets = ", ".join(_plain_text(name) for name in lora.get("target_modules") or ())
    facts = [
        ("Rank", _value(lora.get("r"))),
        ("α", _value(lora.get("alpha"))),
        ("Dropout", _value(lora.get("dropout"))),
        ("Target modules", targets),
    ]
    return ["## LoRA", "", *_table(facts)]


def _evaluations(checkpoint: Checkpoint, run: Run) -> list[str]:
    if not run.trains:
        return []
    at_step = [result for result in results.of_run(run) if result.ended_well and result.step in (None, checkpoint.step)]
    own_results = [result for result in at_step if result.folder in ("", checkpoint.folder)]
    of_itself = any(result.folder for result in own_results)
    shown_results = own_results if of_itself else [result for result in at_step if not result.merged]
    if not any(result.folder for result in shown_results):
        return []
    setup = ("Model", "Dataset", "Temperature", "Rewards", "Prompts", "Completions per prompt")
    heads = (*setup, "pass@1", "pass@k", "Reward", "Change in reward")
    sentences = dict.fromkeys(_plain_text(solving.of(result.run.spec).sentence()) for result in shown_results)
    merged_note = [] if of_itself else ["These evaluations are of the adapter, before it was merged.", ""]
    notes = ["", *sentences, "", "The last column is the mean difference per prompt, with its 95% confidence interval."]
    return ["## Evaluation", "", *merged_note, *_table(map(_evaluated, shown_results), *heads), *notes]


def _evaluated(result: EvaluationResult) -> tuple[str, ...]:
    setup, gain = result.setup, result.gain
    return (
        "Before training" if result.step is None else "This model",
        _plain_text(result.run.dataset_version),
        _value(setup.temperature),
        _plain_text(result.run.reward_version or "deleted since"),
        str(setup.prompts),
        str(setup.generations),
        _percent(result.pass_1),
        _percent(result.pass_k),
        _decimals(result.reward),
        f"{gain.mean:+.3f} ({gain.low:+.3f} to {gain.high:+.3f})" if gain else "",
    )


def _benchmarks(checkpoint: Checkpoint) -> list[str]:
    benchmarks = job_results.of_benchmarks(job_results.of_checkpoint(checkpoint))
    if not benchmarks:
        return []
    heads = ("Task", "Metric", "Value", "Standard error", "Examples")
    rows = [
        (
            _plain_text(result.title),
            _plain_text(result.metric),
            f"{result.value:.3f}",
            _decimals(result.stderr),
            _value(result.examples),
        )
        for result in benchmarks
    ]
    return ["## Benchmarks", "", "Run with EleutherAI's lm-eval, without a chat template.", "", *_table(rows, *heads)]


def _versions(checkpoint: Checkpoint) -> list[str]:
    versions = checkpoint.event.data.get("versions")
    if not isinstance(versions, Mapping):
        return []
    return ["## Versions", "", *_table((_plain_text(name), _plain_text(number)) for name, number in versions.items())]


def _loading(checkpoint: Checkpoint, run: Run) -> list[str]:
    base = _base(run)
    base_argument = json.dumps(hub_id(base) or "path/to/the/base/model")
    revision = part(run.spec, "model").get("revision")
    base_load = f"{base_argument}, revision={json.dumps(revision)}" if revision else base_argument
    lines = [
        *(["from peft import PeftModel"] if checkpoint.is_adapter else []),
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'path = "."  # this folder, or the id of this repository on the hub',
    ]
    if checkpoint.is_adapter:
        lines.append(f'base = AutoModelForCausalLM.from_pretrained({base_load}, dtype="auto")')
        lines.append("model = PeftModel.from_pretrained(base, path)")
    else:
        lines.append('model = AutoModelForCausalLM.from_pretrained(path, dtype="auto")')
    return ["## Loading it", "", "```python", *lines, "tokenizer = AutoTokenizer.from_pretrained(path)", "```"]


def _base(run: Run) -> str:
    """Return the hub id or folder of the model at the start of the lineage, since a run may train another run's
    model."""
    visited_ids: set[str] = set()
    path = str(part(run.spec, "model").get("path", ""))
    while (source := checkpoints.by_folder(path)) and source.run.pk not in visited_ids:
        visited_ids.add(source.run.pk)
        path = str(part(source.run.spec, "model").get("path", ""))
    return hub_id(path) or path


def _public_name(base: str) -> str:
    return hub_id(base) or base.rstrip("/").rpartition("/")[2]


def _base_link(run: Run) -> str:
    """Return a link to the base model, or the last part of its folder, so that no host's path is published."""
    base = _base(run)
    if hub_id(base):
        return f"[{_plain_text(base)}](https://huggingface.co/{base})"
    return f"{_plain_text(_public_name(base))} (a local folder)"


def _starting_model(run: Run) -> str:
    """Return the name of another run's saved model from which this run started, or "" if there is none."""
    spec = run.spec
    source = checkpoints.by_folder(str(spec.get("start_from") or part(spec, "model").get("path", "")))
    if source is None or source.run == run:
        return ""
    return f"{_plain_text(source.run.name)}, step {source.step} (`{source.run.pk}`)"


def _hub_dataset(version: DatasetVersion) -> str:
    visited: set[int] = set()
    ancestor: DatasetVersion | None = version
    while ancestor and ancestor.source_kind == DatasetVersion.DERIVED and ancestor.pk not in visited:
        visited.add(ancestor.pk)
        ancestor = ancestor.parent
    hub_dataset = str(ancestor.source.get("id", "")) if ancestor and ancestor.source_kind == DatasetVersion.HUB else ""
    return hub_dataset if _HUB_ID.fullmatch(hub_dataset) else ""


def _gpus(run: Run) -> str:
    for attempt in run.attempts.select_related("host").order_by("-number"):
        announced_gpus = attempt.host.inventory.get("gpus") or () if attempt.host else ()
        names = [str(gpu.get("name")) for gpu in announced_gpus if gpu.get("index") in attempt.gpus]
        if names:
            return ", " + ", ".join(f"{names.count(name)} × {_plain_text(name)}" for name in dict.fromkeys(names))
    return ""


def _table(rows: Iterable[tuple[str, ...]], *heads: str) -> list[str]:
    heads = heads or ("", "")
    lines = [heads, ("---",) * len(heads), *(row for row in rows if any(row[1:]))]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _plain_text(value: object) -> str:
    """Escape a string for one line: no Markdown, no links, no characters that reverse or hide others."""
    line = " ".join(str(value).split())
    visible_text = "".join(sign for sign in line if unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Co"))
    return _MARKDOWN.sub(lambda match: f"\\{match[0]}", visible_text)


def _value(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return _number(value)
    return _plain_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else _plain_text(value)


def _decimals(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _date(moment: datetime | None) -> str:
    return moment.strftime(_DATE) if moment else ""
