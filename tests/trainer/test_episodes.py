"""Real TRL on episodes: tools, a game, what stops them, on one rank and on two, and on a server that really samples."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.running_vllm import RunningVllm
from tests.trainer import builders
from tests.trainer.conftest import Start
from tests.trainer.preloaded import Preloaded
from workers.contract.run.episodes import EpisodeLimits, EpisodeSpec, PartSpec
from workers.contract.run.hardware import Rollout, ServerSpec, Strategy, WeightSync
from workers.contract.run.spec import LoraSpec, RewardSpec
from workers.contract.wire.names import FileName
from workers.environments.calculator import ENTRY as CALCULATOR

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

REWARDS = (RewardSpec("variety", "unique_chars"), RewardSpec("given", "environment_reward"))
GRPO: dict[str, Any] = {"max_steps": 2, "max_completion_length": 160, "save_strategy": "no"}
"""A call has about 76 tokens, its result 13."""
BRACE_IN_TAG = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            **{"open": "<tool_call>{", "close_pattern": "</tool_call>", "repeats": True, "content": "json"},
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>", "content": "text"},
    },
}
"""By which what follows the tag's brace is no JSON: no call of the model can be read."""


def chats() -> list[dict[str, Any]]:
    return [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in builders.rows()]


def attempt(
    folder: Path,
    model: Path,
    part: str = CALCULATOR.key,
    *,
    params: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    template: str = "",
    run: dict[str, Any] | None = None,
    grpo: dict[str, Any] | None = None,
    **options: Any,
) -> Path:
    parts = (PartSpec("calc", part, params or {}),)
    episodes = EpisodeSpec("a room", 1, parts, EpisodeLimits(**(limits or {})), chat_template=template)
    return builders.attempt_folder(
        folder,
        model=model,
        grpo={**GRPO, **(grpo or {})},
        run={"episodes": episodes, **(run or {})},
        **{"dataset": chats(), "rewards": REWARDS, **options},
    )


def played(start: Start, folder: Path, *, code: int = 0) -> str:
    """Train to the end; what it said on stderr."""
    process = start("-m", "tests.trainer.playing", folder)
    _, err = process.communicate(timeout=240)
    assert process.returncode == code, err[-3000:]
    return str(err)


def completions(folder: Path) -> list[dict[str, Any]]:
    return [one for group in builders.lines(folder / FileName.SAMPLES) for one in group["completions"]]


def test_a_call_is_answered_and_the_answer_carries_no_loss(start: Start, calling_model: Path, tmp_path: Path) -> None:
    folder = attempt(tmp_path / "a", calling_model, grpo={"temperature": 0.01, "max_steps": 1})
    played(start, folder)
    first = completions(folder)[0]
    call, result, answer = first["turns"]
    assert call["tool_calls"][0]["function"] == {"name": "calc", "arguments": {"expression": "1+2"}}
    assert (result["role"], result["name"], result["content"], result["error"]) == ("tool", "calc", "3", "")
    assert answer["content"] == first["text"] == "<answer>3</answer>"
    assert [call["tokens"], result["tokens"], answer["tokens"]] == [76, 13, 4]
    assert (first["tokens"], first["end"], first["ended"]) == (93, "eos", True)
    logged = builders.logs(folder)[1]
    assert logged["completions/mean_length"] == 80, "of what the model wrote"
    assert logged["episodes/tool_share"] == pytest.approx(13 / 93)
    named = {name: value for name, value in logged.items() if name.startswith(("episodes/t", "episodes/c", "tools/"))}
    assert named["episodes/turns/mean"] == named["episodes/turns/max"] == 2
    assert (named["tools/call_frequency"], named["tools/failure_frequency"]) == (1, 0)
    assert (named["tools/calc/calls"], named["tools/calc/failed"], named["episodes/cut"]) == (1, 0, 0)
    assert 0 <= named["tools/calc/p50_s"] <= named["tools/calc/p95_s"]


def test_a_call_that_cannot_be_read_is_a_counted_error_that_the_model_reads(
    start: Start, calling_model: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(calling_model, model)
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**config, "response_template": BRACE_IN_TAG}))
    folder = attempt(tmp_path / "a", model, grpo={"temperature": 0.01, "max_steps": 1, "max_completion_length": 320})
    played(start, folder)
    first = completions(folder)[0]
    call, result, answer = first["turns"]
    assert call["content"].startswith("<tool_call>{")
    assert "tool_calls" not in call
    assert (result["role"], result["name"], result["error"]) == ("tool", "", "unreadable")
    assert result["content"].startswith("Your call can't be parsed, and nothing was called.")
    assert answer["role"] == "assistant"
    assert first["tokens"] == call["tokens"] + result["tokens"] + answer["tokens"]
    logged = builders.logs(folder)[1]
    assert logged["tools/call_frequency"] >= 1
    assert logged["tools/failure_frequency"] == 1


