"""How numbers are written."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from django.utils.html import strip_tags

from controlplane.platform.templatetags import figures
from controlplane.platform.templatetags.frame import advantage, sparkline, stacked_bar
from controlplane.setup.serving.processes import BASE_DIR

ALIKE = json.loads((BASE_DIR / "tests" / "js" / "figures.json").read_text())
"""How the server and the pages' scripts both write a number; `figures.test.js` holds the scripts to it."""


def test_a_number_has_three_significant_digits(subtests: pytest.Subtests) -> None:
    for value, text in ALIKE["significant"]:
        with subtests.test(value=value):
            assert figures.sig(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, None, "", True])
def test_what_is_no_number_is_a_dash(value: object) -> None:
    assert figures.sig(value) == "–"


def test_a_change_is_written_as_people_read_it(subtests: pytest.Subtests) -> None:
    for value, text in ALIKE["change"]:
        with subtests.test(value=value):
            assert figures.change(value) == text


def test_a_duration_has_its_two_largest_units(subtests: pytest.Subtests) -> None:
    for seconds, text in ALIKE["duration"]:
        with subtests.test(seconds=seconds):
            assert figures.duration(seconds) == text
            assert figures.duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(("seconds", "text"), ALIKE["about"])
def test_an_estimate_is_no_more_exact_than_it_is(seconds: float, text: str) -> None:
    assert figures.about(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), ALIKE["age"])
def test_an_age_has_its_largest_unit(seconds: float, text: str) -> None:
    assert figures.since(timezone.now() - timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(("parts", "text"), ALIKE["clock"])
def test_a_moment_is_its_date_and_time_and_of_today_its_time(parts: list[int], text: str) -> None:
    moment = datetime(*parts, tzinfo=UTC)  # type: ignore[misc]  # year to second
    assert f'+00:00">{text} UTC<' in figures.clock(moment)
    assert f'data-form="day">{text[:10]}<' in figures.clock(moment, "day")
    assert f'data-form="clock">{text[11:]} UTC<' in figures.clock(moment, "clock")
    today = timezone.now()
    assert f">{today:%H:%M:%S} UTC<" in figures.clock(today)


def test_units_are_apart_from_their_number() -> None:
    assert figures.size(3_094_000_000) == '2.88<span class="unit">GiB</span>'
    assert figures.size_in_words(2**30) == "1\N{NO-BREAK SPACE}GiB"
    assert figures.download_size(2_910_000_000) == "2.9\N{NO-BREAK SPACE}GB"
    assert figures.download_size(4_060_000) == "4.1\N{NO-BREAK SPACE}MB"
    assert strip_tags(figures.percent(0.041)) == "4.1%"
    assert figures.si(18_400) == "18.4k"


def test_a_models_size_is_written_as_in_its_name() -> None:
    sizes = (7_615_616_512, 72_706_203_648, 494_032_768, 1_543_714_304)
    assert [figures.parameters(size) for size in sizes] == ["7.6B", "72.7B", "494M", "1.5B"]


def test_a_setting_is_written_as_a_person_would_type_it() -> None:
    assert [figures.setting(v) for v in (1e-6, True, None, "dapo", 8)] == ["1e-06", "on", "none", "dapo", "8"]


def test_a_sparkline_needs_two_points_and_bears_a_flat_line() -> None:
    assert sparkline([1.0, None]) == ""
    assert "nan" not in sparkline([0.5, 0.5, 0.5])


def test_a_stacked_bar_never_leaves_its_frame() -> None:
    parts = stacked_bar([{"label": "a", "value": 90}, {"label": "b", "value": 60}], total=100)["parts"]
    assert [part["width"] for part in parts] == [90, 10]


def test_an_advantage_has_its_sign_and_grows_from_the_middle() -> None:
    above, below = advantage(0.5, 1.0), advantage(-1.0, 1.0)
    assert "advantage above" in above
    assert 'x="32.0" y="1" width="15.0"' in above
    assert strip_tags(above) == "+0.50"
    assert "advantage below" in below
    assert 'x="2.0" y="1" width="30.0"' in below
    assert [strip_tags(advantage(value)) for value in (-0.2, 0.0, None)] == ["−0.20", "0", "–"]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("twelve chars", [("twelve chars", "")]),
        ("seeds try, seed 1", [("seeds try", ", seed 1")]),
        ("a name with more characters", [("a name with mo", "re characters")]),
        ([("known ", "parts")], [("known ", "parts")]),
    ],
)
def test_a_name_that_may_be_cut_keeps_its_end(name: Any, parts: list[tuple[str, str]]) -> None:
    assert figures.ends(name) == parts


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "–"), (0.0312, '31<span class="unit">ms</span>'), (1.5, "1.5 s"), (90, "1 min 30 s")]
)
def test_a_computing_time_is_in_milliseconds_below_a_second(seconds: float | None, text: str) -> None:
    assert figures.computing_time(seconds) == text


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (0.5, "percent", '50<span class="unit">%</span>'),
        (12, "tokens", '12<span class="unit">tok</span>'),
        (None, "tokens", "–"),
        (12, "number", "12"),
    ],
)
def test_a_tiles_figure_has_the_unit_of_its_format(value: float | None, form: str, text: str) -> None:
    assert figures.in_format(value, form) == text
