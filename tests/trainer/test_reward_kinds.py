"""Real TRL with rewards of every kind: code in the sandbox, functions that misbehave, reward models, TRL's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.trainer import builders, reward_runs
from tests.trainer.conftest import Start, Train, starting
from tests.trainer.preloaded import Preloaded
from tests.trainer.reward_runs import KEY, MISDEEDS, NO_SANDBOX, TRLS_OWN, VARIETY, Ended, RewardModels, liking, python
from tests.trainer.test_training import last_step, of_kind
from workers.contract.run.episodes import EpisodeSpec, PartSpec
from workers.contract.run.spec import RewardSpec
from workers.contract.wire.names import FileName

pytestmark = [pytest.mark.trainer, pytest.mark.processes]


@pytest.fixture(scope="module")
def start_once(preloaded: Preloaded) -> Iterator[Start]:
    """As `start`, for trainings that several tests read."""
    with starting(preloaded) as start:
        yield start


@pytest.fixture(scope="module")
def reward_models(preloaded: Preloaded, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> RewardModels:
    return reward_runs.make_models(preloaded, tiny_model, tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def with_code(start_once: Start, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return reward_runs.with_code(start_once, tiny_model, tmp_path_factory.mktemp("with-code"))


@pytest.fixture(scope="module")
def without_code(
    start_once: Start, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory, reward_models: RewardModels
) -> Ended:
    folder = tmp_path_factory.mktemp("without-code")
    return reward_runs.without_code(start_once, tiny_model, folder, reward_models.fine)


@pytest.fixture(scope="module")
def misbehaving(
    start_once: Start, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory, reward_models: RewardModels
) -> Ended:
    folder = tmp_path_factory.mktemp("misbehaving")
    return reward_runs.misbehaving(start_once, tiny_model, folder, reward_models.infinite)


@pytest.fixture(scope="module")
def whatever_fails(start_once: Start, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return reward_runs.whatever_fails(start_once, tiny_model, tmp_path_factory.mktemp("whatever-fails"))


def test_a_functions_scores_in_the_sandbox_are_what_the_training_learns_from(with_code: Ended) -> None:
    assert with_code.code == 0, with_code.err[-2000:]
    assert len(with_code.completions) >= 16
    for one in with_code.completions:
        assert one["rewards"]["mine"] == pytest.approx(len(set(one["text"])) / 100)
        assert one["rewards"]["runs"] in (1.0, -0.5)
        assert one["reward"] == pytest.approx(one["rewards"]["mine"] + 0.1 * one["rewards"]["runs"])
    assert set(with_code.failed_share("mine") + with_code.failed_share("runs")) == {0.0}
    assert with_code.failures() == []


def test_nothing_of_the_sandbox_is_left_when_the_trainer_ends(with_code: Ended) -> None:
    assert with_code.children
    assert [pid for pid in with_code.children if os.path.exists(f"/proc/{pid}")] == []


def test_no_sandbox_is_opened_for_rewards_that_run_no_code(without_code: Ended) -> None:
    assert without_code.code == 0, without_code.err[-2000:]
    assert without_code.children == ()


def test_a_reward_model_scores_under_its_components_name_and_two_of_one_model_stay_two(without_code: Ended) -> None:
    given = [one["rewards"] for one in without_code.completions]
    assert all(one["likes"] == one["again"] for one in given)
    assert len({one["likes"] for one in given}) > 1
    assert set(without_code.failed_share("likes")) == {0.0}
    assert {"rewards/likes/mean", "rewards/again/mean"} <= builders.logs(without_code.folder)[1].keys()


def test_a_judge_is_asked_with_its_key_and_the_key_is_written_nowhere(without_code: Ended) -> None:
    assert len(without_code.asked) == len(without_code.completions) >= 16
    assert {headers["Authorization"] for headers in without_code.asked} == {f"Bearer {KEY}"}
    assert {one["rewards"]["judge"] for one in without_code.completions} == {0.5}
    assert KEY not in without_code.out + without_code.err
    for path in without_code.folder.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()


@pytest.mark.parametrize("run", ["without_code", "whatever_fails"])
def test_trls_own_rewards_score_by_name_and_add_up_as_asked(request: pytest.FixtureRequest, run: str) -> None:
    """The one sums and then normalises, the other the reverse."""
    ended: Ended = request.getfixturevalue(run)
    for one in ended.completions:
        punished = 0.0 if one["tokens"] <= 4 else max(-1.0, (4 - one["tokens"]) / 4)
        assert one["rewards"]["long"] == pytest.approx(punished)
        assert one["rewards"]["thinks"] in (0.0, 1.0)
        assert -1.0 <= one["rewards"]["repeats"] <= 0.0
        assert one["rewards"]["accuracy"] in (0.0, 1.0)
        assert -1.0 <= one["rewards"]["cosine"] <= 1.0
    assert [event for spec in TRLS_OWN for event in ended.failures(spec.name)] == []


def test_functions_that_misbehave_are_told_score_nothing_and_end_the_run_with_a_checkpoint(misbehaving: Ended) -> None:
    assert misbehaving.code == 7, misbehaving.err[-2000:]
    assert "failed on 32 of the 32 completions of its last 4 batches" in misbehaving.last_words
    assert "the run allows only 50%" in misbehaving.last_words
    for name, (_, kind, says) in MISDEEDS.items():
        first, second = misbehaving.failures(name)
        assert (first["kind"], first["count"], first["of"], first["row"] in range(40)) == (kind, 8, 8, True)
        assert (second["kind"], second["count"], second["of"]) == (kind, 16, 16)
        assert says in first["message"]
        assert misbehaving.failed_share(name) == [1.0] * 4
    for one in misbehaving.completions:
        assert {one["rewards"][name] for name in (*MISDEEDS, "likes", "judge")} == {None}
        assert one["reward"] == pytest.approx(0.5 * one["rewards"]["variety"])
    [end] = of_kind(misbehaving.folder, "trained")
    assert (end["step"], end["data"]) == (4, {"how": "failed"})
    assert (misbehaving.folder / "checkpoints/checkpoint-4/model.safetensors").is_file()


def test_a_reward_model_that_says_infinity_fails_on_every_row(misbehaving: Ended) -> None:
    assert misbehaving.failed_share("likes") == [1.0] * 4
    first, second = misbehaving.failures("likes")
    assert (first["kind"], first["count"], second["count"]) == ("not_a_number", 8, 16)


def test_a_judge_that_goes_away_is_told_and_ends_the_run(misbehaving: Ended) -> None:
    assert misbehaving.last_words.startswith("The reward judge failed on 32 of the 32 completions")
    [first, *_] = misbehaving.failures("judge")
    assert (first["kind"], first["message"]) == ("http", "The connection failed: Connection refused.")
    assert KEY not in misbehaving.out + misbehaving.err


def test_a_share_of_one_lets_a_run_train_to_its_end_whatever_fails(whatever_fails: Ended) -> None:
    assert whatever_fails.code == 0, whatever_fails.err[-2000:]
    assert last_step(whatever_fails.folder) == 6
    assert [event["count"] for event in whatever_fails.failures("raises")] == [8, 16]


def test_an_admins_leave_lets_code_run_without_a_sandbox(whatever_fails: Ended) -> None:
    assert "Code runs without a sandbox, as an admin allows on this host." in whatever_fails.out
    assert whatever_fails.failed_share("mine") == [0.0] * 6
    assert {one["rewards"]["mine"] for one in whatever_fails.completions} == {1.0}


def test_without_a_sandbox_and_an_admins_leave_rewards_that_run_code_are_refused(
    tiny_model: Path, tmp_path: Path, start: Start
) -> None:
    specs = (python("def reward(completions, **columns):\n    return [1.0] * len(completions)\n"), VARIETY)
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, rewards=specs)
    refused = reward_runs.trained(start, folder, "-c", NO_SANDBOX)
    assert refused.code == 3
    assert "The reward 'mine' runs code, but no sandbox works on this host" in refused.last_words
    assert "bwrap is not installed" in refused.last_words
    assert of_kind(folder, "stage")[-1]["data"]["stage"] == "importing libraries"  # the model was not loaded


def test_without_a_sandbox_tools_that_run_code_are_refused_as_rewards_are(
    tiny_model: Path, tmp_path: Path, start: Start
) -> None:
    episodes = EpisodeSpec("programs", 1, (PartSpec("interpreter", "python_interpreter"),))
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, rewards=(VARIETY,), run={"episodes": episodes})
    refused = reward_runs.trained(start, folder, "-c", NO_SANDBOX)
    assert refused.code == 3
    assert "The tool 'interpreter' runs code, but no sandbox works on this host" in refused.last_words


def test_two_ranks_end_together_when_rewards_fail_on_one_of_them(
    tiny_model: Path, tmp_path: Path, train: Train, reward_models: RewardModels
) -> None:
    source = "def reward(completions, row, **columns):\n    return [float('nan') if r % 2 else 0.5 for r in row]\n"
    folder = builders.attempt_folder(
        tmp_path / "a",
        model=tiny_model,
        rewards=(python(source), VARIETY, liking(reward_models.fine, weight=0.1)),
        grpo={"max_steps": 50, "per_device_train_batch_size": 4},
        hardware={"processes": 2, "strategy": "ddp"},
        dataset=[{**row, "row": number} for number, row in enumerate(builders.rows(8))],
        run={"failed_share": 0.2},
    )
    done = train(folder)
    assert done.returncode == 7, done.stderr[-3000:]
    assert "The reward mine failed on" in done.stderr
    assert "the run allows only 20%" in done.stderr
    assert of_kind(folder, "trained")[0]["data"]["how"] == "failed"
    given = [
        one["rewards"]["likes"] for line in builders.lines(folder / FileName.SAMPLES) for one in line["completions"]
    ]
    assert all(isinstance(score, float) for score in given)
    saved = of_kind(folder, "checkpoint")
    assert [line["step"] for line in saved] == [last_step(folder)]


def test_a_model_without_a_head_is_no_reward_model(tiny_model: Path, tmp_path: Path, train: Train) -> None:
    specs = (VARIETY, liking(tiny_model))
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, rewards=specs)
    done = train(folder)
    assert done.returncode == 3
    assert "is not a sequence-classification model" in done.stderr.splitlines()[-1]


def test_trls_own_rewards_give_what_trl_gives(preloaded: Preloaded) -> None:
    script = r"""
