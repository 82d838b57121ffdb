"""What an imported document names of datasets and rewards: ids on the hub, and a reward config for the editor."""

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from controlplane.catalogue.exchange.reading import Reading
from controlplane.catalogue.versioned.editing import unused_name
from workers.rewards.library import LIBRARY

HUB_ID = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
FILES = (".json", ".jsonl", ".parquet", ".csv", ".tsv", ".arrow", ".txt", ".gz", ".zst", ".py")
CUSTOM = "python"
SAME_REWARDS = {
    **{"accuracy_reward": "trl_accuracy", "reasoning_accuracy_reward": "trl_reasoning_accuracy"},
    **{"think_format_reward": "trl_think_format", "get_soft_overlong_punishment": "trl_soft_overlong"},
    **{"get_cosine_scaled_reward": "trl_cosine_scaled", "get_repetition_penalty_reward": "trl_repetition_penalty"},
    **{"accuracy": "math_equivalent", "format": "think_tags", "soft_overlong": "overlong"},
    **{"repetition": "repetition_penalty", "cosine": "trl_cosine_scaled"},
    **{"soft_format_reward_func": "soft_format", "soft_format_reward": "soft_format"},
}
"""Names of rewards in TRL, ms-swift and the guides -> names in the library."""


@dataclass(frozen=True)
class Leads:
    datasets: list[str] = field(default_factory=list)
    """Ids on the hub."""
    rewards: list[str] = field(default_factory=list)
    """Rewards that the library has, or whose text the document has, as named there."""
    unknown: list[str] = field(default_factory=list)
    """Other names of rewards."""
    config: str = ""
    """A reward config of `rewards` as YAML, for the editor; "" without any."""

    def __bool__(self) -> bool:
        return bool(self.datasets or self.rewards or self.unknown)


def leads_of(reading: Reading) -> Leads:
    named = [name for name in dict.fromkeys(reading.leads.get("dataset", ())) if HUB_ID.fullmatch(name)]
    parts: list[dict[str, Any]] = []
    known: list[str] = []
    unknown: list[str] = []
    names, weights = reading.leads.get("rewards", []), reading.leads.get("weights", [])
    for place, name in enumerate(names):
        part = _component(name, reading.code)
        (unknown if part is None else known).append(name)
        if part is not None:
            own_name = unused_name(part["name"], {other["name"] for other in parts})
            parts.append(part | {"name": own_name, "weight": _weight(weights, place)})
    config = yaml.safe_dump({"components": parts}, sort_keys=False, allow_unicode=True) if parts else ""
    return Leads([name for name in named if not name.endswith(FILES)], known, unknown, config)


def _component(name: str, code: dict[str, str]) -> dict[str, Any] | None:
    """Return the component of a reward config for a reward's name, or None if there is none."""
    short = name.rpartition(".")[2]
    if name in code:
        return {"name": short, "function": CUSTOM, "params": {"source": code[name]}}
    key = short if short in LIBRARY else SAME_REWARDS.get(short)
    return None if key is None or key == CUSTOM else {"name": key, "function": key}


def _weight(weights: list[str], place: int) -> float:
    try:
        return float(weights[place])
    except (IndexError, ValueError):
        return 1.0
