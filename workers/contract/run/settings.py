"""The table of a run's settings: each one's path in the spec, form field, bounds, and the kinds of runs to which it
applies. Types and defaults are those of the contract's dataclasses. Standard library only.

GRPOConfig's arguments (`grpo.…`) are TRL's, and have no entry here.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.contract.reports.metric_names import MAX_NAME_LENGTH
from workers.contract.run import overlapping, sinks
from workers.contract.run.prompts import MAX_ROUNDS
from workers.contract.run.spec import RunSettings, RunSpec
from workers.contract.wire.documents import from_dict

TRAINING = frozenset({"train"})


@dataclass(frozen=True)
class Setting:
    path: str
    """Path in the spec, such as limits.hours."""
    field: str = ""
    """Name in the New run form and in `set` of the API and the command line; "" for the path's last part."""
    low: float | None = None
    high: float | None = None
    longest: int | None = None
    if_empty: Any = None
    """Value for an empty field if the spec's dataclass has no default."""
    kinds: frozenset[str] | None = None
    """The kinds of runs that use the setting; None for all."""

    @property
    def name(self) -> str:
        return self.field or self.path.rpartition(".")[2]

    @property
    def section(self) -> str:
        """Path of the dataclass that the setting is in, or "" for the run itself."""
        return self.path.rpartition(".")[0]

    @property
    def type(self) -> Any:
        return _declared(self.path)[0]

    @property
    def default(self) -> Any:
        return _declared(self.path)[1]


SETTINGS: tuple[Setting, ...] = (
    Setting("name", longest=120),
    Setting("model.path", "model", longest=500),
    Setting("model.revision", longest=200),
    Setting("data.eval_rows", low=0, high=10**9),
    Setting("start_from", longest=200),
    Setting("attn_implementation"),
    Setting("lora.r", "lora_r", 1, 4096),
    Setting("lora.alpha", "lora_alpha", 1, 65_536),
    Setting("lora.dropout", "lora_dropout", 0, 0.99),
    Setting("lora.target_modules", "lora_targets", longest=1000),
    Setting("keep_best", longest=MAX_NAME_LENGTH),
    Setting("recovery.resumes", "auto_resumes", 0, 100),
    Setting("recovery.pause_s", "resume_pause_s", 0, 86_400),
    Setting("hang.after", "hang_after", 2, 10_000),
    Setting("hang.stop", "hang_stop"),
    Setting("limits.hours", "limit_hours", 0.01, 100_000),
    Setting("limits.tokens", "limit_tokens", 1, 10**15),
    Setting("limits.money", "limit_money", 0.01, 10**9),
    Setting("limits.no_better.metric", "stop_metric", longest=200),
    Setting("limits.no_better.steps", "stop_steps", 1, 10**9),
    Setting("limits.no_better.higher", "stop_higher"),
    Setting("limits.no_better.least_gain", "stop_gain", 0),
    Setting("limits.beyond.metric", "bound_metric", longest=200),
    Setting("limits.beyond.above", "bound_above"),
    Setting("limits.beyond.bound", "bound_value"),
    Setting("limits.beyond.steps", "bound_steps", 1, 10**9, if_empty=1),
    Setting("prompts.extra_rounds", low=0, high=MAX_ROUNDS, kinds=TRAINING),
    Setting("prompts.spread_in", longest=MAX_NAME_LENGTH, kinds=TRAINING),
    Setting("prompts.by_difficulty", kinds=TRAINING),
    Setting("prompts.least_weight", low=0.001, high=1, kinds=TRAINING),
    Setting(overlapping.REWARDS_FIELD, kinds=TRAINING),
    Setting(overlapping.AHEAD_FIELD, kinds=TRAINING),
    Setting("episodes.turn_advantage_coef", low=0, high=1000),
    Setting("episodes.chat_template", "tool_template"),
    Setting("episodes.limits.turns", "episode_turns", 1, 1000),
    Setting("episodes.limits.calls", "episode_calls", 1, 1000),
    Setting("episodes.limits.output_tokens", "episode_output_tokens", 1, 1_000_000),
    Setting("episodes.limits.call_s", "episode_call_s", 0.1, 86_400),
    Setting("episodes.limits.episode_s", "episode_s", 0.1, 86_400),
    Setting("episodes.limits.at_once", "episode_at_once", 1, 10_000),
    Setting("episodes.limits.count_outputs", "episode_count_outputs"),
    Setting("episodes.gateway.kind", "driven_by"),
    Setting("episodes.gateway.session_s", low=1, high=86_400),
    Setting("episodes.gateway.shows_answer"),
    Setting("episodes.gateway.open_beyond_loopback"),
    Setting("episodes.gateway.max_token_len", low=16, high=10_000_000),
    Setting("episodes.gateway.requests", "gateway_requests", 0, 1_000_000),
    Setting("episodes.gateway.interval_s", "gateway_interval_s", 0.1, 86_400),
)

