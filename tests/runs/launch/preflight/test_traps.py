"""Settings that TRL accepts silently: each brings up its finding, and its fix makes it go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runs.launch import preflight
from runs.launch.preflight.checks.traps import share_masked
from runs.launch.preflight.draft import Draft
from runs.launch.preflight.finding import Finding, Grade
from tests.runs.launch.preflight.test_preflight import COLOCATE, CPU, FINE, GPU_BOX, LORA
from workers.contract.run.spec import RewardSpec


def drafted(hardware: Any = COLOCATE, **changes: Any) -> Draft:
    grpo = {**FINE.grpo, "beta": 0.001, **changes.pop("grpo", {})}
    return replace(FINE, hosts=(GPU_BOX,), hardware=hardware, grpo=grpo, **changes)


def found(draft: Draft, field: str, words: str) -> Finding | None:
    findings = [one for one in preflight.check(draft) if one.field == field and words in one.cause]
    return findings[0] if findings else None


BIASED = "biases the importance ratio"
LEFT_OUT = "sequence_mask drops"
CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"grpo": {"top_p": 0.9}}, "top_p", BIASED),
    ({"grpo": {"top_k": 50}}, "top_k", BIASED),
    ({"grpo": {"min_p": 0.05}}, "min_p", BIASED),
    ({"grpo": {"max_completion_length": 1536}}, "vllm_importance_sampling_mode", LEFT_OUT),
    ({"grpo": {"beta": 0.0}, "lora": LORA}, "beta", "no KL is logged"),
]


@pytest.mark.parametrize(("changes", "field", "words"), CASES, ids=[case[1] for case in CASES])
def test_a_trap_is_said_and_its_fix_makes_it_go(changes: dict[str, Any], field: str, words: str) -> None:
    draft = drafted(**changes)
    finding = found(draft, field, words)
    assert finding is not None
    [fix] = finding.fixes
    values = {name: text for name, text in fix.values.items() if text}
    typed = {name: float(text) if text.replace(".", "").isdigit() else text for name, text in values.items()}
    grpo = {name: value for name, value in draft.grpo.items() if name not in fix.values}
    assert found(replace(draft, grpo={**grpo, **typed}), field, words) is None


@pytest.mark.parametrize("grpo", [{"top_p": 1.0}, {"top_k": 0}, {"min_p": None}, {"max_completion_length": 512}])
def test_neutral_values_are_no_trap(grpo: dict[str, Any]) -> None:
    causes = [one.cause for one in preflight.check(drafted(grpo=grpo))]
    assert not [cause for cause in causes if BIASED in cause or LEFT_OUT in cause]


def test_without_vllm_there_is_nothing_to_bias() -> None:
    draft = drafted(CPU, grpo={"top_p": 0.9, "max_completion_length": 8192})
    assert not [one for one in preflight.check(draft) if BIASED in one.cause or LEFT_OUT in one.cause]


def test_long_completions_are_a_warning_with_their_share() -> None:
    finding = found(drafted(grpo={"max_completion_length": 8192}), "vllm_importance_sampling_mode", LEFT_OUT)
    assert finding is not None
    assert finding.grade == Grade.WARN
    assert "about 21%, or up to 40%" in finding.cause


def test_the_share_is_that_of_the_normal_distribution(subtests: pytest.Subtests) -> None:
    for noise, tokens, percent in [
        (0.015, 512, 0.1),
        (0.015, 2048, 5),
        (0.015, 8192, 21),
        (0.05, 512, 17),
        (0.05, 2048, 31),
        (0.05, 8192, 40),
    ]:
        with subtests.test(noise=noise):
            assert 100 * share_masked(tokens, 3.0, noise) == pytest.approx(percent, abs=0.6)


def test_a_raw_count_beside_scores_from_0_to_1_is_said() -> None:
    rewards = (RewardSpec("right", "numeric_match"), RewardSpec("variety", "unique_chars"))
    finding = found(drafted(rewards=rewards), "reward_version", "the others hardly matter")
    assert finding is not None
    assert "weight near" in finding.fix
    assert found(drafted(rewards=rewards[:1]), "reward_version", "hardly matter") is None
