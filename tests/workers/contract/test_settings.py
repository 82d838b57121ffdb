"""The table of a run's settings, held to the spec."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from workers.contract.run import settings as table
from workers.contract.run.limits import LimitsSpec, NoBetterSpec
from workers.contract.run.prompts import PromptsSpec
from workers.contract.run.settings import ROWS, SETTINGS, chosen_settings, only_for, section_of
from workers.contract.run.spec import HangSpec, RecoverySpec, RunSettings, RunSpec
from workers.contract.wire.documents import from_dict, to_dict

CHOSEN = {
    **dict.fromkeys(ROWS, "a dataset version, and reward versions"),
    "run_id": "each run gets its own",
    "kind": "the page or the command decides it",
    "model.trust_remote_code": "never set by a launch",
    "hardware": "a hardware profile, with a share of its own for vLLM",
    "grpo": "GRPOConfig's arguments, by TRL's names",
    "check_groups": "of a learnability check",
    "job": "the settings of a job, by its kind",
    "episodes.name": "of the environment version",
    "episodes.version": "of the environment version",
    "episodes.parts": "of the environment version",
    "episodes.corpora": "those that the parts search",
    "sinks": "see SINKS",
    "schema": "the contract's version",
}
"""Other parts of the spec, with their sources."""


def paths(cls: Any, at: str = "") -> Iterator[str]:
    """The path of each leaf of the spec, without those below a part that the table leaves to others."""
    for name, hint in typing.get_type_hints(cls).items():
        path, inner = f"{at}{name}", table._without_none(hint)
        if path in CHOSEN and path != "data":
            yield path
        elif dataclasses.is_dataclass(inner):
            yield from paths(inner, f"{path}.")
        else:
            yield path


def test_every_part_of_the_spec_is_a_setting_or_comes_from_elsewhere() -> None:
    stated = {setting.path for setting in SETTINGS}
    left = [path for path in paths(RunSpec) if path not in stated | set(CHOSEN) and not path.startswith("data.")]
    assert left == []


def test_a_path_and_a_field_are_stated_once() -> None:
    assert len({setting.path for setting in SETTINGS}) == len({setting.name for setting in SETTINGS}) == len(SETTINGS)


def test_a_default_keeps_to_its_type_and_bounds(subtests: pytest.Subtests) -> None:
    for setting in SETTINGS:
        with subtests.test(setting.path):
            default = setting.default
            if default is None or isinstance(default, tuple):
                return
            assert isinstance(default, setting.type)
            assert setting.low is None or not default or default >= setting.low
            assert setting.high is None or default <= setting.high


def test_a_section_of_empty_fields_has_the_defaults() -> None:
    for section, default in (("limits", LimitsSpec()), ("recovery", RecoverySpec()), ("prompts", PromptsSpec())):
        assert section_of(section, {}) == section_of(section, {"stop_higher": "true"}) == default


def test_a_rule_exists_once_all_that_it_demands_is_filled() -> None:
    values = {"stop_metric": "reward", "stop_steps": 5, "stop_higher": "false"}
    assert section_of("limits", values).no_better == NoBetterSpec("reward", 5, higher=False)
    assert section_of("limits", {**values, "stop_steps": None}).no_better is None


def test_settings_are_made_of_the_fields_that_fill_them() -> None:
    chosen = RunSettings(hang=HangSpec(20.0, stop=True), limits=LimitsSpec(hours=2.0))
    values = {"hang_after": 20.0, "hang_stop": True, "limit_hours": 2.0, "lora_r": 8, "keep_best": ""}
    assert RunSettings(**chosen_settings(values)) == chosen


def test_only_trainings_choose_prompts_and_generate_ahead() -> None:
    chosen = RunSettings(prompts=PromptsSpec(extra_rounds=2), ahead=True, rewards_beside=True, keep_best="reward")
    assert only_for("train", chosen) == chosen
    assert only_for("check", chosen) == RunSettings(keep_best="reward")


def test_a_spec_of_the_table_reads_back() -> None:
    spec = {"run_id": "r", "name": "r", "kind": "train", "model": {"path": "m"}, "rewards": [], "grpo": {}}
    run = from_dict(
        RunSpec, {**spec, "data": {"name": "d", "version": 1, "sha256": "", "rows": 1}, "hardware": {"profile": "p"}}
    )
    assert from_dict(RunSpec, to_dict(run)) == run
    assert list(to_dict(run))[:3] == ["run_id", "name", "kind"]
