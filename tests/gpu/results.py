"""results.json, with one object per set-up, and RESULTS.md, generated from it by `python -m tests.gpu.prove
--render`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ALONE = (
    *("turns-colocate", "turns-server", "batch-gain", "lora-over-base"),
    *("ahead-1-plus-1", "three-ways-1-plus-1", "start-1-plus-1", "start-colocate"),
)
"""Entries that are single measurements, without the steps, starts and kills of a set-up."""
COMMITTED = HERE / "results.json"
EPISODES = HERE / "episodes.json"
"""Results of tests.gpu.episodes, by mode."""
PAGE = HERE / "RESULTS.md"
GOAL_S, TARGET_S, RATIO = 3.0, 15.0, 1.01
FROM_PAGE, FROM_DISPATCH = "the page", "the dispatch"
"""What `first_step_s` counts from."""

FIRST_STEPS = {
    "first_step_s_cold": "with nothing compiled before",
    "first_step_s_warm": "with caches",
    "first_step_s_warm_server": "on a warm server",
}
"""Descriptions of tests.gpu.starts' measurements."""
COMPARED = {
    "ahead_speedup": "Steps per second, one step ahead over in turns",
    "fast_over_today": "Steps per second, fast profile over today's profile",
    "fast_over_bare": "Steps per second, fast profile over bare TRL",
}
"""Descriptions of ratios between several ways to run the same training."""

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
"""Keys of every object in a results file, with the values that mean that something was not measured."""


