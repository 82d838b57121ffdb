"""What we export we read back as it was, whatever the profile and the settings."""

from __future__ import annotations

import dataclasses

import pytest
import yaml

from controlplane.catalogue.exchange import documents, own, trl, writing
from tests.controlplane.catalogue.exchange import round_trip

SPECS = list(round_trip.shipped_specs())


def test_no_round_trip_loses_anything(subtests: pytest.Subtests) -> None:
    for spec in SPECS:
        with subtests.test(spec=spec):
            assert round_trip.losses(spec) == []


def test_a_loss_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "restore", lambda reading, lines: None)
    assert "TRL: data" in round_trip.losses(SPECS[0])
    assert not round_trip.hold(SPECS[:1])


def test_texts_of_any_kind_survive_in_comments() -> None:
    text = "a: b\n#! c: 1\n\u2028\x85 // /* */ \t \\ \" ' é 😀 {{ }}"
    spec = dataclasses.replace(SPECS[0], name=text, grpo={"chat_template": text, "run": None, "list": [1, [2, [3]]]})
    assert round_trip.losses(spec) == []


def test_an_edited_export_keeps_the_edit() -> None:
    text = writing.trl_yaml(SPECS[1]).replace("learning_rate: 1.0e-06", "learning_rate: 2.0e-06\nmade_up: 1")
    reading = documents.read(text.encode(), trl.BASIC_SETTINGS)
    assert reading.values["grpo.learning_rate"] == 2e-6
    assert [note.key for note in reading.notes] == ["made_up"]
    assert {**reading.values, "grpo.learning_rate": 1e-6} == own.values_of(SPECS[1])


def test_other_tools_read_the_exports_as_plain_yaml() -> None:
    for write in (writing.trl_yaml, writing.axolotl_yaml, writing.accelerate_yaml):
        assert isinstance(yaml.safe_load(write(SPECS[1])), dict)
