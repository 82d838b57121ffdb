"""A long-lived installation in a real Chromium: a run of 100,000 steps, 2,000 runs, 20 compared, a log of 200 MB."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Page, expect

from controlplane.platform.templatetags.figures import sig
from tests.benchmarks import _stored
from tests.benchmarks._stored_rows import SPIKE
from tests.browser.conftest import Complaints, sign_in
from tests.browser.driving import compared, curves, until, zoom
from tests.stack import FAKE_TRAINER, Stack, command_of

pytestmark = [pytest.mark.browser, pytest.mark.processes]

NAME = "a long one"
STEPS = 100_000
METRICS = ("reward", "entropy", "completions/mean_length")
SPIKES = range(2_500, STEPS, 5_000)
"""Steps with a reward far above the others', which lie between 0 and 1."""
RUNS = 2_000
COMPARED, COMPARED_STEPS = 20, 2_000
STRETCHES = 3_200
"""Of 64 KiB: 210 MB."""
BROKEN = 2_000
ANSWERED, PROMPTS = 4_000, 100
DATA = """
from tests.browser import large_data
result = large_data.{call}
"""


@pytest.fixture(scope="module")
def stack(make_stack: Callable[..., Stack]) -> Stack:
    return make_stack(GRPO_TRAINER_COMMAND=command_of(FAKE_TRAINER))


@pytest.fixture(scope="module")
def page_of(stack: Stack) -> dict[str, Any]:
    found: dict[str, Any] = stack.django(DATA.format(call="catalogue()"))
    return found


@pytest.fixture(scope="module")
def long(stack: Stack, page_of: dict[str, Any]) -> str:
    """Its values are those of `recorded`."""
    return _stored.long_run(stack, page_of, name=NAME, steps=STEPS, metrics=METRICS, spikes=list(SPIKES))


@pytest.fixture(scope="module")
def many(stack: Stack, page_of: dict[str, Any]) -> None:
    _stored.many_runs(stack, page_of, RUNS)


@pytest.fixture(scope="module")
def rivals(stack: Stack, page_of: dict[str, Any]) -> list[str]:
    def make(number: int) -> str:
        return _stored.long_run(stack, page_of, name=rival(number), steps=COMPARED_STEPS, metrics=METRICS[:2])

    return [make(number) for number in range(COMPARED)]


@pytest.fixture(scope="module")
def logged(stack: Stack, long: str) -> str:
    call = "a_log(run, chunks, broken)"
    stack.django(DATA.format(call=call), run=long, chunks=STRETCHES, broken=BROKEN)
    return long


@pytest.fixture(scope="module")
def answered(stack: Stack, long: str) -> str:
    stack.django(DATA.format(call="completions(run, steps, rows)"), run=long, steps=ANSWERED, rows=PROMPTS)
    return long


@pytest.fixture(autouse=True)
def signed_in(stack: Stack, context: BrowserContext, complaints: Complaints) -> Iterator[None]:
    """No page logs an error, throws, or asks for what isn't there."""
    sign_in(stack, context)
    yield
    assert complaints.heard == []


def test_the_first_charts_of_100_000_steps_have_every_spike(stack: Stack, long: str, page: Page) -> None:
    page.goto(f"{stack.url}/runs/{long}/")
    expect(page.locator("[data-step]")).to_have_text("100,000")
    drawn, entropy = curves(page, "reward")["reward"], curves(page, "entropy")["entropy"]
    assert len(drawn) < 5_000
    assert [step for step, value in drawn.items() if value == SPIKE] == list(SPIKES)
    assert recorded("reward").items() >= drawn.items()
    assert recorded("entropy").items() >= entropy.items()


def test_a_look_at_a_part_of_it_has_every_step_of_that_part(stack: Stack, long: str, page: Page) -> None:
    page.goto(f"{stack.url}/runs/{long}/")
    curves(page, "reward")
    for _ in range(3):  # a tenth of a tenth of a tenth
        low, high = zoom(page, "reward", 0.45, 0.55)
    steps = {step: value for step, value in recorded("reward").items() if low <= step <= high}
    assert len(steps) == pytest.approx(STEPS / 1000, rel=0.5)
    within = {}

    def whole() -> bool:
        within.update({x: value for x, value in curves(page, "reward")["reward"].items() if low <= x <= high})
        return len(within) == len(steps)

    until(page, whole, "the detail is not there")
    assert within == steps