def read(path: Path) -> list[Entry]:
    """Read the entries of a file and return them; [] if the file doesn't exist."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return [entry for entry in found if isinstance(entry, dict) and entry.get("name")]


def merged(old: Iterable[Entry], new: Iterable[Entry]) -> list[Entry]:
    """Merge entries by name and return them. New measurements replace old ones; values that were not measured replace
    nothing. A failure is recorded next to what an earlier session proved, and a success removes an earlier failure."""
    result = {entry["name"]: entry for entry in old}
    for entry in new:
        before = {key: value for key, value in result.get(entry["name"], {}).items() if key != "failed"}
        found = {key: value for key, value in entry.items() if key not in before or not _unmeasured(key, value)}
        result[entry["name"]] = {**before, **found}
    return list(result.values())


def _unmeasured(key: str, value: Any) -> bool:
    return key in PROMISED and value == PROMISED[key]


def write(path: Path, entries: list[Entry]) -> None:
    """Write the entries, each with every promised key, even if nothing was measured."""
    temporary = path.with_suffix(f".{os.getpid()}")
    whole = [{**PROMISED, **entry} for entry in entries]
    temporary.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def render(entries: list[Entry]) -> str:
    """Return the page that is committed next to the results."""
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
    "The small model of `bench tools` learns to look up a letter with a tool and to repeat the result. `colocate`, "
    "`server-lora` and `server-nccl` differ in how vLLM gets the policy; the tool is a custom Python tool in the "
    "sandbox, and each turn has a reward. In `agents`, 64 programs with the `openai` package drive the episodes "
    "through the run's endpoint, with vLLM as in `server-lora`. In `atropos`, an unmodified environment of atroposlib "
    "0.4.0 drives them, and *right* is its score: the number of different tokens in a completion. `zero3` shards the "
    "small model's weights over two trainer GPUs, with vLLM on both, for 5 steps; `usual-size` trains a LoRA adapter "
    "of a model with 1.5B parameters for 3 steps. Every other run was stopped after 80 steps of 64 episodes. Each "
    "receipt says that all GPUs are free. *right* and *turns* are means over the first and the last five steps. "
    "`colocate` and `server-lora` started from a model that had been warmed up longer.",
    "",
    "Command: `python -m tests.gpu.episodes --out OUT --only MODE`. Not tested: training a model of usual size for "
    "longer, ZeRO-3 with a vLLM server, and FSDP with vLLM.",
)


_MEANING = (
    "Each set-up has its own hardware profile, created on the profile form from a shipped one, and runs that were "
    "launched on the New run page and stopped on the run page of a complete installation (web, Valkey, Celery, host, "
    "supervisor, trainer, vLLM). The models have random weights in the shapes of Qwen2.5 models; such a model costs as "
    "much as a real one, and its completions run to their limit.",
    "",
    "- **tokens/s**: prompt and completion tokens of steps 2 and later, divided by the sum of TRL's `step_time` of "
    "these steps, which includes generation, weight update and training.",
    "- **peak**, of each GPU: the most that torch reserved in the trainer's ranks there, and the rest of the peak "
    "memory in use according to NVML (all samples of the run, and its receipt): CUDA contexts, NCCL, libraries. What "
    "vLLM preallocates (weights, KV cache and graphs according to its log; inside the trainer its share of the card) "
    "is listed separately. With vLLM's sleep mode the parts don't peak at the same time, so nothing remains for the "
    "contexts.",
    "- **estimate**: preflight's estimate for the same GPUs, without vLLM's preallocation. The peak of a process that "
    "sends weights to a vLLM server also includes the 2 GiB that vLLM 0.22 left in torch's cache at each update, and "
    "all peaks include the 0.6 GiB that the driver reserves; the estimate includes neither. `manage.py bench "
    "preflight` compares the rest.",
    "- **first step**: from submitting the New run page to the first training line; with *, from the dispatch, because "
    "the run first had to wait for GPUs.",
    "- **kill → free**: from sending “stop now”, in the middle of a generation, until the receipt reports every GPU of "
    f"the run at its baseline + 300 MiB. Target {TARGET_S:.0f} s, goal {GOAL_S:.0f} s.",
    "- **next**: from the end of the killed run until the next run in the queue had the same GPUs.",
    "- **ratio**: median time from one training line to the next, product over a bare TRL script with the same "
    f"arguments, at the same time on other GPUs or in turns on the same ones. Target {RATIO}.",
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
        lines.append(f"- Peak memory in use, by NVML: {_text(entry['nvml_peak_gib'], 1)} GiB")
    for figure, words in FIRST_STEPS.items():
        if entry.get(figure) is not None:
            lines.append(f"- First step {entry[figure]:.1f} s after {FROM_PAGE}, {words}")
    for end in entry.get("warm_server_ends") or ():
        lines.append(
            f"- The warm server was stopped: receipt {'free' if end['free'] else 'NOT FREE'}, {end['seconds']:.1f} s"
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
    stack = ", ".join(re.findall(r"\b(?:torch|vllm) [\d.]+", entry.get("versions") or ""))
    lines += ["", f"{entry.get('date', '')}{stack and f', {stack}'}: `{entry.get('command', '')}`"]
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
    count = len(way["step_s_runs"])
    runs = f"{count} run{'' if count == 1 else 's'}"
    return f"- {name}: {way['step_s']:.3f} s per step, {speeds} tokens/s in {runs}{told}"


def _kill(kill: Entry) -> str:
    proof = "free" if kill.get("free") else "NOT FREE"
    at = f"Killed {kill['when']}: receipt {proof}, gone after {_text(kill.get('gone_s'), 2)} s, "
    at += f"GPUs free {_text(kill.get('free_s'), 2)} s after the request"
    if kill.get("free_wall_s") is not None:
        at += f" ({kill['free_wall_s']:.2f} s by a second reader)"
    count = kill.get("processes", "?")
    processes = f"{count} process{'' if count == 1 else 'es'}"
    return f"{at}, {processes} ended, {kill.get('orphans', '?')} outside their groups"


def _text(value: Any, digits: int | None = None) -> str:
    if value is None or value == []:
        return "–"
    if isinstance(value, list):
        return ", ".join(_text(one, digits) for one in value)
    return f"{value:,.{digits}f}" if isinstance(value, int | float) and digits is not None else str(value)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
