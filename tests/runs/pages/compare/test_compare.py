"""Runs beside each other: which, how they look, where they differ, their curves, and the same prompt's answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import Role
from controlplane.platform.http.keyset import split_list
from runs.engine.models import Attempt, Run
from runs.engine.records import SampleRow
from runs.insight.comparing import comparison
from runs.insight.comparing.curves import better_direction, curves, final_values
from runs.insight.metrics import folding
from runs.intake.host_api import ingest
from tests.controlplane.people import signed_in
from tests.runs.builders import a_host, a_run, an_attempt, event, train
from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.jobs import MERGE

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


@pytest.fixture
def client() -> Client:
    return signed_in(Role.VIEWER)


def going(name: str, steps: int = 20, **more: Any) -> Run:
    """A run that has written `steps` lines: its reward is a hundredth of the step."""
    attempt = an_attempt(run=a_run(name, **more))
    lines = [train(n, reward=n / 100, num_tokens=100.0 * n, kl=0.01) for n in range(1, steps + 1)]
    ingest.accept(attempt, lines)
    return Run.objects.get(pk=attempt.run_id)


def page(client: Client, *runs: Run | str, **query: str) -> str:
    ids = ",".join(run if isinstance(run, str) else run.pk for run in runs)
    answer = client.get("/runs/compare/", {"runs": ids, **query})
    assert answer.status_code == 200
    return answer.content.decode()


def series(client: Client, *runs: Run, **query: str) -> Any:
    ids = ",".join(run.pk for run in runs)
    return client.get("/runs/compare/series.json", {"runs": ids, "metrics": "reward", **query}).json()


def visited(run: Run, row: int, step: int, *rewards: float, prompt: str = "1+1") -> None:
    completions = [{"text": f"says {reward}", "reward": reward, "tokens": 3} for reward in rewards]
    SampleRow.objects.create(
        run=run,
        attempt=run.latest(),
        line=1000 * row + step,
        step=step,
        row=row,
        data={"row": row, "prompt": prompt, "completions": completions},
    )


def test_the_page_names_each_run_and_takes_the_address_order(client: Client) -> None:
    first, second = going("first"), going("second")
    text = page(client, second, first)
    assert "Compare 2 runs" in text
    assert text.index('title="second"') < text.index('title="first"')


def test_evaluations_have_no_steps_whose_time_could_be_compared(client: Client) -> None:
    runs = going("first"), going("second")
    assert "Where a step’s time goes" in page(client, *runs)
    Run.objects.update(kind=EVALUATION)
    assert "Where a step’s time goes" not in page(client, *runs)


def test_runs_without_a_step_say_once_that_they_have_none(client: Client) -> None:
    text = page(client, *(an_attempt(run=a_run(name)).run for name in ("first", "second")))
    assert "No run has finished a step yet" in text
    assert 'class="stack compare bare"' in text
    assert "data-begun" not in text
    assert all(words not in text for words in ("Where a step’s time goes", "A step, phase by phase", "The same prompt"))


def test_a_job_is_not_offered_for_comparison(client: Client) -> None:
    first, second = going("first"), going("second")
    Run.objects.filter(pk=second.pk).update(kind=MERGE)
    assert second.pk not in page(client, first)


def test_runs_that_are_not_there_are_named_and_the_others_shown(client: Client) -> None:
    text = page(client, going("first"), "rdeleted1", "<b>")
    assert "<code>rdeleted1</code>" in text
    assert "<code>&lt;b&gt;</code>" in text
    assert 'title="first"' in text


def test_nothing_chosen_says_how_to_choose(client: Client) -> None:
    assert "Nothing to compare yet" in page(client)
    assert "Nothing to compare yet" in page(client, "rdeleted1")


def test_one_run_is_told_to_be_alone(client: Client) -> None:
    assert "Add another" in page(client, going("first"))


def test_of_more_than_twenty_the_first_twenty_are_shown(client: Client) -> None:
    runs = [a_run(f"run {n}") for n in range(23)]
    text = page(client, *runs)
    assert "Compare 20 runs" in text
    assert "3 more were requested" in text
    assert text.count("data-run=") == 20


def test_a_run_is_added_by_its_id_or_its_name(client: Client) -> None:
    first, second = going("first"), going("second, again")
    for word in (second.pk, second.name):
        answer = client.get("/runs/compare/", {"runs": first.pk, "add": word, "x": "time"})
        assert answer["Location"] == f"/runs/compare/?runs={first.pk},{second.pk}&x=time"
    answer = client.get("/runs/compare/", {"runs": first.pk, "add": "no,such"}, follow=True)
    assert "<code>no such</code>" in answer.content.decode()


def test_many_runs_take_as_many_queries_as_two(
    client: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    runs = [going(f"run {n}") for n in range(6)]
    with django_assert_max_num_queries(8):
        page(client, *runs)


def test_a_run_keeps_its_colour_when_younger_ones_join() -> None:
    runs = [a_run(f"run {n}") for n in range(20)]
    few, many = comparison.looks(runs[:5]), comparison.looks(reversed(runs))
    assert {run.pk: many[run.pk] for run in runs[:5]} == few
    assert len(set(many.values())) == 20
    assert len({look.colour for look in comparison.looks(runs[:8]).values()}) == 8


def test_only_settings_that_differ_are_told(client: Client) -> None:
    first = going("first", grpo={"max_steps": 20, "beta": 0.04, "learning_rate": 1e-6})
    second = going("second", grpo={"max_steps": 20, "learning_rate": 2e-6})
    unlike, same = comparison.differences([first, second])
    assert {d.name: [v.text for v in d.values] for d in unlike} == {
        "grpo.beta": ["0.04", "0"],
        "grpo.learning_rate": ["1e-06", "2e-06"],
    }
    assert same > 5
    assert "Nothing: these runs" in page(client, first, going("third", grpo=dict(first.spec["grpo"])))


def test_a_setting_left_to_trl_or_the_profile_is_compared_by_what_it_comes_to() -> None:
    host = a_host()
    Host.objects.filter(pk=host.pk).update(trainer_schema={"defaults": {"max_grad_norm": 1.0, "top_k": None}})
    first = going("first", grpo={"max_steps": 20}, host=host)
    set_grpo = {"max_steps": 20, "max_grad_norm": 1, "gradient_accumulation_steps": 1, "bf16": False, "top_k": 5}
    second = going("second", grpo=set_grpo, host=a_host("other"))
    unlike, _ = comparison.differences([first, second])
    assert {d.name: [v.text for v in d.values] for d in unlike} == {"grpo.top_k": ["not set", "5"]}
    Run.objects.filter(pk=second.pk).update(spec={**second.spec, "schema": 0})
    unlike, _ = comparison.differences([first, Run.objects.get(pk=second.pk)])
    assert "hardware.precision" not in {d.name for d in unlike}


def test_dataset_version_reward_config_and_profile_are_told_by_name() -> None:
    first, second = a_run("first"), a_run("second")
    second.spec = {**second.spec, "data": {**second.spec["data"], "version": 2, "sha256": "1" * 64}}
    second.reward_version = None
    second.spec["rewards"] = [{**second.spec["rewards"][0], "weight": 0.5}]
    unlike, _ = comparison.differences([first, second])
    told = {d.name: [v.text for v in d.values] for d in unlike}
    assert told["dataset"] == ["sums v1", "sums v2"]
    assert told["reward config"] == ["tags v1", "deleted since"]
    assert told["rewards.format.weight"] == ["1", "0.5"]
    assert not any("sha256" in name for name in told)


def test_a_spec_that_cannot_be_read_any_more_compares_as_it_is_stored(client: Client) -> None:
    first, old = going("first"), going("old")
    Run.objects.filter(pk=old.pk).update(spec={"model": {"path": "/m"}, "grpo": {"odd": [1]}, "schema": 0})
    assert "grpo.odd" in page(client, first, old)


@pytest.mark.parametrize("fold", [0, 1000, 2500])
def test_curves_are_whole_wherever_the_points_lie(client: Client, fold: int) -> None:
    first, second = going("first", 2500), going("second", 7)
    for _ in range(3 if fold else 0):
        folding.fold(first.pk, at_least=min(fold, 500))
    answer = series(client, first, second, points="1000", of="reward")
    found = answer["series"]["reward"]
    assert len(found[first.pk]["x"]) <= 1000
    assert found[first.pk]["x"][0] == 1
    assert found[first.pk]["x"][-1] == 2500
    mean = pytest.approx(sum(range(2251, 2501)) / 25000)
    assert answer["finals"][first.pk] == {"last": 25.0, "best": 25.0, "mean": mean}
    assert found[second.pk]["y"] == [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07]


def test_a_spike_of_one_step_stays_on_the_curve() -> None:
    attempt = an_attempt()
    ingest.accept(attempt, [train(n, reward=99.0 if n == 1777 else 0.5) for n in range(1, 4001)])
    folding.fold_all()
    run = Run.objects.get()
    assert max(curves([run], ["reward"], points=200)["series"]["reward"][run.pk]["y"]) == 99.0


def test_best_is_highest_of_a_reward_lowest_of_a_time_and_none_of_a_loss() -> None:
    ingest.accept(
        an_attempt(),
        [train(n, reward=float(r), step_time=float(r), loss=float(r)) for n, r in ((1, 3), (2, 9), (3, 1))],
    )
    run = Run.objects.get()
    assert [final_values([run], name)[run.pk]["best"] for name in ("reward", "step_time", "loss")] == [9.0, 1.0, None]
    assert [better_direction(name) for name in ("reward", "rewards/tags/mean", "step_time", "eval_loss")] == [
        "high",
        "high",
        "low",
        "",
    ]
    assert final_values([run], "nothing") == {}


def test_by_tokens_each_point_is_at_the_tokens_it_had_cost(client: Client) -> None:
    attempt = an_attempt()
    lines = [train(n, loss=1.0, **({"num_tokens": 100.0 * n, "reward": 0.5} if n % 2 else {})) for n in range(1, 7)]
    ingest.accept(attempt, lines)
    found = series(client, Run.objects.get(), metrics="loss", x="tokens")["series"]["loss"]
    assert next(iter(found.values()))["x"] == [100, 200, 300, 400, 500, 500]


def test_time_goes_on_over_attempts_without_what_lay_between() -> None:
    run = a_run()
    start = timezone.now() - timedelta(days=1)
    at = start.timestamp()
    first = an_attempt(run=run)
    Attempt.objects.filter(pk=first.pk).update(
        status="failed", first_seq=1, started_at=start, dispatched_at=start, ended_at=start + timedelta(seconds=100)
    )
    later = start + timedelta(hours=5)
    second = Attempt.objects.create(
        id=f"{run.pk}-2", run=run, number=2, status="running", first_seq=3, last_seq=2, started_at=later
    )
    Attempt.objects.filter(run=run).update(placement={"gpus": [0, 1], "server_gpus": [2, 3]})
    folding.add(run.pk, [(1, 1, at + 40, {"reward": 1.0}), (2, 2, at + 80, {"reward": 1.0})])
    folding.add(run.pk, [(3, 3, later.timestamp() + 10, {"reward": 1.0})])
    run = Run.objects.prefetch_related("attempts").get()
    assert second.number == 2
    assert curves([run], ["reward"], x="time")["series"]["reward"][run.pk]["x"] == [40.0, 80.0, 110.0]
    hours = curves([run], ["reward"], x="hours")["series"]["reward"][run.pk]["x"]
    assert hours == pytest.approx([4 * 40 / 3600, 4 * 80 / 3600, 4 * 110 / 3600], abs=1e-4)


def test_a_run_on_the_cpu_has_no_gpu_hours(client: Client) -> None:
    run = going("first")
    assert series(client, run, x="hours")["series"] == {"reward": {}}
    assert comparison.run_cost(run, timezone.now()).gpu_hours is None


def test_what_a_resume_made_void_is_not_drawn() -> None:
    attempt = an_attempt()
    ingest.accept(attempt, [train(n, reward=1.0) for n in range(1, 11)])
    Attempt.objects.filter(pk=attempt.pk).update(status="failed")
    second = Attempt.objects.create(
        id=f"{attempt.run_id}-2", run=attempt.run, number=2, status="failed", first_seq=11, last_seq=10
    )
    ingest.accept(second, [event(11, "training", max_steps=20, step=6), train(12, step=7, reward=2.0)])
    run = Run.objects.get()
    assert curves([run], ["reward"])["series"]["reward"][run.pk]["x"] == [1, 2, 3, 4, 5, 6, 7]


def test_only_runs_with_news_are_sent_again(client: Client) -> None:
    still, live = going("still"), going("live")
    before = series(client, still, live)["last"]
    ingest.accept(live.latest(), [train(21, reward=0.9)])
    known = ",".join(f"{run}:{seq}" for run, seq in before.items())
    answer = series(client, still, live, known=known)
    assert list(answer["series"]["reward"]) == [live.pk]
    assert answer["last"] == {still.pk: 20, live.pk: 21}


@pytest.mark.parametrize(
    "query",
    [{"x": "moons"}, {"points": "-3"}, {"known": "a:b,:,c"}, {"metrics": ""}, {"metrics": "nothing"}, {"m": "nothing"}],
)
def test_nonsense_in_the_address_breaks_nothing(client: Client, query: dict[str, str]) -> None:
    run = going("first")
    ids = {"runs": f"{run.pk},,{run.pk}"}
    for path in ("", "series.json", "table/", "prompts/"):
        assert client.get(f"/runs/compare/{path}", {**ids, "row": "x", "visit": "y", **query}).status_code == 200


def test_a_spec_of_any_shape_is_compared_as_far_as_it_goes(client: Client) -> None:
    runs = [going("first"), going("second")]
    Run.objects.filter(pk=runs[0].pk).update(spec={"data": [7], "hardware": "none", "rewards": {"name": None}})
    for path in ("", "prompts/"):
        assert client.get(f"/runs/compare/{path}", {"runs": f"{runs[0].pk},{runs[1].pk}"}).status_code == 200


def test_chosen_metrics_come_from_the_address(client: Client) -> None:
    run = going("first")
    shown = client.get("/runs/compare/", {"runs": run.pk, "m": "num_tokens,nothing"}).context["shown"]
    assert shown == ["num_tokens"]
    assert client.get("/runs/compare/", {"runs": run.pk}).context["shown"] == ["reward", "kl"]
    assert split_list("a%2Cb,50%25,a%2Cb") == ["a,b", "50%"]


def test_figures_by_source_are_compared_under_their_charts_titles(client: Client) -> None:
    run = going("first")
    Run.objects.filter(pk=run.pk).update(last_metrics={"reward": 1.0, **{f"sources/{n}/reward": 0.5 for n in "ab"}})
    offered = comparison.metrics([Run.objects.get(pk=run.pk)])
    assert {metric.name: metric.title for metric in offered}["sources/a/reward"] == "Reward by source, a"


def test_a_prompt_that_all_visited_is_shown_at_each_ones_last_visit(client: Client) -> None:
    first, second = going("first"), going("second")
    visited(first, 4, 1, 0.0)
    visited(first, 4, 9, 0.25, 1.0)
    visited(second, 4, 5, 0.5)
    visited(second, 6, 5, 0.5)
    answer = client.get("/runs/compare/prompts/", {"runs": f"{first.pk},{second.pk}"})
    visits = answer.context["visited"]
    assert [row for row, _ in visits["offers"]] == [4]
    assert [(a.step, a.visits, a.mean) for a in visits["answers"]] == [(9, 2, 0.625), (5, 1, 0.5)]
    text = answer.content.decode()
    assert text.index("says 1.0") < text.index("says 0.25") < text.index("says 0.5")
    answer = client.get("/runs/compare/prompts/", {"runs": f"{first.pk},{second.pk}", "visit": "first", "row": "4"})
    assert [a.step for a in answer.context["visited"]["answers"]] == [1, 5]


def test_without_a_prompt_of_all_those_of_some_are_offered(client: Client) -> None:
    runs = [going(f"run {n}") for n in range(3)]
    visited(runs[0], 2, 1, 1.0)
    visited(runs[1], 2, 1, 1.0)
    visited(runs[2], 3, 1, 1.0)
    text = client.get("/runs/compare/prompts/", {"runs": ",".join(run.pk for run in runs)}).content.decode()
    assert "No prompt was visited by all runs" in text
    assert "Not visited" in text


def test_prompts_of_different_datasets_are_told_apart(client: Client) -> None:
    first, second = going("first"), going("second")
    second.spec["data"]["sha256"] = "2" * 64
    second.save(update_fields=["spec"])
    visited(first, 4, 1, 1.0, prompt="1+1")
    visited(second, 4, 1, 1.0, prompt="<b>another</b>")
    text = client.get("/runs/compare/prompts/", {"runs": f"{first.pk},{second.pk}"}).content.decode()
    assert "different dataset versions" in text
    assert "&lt;b&gt;another&lt;/b&gt;" in text


def test_the_table_tells_what_each_took(client: Client) -> None:
    run = going("first")
    start = timezone.now() - timedelta(hours=3)
    Attempt.objects.filter(run=run).update(
        started_at=start, dispatched_at=start, ended_at=start + timedelta(hours=2), placement={"gpus": [0, 1]}
    )
    text = client.get("/runs/compare/table/", {"runs": run.pk}).content.decode()
    assert "2 h" in text
    assert 'data-label="GPU-hours">4 ' in text
    assert 'data-label="Tokens">2k<' in text