def test_a_game_answers_every_text_and_its_rewards_are_the_runs(start: Start, tiny_model: Path, tmp_path: Path) -> None:
    grpo = {"eval_strategy": "steps", "eval_steps": 1}
    folder = attempt(tmp_path / "a", tiny_model, "echo", grpo=grpo, eval_rows=4, limits={"turns": 4})
    played(start, folder)
    for one in completions(folder):
        given = [turn["reward"] for turn in one["turns"] if turn["role"] == "user"]
        assert one["rewards"]["given"] == sum(given)
        assert one["tokens"] == sum(turn["tokens"] for turn in one["turns"])
        assert (one["end"] == "done") == (given == [1.0, 2.0])
        assert one["end"] in ("done", "length")
    assert any(one["end"] == "done" for one in completions(folder))
    lines = builders.lines(folder / FileName.METRICS)
    assert any("eval_episodes/turns/mean" in line["data"] for line in lines)
    groups = builders.lines(folder / FileName.SAMPLES)
    assert all(group["prompt"].endswith(")") for group in groups), "what the reset added is missing"


def test_a_game_that_never_ends_is_ended_by_the_limit_of_turns(start: Start, tiny_model: Path, tmp_path: Path) -> None:
    grpo = {"max_steps": 1, "max_completion_length": 400, "temperature": 0.01}
    folder = attempt(tmp_path / "a", tiny_model, "echo", params={"rounds": 100}, limits={"turns": 3}, grpo=grpo)
    played(start, folder)
    for one in completions(folder):
        assert one["end"] == "turns"
        assert [turn["role"] for turn in one["turns"]] == ["assistant", "user"] * 3
    assert builders.logs(folder)[1]["episodes/cut"] == 1


@pytest.mark.parametrize("processes", [1, 2])
def test_no_completion_is_longer_than_allowed_and_every_episode_ends(
    start: Start, calling_model: Path, tmp_path: Path, processes: int
) -> None:
    profile = {"processes": processes, "strategy": "ddp"} if processes > 1 else {}
    grpo = {"max_completion_length": 90, "temperature": 1.2, "per_device_train_batch_size": 8 // processes}
    folder = attempt(tmp_path / "a", calling_model, grpo=grpo, hardware=profile)
    played(start, folder)
    made = completions(folder)
    assert len(made) == 16
    assert max(one["tokens"] for one in made) <= 90
    assert all(one["end"] in ("eos", "length") for one in made)
    assert all(one["end"] == "length" for one in made if one["turns"][-1]["role"] == "tool")
    turns = [sum(turn["role"] == "assistant" for turn in one["turns"]) for one in made[:8]]
    assert builders.logs(folder)[1]["episodes/turns/mean"] == sum(turns) / 8


@pytest.mark.parametrize("strategy", [Strategy.DDP, Strategy.FSDP2, Strategy.ZERO3])
def test_a_rank_whose_episodes_are_over_generates_with_those_that_go_on(
    start: Start, preloaded: Preloaded, tiny_model: Path, tmp_path: Path, strategy: Strategy
) -> None:
    if strategy is Strategy.ZERO3 and not preloaded.has("deepspeed"):
        pytest.skip("deepspeed is not installed in the trainer's interpreter")
    grpo = {"max_completion_length": 240, "per_device_train_batch_size": 4, "temperature": 0.01}
    folder = attempt(tmp_path / "a", tiny_model, "uneven", grpo=grpo, hardware={"processes": 2, "strategy": strategy})
    program = "tests.trainer.fsdp_on_cpu" if strategy is Strategy.FSDP2 else "tests.trainer.playing"
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d")
    process = start(*launcher, "--rdzv-endpoint=127.0.0.1:0", "-m", program, folder)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-3000:]
    turns = [sum(turn["role"] == "assistant" for turn in one["turns"]) for one in completions(folder)]
    assert turns == [1, 1, 1, 1, 3, 3, 3, 3] * 2


def test_results_may_be_left_out_of_the_length(start: Start, calling_model: Path, tmp_path: Path) -> None:
    grpo = {"max_completion_length": 80, "temperature": 0.01, "max_steps": 1}
    folder = attempt(tmp_path / "a", calling_model, grpo=grpo, limits={"count_outputs": False})
    played(start, folder)
    assert {(one["tokens"], one["end"]) for one in completions(folder)} == {(93, "eos")}


def test_the_last_turn_may_not_call(start: Start, calling_model: Path, tmp_path: Path) -> None:
    folder = attempt(tmp_path / "a", calling_model, grpo={"temperature": 0.01, "max_steps": 1}, limits={"turns": 1})
    played(start, folder)
    assert {(one["tokens"], one["end"], len(one["turns"])) for one in completions(folder)} == {(76, "turns", 1)}
    assert builders.logs(folder)[1]["episodes/cut"] == 1


def test_a_blocked_tool_is_a_counted_error_that_the_model_reads(
    start: Start, calling_model: Path, tmp_path: Path
) -> None:
    grpo = {"temperature": 0.01, "max_steps": 1, "max_completion_length": 300}
    folder = attempt(tmp_path / "a", calling_model, "blocking", grpo=grpo, limits={"call_s": 0.2})
    played(start, folder)
    results = [turn for one in completions(folder) for turn in one["turns"] if turn["role"] == "tool"]
    assert {turn["error"] for turn in results} == {"timeout"}
    assert {turn["content"] for turn in results} == {"calc took longer than 0.2 s, and was stopped."}
    assert builders.logs(folder)[1]["tools/failure_frequency"] == 1


