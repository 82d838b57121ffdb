"""Real TRL with rewards of every kind: code in the sandbox, functions that misbehave, reward models, TRL's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stack import ROOT
from tests.trainer import builders
from tests.trainer.conftest import Start
from tests.trainer.test_training import Train, last_step, of_event, until
from tests.workers.rewards.judge_server import JudgeServer
from workers.contract import FileName, RewardSpec

pytestmark = [pytest.mark.trainer, pytest.mark.processes, pytest.mark.timeout(400)]

VARIETY = builders.REWARDS[-1]
MAKE_MODEL = """
import sys
import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForSequenceClassification
torch.manual_seed(1)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
config = Qwen2Config(
    vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
    intermediate_size=32, max_position_embeddings=512, num_labels=1)
model = Qwen2ForSequenceClassification(config)
if len(sys.argv) > 3:
    torch.nn.init.constant_(model.score.weight, float(sys.argv[3]))
model.save_pretrained(sys.argv[2])
tokenizer.save_pretrained(sys.argv[2])
"""


def python(source: str, name: str = "mine", **params: Any) -> RewardSpec:
    return RewardSpec(name, "python", 1.0, {"source": source, "seconds": 5.0, **params})


def failed_share(folder: Path, name: str) -> list[float]:
    return [line["values"][f"rewards/{name}/failed"] for line in of_event(folder, "log") if "loss" in line["values"]]


def children_of(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


@pytest.fixture(scope="module")
def make_reward_model(trainer_python: Path, tiny_model: Path) -> Callable[..., Path]:
    def make(folder: Path, *weight: str) -> Path:
        subprocess.run([trainer_python, "-c", MAKE_MODEL, tiny_model, folder, *weight], cwd=ROOT, check=True)
        return folder

    return make


def test_a_functions_scores_in_the_sandbox_are_what_the_training_learns_from(
    tiny_model: Path, tmp_path: Path, train: Train
) -> None:
    source = (
        "def reward(completions, answer, tokens, **columns):\n    return [len(set(t)) / 100 for t in completions]\n"
    )
    specs = (python(source), RewardSpec("runs", "python_executes", 0.1, {"needs_block": False, "wrong_score": -0.5}))
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, rewards=specs, grpo={"max_steps": 2})
    done = train(folder)
    assert done.returncode == 0, done.stderr[-2000:]
    groups = builders.lines(folder / FileName.SAMPLES)
    completions = [one for group in groups for one in group["completions"]]
    assert len(completions) == 16
    for one in completions:
        assert one["rewards"]["mine"] == pytest.approx(len(set(one["text"])) / 100)
        assert one["rewards"]["runs"] in (1.0, -0.5)
    assert failed_share(folder, "mine") == failed_share(folder, "runs") == [0.0, 0.0]
    assert of_event(folder, "reward_failed") == []


MISDEEDS = {
    "raises": ("raise KeyError('gone')", "error", "KeyError"),
    "short": ("return [1.0] * (len(completions) - 1)", "wrong_length", "It gave 7 scores for 8 completions."),
    "nan": ("return [float('nan')] * len(completions)", "not_a_number", "'nan', which is no finite number"),
    "inf": ("return [float('inf')] * len(completions)", "not_a_number", "'inf', which is no finite number"),
    "string": ("return ['1.0'] * len(completions)", "not_a_number", "'1.0', which is no finite number"),
    "text": ("return 'a text'", "wrong_length", "It returned str 'a text'"),
    "hangs": ("while True: pass", "timeout", "0.5 s"),
}


def test_functions_that_misbehave_are_told_score_nothing_and_end_the_run_with_a_checkpoint(
    tiny_model: Path, tmp_path: Path, train: Train
) -> None:
    bad = [
        python(f"def reward(completions, **columns):\n    {body}\n", name, seconds=0.5)
        for name, (body, _, _) in MISDEEDS.items()
    ]
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, rewards=(*bad, VARIETY), grpo={"max_steps": 50})
    done = train(folder)
    assert done.returncode == 7, done.stderr[-2000:]
    last = done.stderr.splitlines()[-1]
    assert last.startswith("The reward raises failed on 32 of the 32 completions of its last 4 batches")
    assert "the run allows 50%" in last
    events = of_event(folder, "reward_failed")
    for name, (_, kind, says) in MISDEEDS.items():
        first, second = [event for event in events if event["reward"] == name]
        assert (first["kind"], first["count"], first["of"], first["row"] in range(40)) == (kind, 8, 8, True)
        assert (second["kind"], second["count"], second["of"]) == (kind, 16, 16)
        assert says in first["message"]
        assert failed_share(folder, name) == [1.0] * 4
    one = builders.lines(folder / FileName.SAMPLES)[0]["completions"][0]
    assert {one["rewards"][name] for name in MISDEEDS} == {None}
    assert one["reward"] == pytest.approx(0.5 * one["rewards"]["variety"])
    end = {"t": 0, "event": "train_end", "step": 4, "stopped": False, "failed": True}
    assert of_event(folder, "train_end")[0] | {"t": 0} == end
    assert (folder / "checkpoints/checkpoint-4/model.safetensors").is_file()


def test_a_share_of_one_lets_a_run_train_to_its_end_whatever_fails(
    tiny_model: Path, tmp_path: Path, train: Train
) -> None:
    specs = (python("def reward(completions, **columns):\n    raise ValueError('no')\n"), VARIETY)
    folder = builders.attempt_folder(
        tmp_path / "a", model=tiny_model, rewards=specs, grpo={"max_steps": 6}, run={"failed_share": 1.0}
    )
    assert train(folder).returncode == 0
    assert last_step(folder) == 6
    assert [event["count"] for event in of_event(folder, "reward_failed")] == [8, 16]


def test_two_ranks_end_together_when_rewards_fail_on_one_of_them(
    tiny_model: Path, tmp_path: Path, train: Train, make_reward_model: Callable[..., Path]
) -> None:
    model = make_reward_model(tmp_path / "judge-model")
    source = "def reward(completions, row, **columns):\n    return [float('nan') if r % 2 else 0.5 for r in row]\n"
    folder = builders.attempt_folder(
        tmp_path / "a",
        model=tiny_model,
        rewards=(python(source), VARIETY, RewardSpec("likes", "reward_model", 0.1, {"model": str(model)})),
        grpo={"max_steps": 50, "per_device_train_batch_size": 4},
        hardware={"processes": 2, "strategy": "ddp"},
        dataset=[{**row, "row": number} for number, row in enumerate(builders.rows(8))],
        run={"failed_share": 0.2},
    )
    done = train(folder)
    assert done.returncode == 7, done.stderr[-3000:]
    assert "The reward mine failed on" in done.stderr
    assert "the run allows 20%" in done.stderr
    assert of_event(folder, "train_end")[0]["failed"] is True
    given = [
        one["rewards"]["likes"] for line in builders.lines(folder / FileName.SAMPLES) for one in line["completions"]
    ]
    assert all(isinstance(score, float) for score in given)
    saved = of_event(folder, "save")
    assert [line["step"] for line in saved] == [last_step(folder)]


def test_no_sandbox_is_opened_for_rewards_that_run_no_code(tiny_model: Path, tmp_path: Path, start: Start) -> None:
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, grpo={"max_steps": 100_000})
    process = start("-m", "workers.trainer", folder)
    until(lambda: last_step(folder) >= 2, process)
    assert children_of(process.pid) == []


def test_nothing_of_the_sandbox_is_left_when_the_trainer_ends(tiny_model: Path, tmp_path: Path, start: Start) -> None:
    specs = (python("def reward(completions, **columns):\n    return [1.0] * len(completions)\n"), VARIETY)
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, rewards=specs, grpo={"max_steps": 100_000})
    process = start("-m", "workers.trainer", folder)
    until(lambda: last_step(folder) >= 2, process)
    children = children_of(process.pid)
    assert children
    (folder / FileName.STOP).touch()
    assert process.wait(timeout=60) == 0
    assert [pid for pid in children if os.path.exists(f"/proc/{pid}")] == []


def test_a_reward_model_scores_under_its_components_name_and_two_of_one_model_stay_two(
    tiny_model: Path, tmp_path: Path, train: Train, make_reward_model: Callable[..., Path], trainer_python: Path
) -> None:
    model = make_reward_model(tmp_path / "judge-model")
    params = {"model": str(model)}
    specs = (
        VARIETY,
        RewardSpec("likes", "reward_model", 0.5, params),
        RewardSpec("again", "reward_model", 0.1, params),
    )
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, rewards=specs, grpo={"max_steps": 2})
    done = train(folder)
    assert done.returncode == 0, done.stderr[-2000:]
    [first, *_] = builders.lines(folder / FileName.SAMPLES)
    given = [one["rewards"] for one in first["completions"]]
    assert all(one["likes"] == one["again"] for one in given)
    assert len({one["likes"] for one in given}) > 1
    assert failed_share(folder, "likes") == [0.0, 0.0]
    assert {"rewards/likes/mean", "rewards/again/mean"} <= builders.logs(folder)[1].keys()


def test_a_reward_model_that_says_infinity_scores_nothing_and_ends_the_run(
    tiny_model: Path, tmp_path: Path, train: Train, make_reward_model: Callable[..., Path]
) -> None:
    model = make_reward_model(tmp_path / "judge-model", "inf")
    specs = (VARIETY, RewardSpec("likes", "reward_model", 1.0, {"model": str(model)}))
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, rewards=specs, grpo={"max_steps": 50})
    done = train(folder)
    assert done.returncode == 7, done.stderr[-2000:]
    assert "The reward likes failed on 32 of the 32 completions" in done.stderr.splitlines()[-1]
    assert all(
        one["rewards"]["likes"] is None
        for group in builders.lines(folder / FileName.SAMPLES)
        for one in group["completions"]
    )


def test_a_model_without_a_head_is_no_reward_model(tiny_model: Path, tmp_path: Path, train: Train) -> None:
    specs = (VARIETY, RewardSpec("likes", "reward_model", 1.0, {"model": str(tiny_model)}))
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, rewards=specs)
    done = train(folder)
    assert done.returncode == 3
    assert "is no sequence-classification model" in done.stderr.splitlines()[-1]


TRLS_OWN = (
    RewardSpec("accuracy", "trl_accuracy"),
    RewardSpec("reasoned", "trl_reasoning_accuracy"),
    RewardSpec("cosine", "trl_cosine_scaled", params={"max_len": 12}),
    RewardSpec("thinks", "trl_think_format"),
    RewardSpec("repeats", "trl_repetition_penalty", params={"ngram_size": 1}),
    RewardSpec("long", "trl_soft_overlong", params={"max_completion_len": 8, "soft_punish_cache": 4}),
)


@pytest.mark.parametrize("aggregation", ["sum_then_normalize", "normalize_then_sum"])
def test_trls_own_rewards_score_by_name_and_add_up_as_asked(
    tiny_model: Path, tmp_path: Path, train: Train, aggregation: str
) -> None:
    grpo = {"max_steps": 2, "multi_objective_aggregation": aggregation}
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, rewards=TRLS_OWN, grpo=grpo)
    done = train(folder)
    assert done.returncode == 0, done.stderr[-2000:]
    for group in builders.lines(folder / FileName.SAMPLES):
        for one in group["completions"]:
            punished = 0.0 if one["tokens"] <= 4 else max(-1.0, (4 - one["tokens"]) / 4)
            assert one["rewards"]["long"] == pytest.approx(punished)
            assert one["rewards"]["thinks"] in (0.0, 1.0)
            assert -1.0 <= one["rewards"]["repeats"] <= 0.0
            assert one["rewards"]["accuracy"] in (0.0, 1.0)
            assert -1.0 <= one["rewards"]["cosine"] <= 1.0
    assert of_event(folder, "reward_failed") == []


def test_trls_own_rewards_give_what_trl_gives(trainer_python: Path) -> None:
    script = r"""
