"""How completions are sampled: parameters that don't exist, that bias the loss, or that mask every completion."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runs.launch import preflight
from runs.launch.preflight.finding import Finding, Grade
from tests.runs.launch.preflight.test_preflight import COLOCATE, CPU, FINE, MODEL
from tests.runs.launch.preflight.test_traps import drafted, found
from workers.contract.run.hardware import Rollout, ServerSpec
from workers.contract.run.spec import RewardSpec
from workers.contract.stack.generation_rules import DECIDED_ELSEWHERE, OWN_FIELDS, TRANSFORMERS, VLLM

FIELD = "generation_kwargs"


def causes(hardware: Any, arguments: Any) -> list[Finding]:
    return [one for one in preflight.check(drafted(hardware, grpo={FIELD: arguments})) if one.field == FIELD]


@pytest.mark.parametrize(
    ("hardware", "arguments", "cause", "fix"),
    [
        (CPU, {"stop_strings": ["</done>"]}, "Transformers needs a tokenizer", "choose a profile with vLLM"),
        (CPU, {"stop": "</done>"}, "Transformers needs a tokenizer", "choose a profile with vLLM"),
        (CPU, {"n": 2}, "would override the run's num_generations", "set num_generations"),
        (COLOCATE, {"n": 4}, "would override the run's num_generations", "set num_generations"),
        (CPU, {"max_new_tokenz": 9}, "has no sampling parameter max_new_tokenz", "Did you mean max_new_tokens?"),
        (CPU, {"max_new_tokens": 9}, "override the run's max_completion_length", "set max_completion_length"),
        (COLOCATE, {"temprature": 0.5}, "vLLM has no sampling parameter temprature", "Did you mean temperature?"),
        (COLOCATE, {"no_repeat_ngram_size": 3}, "vLLM has no sampling parameter", "only Transformers has it"),
        (CPU, {"bad_words": ["x"]}, "Transformers has no sampling parameter", "only vLLM has it"),
        (COLOCATE, {"stop_strings": ["x"]}, "vLLM has no sampling parameter stop_strings", "Did you mean stop?"),
        (COLOCATE, {"seed": "five"}, 'seed in generation_kwargs is "five"', "It must be a number."),
        (COLOCATE, {"ignore_eos": 1}, "ignore_eos in generation_kwargs is 1", "It must be true or false."),
        (COLOCATE, {"stop": 5}, "stop in generation_kwargs is 5", "It must be a text or a list."),
        (COLOCATE, {"logprobs": 5}, "asks for the log-probabilities", "Remove logprobs"),
        (CPU, {"do_sample": False}, "greedy ones are all alike", "Remove do_sample"),
        (COLOCATE, [1], "is not a JSON object", "Enter"),
        (COLOCATE, "{", "is not a JSON object", "Enter"),
        (COLOCATE, '{"n": 2}', "would override the run's num_generations", "set num_generations"),
    ],
)
def test_a_parameter_that_the_run_can_not_have_stops_it(hardware: Any, arguments: Any, cause: str, fix: str) -> None:
    [finding] = causes(hardware, arguments)
    assert finding.grade == Grade.STOP
    assert cause in finding.cause
    assert fix in finding.fix


def test_valid_parameters_of_each_program_are_accepted() -> None:
    vllm = {
        "min_tokens": 0,
        "stop": ["</done>"],
        "stop_token_ids": [1],
        "skip_special_tokens": False,
        "presence_penalty": 0,
    }
    assert causes(COLOCATE, vllm) == []
    assert causes(CPU, {"no_repeat_ngram_size": 3, "suppress_tokens": [5], "length_penalty": 1}) == []
    assert causes(CPU, None) == causes(COLOCATE, {}) == causes(COLOCATE, "") == []


def test_no_name_is_both_allowed_and_refused() -> None:
    assert not (set(OWN_FIELDS) | set(DECIDED_ELSEWHERE)) & (set(VLLM) | set(TRANSFORMERS))


@pytest.mark.parametrize(
    "arguments",
    [{"presence_penalty": 0.4}, {"frequency_penalty": -0.2}, {"logit_bias": {"7": 2}}, {"bad_words": ["hm"]}],
)
def test_a_penalty_among_the_arguments_is_warned_of_and_its_fix_keeps_the_rest(arguments: dict[str, Any]) -> None:
    [finding] = causes(COLOCATE, {**arguments, "ignore_eos": False})
    assert finding.grade == Grade.WARN
    assert "biases the importance ratio" in finding.cause
    assert finding.fixes[0].values == {FIELD: '{"ignore_eos": false}'}


def test_a_repetition_penalty_is_warned_of_with_vllm_only() -> None:
    grpo = {"repetition_penalty": 1.05}
    assert found(drafted(grpo=grpo), "repetition_penalty", "biases the importance ratio")
    assert not found(drafted(CPU, grpo=grpo), "repetition_penalty", "biases")


@pytest.mark.parametrize(
    ("pattern", "is_warned"),
    [
        (r"(?=a)b", True), (r"a(?!b)", True), (r"(?<=x)y", True), (r"(?<!x)y", True), (r"(a)\1", True),
        (r"(?P<n>a)(?:b)", False), (r"\(?=", False), (r"[(?=]+", False), (r"<think>.*</think>\d+", False),
    ],
)  # fmt: skip
def test_a_pattern_with_look_around_or_back_references_is_warned_of(pattern: str, is_warned: bool) -> None:
    drafts = [
        (drafted(grpo={"vllm_structured_outputs_regex": pattern}), "vllm_structured_outputs_regex"),
        (drafted(grpo={FIELD: {"structured_outputs": {"regex": pattern}}}), FIELD),
    ]
    assert [bool(found(draft, field, "grammars don't support")) for draft, field in drafts] == [is_warned] * 2


def test_a_seed_that_makes_a_group_of_equal_completions_stops_colocated_runs_only() -> None:
    [finding] = causes(COLOCATE, {"seed": 3, "min_tokens": 0})
    assert finding.grade == Grade.STOP
    assert "same completion for every copy" in finding.cause
    assert finding.fixes[0].values == {FIELD: '{"min_tokens": 0}'}
    server = replace(COLOCATE, rollout=Rollout.SERVER, server=ServerSpec())
    assert causes(server, {"seed": 3}) == []


def test_stop_strings_with_masked_truncation_are_warned_of() -> None:
    draft = drafted(grpo={FIELD: {"stop": ["</done>"]}, "mask_truncated_completions": True})
    finding = found(draft, "mask_truncated_completions", "</done>")
    assert finding is not None
    assert finding.grade == Grade.WARN
    grpo = draft.grpo | {"mask_truncated_completions": False}
    assert not found(replace(draft, grpo=grpo), "mask_truncated_completions", "masks")
    at_eos = replace(draft, inspection={**MODEL, "eos_token": "</done>"})
    assert not found(at_eos, "mask_truncated_completions", "masks")


@pytest.mark.parametrize("bounds", [{}, {"epsilon_high": 0.28}, {"epsilon": 0.3}, {"epsilon_high": 0.99}])
def test_cispo_without_its_own_bound_stops_and_the_fix_makes_it_go(bounds: dict[str, float]) -> None:
    draft = drafted(CPU, grpo={"loss_type": "cispo", **bounds})
    finding = found(draft, "epsilon_high", "CISPO")
    assert finding is not None
    assert finding.fixes[0].values == {"epsilon_high": "5.0"}
    assert not found(replace(draft, grpo=draft.grpo | {"epsilon_high": 5.0}), "epsilon_high", "")


@pytest.mark.parametrize(
    ("grpo", "is_warned"),
    [
        ({"delta": 1.1, "epsilon_high": 0.28}, True),
        ({"delta": 1.15}, True),
        ({"delta": 1.3, "epsilon_high": 0.28}, False),
        ({"delta": None}, False),
    ],
)
def test_a_delta_below_the_clip_bound_is_warned_of(grpo: dict[str, Any], is_warned: bool) -> None:
    assert bool(found(drafted(CPU, grpo=grpo), "delta", "is below 1 + ε")) is is_warned


def rooted(model: str, **changes: Any) -> list[str]:
    host = replace(FINE.hosts[0], inventory={"model_roots": ["/srv/models", "/data"], "runs_dir": "/srv/runs"})
    draft = replace(FINE, model=model, inspection=None, hosts=(host,), **changes)
    return [one.cause for one in preflight.check(draft) if one.grade == Grade.STOP and one.field == "model"]


@pytest.mark.parametrize("model", ["/home/me/model", "/srv/models-old/x", "/srv/models/../x", "./here", "~/model"])
def test_a_folder_outside_the_hosts_model_folders_stops_the_run(model: str) -> None:
    [cause] = rooted(model)
    assert "/srv/models, /data, /srv/runs" in cause


@pytest.mark.parametrize("model", ["/srv/models/x", "/data/a/b/", "/srv/runs/1/checkpoint", "org/name"])
def test_a_folder_inside_them_and_a_hub_id_do_not(model: str) -> None:
    assert rooted(model) == []


THINKER = {**MODEL, "prompt_opens": "think"}
EXPECTS = "writes <think> at the end of the prompt"


@pytest.mark.parametrize(
    ("function", "params", "is_warned"),
    [
        ("think_present", {}, True),
        ("think_tags", {"partial": True}, True),
        ("soft_format", {}, True),
        ("trl_think_format", {}, True),
        ("think_tags", {"opened_by_prompt": True}, False),
        ("think_tags", {"tag": "reasoning"}, False),
        ("soft_format", {"tags": "answer, think"}, False),
        ("answer_tag", {}, False),
    ],
)
def test_a_think_reward_meets_a_template_that_writes_the_tag(function, params, is_warned) -> None:
    rewards = (*(FINE.rewards or ()), RewardSpec("form", function, params=params))
    draft = replace(FINE, inspection=THINKER, rewards=rewards)
    assert bool(found(draft, "reward_version", EXPECTS)) is is_warned
    assert not found(replace(draft, inspection=MODEL), "reward_version", EXPECTS)
    quiet = draft.grpo | {"chat_template_kwargs": {"enable_thinking": False}}
    assert not found(replace(draft, grpo=quiet), "reward_version", EXPECTS)