IDENTITY_PATHS = frozenset(
    {"run_id", "name", "kind", "schema", "data.rows", "data.sha256", "data.name", "data.version"}
) | {"hardware.profile", "episodes", "episodes.name", "episodes.version"}
"""Paths of a spec that name the run and the rows it uses rather than set anything: no comparison of settings lists
them."""

SINKS: Mapping[str, str] = {
    **{f"sinks.{kind}": f"send_{kind}" for kind in sinks.TITLES},
    **{f"sinks.{kind}_secret": f"send_{kind}_secret" for kind in (sinks.WANDB, sinks.MLFLOW, sinks.TRACKIO)},
    "sinks.project": "send_project",
    "sinks.name": "send_name",
}
"""Form fields by path in an export. A spec has a list of sinks; forms and exports have one project and one name for all
of them."""

BY_NAME = {setting.name: setting for setting in SETTINGS}
BY_PATH = {setting.path: setting for setting in SETTINGS}
FIELDS: Mapping[str, str] = {**{setting.path: setting.name for setting in SETTINGS}, **SINKS}

ROWS = ("data", "rewards", "failed_share", "eval_rewards")
"""Parts of the spec that are copied from rows of the catalogue."""


def below(section: str) -> tuple[Setting, ...]:
    """List the settings of a section and its subsections."""
    return tuple(setting for setting in SETTINGS if f"{setting.section}.".startswith(f"{section}."))


def of_section(section: str) -> tuple[Setting, ...]:
    return tuple(setting for setting in SETTINGS if setting.section == section)


def section_of(section: str, values: Mapping[str, Any]) -> Any:
    """Build a section's dataclass from form values by field, with defaults for empty fields; return None if a required
    value is empty."""
    cls, fields = _class_of(section), {}
    for field in dataclasses.fields(cls):
        path = f"{section}.{field.name}"
        if path in BY_PATH:
            setting = BY_PATH[path]
            value = values.get(setting.name)
            value = setting.if_empty if value in (None, "") else value
            if setting.type is bool and isinstance(value, str):
                value = value != "false"
        else:
            value = section_of(path, values) if below(path) else None
        if value is not None:
            fields[field.name] = value
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            return None
    return from_dict(cls, {name: _plain_value(value) for name, value in fields.items()}, at=section)


def chosen_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of RunSettings by name from form values by field, without the sections that a run may lack."""
    chosen_values = {}
    for field in dataclasses.fields(RunSettings):
        if field.name in BY_PATH:
            chosen_values[field.name] = values.get(BY_PATH[field.name].name) or BY_PATH[field.name].default
        elif below(field.name) and _default(field) is not None:
            chosen_values[field.name] = section_of(field.name, values)
    return chosen_values


def only_for(kind: str, settings: RunSettings) -> RunSettings:
    """Return the settings with defaults for those that runs of this kind don't use."""
    unused_names = {row.path.partition(".")[0] for row in SETTINGS if row.kinds is not None and kind not in row.kinds}
    defaults = {field.name: _default(field) for field in dataclasses.fields(RunSettings) if field.name in unused_names}
    return dataclasses.replace(settings, **defaults)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _plain_value(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


@functools.cache
def _declared(path: str) -> tuple[Any, Any]:
    section, _, name = path.rpartition(".")
    cls = _class_of(section)
    field = next(field for field in dataclasses.fields(cls) if field.name == name)
    return _without_none(typing.get_type_hints(cls)[name]), _default(field)


@functools.cache
def _class_of(section: str) -> type:
    cls: type = RunSpec
    for name in filter(None, section.split(".")):
        cls = _without_none(typing.get_type_hints(cls)[name])
    return cls


def _without_none(hint: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next(member for member in typing.get_args(hint) if member is not type(None))
    return hint
