"""Datasets in a real Chromium: from a file to a launched run, and what people do on the way."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from controlplane.setup.serving import body_sizes
from tests.browser.conftest import Complaints, sign_in
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.processes]

TOKENIZER = """
from controlplane.catalogue.datasets.models import Tokenizer
from tests.controlplane.catalogue.datasets.tokenizers import a_tokenizer
known, _ = Tokenizer.objects.get_or_create(sha256="cd" * 32, model="a tiny model", has_chat_template=True)
a_tokenizer(known.folder)
"""
HELD = """
# Nobody takes it up: what a page shows while a check goes on.
import json
from datetime import timedelta
from io import BytesIO
from unittest import mock
from django.utils import timezone
from controlplane.catalogue.datasets import actions
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.reader import files
with mock.patch.object(actions, "send_to_worker"):
    version = actions.create_from_upload(None, name, BytesIO(b'{"question": "1+1", "answer": "2"}\\n'), "held.jsonl")
later = timezone.now() + timedelta(days=1)
DatasetVersion.objects.filter(pk=version.pk).update(check_started_at=timezone.now(), queued_at=later)
told = {"stage": "first pass", "bytes": 30_000_000, "of": 120_000_000, "rows": 812_345, "mb_per_s": 38.2}
(version.folder / files.PROGRESS).write_text(json.dumps(told))
result = [version.pk, f"/datasets/{version.dataset_id}/1/"]
"""
GO_ON = """
import time
from controlplane.catalogue.datasets import worker
from controlplane.catalogue.datasets.models import DatasetVersion
version, end = DatasetVersion.objects.get(pk=pk), time.monotonic() + 60
while version.status == "checking" and time.monotonic() < end:
    worker.process(version)  # it does nothing while the stack's own worker is at others
    version.refresh_from_db()
    time.sleep(0.05)
