"""Rewards beside generation: the same scores, failures and metrics, whatever was scored early."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.test_pieces import from_dict_of, rows_of
from tests.workers.rewards.judge_server import JudgeServer
from workers.contract.run.spec import RewardSpec, RunSpec
from workers.rewards.library import LIBRARY
from workers.rewards.reward import waits
from workers.rewards.tools import Endpoint, Tools
from workers.trainer import data
from workers.trainer.scoring import concurrent_rewards, rewards
from workers.trainer.scoring.concurrent_rewards import ConcurrentRewards
from workers.trainer.scoring.failures import Failures

RUBRIC = {"endpoint": "JUDGE", "model": "m", "rubric": "judged:{completion}", "timeout_s": 5.0}
JUDGE = RewardSpec("judge", "judge", params={**RUBRIC, "concurrency": 4})
RANKING = RewardSpec("ranks", "judge_ranking", params={"endpoint": "JUDGE", "model": "m", "criterion": "judged: which"})
TEXTS = ["[says=Score: 3]", "[says=Score: 8]", "[500]", "[says=Score: 10]", "plain", "[says=nothing]"]
IDS = [[number, number + 1] for number in range(len(TEXTS))]
ROWS = [3, 3, 7, 7, 9, 9]


@pytest.fixture
def judge() -> Iterator[JudgeServer]:
    with JudgeServer() as server:
        yield server


@pytest.fixture
def tools(judge: JudgeServer) -> Tools:
    return Tools(open_sandbox=lambda _: pytest.fail("no sandbox here"), endpoint=lambda _: Endpoint(judge.address))


@pytest.fixture
def rows(tmp_path: Path) -> data.Rows:
    return rows_of(tmp_path)


@pytest.fixture
def run(tmp_path: Path, rows: data.Rows) -> RunSpec:
    found: RunSpec = from_dict_of(tmp_path / "a").run
    return found


class Scored:
    """A batch scored by TRL's way in, with what was told of it."""

    def __init__(self, specs: list[RewardSpec], rows: data.Rows, tools: Tools, early: ConcurrentRewards | None) -> None:
        self.told: dict[str, float] = {}
        self.events: list[dict[str, Any]] = []
        self._failures = Failures(share=1.0, event=lambda _, data, step: self.events.append(data))
        doing = lambda name: nullcontext()  # noqa: E731
        self._functions = rewards.RewardFunctions(rows, tools, self._failures, doing, early=early).of(specs)

    def score(self) -> tuple[list[Any], dict[str, float], list[dict[str, Any]]]:
        values = [
            function(completions=TEXTS, row=ROWS, completion_ids=IDS, log_metric=self.told.__setitem__)
            for function in self._functions
        ]
        self._failures.judge_batch(1, lambda notes: notes)
        return values, {name: value for name, value in self.told.items() if not name.startswith("time/")}, self.events


def early_of(run: RunSpec, tools: Tools, *specs: RewardSpec) -> ConcurrentRewards:
    import dataclasses

    return ConcurrentRewards(dataclasses.replace(run, rewards=specs), tools, lambda name: nullcontext())


def begin(early: ConcurrentRewards, rows: data.Rows, *places: int) -> None:
    """The groups with these rows are complete."""
    for row in places:
        at = [i for i, of in enumerate(ROWS) if of == row]
        made = rewards.to_generated([TEXTS[i] for i in at], [IDS[i] for i in at])
        early.begin(made, [rows.by_id[row]] * len(at))


@pytest.mark.parametrize("complete", [(7, 3, 9), (9,), ()], ids=["all, in another order", "one", "none"])
def test_what_was_scored_early_is_what_the_batch_would_have_been_given(
    complete: tuple[int, ...], run: RunSpec, rows: data.Rows, tools: Tools, judge: JudgeServer
) -> None:
    specs = [JUDGE, RANKING]
    plain = Scored(specs, rows, tools, None).score()
    asked, judge.asked = len(judge.asked), []
    early = early_of(run, tools, *specs)
    scored = Scored(specs, rows, tools, early)
    begin(early, rows, *complete)
    assert scored.score() == plain
    assert len(judge.asked) == asked  # nothing is asked twice
    assert plain[0][0] == [0.3, 0.8, None, 1.0, 0.5, None]


def test_other_completions_than_those_that_were_begun_are_scored_with_the_batch(
    run: RunSpec, rows: data.Rows, tools: Tools
) -> None:
    early = early_of(run, tools, JUDGE)
    scored = Scored([JUDGE], rows, tools, early)
    early.begin(rewards.to_generated(["[says=Score: 1]", TEXTS[1]], IDS[:2]), [rows.by_id[3]] * 2)
    assert scored.score()[0] == [[0.3, 0.8, None, 1.0, 0.5, None]]


