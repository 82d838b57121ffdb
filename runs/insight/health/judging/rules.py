"""The health rules, in reading order.

A rule is one row of a table and one function under the same name in the modules' `SIGNALS`. Only `assess` interprets
the rows; its FIGURES compute each rule's value. The rules' default bounds are those of the mixed preset; other presets
override them. The first bound opens a finding at the level `mild`, the second a bad one.
"""

from dataclasses import replace

from runs.insight.health.judging import (
    cause_rules,
    completion_rules,
    episode_rules,
    machine_rules,
    policy_rules,
    reward_rules,
    watch_rules,
)
from runs.insight.health.judging.rule import HealthRule

_TABLES = {
    "Rewards": watch_rules.HACKING | cause_rules.RULES | reward_rules.RULES,
    "Completions": completion_rules.RULES,
    "Episodes": episode_rules.RULES,
    "Policy": watch_rules.SYNC | policy_rules.RULES,
    "Machine": machine_rules.RULES,
}
_CAUSES = {id_: rule for rules in _TABLES.values() for id_, rule in rules.items() if rule.leads_to}
GROUPS: dict[str, tuple[HealthRule, ...]] = {
    title: tuple(
        replace(rule, id=id_, follows=(*(cause for cause in _CAUSES if id_ in _CAUSES[cause].leads_to), *rule.follows))
        for id_, rule in rules.items()
    )
    for title, rules in _TABLES.items()
}
RULES: tuple[HealthRule, ...] = tuple(rule for rules in GROUPS.values() for rule in rules)
BY_ID = {rule.id: rule for rule in RULES}
