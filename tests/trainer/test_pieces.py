"""The trainer's standard-library parts: metrics lines, rewards, the split, samples, the demo's data."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import builders
from workers.contract.reports.metric_names import MAX_METRICS
from workers.contract.run.spec import RewardSpec
from workers.contract.stack.training_rules import value_problems
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import EventKind, FileName
from workers.rewards.library import LIBRARY
from workers.rewards.parameters import Params
from workers.rewards.reward import Completion, Reward
from workers.rewards.tools import Tools
from workers.supervisor.reports.trainerlines import trainer_line
from workers.trainer import data, demo
from workers.trainer.configuration import environment, spec
from workers.trainer.configuration.spec import SpecError
from workers.trainer.recording.metrics import LineFile
from workers.trainer.recording.samples import Sample, SampleFile, end_of
from workers.trainer.scoring import rewards
from workers.trainer.scoring.failures import Failures


def test_values_that_json_has_no_word_for_are_left_out_and_named(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "m.jsonl")
    long = "n" * 200
    odd = {"kl": math.nan, "grad": math.inf, "huge": 10**400, long + "a": 1.0, long + "b": 2.0}
    file.log(3, {"loss": 0.5, **odd, "reward": None, "text": "x", "tokens": 7})
    file.log(4, {"loss": 0.25, "kl": math.nan, "entropy": math.nan})
    lines = [(line["kind"], line["step"], line["data"]) for line in builders.lines(tmp_path / "m.jsonl")]
    assert lines == [
        ("train", 3, {"loss": 0.5, "tokens": 7}),
        ("metrics_left_out", 3, {"names": f"grad, huge, kl, {long}"}),
        ("train", 4, {"loss": 0.25}),
        ("metrics_left_out", 4, {"names": "entropy"}),
    ]
    assert all(trainer_line(line) for line in (tmp_path / "m.jsonl").read_bytes().splitlines())


def test_a_reward_function_with_thousands_of_metrics_keeps_the_first_and_names_the_others_in_bounds(
    tmp_path: Path,
) -> None:
    LineFile(tmp_path / "m.jsonl").log(1, {f"{'é' * 190}{n}": 1.0 for n in range(MAX_METRICS + 500)})
    train, left_out = (tmp_path / "m.jsonl").read_bytes().splitlines()
    assert trainer_line(train)
    assert trainer_line(left_out)
    assert len(json.loads(train)["data"]) == MAX_METRICS


def test_a_full_disk_loses_lines_and_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    file = LineFile(Path("/dev/full"))
    file.log(1, {"loss": 1.0})
    file.log(2, {"loss": 1.0})
    assert file.lost == 2
    assert capsys.readouterr().err.count("No space left") == 1


def test_a_line_after_a_torn_one_can_be_read(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "m.jsonl")
    (tmp_path / "m.jsonl").write_text('{"half')
    file._torn = True
    file.event(EventKind.STAGE, {"stage": "x"})
    assert json.loads((tmp_path / "m.jsonl").read_text().splitlines()[1])["data"] == {"stage": "x"}


def test_other_ranks_write_nothing(tmp_path: Path) -> None:
    LineFile(tmp_path / "m.jsonl", writes=False).event(EventKind.STAGE, {"stage": "x"})
    assert not (tmp_path / "m.jsonl").exists()


def rows_of(tmp_path: Path, **asked: Any) -> data.Rows:
    folder = builders.attempt_folder(tmp_path / "a", model="org/name", **asked)
    return data.read(folder, from_dict_of(folder))


def from_dict_of(folder: Path) -> Any:
    from workers.contract.run.spec import AttemptSpec

    return from_dict(AttemptSpec, json.loads((folder / FileName.SPEC).read_text()))


def functions_of(specs: list[RewardSpec], rows: data.Rows, events: list[dict[str, Any]]) -> tuple[list[Any], Failures]:
    """The run's reward functions, and the failures that they note; what is told goes to `events`."""
    failures = Failures(share=0.5, event=lambda _, data, step: events.append({**data, "step": step}))
    tools = Tools(open_sandbox=lambda _: pytest.fail("no reward needs one"))
    return rewards.RewardFunctions(rows, tools, failures, lambda name: nullcontext()).of(specs), failures