import json
from trl.rewards import (
    accuracy_reward, get_cosine_scaled_reward, get_repetition_penalty_reward, get_soft_overlong_punishment,
    reasoning_accuracy_reward, think_format_reward,
)
from workers.rewards.library import LIBRARY
from workers.rewards.tools import Tools
from workers.rewards.scoring import score
from workers.trainer.scoring.rewards import GeneratedCompletion
from workers.trainer.scoring.trl_rewards import SCORERS
third = r"It is \boxed{\frac{1}{3}}"
texts = [third, r"It is \boxed{\frac{1}{2}}", "<think>a</think>b", "", f"<think>a</think>{third}", f"<think>{third}"]
ids = [[1, 2, 3, 4], [5] * 40, [1, 2], [], [1] * 15, [1] * 20]
rows = [{"answer": r"\frac{1}{3}"}] * 3 + [{"answer": None, "solution": "7"}] + [{"answer": r"\frac{1}{3}"}] * 2
made = [GeneratedCompletion(text, ids=of) for text, of in zip(texts, ids)]
tools = Tools(open_sandbox=None, trainer=SCORERS)
def ours(key, **params):
    given = score(LIBRARY[key], made, rows, params, tools)
    assert not given.failures, given.failures
    return given.values
chats = [[{"role": "assistant", "content": text}] for text in texts]
solutions = [row.get("solution") or row["answer"] for row in rows]
print(json.dumps([
    [ours("trl_accuracy"), accuracy_reward(chats, solutions)],
    [ours("trl_reasoning_accuracy"), reasoning_accuracy_reward(chats, solutions)],
    [ours("trl_reasoning_accuracy", delimiter="is"), reasoning_accuracy_reward(chats, solutions, ["is"])],
    [ours("trl_soft_overlong", max_completion_len=20, soft_punish_cache=10), get_soft_overlong_punishment(20, 10)(ids)],
    [ours("trl_cosine_scaled", max_len=50), get_cosine_scaled_reward(50)(chats, solutions, ids)],
    [ours("trl_repetition_penalty"), get_repetition_penalty_reward()(ids)],
    [ours("trl_think_format"), think_format_reward(chats)],
]))
"""
    done = preloaded.run("-c", script)
    pairs = json.loads(done.stdout.splitlines()[-1])
    assert len(pairs) == 7
    for ours, trls in pairs:
        assert ours == trls
    assert [pairs[0][0], pairs[1][0], pairs[2][0], pairs[3][0]] == [
        [1.0, 0.0, 0.0, 0.0, 1.0, 1.0],
        [0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
        [1.0, 0.0, 0.0, 0.0, 1.0, 1.0],
        [0.0, -1.0, 0.0, 0.0, -0.5, -1.0],
    ]


def test_a_judge_without_its_endpoint_is_refused_before_anything_is_loaded(tmp_path: Path, tiny_model: Path) -> None:
    specs = (RewardSpec("judge", "judge", params={"endpoint": "MY_JUDGE", "model": "m"}),)
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, rewards=specs)
    done = subprocess.run(
        [sys.executable, "-m", "workers.trainer", folder], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3
    assert "The reward 'judge': There is no endpoint named MY_JUDGE" in done.stderr.splitlines()[-1]


def test_a_text_that_a_reward_model_stumbles_over_has_no_score_and_an_error_of_the_device_ends_all(
    preloaded: Preloaded,
) -> None:
    script = """
import torch
from workers.trainer.scoring.reward_models import _guard
class Model(torch.nn.Module):
    def forward(self, input_ids, **inputs):
        raise self.error
model = Model()
_guard(model, "likes")
for model.error in (IndexError("index out of range in self"), RuntimeError("sizes differ")):
    assert model(input_ids=torch.zeros(3, 2)).logits.isnan().tolist() == [[True]] * 3
for model.error in (torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory"), KeyError(1)):
    try:
        model(input_ids=torch.zeros(3, 2))
    except type(model.error):
        continue
    raise SystemExit("swallowed")
"""
    done = preloaded.run("-c", script)
    assert "Reward 'likes' raised IndexError: index out of range in self" in done.stderr
