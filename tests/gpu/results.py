"""results.json, an object a set-up, and RESULTS.md made of it: `python -m tests.gpu.prove --render`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ALONE = (
    *("turns-colocate", "turns-server", "batch-gain", "lora-over-base"),
    *("ahead-1-plus-1", "three-ways-1-plus-1", "start-1-plus-1", "start-colocate"),
)
"""Entries that are one figure each, of no set-up's steps, starts and kills."""
COMMITTED = HERE / "results.json"
EPISODES = HERE / "episodes.json"
"""What tests.gpu.episodes has found, mode by mode."""
PAGE = HERE / "RESULTS.md"
GOAL_S, TARGET_S, RATIO = 3.0, 15.0, 1.01
FROM_PAGE, FROM_DISPATCH = "the page", "the dispatch"
"""What `first_step_s` counts from."""

FIRST_STEPS = {
    "first_step_s_cold": "with nothing compiled before",
    "first_step_s_warm": "with caches",
    "first_step_s_warm_server": "on a warm server",
}
"""Figures of tests.gpu.starts -> what they say."""
COMPARED = {
    "ahead_speedup": "Steps per second one step ahead over in turns",
    "fast_over_today": "Steps per second of the fast way over today's profile",
    "fast_over_bare": "Steps per second of the fast way over bare TRL",
}
"""Figures of a plan that goes through several ways to train the same."""

Entry = dict[str, Any]

PROMISED: dict[str, Any] = {
    "name": None,
    "gpus": None,
    "steps": None,
    "tokens_per_s": None,
    "peak_gib": [],
    "peak_parts_gib": [],
    "first_step_s": None,
    "kill_free_s": [],
    "step_ratio": None,
    "date": None,
    "command": None,
}
"""What every object of a file of results has, whatever else it holds -> how it says that this was not measured."""