import json
from trl.rewards import accuracy_reward, get_cosine_scaled_reward, get_repetition_penalty_reward, think_format_reward
from workers.rewards import LIBRARY, Tools, score
from workers.trainer.rewards import Generated
from workers.trainer.trlrewards import SCORERS
texts = [r"It is \boxed{\frac{1}{3}}", r"It is \boxed{\frac{1}{2}}", "<think>a</think>b", ""]
ids = [[1, 2, 3, 4], [5] * 40, [1, 2], []]
rows = [{"answer": r"\frac{1}{3}"}] * 3 + [{"answer": None, "solution": "7"}]
made = [Generated(text, ids=of) for text, of in zip(texts, ids)]
tools = Tools(open_sandbox=None, trainer=SCORERS)
def ours(key, **params):
    given = score(LIBRARY[key], made, rows, params, tools)
    assert not given.failures, given.failures
    return given.values
chats = [[{"role": "assistant", "content": text}] for text in texts]
solutions = [r"\frac{1}{3}"] * 3 + ["7"]
print(json.dumps([
    [ours("trl_accuracy"), accuracy_reward(chats, solutions)],
    [ours("trl_cosine_scaled", max_len=50), get_cosine_scaled_reward(50)(chats, solutions, ids)],
    [ours("trl_repetition_penalty"), get_repetition_penalty_reward()(ids)],
    [ours("trl_think_format"), think_format_reward(chats)],
]))
"""
    done = subprocess.run([trainer_python, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    pairs = json.loads(done.stdout.splitlines()[-1])
    assert len(pairs) == 4
    for ours, trls in pairs:
        assert ours == trls
    assert pairs[0][0] == [1.0, 0.0, 0.0, 0.0]


def without_bubblewrap_or_landlock() -> str:
    """A start of the trainer on a host where no sandbox holds."""
    return (
        "import sys\n"
        "from workers.sandbox import selftest, Backend\n"
        "selftest._cached = selftest.Report(None, {Backend.BUBBLEWRAP: 'bwrap is not installed.'})\n"
        "from workers.trainer.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )


@pytest.mark.parametrize("allowed", [False, True])
def test_without_a_sandbox_rewards_that_run_code_need_an_admins_leave(
    tiny_model: Path, tmp_path: Path, start: Start, allowed: bool
) -> None:
    specs = (python("def reward(completions, **columns):\n    return [1.0] * len(completions)\n"), VARIETY)
    folder = builders.attempt_folder(
        tmp_path / "a",
        model=tiny_model,
        rewards=specs,
        grpo={"max_steps": 1},
        placement={"unsandboxed": allowed},
    )
    out, err = start("-c", without_bubblewrap_or_landlock(), folder).communicate(timeout=200)
    if allowed:
        assert failed_share(folder, "mine") == [0.0]
        assert "Code runs without a sandbox, as an admin allows on this host." in out
    else:
        assert "The reward 'mine' runs code, and no sandbox holds on this host" in err.splitlines()[-1]
        assert "bwrap is not installed" in err.splitlines()[-1]
        assert of_event(folder, "stage")[-1]["stage"] == "importing libraries"  # the model was not loaded


def test_a_judge_without_its_endpoint_is_refused_before_anything_is_loaded(tmp_path: Path, tiny_model: Path) -> None:
    specs = (RewardSpec("judge", "judge", params={"endpoint": "MY_JUDGE", "model": "m"}),)
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, rewards=specs)
    done = subprocess.run(
        [sys.executable, "-m", "workers.trainer", folder], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3
    assert "Reward 'judge': There is no endpoint named MY_JUDGE" in done.stderr.splitlines()[-1]


def test_a_text_that_a_reward_model_stumbles_over_has_no_score_and_an_error_of_the_device_ends_all(
    trainer_python: Path,
) -> None:
    script = """
