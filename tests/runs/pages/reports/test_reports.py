"""Reports: what a run's and a comparison's archive say, and that every picture is a whole document."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from django.conf import settings

from controlplane.platform.accounts.models import Role
from runs.engine.models import Attempt, Run
from runs.intake.host_api import ingest
from runs.pages.reports import charts, pictures
from runs.pages.reports.markdown import plain, table
from runs.pages.reports.pictures import Picture, ReportCurve
from tests.controlplane.people import signed_in
from tests.runs.api.clients import Program
from tests.runs.builders import FREE, a_run, an_attempt, train

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]

CSS = Path(settings.BASE_DIR) / "frontend/static/css/tokens.css"


def trained(name: str, *, seed: int = 1, rewards: float = 0.1, steps: int = 12, **grpo: Any) -> Run:
    run = a_run(name, grpo={"max_steps": 20, "seed": seed, "beta": 0.04, **grpo})
    attempt = an_attempt(run=run)
    lines = [
        train(n, reward=rewards * n, reward_std=0.1, kl=0.01 * n, entropy=2 - n / 20, eval_entropy=1.0)
        for n in range(1, steps + 1)
    ]
    ingest.accept(attempt, lines)
    return Run.objects.get(pk=run.pk)


def unpacked(answer: Any) -> dict[str, str]:
    """File -> text, without the archive's folder."""
    assert answer.status_code == 200, answer.content[:300]
    assert answer["Content-Type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as packed:
        return {name.partition("/")[2]: packed.read(name).decode() for name in packed.namelist()}


def of_run(run: Run) -> dict[str, str]:
    return unpacked(signed_in(Role.VIEWER).get(f"/runs/{run.pk}/report"))


def test_a_runs_report_says_what_its_page_does() -> None:
    source = trained("the first", learning_rate=1e-6)
    run = trained("on & <on> | *and* on", learning_rate=5e-6)
    run.notes, run.cloned_from = "# Mine\nworked", source
    run.health = {"verdict": "well", "step": 12}
    run.save(update_fields=["notes", "cloned_from", "health"])
    Attempt.objects.filter(run=run).update(receipt=FREE)
    files = of_run(run)
    text = files["report.md"]
    assert text.startswith("# on & \\<on\\> \\| \\*and\\* on\n")
    assert "| Reward, total | 1.20 | 1.20 | 1.20 |" in text
    assert "| KL to the reference | 0.120 | 0.120 | – |" in text
    assert "| eval\\_entropy |" not in text
    assert "Cloned from the first" in text
    assert "| grpo.learning\\_rate | 1e-06 | 5e-06 |" in text
    assert "**Healthy**" in text
    assert "> # Mine\n> worked" in text
    assert "2 processes ended in 0.20 s; all resources were released." in text
    assert yaml.safe_load(files["spec.yaml"])["grpo"]["beta"] == 0.04
    named = set(re.findall(r"\]\((charts/[^)]+)\)", text))
    assert named == {name for name in files if name.startswith("charts/")}
    assert not [name for name in named if "eval" in name], "entropy's repeats a chart"
    assert {"charts/reward.svg", "charts/kl.svg", "charts/entropy.svg"} <= named
    for name in named:
        ElementTree.fromstring(files[name])


def test_a_run_without_data_has_a_report_that_says_so() -> None:
    files = of_run(a_run("n" * 120))
    assert set(files) == {"report.md", "spec.yaml"}
    assert "No metrics have been recorded yet." in files["report.md"]
    assert "No values: Reward, total" in files["report.md"]
    assert "The run’s health was not assessed." in files["report.md"]


def test_a_comparison_says_what_differs_and_how_much_seeds_do() -> None:
    runs = [trained("a", seed=1), trained("b", seed=2, rewards=0.2), trained("c", learning_rate=5e-6)]
    ids = ",".join(run.pk for run in runs)
    files = unpacked(signed_in(Role.VIEWER).get("/runs/compare/report", {"runs": ids, "m": "reward,kl", "x": "tokens"}))
    text = files["report.md"]
    assert "| grpo.seed | 1 | 2 | 1 |" in text
    assert "| learning\\_rate not set | 2 | 1.80 ± 0.849 | 0.120 ± 0 |" in text
    assert "| learning\\_rate 5e-06 | 1 | 1.20 | 0.120 |" in text
    files = unpacked(Program("read").get("compare/report", runs=ids, m="reward"))
    assert set(files) == {"report.md", "charts/01.svg", "charts/01-spread.svg"}
    drawn = files["charts/01.svg"]
    assert all(f">{run.name}</text>" in drawn for run in runs)
    assert "fill-opacity" in files["charts/01-spread.svg"]
    assert signed_in(Role.VIEWER).get("/runs/compare/report?runs=gone")["Location"] == "/runs/compare/?runs=gone"
    assert Program("read").get("compare/report", runs="gone").status_code == 404


def test_programs_get_the_same_report() -> None:
    run = trained("first")
    program = Program("read")
    plain_, smoothed = (unpacked(program.get(f"runs/{run.pk}/report", smooth=weight)) for weight in (0, 0.9))
    assert plain_["charts/kl.svg"] != smoothed["charts/kl.svg"]
    assert program.get(f"runs/{run.pk}/report", smooth=7).status_code == 422


def test_colours_are_the_pages_own() -> None:
    css = dict(re.findall(r"--([\w-]+): light-dark\((#\w+),", CSS.read_text()))
    assert {name: css[name] for name in pictures.COLOURS} == pictures.COLOURS


@pytest.mark.parametrize(
    "curves",
    [
        [],
        [ReportCurve("one", "c1", [(1, 0.5)])],
        [ReportCurve("flat", "c1", [(1, 0.0), (2, 0.0)])],
        [ReportCurve("huge", "c1", [(1, 1e300), (2, -1e300)])],
        [ReportCurve(f"<{n}> & a long name " * 5, f"c{n % 8 + 1}", [(n, n), (n + 1, -n)]) for n in range(20)],
    ],
    ids=["none", "a point", "flat", "huge", "many"],
)
def test_whatever_is_drawn_is_a_whole_document(curves: list[ReportCurve]) -> None:
    for log in (False, True):
        drawn = pictures.svg(Picture("A\0 <title> & more", curves, zero=True, log=log))
        places = re.findall(r"[ML](-?[\d.]+|nan|inf) (-?[\d.]+|nan|inf)", drawn)
        assert all(-1 <= float(x) <= 721 and -1 <= float(y) <= 301 + 18 * 20 for x, y in places)
        ElementTree.fromstring(drawn)


def test_smoothing_is_that_of_the_charts() -> None:
    assert charts.smooth([1.0, 0.0, 0.0], 0.0) == [1.0, 0.0, 0.0]
    first, second, third = charts.smooth([1.0, 0.0, 1.0], 0.5)
    assert (first, round(second, 4), round(third, 4)) == (1.0, 0.3333, 0.7143)
    assert charts.between([0, 10], [0, 1], [-5, 5, 50]) == [0, 0.5, 1]


def test_nothing_that_people_type_is_markup() -> None:
    assert plain("a|b\n# [x](y) `c`") == "a\\|b \\# \\[x\\](y) \\`c\\`"
    assert table(["A", "B"], [], numbers=1) == ""