def test_a_row_that_a_reward_raises_on_scores_none_is_counted_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fragile(completion: str, row: Any, params: Any) -> float:
        return 1 / len(completion)

    monkeypatch.setitem(LIBRARY, "fragile", Reward("fragile", "", "", Params, (0.0, 1.0), function=fragile))
    events: list[dict[str, Any]] = []
    [function], failures = functions_of([RewardSpec("mine", "fragile")], rows_of(tmp_path), events)
    told: dict[str, float] = {}
    for step in range(2):
        assert function(completions=["ab", ""], row=[0, 5], log_metric=told.__setitem__) == [0.5, None]
        failures.judge_batch(step, lambda notes: notes)
    assert told.pop("time/rewards/mine_s") > 0
    assert told == {"rewards/mine/failed": 0.5}
    assert capsys.readouterr().err.count("ZeroDivisionError: division by zero\n") == 2  # its words and its traceback
    assert [(event["reward"], event["row"], event["count"], event["of"]) for event in events] == [("mine", 5, 1, 2)]
    assert "ZeroDivisionError" in events[0]["message"]


def test_a_reward_sees_the_whole_row_the_text_of_a_conversation_its_turns_and_its_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def whole(completion: Completion, row: Any, params: Any) -> float:
        seen.append((completion.text, len(completion.turns), completion.tokens, row["answer"]))
        return 1.0

    monkeypatch.setitem(LIBRARY, "whole", Reward("whole", "", "", Params, (0.0, 1.0), whole=whole))
    [first, second], _ = functions_of([builders.REWARDS[0], RewardSpec("w", "whole")], rows_of(tmp_path), [])
    answer = builders.rows()[5]["answer"]
    said = [{"role": "assistant", "content": None, "tool_calls": [1]}, {"role": "tool", "content": "x"}]
    batch = [[*said, {"role": "assistant", "content": f"<answer>{answer}</answer>"}], [{"role": "a", "content": "b"}]]
    asked = {"completions": batch, "row": [5, 5], "completion_ids": [[1, 2, 3], [4]], "log_metric": lambda *_: None}
    assert first(**asked) == [1.0, 0.0]
    assert second(**asked) == [1.0, 1.0]
    assert second(completions=["", "c"], row=[5, 5], completion_ids=[[], [4]], log_metric=lambda *_: None) == [1.0, 1.0]
    assert second(completions=["d"], row=[5], log_metric=lambda *_: None) == [1.0]
    assert (first.__name__, second.__name__) == ("accuracy", "w")
    rest = [("", 0, 0, answer), ("c", 0, 1, answer), ("d", 0, None, answer)]
    assert seen == [(f"<answer>{answer}</answer>", 3, 3, answer), ("b", 0, 1, answer), *rest]


def test_validation_rows_are_not_trained_on_and_some_of_them_are_drawn_by_the_seed(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, eval_rows=5, validation=10)
    assert rows.train == list(range(30))
    assert len(rows.evaluation) == 5
    assert set(rows.evaluation) < set(range(30, 40))
    assert rows.evaluation == sorted(rows.evaluation)
    first, second = data.sample(list(range(50)), 10, seed=1), data.sample(list(range(50)), 10, seed=2)
    assert first == data.sample(list(range(50)), 10, seed=1) != second
    assert rows_of(tmp_path, validation=10).evaluation == []


def test_a_row_has_what_the_dataset_tells_and_its_own_columns_win(tmp_path: Path) -> None:
    told = {"row": 7, "prompt": "1+1", "answer": "2", "test_cases": ["assert f"], "level": 3, "tags": ["a"]}
    assert rows_of(tmp_path, dataset=[told]).by_id[7] == told
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "1+1"}]
    rows = rows_of(tmp_path, dataset=[{"prompt": chat, "answer": None}, {"row": 9, "prompt": chat}])
    assert (rows.by_id[0]["prompt"], rows.by_id[0]["answer"], list(rows.by_id)) == (chat, None, [0, 9])
    with pytest.raises(KeyError):
        rows.by_id[5]


@pytest.mark.parametrize(
    "content", [b"", b'{"row": 1, "prompt": "a"}\n', builders.parquet()[:-9], b"PAR1" + bytes(40) + b"PAR1"]
)
def test_what_is_no_canonical_file_is_refused_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    folder = builders.attempt_folder(tmp_path / "a", model="org/name")
    (folder / FileName.DATASET).write_bytes(content)
    spec = from_dict_of(folder)
    spec = replace(spec, run=replace(spec.run, data=replace(spec.run.data, sha256="")))
    with pytest.raises(SpecError, match=r"^dataset\.parquet has no canonical rows: .+\.$"):
        data.read(folder, spec)