def test_the_list_of_2_000_runs_is_filtered_sorted_and_paged(stack: Stack, many: None, page: Page) -> None:
    page.goto(f"{stack.url}/runs/?status=stopped")
    stopped = -(-(RUNS - 2) // 3)
    pages = page.locator("nav.pages")
    expect(pages).to_contain_text(f"1–50 of {stopped}")
    page.get_by_role("link", name="Name", exact=True).click()
    expect(page.locator("#run-list a.name").first).to_have_text("gsm8k-think-1001")
    names = sorted(f"gsm8k-think-{number}" for number in range(2, RUNS, 3))
    expect(page.locator("#run-list a.name")).to_have_text(names[:50])
    page.get_by_role("link", name="Next page").click()
    expect(pages).to_contain_text(f"51–100 of {stopped}")
    expect(page.locator("#run-list a.name")).to_have_text(names[50:100])
    page.keyboard.press("/")
    page.keyboard.type("think-1999")
    expect(page.get_by_text("No run matches")).to_be_visible()  # that one has failed
    page.locator("select[name=status]").select_option("")
    expect(page.locator("#run-list a.name")).to_have_text(["gsm8k-think-1999"])


def test_twenty_runs_are_compared(stack: Stack, rivals: list[str], page: Page) -> None:
    page.goto(f"{stack.url}/runs/compare/?runs={','.join(rivals)}&m=reward&of=reward")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Compare {COMPARED} runs")
    until(page, lambda: len(compared(page, "reward")) == COMPARED, "not every curve is drawn")
    for number, curve in enumerate(compared(page, "reward").values()):
        values = recorded("reward", name=rival(number), steps=COMPARED_STEPS)
        assert curve == pytest.approx({step: values[int(step)] for step in curve}, rel=1e-4)
        row = page.locator(f'tr[data-run="{rivals[number]}"]')
        expect(row.locator("[data-final=last]")).to_have_text(sig(values[COMPARED_STEPS]))
        expect(row.locator("[data-final=best]")).to_have_text(sig(max(values.values())))
    page.get_by_label(f"Show {rival(3)} in the charts").uncheck()
    until(page, lambda: rival(3) not in compared(page, "reward"))
    page.get_by_label(f"Remove {rival(0)}", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Compare {COMPARED - 1} runs")


def test_a_log_of_200_mb_is_searched_and_gone_through(stack: Stack, logged: str, page: Page) -> None:
    page.goto(f"{stack.url}/runs/{logged}/?tab=logs")
    view = page.locator("[data-log-view]")
    expect(page.locator("[data-log-size-of=trainer]")).to_have_text("200\N{NO-BREAK SPACE}MiB")
    expect(view).to_contain_text("or in another one")
    page.get_by_role("button", name="First error").click()
    expect(page.locator("[data-log-found]")).to_have_text("1 of 1 error line")
    target = page.locator(".log-view .target")
    expect(target).to_have_text(f"RuntimeError: it broke in stretch {BROKEN:06}\n")
    expect(target).to_be_in_viewport()
    page.keyboard.press("/")
    page.keyboard.type("STRETCH 0031")
    page.keyboard.press("Enter")
    expect(page.locator("[data-log-found]")).to_have_text("1 of 100 matches")
    expect(target).to_contain_text("stretch 003100 begins")
    page.keyboard.press("Shift+Enter")
    expect(target).to_contain_text("stretch 003199 begins")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(view).to_contain_text("stretch 000000 begins")
    assert view.evaluate("view => view.textContent.length") < 700_000


def test_a_step_among_4_000_with_completions_is_one_jump_away(stack: Stack, answered: str, page: Page) -> None:
    page.goto(f"{stack.url}/runs/{answered}/?tab=completions")
    step = page.get_by_label("Step", exact=True)
    expect(step).to_have_value(str(ANSWERED))
    step.fill("1234")
    step.press("Enter")
    expect(page.locator(".excerpt").first).to_have_text(f"At step 1234, answer 0: {1234 % PROMPTS + 1}.")
    expect(page).to_have_url(re.compile(r"s\.step=1234"))
    page.get_by_role("link", name="Earlier step").click()
    expect(page.locator(".excerpt").first).to_contain_text("At step 1233, answer 0:")
    page.goto(f"{stack.url}/runs/{answered}/?tab=completions&s.every=1&s.q=step+77,")
    expect(page.locator("mark").first).to_have_text("step 77,")  # the page looks further back by itself


def test_a_prompt_is_followed_over_all_its_visits(stack: Stack, answered: str, page: Page) -> None:
    visits = list(range(PROMPTS, ANSWERED + 1, PROMPTS))
    page.goto(f"{stack.url}/runs/{answered}/?tab=completions&s.view=prompts")
    expect(page.locator(".verdict")).to_contain_text(f"of {PROMPTS} prompts")
    page.goto(f"{stack.url}/runs/{answered}/?tab=completions&s.prompt=0")
    expect(page.get_by_text(f"{len(visits)} visits, from step {visits[0]} to {visits[-1]}.")).to_be_visible()
    expect(page.locator("svg.visits a")).to_have_count(len(visits))
    expect(page.locator(".excerpt").first).to_have_text(f"At step {visits[-1]}, answer 0: 1.")
    page.get_by_role("link", name="Oldest first").click()
    expect(page.locator(".excerpt").first).to_have_text(f"At step {visits[0]}, answer 0: 1.")


def rival(number: int) -> str:
    """Each name has another length, of which the builder makes its numbers."""
    return "r" * (number + 1)


def recorded(metric: str, *, name: str = NAME, steps: int = STEPS) -> dict[int, float]:
    """Step -> value, as the builder of tests.benchmarks._stored_rows draws them."""
    generator = np.random.default_rng(len(name))
    names = METRICS if name == NAME else METRICS[:2]
    values = {each: generator.random(steps) for each in names}[metric]
    if name == NAME and metric == "reward":
        values[np.array(SPIKES) - 1] = SPIKE
    return dict(enumerate(values.tolist(), start=1))