result = version.status
"""
DROP = """([content, name]) => {
  const bytes = Uint8Array.from(atob(content), (c) => c.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], name));
  const place = document.querySelector("h1");
  for (const type of ["dragenter", "dragover"]) {
    place.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
  }
  const shown = !document.querySelector("[data-veil]").hidden;
  place.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  return shown;
}"""
WIDER = "Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth)"


@pytest.fixture(autouse=True)
def signed_in(site: Stack, context: BrowserContext) -> None:
    sign_in(site, context, "operator")


def sums(path: Path, many: int) -> Path:
    rows = [{"question": f"What is {n} plus {n}?", "answer": f"{n} + {n} = {2 * n}\n#### {2 * n}"} for n in range(many)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def choose(site: Stack, page: Page, file: Path, name: str) -> None:
    """Choosing a file sends it."""
    page.goto(f"{site.url}/datasets/upload/")
    page.get_by_label("Name").fill(name)
    page.get_by_label("File", exact=True).set_input_files(file)


def upload(site: Stack, page: Page, file: Path, name: str) -> None:
    choose(site, page, file, name)
    expect(page.get_by_role("heading", name=f"{name} v1")).to_be_visible()


def test_the_way_from_a_file_to_a_new_run(site: Stack, page: Page, complaints: Complaints, tmp_path: Path) -> None:
    site.django(TOKENIZER)
    upload(site, page, sums(tmp_path / "gsm8k_train.jsonl", 200), "gsm8k whole way")
    expect(page.get_by_text("200 rows, ")).to_be_visible()
    expect(page.locator(".recognised")).to_contain_text("GSM8K")
    example = page.locator("#example")
    expect(example).to_contain_text("Example 1 of")
    page.get_by_label("System prompt", exact=True).fill("Think first.")
    expect(example).to_contain_text("Think first.")
    page.get_by_label("Count tokens with").select_option(label="a tiny model")
    expect(example.locator(".exact pre")).to_contain_text("<|im_start|>system\nThink first.<|im_end|>")
    expect(example.locator(".exact")).to_contain_text("tokens")
    first = example.locator(".exact pre").inner_text()
    page.get_by_role("button", name="Next row").click()
    expect(example).to_contain_text("Example 2 of")
    assert example.locator(".exact pre").inner_text() != first
    page.get_by_label("Prompt template").fill("all the same")
    expect(page.locator("#id_template_error")).to_contain_text("lacks {prompt}")
    expect(example).to_contain_text("Example 2 of")  # the old answer stays
    page.get_by_label("Prompt template").fill("{prompt} Answer after ####.")
    expect(example.locator(".exact pre")).to_contain_text("Answer after ####.")
    expect(page.locator("#id_template_error")).to_be_hidden()
    page.get_by_label("Validation share").fill("0.2")
    page.get_by_role("button", name="Import with this mapping").click()
    expect(page.get_by_text("200 rows, ready to train on")).to_be_visible()
    expect(page.locator(".verdict")).to_contain_text("kept for validation")
    expect(page.get_by_role("img", name=re.compile("Length of the prompt in tokens"))).to_be_visible()
    page.get_by_role("link", name="Train on it").click()
    expect(page.locator("[name=dataset_version] option:checked")).to_contain_text("gsm8k whole way")
    assert complaints.heard == []


def test_a_file_chosen_before_the_script_arrived_is_sent(
    site: Stack, page: Page, complaints: Complaints, tmp_path: Path
) -> None:
    held: list[Route] = []
    page.route("**/upload*.js", lambda route: held.append(route))
    page.goto(f"{site.url}/datasets/upload/", wait_until="commit")
    page.get_by_label("Name").fill("early")
    page.get_by_label("File", exact=True).set_input_files(sums(tmp_path / "early.jsonl", 20))
    for route in held:
        route.continue_()
    expect(page.get_by_role("heading", name="early v1")).to_be_visible()
    assert len(held) == 1
    assert complaints.heard == []


def test_a_file_is_dropped_anywhere_and_its_problems_are_read(
    site: Stack, page: Page, complaints: Complaints, tmp_path: Path
) -> None:
    good = sums(tmp_path / "x.jsonl", 20).read_bytes()
    content = base64.b64encode(good + b'{"question": "cut off\n' + b"[1]\n").decode()
    page.goto(f"{site.url}/datasets/upload/")
    page.get_by_label("Name").fill("dropped")
    assert page.evaluate(DROP, [content, "let go.jsonl"]) is True
    expect(page.locator("[data-veil]")).to_be_hidden()
    expect(page.get_by_text("22 rows, 2 problems in 2 rows")).to_be_visible()
    expect(page.get_by_text("Not an object")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="As JSON Lines").click()
    lines = download.value.path().read_text().splitlines()
    assert [json.loads(line)["line"] for line in lines] == [21, 22]
    page.get_by_role("button", name="Drop them and continue").click()
    expect(page.get_by_role("button", name="Import with this mapping")).to_be_visible()
    page.get_by_role("button", name="Import with this mapping").click()
    expect(page.get_by_text("20 rows, ready to train on")).to_be_visible()
    assert complaints.heard == []


def test_a_transfer_can_be_cancelled_and_keeps_what_was_typed(site: Stack, page: Page, tmp_path: Path) -> None:
    """The server never answers; the person gives up, and the form is as it was."""
    page.route("**/datasets/upload/", lambda route: None if route.request.method == "POST" else route.continue_())
    choose(site, page, sums(tmp_path / "long.jsonl", 50), "given up")
    expect(page.locator("[data-transfer-words]")).to_contain_text("MiB")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("The upload was canceled. Nothing was stored.")).to_be_visible()
    expect(page.get_by_label("Name")).to_have_value("given up")
    assert page.evaluate("document.querySelector('input[type=file]').files[0].name") == "long.jsonl"
    page.goto(f"{site.url}/datasets/?q=given+up")
    expect(page.get_by_role("link", name="given up")).to_have_count(0)


def test_a_refusal_of_the_server_keeps_the_file(site: Stack, page: Page, tmp_path: Path) -> None:
    def refuse(route: Route) -> None:
        if route.request.method == "POST":
            route.fulfill(status=507, content_type="text/plain; charset=utf-8", body="The disk is full.\n")
        else:
            route.continue_()

    page.route("**/datasets/upload/", refuse)
    choose(site, page, sums(tmp_path / "kept.jsonl", 5), "kept")
    expect(page.get_by_text("The disk is full.")).to_be_visible()
    expect(page.get_by_role("button", name="Upload and check")).to_be_enabled()
    assert page.evaluate("document.querySelector('input[type=file]').files[0].name") == "kept.jsonl"


def test_what_is_too_large_to_be_sent_is_still_there_on_the_way_back(site: Stack, page: Page) -> None:
    page.goto(f"{site.url}/datasets/rows/")
    text = "x" * (body_sizes.TEXT_LIMIT + 1)
    page.locator("[name=rows]").fill(text)
    page.get_by_role("button", name="Check", exact=True).click()
    expect(page.get_by_role("heading", name="Too large")).to_be_visible()
    page.get_by_role("link", name="Go back").click()
    expect(page.locator("[name=rows]")).to_be_visible()
    assert page.locator("[name=rows]").evaluate("field => field.value.length") == len(text)


def test_a_taken_name_is_told_before_the_transfer(site: Stack, page: Page, tmp_path: Path) -> None:
    file = sums(tmp_path / "once.jsonl", 5)
    upload(site, page, file, "once")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method) if "/upload/" in request.url else None)
    choose(site, page, file, "")  # the file's name is taken as well
    expect(page.get_by_text("There is already a dataset “once”")).to_be_visible()
    assert "POST" not in sent
    page.get_by_label("Name").fill("taken twice")
    page.get_by_role("button", name="Upload and check").click()
    expect(page.get_by_text("This exact file was added before")).to_be_visible()


def test_a_dataset_is_deleted_from_the_list_in_three_clicks_and_restored(
    site: Stack, page: Page, tmp_path: Path
) -> None:
    upload(site, page, sums(tmp_path / "short lived.jsonl", 5), "short lived")
    page.goto(f"{site.url}/datasets/?q=short+lived")
    page.locator("summary[aria-label='Actions for short lived']").click()
    page.get_by_role("link", name="Delete…").click()
    page.get_by_role("button", name="Delete dataset").click()
    expect(page.get_by_text("Deleted short lived.")).to_be_visible()
    page.get_by_role("link", name="Recently deleted").first.click()
    page.get_by_role("row", name="short lived").get_by_role("button", name="Restore").click()
    expect(page.get_by_text("short lived was restored.")).to_be_visible()


def test_a_check_survives_a_reload_and_is_seen_in_two_tabs(site: Stack, page: Page, context: BrowserContext) -> None:
    pk, address = site.django(HELD, name="held")
    page.goto(site.url + address)
    expect(page.locator("#progress")).to_contain_text("812,345")
    expect(page.get_by_role("progressbar")).to_have_js_property("value", 0.25)
    page.reload()
    other = context.new_page()
    other.goto(site.url + address)
    expect(other.locator("#progress")).to_contain_text("38.2")
    assert site.django(GO_ON, pk=pk) == "needs_mapping"
    for tab in (page, other):
        expect(tab.get_by_text("1 row, no problem")).to_be_visible()


def test_a_check_is_cancelled_by_the_keyboard(site: Stack, page: Page) -> None:
    _, address = site.django(HELD, name="not wanted")
    page.goto(site.url + address)
    button = page.get_by_role("button", name="Cancel")
    button.focus()
    with page.expect_response(re.compile("/state/")):
        pass  # drawn anew
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("held.jsonl was deleted")).to_be_visible()


def test_rows_are_filtered_and_back_leads_back(site: Stack, page: Page, complaints: Complaints, tmp_path: Path) -> None:
    upload(site, page, sums(tmp_path / "rows.jsonl", 60), "rows to look at")
    page.get_by_role("button", name="Import with this mapping").click()
    expect(page.get_by_text("60 rows, ready to train on")).to_be_visible()
    page.get_by_role("navigation", name="This version").get_by_role("link", name="Rows").click()
    expect(page.get_by_text("1–20 of 60")).to_be_visible()
    page.wait_for_load_state()  # its modules listen from then on
    page.keyboard.press("/")
    page.keyboard.type("What is 5")
    page.keyboard.press("Enter")
    expect(page.get_by_text("11 of 60 rows")).to_be_visible()
    expect(page).to_have_url(re.compile(r"rows/\?text=What\+is\+5$"))
    page.get_by_role("link", name="Row 55 in full").click()
    expect(page).to_have_url(re.compile(r"/rows/[0-9]+/"))
    expect(page.get_by_text("What is 55 plus 55?").first).to_be_visible()
    page.go_back()
    expect(page.get_by_text("11 of 60 rows")).to_be_visible()
    page.get_by_text("Create a version from these rows").click()
    page.get_by_role("button", name="Create version").click()
    expect(page.get_by_text("11 rows, ready to train on")).to_be_visible()
    expect(page.locator(".lineage")).to_contain_text("with “What is 5”")
    assert complaints.heard == []


def test_nothing_scrolls_sideways_on_a_phone(site: Stack, page: Page, complaints: Complaints, tmp_path: Path) -> None:
    nasty = "<script>alert(1)</script>" + "x" * 300
    row = {f"column {n} {'y' * 60}": nasty for n in range(60)} | {"prompt": nasty, "answer": nasty, "tags": [nasty]}
    file = tmp_path / f"{'a very long name ' * 10}.jsonl"
    file.write_text("".join(json.dumps(row | {"n": n}) + "\n" for n in range(3)) + "broken " * 200 + "\n")
    page.set_viewport_size({"width": 390, "height": 844})
    upload(site, page, file, "w" * 80)
    expect(page.get_by_text("4 rows, 1 problem")).to_be_visible()
    assert page.evaluate(WIDER) == 0
    page.get_by_role("button", name="Drop it and continue").click()
    expect(page.locator("#example .outcome")).to_be_visible()
    assert page.evaluate(WIDER) == 0
    page.get_by_role("button", name="Import with this mapping").click()
    expect(page.get_by_text("3 rows, ready to train on")).to_be_visible()
    version = page.url
    for address in (version, f"{version}rows/", f"{version}rows/1/", f"{version}report/", f"{site.url}/datasets/"):
        page.goto(address)
        assert page.evaluate(WIDER) == 0, address
    for way in ("upload", "hub", "path"):
        page.goto(f"{site.url}/datasets/{way}/")
        assert page.evaluate(WIDER) == 0, way
    assert complaints.heard == []
