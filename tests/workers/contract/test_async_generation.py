"""Why a run can't generate one step ahead."""

from __future__ import annotations

from typing import Any

import pytest

from workers.contract.run.episodes import EpisodeSpec, PartSpec
from workers.contract.run.hardware import HardwareSpec, Rollout, ServerSpec
from workers.contract.run.overlapping import CORRECTION, MODE, ahead_problems, with_correction
from workers.contract.run.prompts import PromptsSpec

SERVERS = HardwareSpec("servers", rollout=Rollout.SERVER, trainer_gpus=1, server=ServerSpec())


def words(hardware: HardwareSpec | None = SERVERS, **asked: Any) -> str:
    grpo, prompts = asked.get("grpo", {}), asked.get("prompts", PromptsSpec())
    return " ".join(str(problem) for problem in ahead_problems(hardware, grpo, prompts, asked.get("episodes")))


def test_nothing_is_wrong_with_servers_or_before_a_profile_is_chosen() -> None:
    assert words() == words(None) == words(prompts=PromptsSpec(extra_rounds=4)) == ""


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (words(HardwareSpec("colocate", rollout=Rollout.COLOCATE)), "this profile generates inside the trainer."),
        (words(HardwareSpec("cpu")), "this profile generates by the trainer itself."),
        (words(episodes=EpisodeSpec("tools", 1, (PartSpec("calc", "calculator"),))), "their turns alternate"),
        (words(prompts=PromptsSpec(by_difficulty=True)), "the next can't be known ahead."),
        (words(grpo={CORRECTION: False}), "would bias every update."),
    ],
)
def test_what_is_wrong_is_said(found: str, sentence: str) -> None:
    assert sentence in found


def test_the_users_own_correction_stands() -> None:
    assert with_correction({"beta": 0.0}, True) == {"beta": 0.0, MODE: "token_truncate"}
    assert with_correction({MODE: "sequence_truncate"}, True) == {MODE: "sequence_truncate"}
    assert with_correction({}, False) == {}