import torch
from workers.trainer.rewardmodels import _guard
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
    done = subprocess.run([trainer_python, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Reward 'likes' raised IndexError: index out of range in self" in done.stderr


KEY = "sk-very-secret-key-0123456789"


def test_a_judge_is_asked_with_its_key_and_the_key_is_written_nowhere(
    tiny_model: Path, tmp_path: Path, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = {"endpoint": "JUDGE", "model": "a-model", "timeout_s": 5.0, "batch_s": 20.0}
    specs = (RewardSpec("judge", "judge", params=params), VARIETY)
    with JudgeServer() as server:
        monkeypatch.setenv("GRPO_SECRET_JUDGE", json.dumps({"address": server.address, "key": KEY}))
        folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, rewards=specs, grpo={"max_steps": 2})
        done = train(folder)
        assert done.returncode == 0, done.stderr[-2000:]
        assert len(server.asked) == 16
        assert {headers["Authorization"] for headers, _ in server.asked} == {f"Bearer {KEY}"}
    lines = builders.lines(folder / FileName.SAMPLES)
    assert [one["rewards"]["judge"] for line in lines for one in line["completions"]] == [0.5] * 16
    assert KEY not in done.stdout + done.stderr
    for path in folder.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()


def test_a_judge_that_goes_away_is_told_and_ends_the_run(
    tiny_model: Path, tmp_path: Path, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    with JudgeServer() as server:
        address = server.address
    monkeypatch.setenv("GRPO_SECRET_JUDGE", json.dumps({"address": address, "key": KEY}))
    params = {"endpoint": "JUDGE", "model": "a-model", "timeout_s": 1.0, "batch_s": 1.0}
    specs = (RewardSpec("judge", "judge", params=params), VARIETY)
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, rewards=specs, grpo={"max_steps": 50})
    done = train(folder)
    assert done.returncode == 7, done.stderr[-2000:]
    assert "The reward judge failed on 32 of the 32 completions" in done.stderr.splitlines()[-1]
    [first, *_] = of_event(folder, "reward_failed")
    assert (first["kind"], first["message"]) == ("http", "The connection failed: Connection refused.")
    assert KEY not in done.stdout + done.stderr
