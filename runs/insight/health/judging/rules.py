"""The health rules, in reading order.

Only `assess` interprets them; its FIGURES compute each rule's value. The rules' default bounds are those of the mixed
preset; other presets override them. The first bound opens a finding at the level `mild`, the second a bad one.
"""

from dataclasses import replace

from runs.insight.health.judging import completion_rules, episode_rules, machine_rules, policy_rules, reward_rules
from runs.insight.health.judging.rule import HealthRule

_TABLES = {
    "Rewards": reward_rules.RULES,
    "Completions": completion_rules.RULES,
    "Episodes": episode_rules.RULES,
    "Policy": policy_rules.RULES,
    "Machine": machine_rules.RULES,
}
GROUPS: dict[str, tuple[HealthRule, ...]] = {
    title: tuple(replace(rule, id=id_) for id_, rule in rules.items()) for title, rules in _TABLES.items()
}
RULES: tuple[HealthRule, ...] = tuple(rule for rules in GROUPS.values() for rule in rules)
BY_ID = {rule.id: rule for rule in RULES}
