"""The list of runs in a real Chromium: its address, rows that stay under the pointer, what is chosen over pages."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import Complaints, sign_in
from tests.browser.test_run_page import A_RUN, MORE
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

# Rows beside each other, ended: enough for a second page.
MANY = """
from runs.engine.models import Attempt, Run
from tests.runs import builders
first = builders.a_run(name, hardware={"rollout": "colocate", "trainer_gpus": 8})
fields = {key: getattr(first, key) for key in ("owner", "spec", "dataset_version", "reward_version", "profile")}
runs = Run.objects.bulk_create([Run(name=f"{name} {n:02}", step=n, **fields) for n in range(60)])
ends = {"number": 1, "status": "failed", "reason": "oom"}
Attempt.objects.bulk_create([Attempt(id=f"{run.pk}-1", run=run, **ends) for run in runs])
"""
TAGGED = "from runs.engine.models import Run\nRun.objects.filter(pk=run).update(tags=tags)"
STEPS = (
    "from runs.engine.models import Run\nrun = Run.objects.get(pk=run)\n"
    "run.spec['grpo']['max_steps'] = steps\nrun.save()"
)
ENDS_SEEN = """() => [...document.querySelectorAll('#run-list a.name, h1 .run-name')].every((name) => {
  const [box, end] = [name, name.querySelector('.end')].map((each) => each.getBoundingClientRect());
  return end.right <= box.right + 1 && end.bottom <= box.bottom + 1 && end.width > 0;
})"""
GROUPED = """
from runs.engine.models import Run, RunGroup
from tests.runs import builders
Run.objects.filter(pk__in=runs).update(group=RunGroup.objects.create(owner=builders.a_user()))
"""
FAILED = """
from runs.engine.models import Attempt, Run
Run.objects.filter(pk=run).update(step=0)
Attempt.objects.filter(run=run).update(status="failed", reason="model_unavailable")
"""
TAGS = "from runs.engine.models import Run\nresult = [Run.objects.get(name=name).tags for name in names]"


@pytest.fixture(autouse=True)
def signed_in(site: Stack, context: BrowserContext) -> None:
    sign_in(site, context, "operator")


def names(page: Page) -> list[str]:
    return [name.strip() for name in page.locator("#run-list a.name").all_text_contents()]


def test_what_is_asked_is_in_the_address_and_back_leads_back(site: Stack, page: Page, complaints: Complaints) -> None:
    for name in ("asked apple", "asked banana"):
        site.django(A_RUN, name=name)
    page.goto(f"{site.url}/runs/")
    page.keyboard.press("/")
    page.keyboard.type("asked")
    expect(page).to_have_url(re.compile(r"/runs/\?q=asked$"))
    expect(page.locator("#run-list a.name")).to_have_text(["asked banana", "asked apple"])
    by_name = page.get_by_role("link", name="Name", exact=True)
    expect(by_name).to_have_attribute("href", re.compile("q=asked"))  # the rows may have been these two before
    by_name.click()
    expect(page.locator("#run-list a.name")).to_have_text(["asked apple", "asked banana"])
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Name")
    page.locator("select[name=status]").select_option("failed")
    expect(page.get_by_text("No run matches")).to_be_visible()
    page.go_back()
    expect(page).to_have_url(re.compile(r"/runs/\?q=asked&sort=name$"))
    expect(page.locator("#run-list a.name")).to_have_text(["asked apple", "asked banana"])
    expect(page.locator("select[name=status]")).to_have_value("")
    page.reload()
    assert names(page) == ["asked apple", "asked banana"]
    assert complaints.heard == []


def test_no_row_moves_under_the_pointer_and_its_figures_go_on(site: Stack, page: Page) -> None:
    run = str(site.django(A_RUN, name="under the pointer"))
    page.goto(f"{site.url}/runs/?q=pointer")
    row = page.locator(f"#row-{run}")
    row.hover()
    place = row.bounding_box()
    site.django(A_RUN, name="pointer, newer")
    expect(page.get_by_role("button", name="Show 1 more run")).to_be_visible()
    site.django(MORE, run=run)
    expect(row).to_contain_text("40")
    assert row.bounding_box() == place
    assert names(page) == ["under the pointer"]
    page.mouse.move(5, 5)
    expect(page.locator("#run-list a.name")).to_have_text(["pointer, newer", "under the pointer"])
    expect(page.locator("#list-news")).to_be_hidden()


def test_runs_are_chosen_over_pages_compared_tagged_and_archived(
    site: Stack, page: Page, complaints: Complaints
) -> None:
    site.django(MANY, name="chosen")
    page.goto(f"{site.url}/runs/?q=chosen&status=failed&sort=name")
    page.get_by_label("Select chosen 00").check()
    expect(page.locator("[data-compare]")).not_to_have_attribute("href", re.compile("."))
    page.get_by_role("link", name="Next page").click()
    expect(page).to_have_url(re.compile("page=2"))
    page.get_by_label("Select chosen 57").click()
    page.get_by_label("Select chosen 59").click(modifiers=["Shift"])
    expect(page.locator("#selection")).to_contain_text("4 selected, 1 not on this page")
    expect(page.locator("[data-compare]")).to_have_attribute("href", re.compile(r"/runs/compare/\?runs=(\w+,){3}\w+$"))
    expect(page.get_by_role("button", name="Stop now")).to_be_hidden()
    page.get_by_role("button", name="Tags").click()
    page.keyboard.type("Sweep, two words")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Changed the tags of 4 runs.")).to_be_visible()
    expect(page).to_have_url(re.compile("page=2"))
    assert site.django(TAGS, names=["chosen 00", "chosen 58"]) == [["sweep", "two words"]] * 2
    page.get_by_label("Select chosen 59").check()
    page.get_by_role("button", name="Archive").click()
    expect(page.get_by_text("Archived 1 run.")).to_be_visible()
    assert "chosen 59" not in names(page)
    assert complaints.heard == []


def test_runs_are_deleted_renamed_and_restored(site: Stack, page: Page, complaints: Complaints) -> None:
    site.django(MANY, name="going")
    page.goto(f"{site.url}/runs/?q=going&status=failed&sort=name")
    for name in ("going 00", "going 01"):
        page.get_by_label(f"Select {name}").check()
    page.get_by_role("button", name="Delete…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Delete 2 runs?")
    page.get_by_role("button", name="Delete 2 runs").click()
    page.get_by_role("link", name="Recently deleted").click()
    page.get_by_role("row", name="going 01").get_by_role("button", name="Restore").click()
    expect(page.get_by_text("going 01 was restored.")).to_be_visible()
    if (skip := page.get_by_role("button", name="Skip")).is_visible():  # the tour, on the first run page of all
        skip.click()
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_label("Name", exact=True)).to_be_focused()  # before it is there, Escape is nobody's
    page.keyboard.press("Escape")
    expect(page.get_by_label("Name", exact=True)).to_have_count(0)  # whose form has a button of that name, too
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Name", exact=True).fill("going on")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("going on")
    expect(page).to_have_title(re.compile("going on"))
    page.goto(f"{site.url}/runs/?q=going&status=failed&sort=name")
    assert names(page)[:2] == ["going 02", "going 03"]
    assert complaints.heard == []


def test_a_view_is_saved_and_found_again(site: Stack, page: Page) -> None:
    page.goto(f"{site.url}/runs/?status=failed&sort=-reward")
    page.locator("#views summary").click()
    page.get_by_label("Name of the view to save").fill("Best of the failed")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Saved this view")).to_be_visible()
    page.goto(f"{site.url}/runs/")
    page.locator("#views summary").click()
    page.get_by_role("link", name="Best of the failed").click()
    expect(page).to_have_url(re.compile(r"/runs/\?status=failed&sort=-reward$"))
    expect(page.locator("select[name=status]")).to_have_value("failed")
    expect(page.locator("select[name=sort]")).to_have_value("-reward")


def test_columns_are_chosen_and_kept_in_the_address(site: Stack, page: Page, complaints: Complaints) -> None:
    site.django(A_RUN, name="columns here")
    page.goto(f"{site.url}/runs/?q=columns")
    page.locator("#columns summary").click()
    page.get_by_label("Find a setting or metric").fill("steps")
    page.get_by_role("checkbox", name="grpo.max_steps").check()
    expect(page.locator("#run-list th").last).to_have_text("Steps")
    page.get_by_label("Find a setting or metric").fill("")
    page.get_by_role("checkbox", name="Health").uncheck()
    expect(page.locator("#run-list th.health")).to_have_count(0)
    page.reload()
    assert page.locator("#run-list thead th").all_inner_texts()[-2:] == ["By", "Steps"]
    assert "setting.grpo.max_steps" in str(page.locator("[data-csv]").get_attribute("href"))
    assert complaints.heard == []


def test_groups_take_the_place_of_runs_and_give_it_back(site: Stack, page: Page, complaints: Complaints) -> None:
    for name, tag, steps in (("grouped one", "left", 10), ("grouped two", "right", 20)):
        run = site.django(A_RUN, name=name)
        site.django(TAGGED, run=run, tags=[tag])
        site.django(STEPS, run=run, steps=steps)
    rows, heads = page.locator("#run-list tbody tr"), page.locator("#run-list thead th")
    page.goto(f"{site.url}/runs/?q=grouped&sort=name")
    group = page.locator("select[name=group]")
    page.locator("#filters summary").click()
    group.select_option("tag")
    expect(heads.first).to_have_text("Tag")
    expect(rows.get_by_role("rowheader")).to_have_text(["left", "right"])
    group.select_option("setting.grpo.max_steps")
    expect(heads.first).to_have_text("Steps")
    expect(rows).to_have_count(2)
    page.goto(f"{site.url}/runs/?q=grouped&sort=name&group=tag")
    page.locator("#filters summary").click()
    group.select_option("")
    expect(page.locator("#run-list a.name")).to_have_text(["grouped one", "grouped two"])
    expect(rows).to_have_count(2)
    expect(page.locator("#run-list th.name")).to_have_text("Name")
    group.select_option("tag")
    page.get_by_role("link", name="right", exact=True).click()
    expect(page.locator("#run-list a.name")).to_have_text(["grouped two"])
    assert complaints.heard == []


def test_rows_are_gone_through_by_keyboard(site: Stack, page: Page) -> None:
    for name in ("keys two", "keys one"):
        site.django(A_RUN, name=name)
    page.goto(f"{site.url}/runs/?q=keys")
    for key in ("j", "j", "k", "j", "x"):
        page.keyboard.press(key)
    expect(page.get_by_label("Select keys two")).to_be_checked()
    expect(page.locator("#selection")).to_contain_text("1 selected")


def test_long_names_and_many_tags_fit_a_phone(site: Stack, page: Page) -> None:
    run = site.django(A_RUN, name="a-name-without-any-place-to-break-it-" * 3)
    site.django(TAGGED, run=run, tags=[c * 32 for c in "abcdef"])
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 844})
        page.goto(f"{site.url}/runs/?q=place-to-break")
        page.get_by_label(re.compile("^Select a-name")).check()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_runs_of_a_sweep_are_told_apart_at_every_width(site: Stack, page: Page) -> None:
    for name in ("sweep, learning rate 1e-6, seed 42", "sweep, learning rate 5e-6, seed 43"):
        site.django(TAGGED, run=site.django(A_RUN, name=name), tags=["learning rate sweep"])
    site.django(FAILED, run=site.django(A_RUN, name="sweep, learning rate 5e-5, seed 44"))  # the widest progress
    for width in (1440, 1024, 768, 390):
        page.set_viewport_size({"width": width, "height": 844})
        page.goto(f"{site.url}/runs/?q=sweep, learning")
        expect(page.locator("#run-list a.name")).to_have_count(3)
        assert page.evaluate(ENDS_SEEN)
        assert page.locator(".table-wrap").evaluate("(table) => table.scrollWidth <= table.clientWidth"), width


def test_what_differs_in_the_middle_of_long_names_is_seen_at_every_width(site: Stack, page: Page) -> None:
    runs = [
        site.django(A_RUN, name=f"middle-of-a-long-name-lr{rate}-generations8-length1024-s1")
        for rate in ("1e-06", "3e-05")
    ]
    site.django(GROUPED, runs=runs)
    for run in runs:
        site.django(TAGGED, run=run, tags=["a"])
    for width in (1440, 1024, 768, 390):
        page.set_viewport_size({"width": width, "height": 844})
        page.goto(f"{site.url}/runs/?q=middle-of")
        expect(page.locator("#run-list a.name .end")).to_have_text(["lr3e-05-", "lr1e-06-"])
        assert page.evaluate(ENDS_SEEN)
        assert page.locator(".table-wrap").evaluate("(table) => table.scrollWidth <= table.clientWidth")
    page.goto(f"{site.url}/runs/{runs[0]}/")
    expect(page.locator("h1 .end")).to_have_text("lr1e-06-")
    assert page.evaluate(ENDS_SEEN)
