"""All rules, in reading order.

`signals.OF` computes each rule's figure; `assess` is the one interpreter. The rules' own bounds are those of the mixed
preset; other presets override them. The first bound opens a finding at the level `mild`, the second a bad one.
"""

from __future__ import annotations

from runs.health import completion_rules, episode_rules, machine_rules, policy_rules, reward_rules
from runs.health.rule import HealthRule, Level

__all__ = ["BY_ID", "RULES", "HealthRule", "Level"]

RULES: tuple[HealthRule, ...] = (
    *reward_rules.RULES,
    *completion_rules.RULES,
    *episode_rules.RULES,
    *policy_rules.RULES,
    *machine_rules.RULES,
)
BY_ID = {rule.id: rule for rule in RULES}