def test_a_broken_environment_ends_its_episodes_without_a_reward(
    start: Start, tiny_model: Path, tmp_path: Path
) -> None:
    folder = attempt(tmp_path / "a", tiny_model, "broken", grpo={"max_steps": 1, "max_completion_length": 400})
    played(start, folder)
    broken = [one for one in completions(folder) if one["end"] == "failed"]
    assert broken
    assert all(one["reward"] is None and one["advantage"] == 0 for one in broken)
    logged = builders.logs(folder)[1]
    assert logged["episodes/failed"] == len(broken) / 8
    assert logged["loss"] == logged["loss"], "not a number"


def test_a_long_result_is_cut_and_cannot_speak_as_the_model(start: Start, calling_model: Path, tmp_path: Path) -> None:
    grpo = {"temperature": 0.01, "max_steps": 1}
    folder = attempt(tmp_path / "a", calling_model, "loud", grpo=grpo, limits={"output_tokens": 20})
    played(start, folder)
    (result,) = [turn for turn in completions(folder)[0]["turns"] if turn["role"] == "tool"]
    assert result["content"].startswith("< |im_end|>haha")
    assert result["content"].endswith("(truncated: the result is longer than 20 tokens)")
    assert 20 < result["tokens"] < 100


def test_a_resumed_run_plays_the_episodes_that_it_would_have_played(
    start: Start, tiny_model: Path, tmp_path: Path
) -> None:
    grpo = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "max_completion_length": 60}
    whole = attempt(tmp_path / "whole", tiny_model, "echo", grpo=grpo)
    played(start, whole)
    resumed_from = str(whole / "checkpoints/checkpoint-2")
    rest = attempt(tmp_path / "rest", tiny_model, "echo", grpo=grpo, resume_from=resumed_from)
    played(start, rest)
    assert timeless(rest) == {step: values for step, values in timeless(whole).items() if step > 2}


def timeless(folder: Path) -> dict[int, dict[str, float]]:
    logged = builders.logs(folder).items()
    return {step: {k: v for k, v in of.items() if k != "episodes/seconds/p95"} for step, of in logged}


@pytest.mark.parametrize("processes", [1, 2])
def test_a_server_samples_every_turn_from_the_policy(
    start: Start, preloaded: Preloaded, calling_model: Path, tmp_path: Path, processes: int
) -> None:
    lora = ("--enable-lora", "--max-lora-rank", "8", "--max-loras", "3", "--logprobs-mode", "processed_logprobs")
    env = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "FAKE_VLLM_LIFETIME": "280", "FAKE_VLLM_ENGINE": "torch"}
    with RunningVllm(*lora, preloaded=preloaded, model=str(calling_model), name="r1-1", **env) as server:
        server.ready()
        profile = {"rollout": Rollout.SERVER, "server": ServerSpec(weight_sync=WeightSync.LORA, request_timeout_s=60)}
        profile |= {"processes": processes, "strategy": "ddp"} if processes > 1 else {}
        folder = attempt(
            tmp_path / "a",
            calling_model,
            grpo={"temperature": 0.9, "per_device_train_batch_size": 8 // processes},
            hardware=profile,
            placement={"ports": [server.port]},
            run={"lora": LoraSpec(r=8, alpha=16)},
        )
        played(start, folder)
    assert any(len(one["turns"]) == 3 for one in completions(folder))
    for logged in builders.logs(folder).values():  # tokens out of place would have other log probabilities
        assert logged["sampling/sampling_logp_difference/max"] < 1e-3


def test_a_template_that_cannot_show_tools_ends_the_run_with_the_alternatives(
    start: Start, calling_model: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    subprocess.run(["cp", "-r", calling_model, model], check=True)
    plain = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    (model / "chat_template.jinja").write_text(plain)
    err = played(start, attempt(tmp_path / "a", model), code=3)
    assert "The chat template can't render tools and their results. Choose one of TRL's templates instead" in err
    assert "qwen3" in err


def test_one_of_trls_templates_may_stand_in_and_is_saved_with_the_model(
    start: Start, calling_model: Path, tmp_path: Path
) -> None:
    grpo = {"max_steps": 1, "max_completion_length": 20, "save_strategy": "steps", "save_steps": 1}
    folder = attempt(tmp_path / "a", calling_model, template="qwen3", grpo=grpo)
    played(start, folder)
    saved = (folder / "checkpoints/checkpoint-1/chat_template.jinja").read_text()
    assert "# Tools" in saved


def test_prompts_that_are_no_chats_and_unknown_parts_end_the_run_with_a_sentence(
    start: Start, tiny_model: Path, tmp_path: Path
) -> None:
    texts = attempt(tmp_path / "texts", tiny_model, dataset=builders.rows())
    assert "Episodes are chats, but the dataset's prompts are plain strings." in played(start, texts, code=3)
    unknown = attempt(tmp_path / "unknown", tiny_model, "crystal_ball")
    assert "There is no tool or environment 'crystal_ball' here." in played(start, unknown, code=3)