def test_groups_of_the_next_batch_may_be_completed_while_this_one_is_scored(
    run: RunSpec, rows: data.Rows, tools: Tools
) -> None:
    early = early_of(run, tools, JUDGE)
    scored = Scored([JUDGE], rows, tools, early)

    class WhileCompared(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            early.begin(rewards.to_generated(["of the next batch"], [[1]]), [rows.by_id[3]])
            return False

        __hash__ = str.__hash__

    early.begin(rewards.to_generated([WhileCompared("a"), "b"], IDS[:2]), [rows.by_id[3]] * 2)
    early.begin(rewards.to_generated(["c", "d"], IDS[:2]), [rows.by_id[3]] * 2)
    assert scored.score()[0] == [[0.3, 0.8, None, 1.0, 0.5, None]]


def test_groups_side_by_side_share_the_requests_that_a_judge_may_have(
    run: RunSpec, rows: data.Rows, tools: Tools, judge: JudgeServer
) -> None:
    judge.barrier = threading.Barrier(8)  # is passed only with as many at once as it may have
    spec = RewardSpec("judge", "judge", params={**RUBRIC, "concurrency": 8})
    early = early_of(run, tools, spec)
    early._cores = 1  # doesn't limit what waits for a server
    scored = Scored([spec], rows, tools, early)
    texts = [f"{number}" for number in range(16)]
    for at in range(0, 16, 2):
        early.begin(rewards.to_generated(texts[at : at + 2], [[at], [at + 1]]), [rows.by_id[at]] * 2)
    [function] = scored._functions
    values = function(
        completions=texts,
        row=[number // 2 * 2 for number in range(16)],
        completion_ids=[[number] for number in range(16)],
        log_metric=scored.told.__setitem__,
    )
    assert values == [0.5] * 16
    assert judge.most_at_once == 8
    assert scored.told["time/rewards/judge_s"] > 0


def test_a_reward_that_fails_by_itself_is_scored_with_the_batch(
    run: RunSpec, rows: data.Rows, tools: Tools, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    early = early_of(run, tools, JUDGE)
    scored = Scored([JUDGE], rows, tools, early)
    real: Callable[..., Any] = concurrent_rewards.score
    main = threading.current_thread()

    def only_in_the_batch(*batch: Any) -> Any:
        return real(*batch) if threading.current_thread() is main else [][0]

    monkeypatch.setattr(concurrent_rewards, "score", only_in_the_batch)
    begin(early, rows, 3, 7, 9)
    assert scored.score()[0] == [[0.3, 0.8, None, 1.0, 0.5, None]]
    assert "IndexError" in capfd.readouterr().err


def test_only_rewards_that_wait_and_see_no_other_groups_begin_early(run: RunSpec, tools: Tools) -> None:
    assert waits(LIBRARY["judge"])
    assert waits(LIBRARY["judge_ranking"])
    assert waits(LIBRARY["tests_passed"])
    assert not waits(LIBRARY["python"])  # its function gets the batch
    assert not waits(LIBRARY["trl_accuracy"])
    assert early_of(run, tools).add(JUDGE, lambda completions, rows: ([], [])) is None  # of evaluations only


def test_each_prompt_of_the_batch_is_a_request_and_an_evaluations_are_not(run: RunSpec, tools: Tools) -> None:
    requests: list[tuple[list[list[int]], bool]] = []

    class Client:
        clients = ()

        def complete(self, prompts: list[list[int]], sampling: dict[str, Any], on_arrival: Any = None) -> list[Any]:
            requests.append((prompts, on_arrival is not None))
            groups = [[([number], []), ([number + 1], [])] for number, _ in enumerate(prompts)]
            for number, group in reversed(list(enumerate(groups)) if on_arrival else []):
                on_arrival(number, group)
            return [one for group in groups for one in group]

    arrived: list[tuple[int, list[int], list[list[int]]]] = []
    early, client = early_of(run, tools), Client()

    def group(*of: Any) -> tuple[list[Any], list[Any]]:
        arrived.append(of)
        return [], []

    early.watch(client, group)
    early.expect([[1], [2]], [7, 3])
    client.complete([[1], [2]], {})
    assert arrived == [(3, [2], [[1], [2]]), (7, [1], [[0], [1]])]
    client.complete([[8], [9]], {})
    assert requests == [([[1], [2]], True), ([[8], [9]], False)]


def test_trls_client_gives_the_same_answer_prompt_by_prompt(run: RunSpec, tools: Tools) -> None:
    class Client:
        def generate(self, prompts: list[list[int]], features: Any = None, **sampling: Any) -> dict[str, Any]:
            assert sampling == {"n": 2}
            ids = [[*prompt, copy] for prompt in prompts for copy in range(2)]
            return {"prompt_ids": prompts, "completion_ids": ids, "logprobs": [[0.0]] * len(ids), "unused": None}

    early, client, arrived = early_of(run, tools), Client(), []
    plain = client.generate(prompts=[[5], [6], [7]], n=2)
    early.watch(client, lambda *of: arrived.append(of) or ([], []))
    early.expect([[5], [6], [7]], [1, 2, 3])
    assert client.generate([[5], [6], [7]], n=2) == plain, "as a batch is asked for one step ahead"
    assert sorted(arrived) == [(1, [5], [[5, 0], [5, 1]]), (2, [6], [[6, 0], [6, 1]]), (3, [7], [[7, 0], [7, 1]])]
