"""Chosen columns, groups and the CSV of the run list."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest

from runs.engine.models import Run
from runs.pages.run_list.columns import USUAL_COLUMNS
from runs.pages.run_list.query import RunListQuery
from tests.controlplane.people import viewer
from tests.runs.builders import a_run, an_attempt

pytestmark = pytest.mark.django_db
RATE, SEED, LENGTH = "setting.grpo.learning_rate", "setting.grpo.seed", "metric.completions/mean_length"


@pytest.fixture
def sweep() -> dict[str, Run]:
    """Two learning rates, two seeds each; rewards 0.2, 0.4 and 0.6, 0.8 in each run's last ten steps."""
    made = {}
    for n, (rate, seed) in enumerate([(1e-6, 1), (1e-6, 2), (2e-5, 1), (2e-5, 2)]):
        run = an_attempt(run=a_run(f"run {n}")).run
        run.spec["grpo"] |= {"learning_rate": rate, "seed": seed}
        run.reward_ends = [0.0] * 10 + [0.2 + 0.2 * n] * 10
        run.last_metrics = {"reward": 0.2 + 0.2 * n, "completions/mean_length": 100.0 * n}
        run.tags = ["all", "small"] if rate < 1e-5 else ["all"]
        run.save()
        made[run.name] = run
    return made


def shown(**asked: str) -> str:
    return str(viewer().get("/runs/", asked).content.decode())


def names(**asked: str) -> list[str]:
    return re.findall(r"run \d(?=</span>)", shown(**asked))


def cells(row: str) -> list[str]:
    return [" ".join(re.sub(r"<[^>]*>", "", cell).split()) for cell in re.findall(r"<t[dh].*?</t[dh]>", row, re.DOTALL)]


def groups(**asked: str) -> list[list[str]]:
    table = shown(**asked).partition('<table class="table cards groups">')[2].partition("</table>")[0]
    return [cells(row)[:-1] for row in table.split("<tr>")[2:]]


def test_settings_and_metrics_are_columns_and_sort_as_numbers(sweep: dict[str, Run]) -> None:
    asked = {"columns": f"reward,{RATE},{LENGTH}"}
    page = shown(**asked)
    headings = re.findall(r'<th [^>]*class="(\w+)"', page)
    assert headings == ["pick", "status", "name", "reward", "chosen", "chosen"]
    assert re.findall(r'<td class="chosen cut" data-label="([^"]*)" title="([^"]*)"', page)[:2] == [
        ("Learning rate", "2e-05"),
        ("Length: mean", "300"),
    ]
    assert names(**asked, sort=f"-{LENGTH}") == ["run 3", "run 2", "run 1", "run 0"]
    assert names(**asked, sort=RATE) == ["run 1", "run 0", "run 3", "run 2"]
    assert names(sort="metric.nobody'\"[0].has") == ["run 3", "run 2", "run 1", "run 0"]


def test_an_address_keeps_columns_that_can_be_and_no_others() -> None:
    asked = RunListQuery.of({"columns": f"reward,odd,{RATE},reward,metric.,setting.", "group": "odd", "having": "a=b"})
    assert (asked.columns, asked.group, asked.having) == (f"reward,{RATE}", "", "")
    assert RunListQuery.of({"columns": ",".join(USUAL_COLUMNS)}).columns == ""


def test_a_setting_filters_and_a_missing_one_too(sweep: dict[str, Run]) -> None:
    assert names(having="grpo.seed=2") == ["run 3", "run 1"]
    assert names(having="grpo.learning_rate=1e-06", q="run") == ["run 1", "run 0"]
    assert names(having="grpo.nothing=null") == ["run 3", "run 2", "run 1", "run 0"]
    assert names(having='model.path="odd"') == []
    assert 'title="Remove this filter"' in shown(having="grpo.seed=2")


def test_groups_by_a_setting_have_mean_and_spread(sweep: dict[str, Run]) -> None:
    found = groups(group=RATE, columns=f"reward,{LENGTH}")
    assert found == [
        ["2e-05", "2", "0.700 ± 0.141", "", "0.700 ± 0.141", "250 ± 70.7"],
        ["1e-06", "2", "0.300 ± 0.141", "", "0.300 ± 0.141", "50 ± 70.7"],
    ]
    page = shown(group=RATE, columns=f"reward,{LENGTH}")
    assert 'title="Metric completions/mean_length">Length: mean</th>' in page
    assert re.findall(r'<line x1="([\d.]+)" x2="([\d.]+)"', page.partition('"table cards groups"')[2]) == [
        ("66.0", "98.0"),  # 0.6 to 0.8 on a scale from 0.2 to 0.8
        ("2.0", "34.0"),
    ]
    assert f'data-column="{LENGTH}" checked' in page  # more can be chosen of what the runs have
    assert 'data-column="metric.reward"' in page
    assert '<option value="">Nothing</option>' in page
    offered = page.partition('<select name="group">')[2].partition("</select>")[0]
    assert re.findall(r'<option value="(setting[^"]*)"', offered) == [RATE, SEED]  # all runs have the same of the rest
    assert "grouped by learning rate" in page
    assert "<th>β, KL weight</th>" in shown(group="setting.grpo.beta")
    link = re.search(r'href="/runs/\?(having=[^"]*)"', page)
    assert link
    assert re.findall(r"run \d(?=</span>)", viewer().get(f"/runs/?{link[1]}").content.decode()) == ["run 3", "run 2"]


def test_groups_without_a_reward_have_no_scale(sweep: dict[str, Run]) -> None:
    def scale() -> str:
        head = shown(group="tag").partition('<th class="spread"')[2].partition("</th>")[0]
        return " ".join(re.sub("<[^>]*>", " ", head.partition(">")[2]).split())

    assert re.fullmatch(r"[\d.]+ Reward spread [\d.]+", scale())
    Run.objects.update(reward_ends=[])
    assert scale() == "Reward spread"


def test_a_run_is_in_the_group_of_each_of_its_tags(sweep: dict[str, Run]) -> None:
    Run.objects.filter(name="run 3").update(tags=[])
    assert [row[:2] for row in groups(group="tag")] == [["no tag", "1"], ["all", "3"], ["small", "2"]]


@pytest.mark.parametrize("setting", ["dataset", "profile", "reward config", "environment", "rewards.format.weight"])
def test_settings_of_other_places_group_too(sweep: dict[str, Run], setting: str) -> None:
    (group,) = groups(group=f"setting.{setting}")
    assert group[1] == "4"


def test_the_csv_has_every_run_of_every_page_and_no_formula(sweep: dict[str, Run]) -> None:
    Run.objects.filter(name="run 0").update(name='=HYPERLINK("x")')
    answer = viewer().get("/runs/csv", {"columns": f"{RATE},{LENGTH}", "sort": "reward"})
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [row["name"] for row in rows] == ['\'=HYPERLINK("x")', "run 1", "run 2", "run 3"]
    assert [float(row["grpo.learning_rate"]) for row in rows] == [1e-6, 1e-6, 2e-5, 2e-5]
    assert [float(row["completions/mean_length"]) for row in rows] == [0, 100, 200, 300]
    assert {row["status"] for row in rows} == {"running"}
