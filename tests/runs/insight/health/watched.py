"""A run whose lines are assessed every now and then, as the tick does it, without a store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from runs.insight.completions.groups import StoredCompletion
from runs.insight.health import evidence, memories
from runs.insight.health import history as past
from runs.insight.health.assess import alerts, assess, news
from runs.insight.health.config import Component, Config
from runs.insight.health.history import GENERATED, RECENT, History, Row, Text, columns_of
from runs.insight.health.presets import Preset

COMPONENTS = (
    Component("accuracy", 1.0, 0.0, 1.0),
    Component("format", 0.25, 0.0, 1.0),
    Component("style", 0.25, 0.0, 1.0),
)
CONFIG = Config(beta=0.04, updates=2.0, from_vllm=True, corrected=True, components=COMPONENTS, gpus=(0, 1))
ON_POLICY = replace(CONFIG, beta=0.0, updates=1.0)
Groups = Iterable[tuple[int, list[StoredCompletion]]]
START = datetime(2026, 1, 1, tzinfo=UTC)
BEGAN = 1000.0
"""Seconds of the host's clock, at which its first step began."""


@dataclass
class Watched:
    config: Config = CONFIG
    preset: Preset = field(default_factory=Preset)

    def __post_init__(self) -> None:
        self.rows: list[Row] = []
        self.system: list[Row] = []
        self.memory: dict[str, Any] = {}
        self.health: dict[str, Any] = {}
        self.t = self.began = BEGAN
        self.capacity = {"gpu/0/memory_mib": 143_771.0, "gpu/1/memory_mib": 143_771.0, "host/run_memory_mib": 515_000.0}
        self.opened: list[tuple[int, str, str]] = []
        """(step, rule, level) of each message"""
        self.named: dict[str, int] = {}
        """Rule -> the step of its first finding, with a message or as part of another's."""
        self.closed: list[tuple[int, str]] = []

    def look(
        self,
        texts: Iterable[Text] = (),
        solved: Iterable[tuple[int, int, int]] = (),
        *,
        quiet_s: float = 0.0,
        groups: Groups = (),
    ) -> dict[str, Any]:
        recent, before = self.rows[-RECENT:], self.rows[:-RECENT]
        missing = RECENT - past.generations(recent)
        earlier = [row for row in before if GENERATED in row[2]]
        lines = past.with_generations(recent, earlier[-missing:] if missing else [])
        history = History(self.config, columns_of(lines) | columns_of(self.system[-400:]), step=self.step)
        history.capacity = self.capacity
        history.training_since, history.quiet_s = self.began, quiet_s
        memories.from_memory(history, self.memory)
        past.note_solved(history, solved)
        past.note_texts(history, texts)
        evidence.from_memory(history, self.memory.get("columns") or {})
        evidence.note_groups(history, groups)
        past.remember(history)
        earlier = self.health
        self.health = assess(history, self.preset, earlier, START + timedelta(seconds=self.t))
        self.memory = memories.to_memory(history) | {"columns": evidence.to_memory(history)}
        self.opened += [
            (self.step, finding["rule"], finding["level"])
            for finding, message in news(earlier, self.health)
            if message and finding["rule"] not in alerts(earlier)
        ]
        for finding in self.health["findings"]:
            self.named.setdefault(finding["rule"], self.step)
        still = {finding["rule"] for finding in self.health["findings"]}
        self.closed += [(self.step, rule) for rule in alerts(earlier) if rule not in still]
        return self.health

    def resume(self, step: int, t: float) -> None:
        """Another attempt goes on from this step, and ends its first one at `t`."""
        history = History(self.config, {})
        memories.from_memory(history, self.memory)
        memories.forget_after(history, step)
        self.memory, self.began = memories.to_memory(history), t

    @property
    def step(self) -> int:
        return self.rows[-1][0] or 0 if self.rows else 0

    @property
    def rules(self) -> set[str]:
        return {rule for _, rule, _ in self.opened}

    def finding(self, rule: str) -> dict[str, Any] | None:
        return next((f for f in self.health["findings"] if f["rule"] == rule), None)
