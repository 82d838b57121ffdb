"""The memory of a run's health in JSON, and its part that a resume makes void."""

from collections.abc import Mapping
from typing import Any

from runs.insight.health.history import History, Mark, RunPace, Sums, Text


def forget_after(history: History, step: int) -> None:
    """Remove what the memory knows about steps after `step`, which a resume made void."""
    history.marks = {
        name: mark if mark.best_step <= step else Mark(mark.start, mark.noise, mark.start, 0, mark.start)
        for name, mark in history.marks.items()
    }
    history.sums = {name: sums for name, sums in history.sums.items() if sums.until <= step}
    history.texts = [text for text in history.texts if text.step <= step]
    history.evaluations = [evaluation for evaluation in history.evaluations if evaluation[0] <= step]
    history.gaps = [gap for gap in history.gaps if gap[0] <= step]
    history.solved_shares = [share for share in history.solved_shares if share[0] <= step]
    history.trails = {}


def to_memory(history: History) -> dict[str, Any]:
    return {
        "marks": {name: list(mark) for name, mark in history.marks.items()},
        "sums": {name: list(sums) for name, sums in history.sums.items() if sums.n},
        "firsts": history.firsts,
        "pace": [history.pace.rate, history.pace.seconds] if history.pace else None,
        "evaluations": history.evaluations,
        "gaps": history.gaps,
        "solved": history.solved_shares,
        "trails": history.trails,
        "texts": [list(text) for text in history.texts],
        "first_texts": list(history.first_texts) if history.first_texts else None,
    }


def from_memory(history: History, memory: Mapping[str, Any]) -> None:
    history.marks = {name: Mark(*values) for name, values in (memory.get("marks") or {}).items()}
    history.sums = {name: Sums(*values) for name, values in (memory.get("sums") or {}).items()}
    history.firsts = dict(memory.get("firsts") or {})
    history.pace = RunPace(*memory["pace"]) if memory.get("pace") else None
    history.evaluations = [(step, value) for step, value in memory.get("evaluations") or ()]
    history.gaps = [(step, gap) for step, gap in memory.get("gaps") or ()]
    history.solved_shares = [(step, completions, solved) for step, completions, solved in memory.get("solved") or ()]
    history.trails = {name: [(t, mib) for t, mib in trail] for name, trail in (memory.get("trails") or {}).items()}
    history.texts = [Text(*values) for values in memory.get("texts") or []]
    history.first_texts = Text(*memory["first_texts"]) if memory.get("first_texts") else None