def read(path: Path) -> list[Entry]:
    """The entries of a file; none of one that isn't there."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return [entry for entry in found if isinstance(entry, dict) and entry.get("name")]


def merged(old: Iterable[Entry], new: Iterable[Entry]) -> list[Entry]:
    """By name: what was measured again takes the place of what was there, the rest stays.

    A failure says why and leaves what an earlier sitting has proved; a success takes an earlier failure away. What
    this sitting did not measure takes nobody's place.
    """
    result = {entry["name"]: entry for entry in old}
    for entry in new:
        before = {key: value for key, value in result.get(entry["name"], {}).items() if key != "failed"}
        found = {key: value for key, value in entry.items() if key not in before or not _unmeasured(key, value)}
        result[entry["name"]] = {**before, **found}
    return list(result.values())


def _unmeasured(key: str, value: Any) -> bool:
    return key in PROMISED and value == PROMISED[key]


def write(path: Path, entries: list[Entry]) -> None:
    """Every promised key in each of them, also where nothing was measured."""
    temporary = path.with_suffix(f".{os.getpid()}")
    whole = [{**PROMISED, **entry} for entry in entries]
    temporary.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def render(entries: list[Entry]) -> str:
    """The page that is committed beside the figures."""
    setups = [entry for entry in entries if entry["name"] not in ALONE]
    lines = ["# Set-ups proved on real GPUs", "", *_machines(entries), "", *_MEANING, "", *_table(setups), ""]
    for entry in entries:
        lines += _section(entry)
    lines += _episodes(json.loads(EPISODES.read_text(encoding="utf-8")))
    return "\n".join(lines).rstrip() + "\n"


def _episodes(found: dict[str, Any]) -> list[str]:
    head = ["mode", "right", "turns", "step, s", "by tools", "log-probability difference", "stop → gone, s", "where"]
    rows = [
        [
            f"`{name}`",
            f"{mode['right_before']:.2f} → {mode['right_after']:.2f}",
            f"{mode['turns_before']:.2f} → {mode['turns_after']:.2f}",
            f"{mode['step_s']:.2f}",
            f"{mode['share_by_tools']:.0%}",
            str(mode["logp_difference"]),
            f"{mode['receipt']['seconds_to_gone']:.2f}",
            mode["machine"].partition(",")[0],
        ]
        for name, mode in found["modes"].items()
    ]
    table = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    versions = f"With {found['versions']}."
    return ["## Episodes of two turns", "", *_OF_EPISODES, "", *table, "", versions]


_OF_EPISODES = (
    "The small model of `bench tools` learns to look a letter up with a tool and to say what it was told. `colocate`, "
    "`server-lora` and `server-nccl` are how vLLM gets the policy; the tool is an own Python tool in the sandbox, and "
    "each turn has a reward. In `agents`, 64 programs with the `openai` package drive the episodes through the run's "
    "endpoint, with vLLM as in `server-lora`; in `atropos` an unmodified environment of atroposlib 0.4.0 does, and "
    "*right* is its score, how many different tokens an answer has. `zero3` shares the small model's weights between "
    "two trainer GPUs with vLLM in both, for 5 steps; `usual-size` trains a LoRA of a model of 1.5B parameters for 3. "
    "Every other run was stopped after 80 steps of 64 episodes. Each receipt says that all GPUs are free. *right* and "
    "*turns* are means of the first and the last five steps. `colocate` and `server-lora` began with a model that had "
    "been warmed up longer.",
    "",
    "Command: `python -m tests.gpu.episodes --out OUT --only MODE`. Not tried: a trained model of usual size, ZeRO-3 "
    "with a vLLM server, FSDP with vLLM.",
)


_MEANING = (
    "Each set-up is a hardware profile of its own, made on the profile form from a shipped one, and runs that were "
    "launched on the New run page and stopped on the run page of a whole installation (web, Valkey, Celery, host, "
    "supervisor, trainer, vLLM). The models have random weights in the shapes of Qwen2.5's; such a model costs what a "
    "real one costs, and its completions run to their limit.",
    "",
    "- **tokens/s**: prompt and completion tokens of steps 2 and later over the sum of TRL's `step_time` of these "
    "steps; generation, weight update and training are all in it.",
    "- **peak**, of each GPU: the most that torch reserved in the trainer's ranks there, and what is left of the peak "
    "of memory in use by NVML (all samples of the run, and its receipt): CUDA contexts, NCCL, libraries. What vLLM "
    "preallocates (weights, KV cache and graphs by its own log; inside the trainer its share of the card) is listed "
    "apart. With vLLM's sleep mode the parts don't peak together, so that nothing is left for the contexts.",
    "- **estimate**: what the memory model of preflight gives for the same GPUs, vLLM's preallocation apart. The peak "
    "of a process that sends weights to a vLLM server also holds the 2 GiB that vLLM 0.22 left in torch's cache at "
    "each update, and all peaks the 0.6 GiB that the driver keeps for itself; the estimate has neither. "
    "`manage.py bench preflight` compares the rest.",
    "- **first step**: from sending the New run page until the first training line; with *, from the dispatch, as the "
    "run had to wait for GPUs before it.",
    "- **kill → free**: from sending “stop now”, in the middle of a generation, until every GPU of the run is at its "
    f"baseline + 300 MiB by the receipt. Target {TARGET_S:.0f} s, goal {GOAL_S:.0f} s.",
    "- **next**: from the end of the killed run until the next one in the queue had the same GPUs.",
    "- **ratio**: median time from one training line to the next, product over a bare TRL script with the same "
    f"arguments, at the same time on other GPUs or in turns on the same. Target {RATIO}.",
)


def _machines(entries: list[Entry]) -> list[str]:
    found = dict.fromkeys(f"{e['machine']}; {e['versions']}" for e in entries if e.get("machine"))
    return [f"- {line}" for line in found]


def _table(entries: list[Entry]) -> list[str]:
    head = [
        "set-up",
        "GPUs",
        "steps",
        "tokens/s",
        "peak GiB",
        "estimate GiB",
        "first step s",
        "kill → free s",
        "next s",
        "ratio",
    ]
    rows = [
        [
            f"[{e['name']}](#{e['name']})",
            _text(e.get("gpus")),
            _text(e.get("steps")),
            _text(e.get("tokens_per_s"), 0),
            _text(e.get("peak_gib"), 1),
            _text(e.get("estimate_gib"), 1),
            _text(e.get("first_step_s"), 1) + ("*" if e.get("first_step_from") == FROM_DISPATCH else ""),
            _text(e.get("kill_free_s"), 2),
            _text(e.get("next_start_s"), 2),
            _text(e.get("step_ratio"), 4),
        ]
        for e in entries
    ]
    return [_row(head), _row(["---"] * len(head)), *(_row(row) for row in rows)]


def _section(entry: Entry) -> list[str]:
    lines = [f"## {entry['name']}", "", entry.get("says", ""), ""]
    if entry.get("failed"):
        lines += [f"**The last try failed:** {entry['failed']}", ""]
    for gpu, part in zip(entry.get("gpu_ids") or (), entry.get("peak_parts_gib") or (), strict=False):
        words = ", ".join(f"{name.replace('_', ' ')} {value:g} GiB" for name, value in part.items())
        lines.append(f"- GPU {gpu}: {words}")
    if entry.get("estimate_gib"):
        lines.append(f"- Estimated before the launch, without vLLM: {_text(entry['estimate_gib'], 1)} GiB")
    if entry.get("nvml_peak_gib"):
        lines.append(f"- In use at most, by NVML: {_text(entry['nvml_peak_gib'], 1)} GiB")
    for figure, words in FIRST_STEPS.items():
        if entry.get(figure) is not None:
            lines.append(f"- First step {entry[figure]:.1f} s after {FROM_PAGE}, {words}")
    for end in entry.get("warm_server_ends") or ():
        lines.append(
            f"- The warm server was ended: receipt {'free' if end['free'] else 'NOT FREE'}, {end['seconds']:.1f} s"
        )
    if entry.get("first_step_s") is not None:
        lines.append(f"- First step {entry['first_step_s']:.1f} s after {entry.get('first_step_from', FROM_PAGE)}")
    for kill in entry.get("kills") or ():
        lines.append(f"- {_kill(kill)}")
    if entry.get("step_ratio") is not None:
        lines.append(
            f"- Step: product {entry['step_s_product']:.4f} s, bare {entry['step_s_bare']:.4f} s, "
            f"{entry['step_ratio_how']}"
        )
    for name, words in (("step_ratio", "The product over the bare script"), ("beside_ratio", "The bare script's own")):
        if entry.get(f"{name}_interval"):
            low, high = entry[f"{name}_interval"]
            pairs = _text(entry[f"{name}_pairs"], 3)
            lines.append(f"- {words}: {entry[name]:.4f}, between {low:.4f} and {high:.4f}; by pair {pairs}")
    if entry.get("batch_gain") is not None:
        before, after = entry["batch_gain_step_s"]
        values = ", ".join(f"{name} {value}" for name, value in entry["batch_gain_values"].items())
        lines.append(
            f"- {entry['batch_gain']:.2f} times the steps per second: {after:.2f} s instead of {before:.2f} ({values})"
        )
    if entry.get("lora_settings"):
        lines += _adapters(entry["lora_settings"])
    if entry.get("step_median_s") is not None:
        lines.append(f"- Median step {entry['step_median_s']:.2f} s, {entry.get('batch', '')}")
    lines += [_way(name, way) for name, way in (entry.get("ways") or {}).items()]
    lines += [f"- {words}: **{entry[name]:g}**" for name, words in COMPARED.items() if entry.get(name)]
    lines += ["", f"{entry.get('date', '')}: `{entry.get('command', '')}`"]
    if entry.get("ratio_command"):
        lines += ["", f"Ratio: `{entry['ratio_command']}` on {entry.get('ratio_machine', 'the same machine')}"]
    lines.append("")
    return lines


def _adapters(settings: dict[str, Any]) -> list[str]:
    head = ["engine", "base tokens/s", "adapter tokens/s", "adapter over base", "swap, s", "start, s"]
    rows = [
        [
            name,
            _text(one.get("base"), 0),
            _text(one.get("adapter"), 0),
            _text(one.get("over_base"), 3),
            _text(one.get("swap_s"), 2),
            _text(one.get("start_s"), 0),
        ]
        for name, one in settings.items()
    ]
    return ["", _row(head), _row(["---"] * len(head)), *(_row(row) for row in rows)]


def _way(name: str, way: Entry) -> str:
    speeds = ", ".join(_text(speed, 0) for speed in way["tokens_per_s"])
    parts = {"generation": "generation_s", "weights": "weight_sync_s", "update": "update_s", "vLLM ahead": "ahead_s"}
    told = "".join(f", {words} {way[key]:.2f} s" for words, key in parts.items() if key in way)
    return f"- {name}: {way['step_s']:.3f} s a step, {speeds} tokens/s in {len(way['step_s_runs'])} runs{told}"


def _kill(kill: Entry) -> str:
    proof = "free" if kill.get("free") else "NOT FREE"
    at = f"Killed {kill['when']}: receipt {proof}, gone after {_text(kill.get('gone_s'), 2)} s, "
    at += f"GPUs free {_text(kill.get('free_s'), 2)} s after the request"
    if kill.get("free_wall_s") is not None:
        at += f" ({kill['free_wall_s']:.2f} s by a second reader)"
    return f"{at}, {kill.get('processes', '?')} processes ended, {kill.get('orphans', '?')} outside their groups"


def _text(value: Any, digits: int | None = None) -> str:
    if value is None or value == []:
        return "–"
    if isinstance(value, list):
        return ", ".join(_text(one, digits) for one in value)
    return f"{value:,.{digits}f}" if isinstance(value, int | float) and digits is not None else str(value)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