def test_a_sample_without_any_reward_has_none(tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    file = SampleFile(tmp_path / "s.jsonl", rows=rows, names=["a", "b"], weights=[1.0, 0.5], writes=True)
    scored, unscored = Sample(3, "x", 2, "eos", [1.0, 0.5], 0.7), Sample(3, "\ud800", 9, "length", [math.nan] * 2, 0.0)
    file.write([scored, unscored], group=2, step=4, mode="train")
    [line] = builders.lines(tmp_path / "s.jsonl")
    assert [one["reward"] for one in line["completions"]] == [1.25, None]
    assert line["completions"][1]["rewards"] == {"a": None, "b": None}
    assert [(one["end"], one["ended"]) for one in line["completions"]] == [("eos", True), ("length", False)]


CALL = [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}]
RESULT = {"role": "tool", "name": "f", "content": "2"}


@pytest.mark.parametrize(
    ("completion", "tokens", "end"),
    [
        ("text", [5, 9], "eos"),
        ("text", [5, 5, 5, 5], "length"),
        ("text", [5, 5, 5, 9], "eos"),
        ("text", [5, 5], "stop"),
        ("", [], "stop"),
        (CALL, [5, 9], "tools"),
        ([*CALL, RESULT], [5, 5, 5, 5], "length"),
        ([*CALL, RESULT, {"role": "assistant", "content": "2"}], [5, 9], "eos"),
    ],
)
def test_a_completion_says_why_it_ended(completion: Any, tokens: list[int], end: str) -> None:
    assert end_of(completion, tokens, ends={9}, longest=4) == end


def test_a_completion_that_calls_tools_is_written_with_its_turns(tmp_path: Path) -> None:
    file = SampleFile(tmp_path / "s.jsonl", rows=rows_of(tmp_path), names=["a"], weights=[1.0], writes=True)
    odd = data.turns([*CALL, {**RESULT, "content": tmp_path}])
    file.write([Sample(3, data.completion_text(CALL), 2, "tools", [1.0], 0.7, odd)], group=1, step=4, mode="train")
    [line] = builders.lines(tmp_path / "s.jsonl")
    assert line["completions"][0]["text"] == ""
    assert line["completions"][0]["turns"] == [*CALL, {**RESULT, "content": str(tmp_path)}]
    assert data.turns("text") is data.turns([{"role": "assistant", "content": "one text"}]) is None


def test_a_hub_id_is_looked_up_only_when_no_earlier_run_has_left_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert environment.needs_hub("org/name")
    kept = tmp_path / "models--org--name" / "snapshots" / "abc"
    kept.mkdir(parents=True)
    (kept / "config.json").write_text("{}")
    assert not environment.needs_hub("org/name")
    assert not environment.needs_hub("/models/x")
    assert spec.is_local("./x")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss_type": "ppo"}, "loss_type can't be 'ppo'"),
        ({"temperature": 0}, "0 is not a valid temperature. It must be above 0."),
        ({"top_p": 1.5}, "1.5 is not a valid top_p. It must be above 0 and at most 1."),
        ({"num_iterations": 0}, "0 is not a valid num_iterations. It must be at least 1."),
        ({"delta": 1.0}, "1 is not a valid delta. It must be above 1."),
        ({"generation_batch_size": 0}, "0 is not a valid generation_batch_size"),
        ({"max_grad_norm": -1.0}, "-1 is not a valid max_grad_norm"),
        ({"output_dir": "/etc"}, "output_dir is set by the control plane"),
        ({"scale_rewards": True, "beta": 0.1, "epsilon": 0.0, "temperature": 200.0, "save_steps": 0.1}, ""),
    ],
)
def test_what_trl_would_stumble_over_later_is_found_at_once(settings: dict[str, Any], words: str) -> None:
    found = " ".join(map(str, value_problems(settings)))
    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_the_demo_has_a_few_hundred_different_problems_with_right_answers() -> None:
    problems = demo.problems(400, seed=3)
    assert len({problem["question"] for problem in problems}) == 400
    assert problems == demo.problems(400, seed=3) != demo.problems(400, seed=4)
    sums = [p for p in problems if p["question"].startswith("What is ")]
    assert sums
    assert all(str(eval(p["question"].removeprefix("What is ").rstrip("?"))) == p["answer"] for p in sums)


def test_the_demos_rewards_are_in_the_library() -> None:
    for reward in demo.CONFIG["rewards"]:
        assert LIBRARY[reward["function"]].check(reward["params"]) == []


def test_a_group_is_written_with_the_sources_of_its_prompt(tmp_path: Path) -> None:
    metadata = [{"source": name, "tags": ["long"]} for name in ("algebra", "geometry")] * 2
    dataset = [{**row, **extra} for row, extra in zip(builders.rows(4), metadata, strict=True)]
    file = SampleFile(
        tmp_path / "s.jsonl", rows=rows_of(tmp_path, dataset=dataset), names=["a"], weights=[1.0], writes=True
    )
    file.write([Sample(1, "x", 2, "eos", [1.0], 0.0)], group=1, step=1, mode="train")
    [line] = builders.lines(tmp_path / "s.jsonl")
    assert line["sources"] == ["geometry"]


def _logged_sources(tmp_path: Path, metadata: list[dict[str, Any]]) -> dict[str, list[float]]:
    """What is logged of two completions of each row, whose rewards are the row's number and, in odd rows, one more."""
    dataset = [{**row, **extra} for row, extra in zip(builders.rows(len(metadata)), metadata, strict=True)]
    rows = rows_of(tmp_path, dataset=dataset)
    file = SampleFile(tmp_path / "s.jsonl", rows=rows, names=["a"], weights=[1.0], writes=True)
    metrics: dict[str, list[float]] = defaultdict(list)
    samples = [
        Sample(row, "x", 10 * row + 2 * member, "eos", [float(row + member * (row % 2))], 0.0)
        for row in rows.train
        for member in range(2)
    ]
    file.log_sources(samples, metrics, 2, "sum_then_normalize")
    return metrics


def _followed(logged: dict[str, list[float]]) -> set[str]:
    return {name.split("/")[1] for name in logged}


@pytest.mark.parametrize(
    "metadata",
    [
        [{"source": name} for name in ("algebra", "geometry", "algebra", "geometry")],
        [{"tags": [name, "long"]} for name in ("algebra", "geometry", "algebra", "geometry")],
        [{"tags": ["long", name, name]} for name in ("algebra", "geometry", "algebra", "geometry")],
        [{"source": "one", "family": name} for name in ("algebra", "geometry", "algebra", "geometry")],
    ],
)
def test_figures_are_logged_by_the_source_of_their_prompts(metadata: list[dict[str, Any]], tmp_path: Path) -> None:
    assert _logged_sources(tmp_path, metadata) == {
        "sources/algebra/reward": [1.0],
        "sources/geometry/reward": [2.5],
        "sources/algebra/length": [11.0],
        "sources/geometry/length": [21.0],
        "sources/algebra/zero_spread": [1.0],
        "sources/geometry/zero_spread": [0.0],
    }


def test_a_row_counts_for_each_of_its_frequent_tags(tmp_path: Path) -> None:
    tags = [["hard", "geometry"], ["easy", "geometry", "rare"], ["hard", "algebra"], ["algebra", "easy"]]
    logged = _logged_sources(tmp_path, [{"tags": names} for names in tags])
    assert _followed(logged) == {"hard", "easy", "geometry", "algebra"}
    first, *_ = logged["sources/geometry/reward"]
    assert logged["sources/algebra/reward"] == [first + 2]
    assert logged["sources/hard/reward"] == [first + 0.25]


def test_of_many_tags_the_most_frequent_are_logged(tmp_path: Path) -> None:
    tags = [[f"{n}" for n in range(30) if n <= row] for row in range(31)]
    logged = _logged_sources(tmp_path, [{"tags": names} for names in tags])
    assert _followed(logged) == {f"{n}" for n in range(1, 13)}


def test_tags_are_logged_beside_a_column_of_sources(tmp_path: Path) -> None:
    pairs = [("web", "hard"), ("web", "easy"), ("books", "hard"), ("books", "easy")]
    logged = _logged_sources(tmp_path, [{"source": source, "tags": [tag]} for source, tag in pairs])
    assert _followed(logged) == {"web", "books", "hard", "easy"}
    assert logged["sources/books/reward"][0] - logged["sources/web/reward"][0] == 2.0
    assert logged["sources/easy/reward"][0] - logged["sources/hard/reward"][0] == 1.5


@pytest.mark.parametrize("metadata", [[{}] * 3, [{"source": "one"}] * 3, [{"source": str(n)} for n in range(30)]])
def test_rows_without_few_sources_have_no_figures_by_source(metadata: list[dict[str, Any]], tmp_path: Path) -> None:
    assert _logged_sources(tmp_path, metadata) == {}
