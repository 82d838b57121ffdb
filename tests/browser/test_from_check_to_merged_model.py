"""The whole way of a model, by hand on the CPU: check what can be learned, filter, train, evaluate, chat, merge,
download, train on from the merged model, and delete it."""

from __future__ import annotations

import hashlib
import re
import tarfile
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, expect

from tests.browser import real_runs
from tests.browser.conftest import Complaints, sign_in
from tests.browser.real_runs import RealRun
from tests.stack import Stack

pytestmark = [*real_runs.MARKS]


def test_a_model_goes_the_whole_way_and_is_trained_on(
    training_site: Stack, context: BrowserContext, page: Page, complaints: Complaints, tmp_path: Path
) -> None:
    sign_in(training_site, context)
    settings = real_runs.launch(training_site, "first", max_steps=2)
    version = check_and_filter(page, context, f"{settings.address}clone/")
    page.goto(f"{settings.address}clone/")
    run = train(page, training_site, version)
    evaluate(page, run)
    chat(page, run)
    page.goto(f"{training_site.url}/models/")
    page.get_by_role("link", name="second · step 20").click()
    merge(page)
    weights = download(page, tmp_path)
    merged = next(training_site.runs_dir.glob("*/1/checkpoints/checkpoint-20/merged_from.json")).parent
    assert weights == (merged / "model.safetensors").read_bytes()
    merged_page = page.url
    page.get_by_role("link", name="Train on").click()
    expect(page.get_by_role("combobox", name="Model")).to_have_value(str(merged))
    again = launched(page, training_site, "from merged", steps=2)
    again.wait_for_end("succeeded")
    page.goto(merged_page)
    delete(page)
    assert not merged.exists()
    assert (run.folder / "checkpoints/checkpoint-20").exists()
    assert complaints.heard == []


def check_and_filter(page: Page, context: BrowserContext, settings: str) -> str:
    """The label of the dataset version that keeps the prompts with something to learn."""
    page.goto(settings)
    with context.expect_page() as opened:
        page.get_by_role("button", name="Check learnability first").click()
    check = opened.value
    expect(check.get_by_role("heading", name="Learnability of first-2")).to_be_visible()
    expect(check.get_by_text("Groups with spread", exact=True)).to_be_visible()
    expect(check.get_by_text("64 groups, 512 completions")).to_be_visible()
    expect(check.get_by_text("All resources are released.")).to_be_visible()
    expect(page.get_by_role("heading", name="Clone of first")).to_be_visible()  # its form stays as it was
    check.get_by_label("Keep prompts solved").fill("1")
    check.get_by_role("button", name="Create a dataset version").click()
    expect(check.get_by_text("ready to train on")).to_be_visible()
    expect(check.get_by_text("solved 1 to 80 % in run")).to_be_visible()
    check.close()
    return "Arithmetic v2"


def train(page: Page, stack: Stack, version: str) -> RealRun:
    """An adapter, on the filtered version."""
    datasets = page.locator("#id_dataset_version")
    datasets.select_option(datasets.locator("option", has_text=version).get_attribute("value"))
    page.locator("details", has=page.locator("#id_use_lora")).evaluate("(fold) => fold.setAttribute('open', '')")
    page.get_by_label("Train a LoRA").check()
    run = launched(page, stack, "second", steps=20)
    run.wait_for_end("succeeded")
    return run


def launched(page: Page, stack: Stack, name: str, *, steps: int) -> RealRun:
    page.locator("#id_name").fill(name)
    page.locator("#id_max_steps").fill(str(steps))
    page.get_by_role("button", name=re.compile("^(Launch|Queue)")).click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    return RealRun(stack, page.url.rstrip("/").rpartition("/")[2].partition("?")[0], name)


def evaluate(page: Page, run: RealRun) -> None:
    """The checkpoint against the model before it."""
    page.goto(f"{run.address}?tab=checkpoints")
    page.get_by_role("link", name="Evaluate on held-out prompts").click()
    page.get_by_label("Completions per prompt").fill("8")
    page.get_by_role("button", name="Evaluate").click()
    row = page.get_by_role("row", name="Step 20")
    expect(row).to_contain_text("8 × 8")
    expect(row.get_by_text(" to ")).to_be_visible()  # the interval, once both have ended
    row.get_by_role("link", name="Step 20").click()
    expect(page.get_by_text("64 completions")).to_be_visible()
    page.go_back()
    row.get_by_role("link", name="Side by side").click()
    expect(page.locator("main")).to_contain_text(re.compile(r"second · before training.*advantage", re.DOTALL))


def chat(page: Page, run: RealRun) -> None:
    page.goto(run.address)
    page.get_by_role("tab", name="Checkpoints").click()
    page.get_by_role("button", name="Chat").first.click()
    page.get_by_role("button", name="Use a prompt from the dataset").click()
    expect(page.get_by_label("Message")).not_to_have_value("")
    page.get_by_label("Message").press("Control+Enter")
    for model in ("Trained", "Before training"):
        answer = page.get_by_role("region", name=model)
        expect(answer).to_contain_text("tokens")
        expect(answer.get_by_role("listitem")).to_have_count(3)  # the run's rewards
    expect(page.get_by_label("Message")).to_have_value("")
    page.reload()
    expect(page.get_by_role("region", name="Trained")).to_contain_text("accuracy")
    page.get_by_label("Message").fill("Compute 1 + 1.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("region", name="Trained")).to_have_count(2)
    page.get_by_role("button", name="Unload").click()
    expect(page.get_by_role("button", name="Load it")).to_be_visible()


def more(page: Page, act: str) -> None:
    page.locator("#content summary").filter(has_text="More").first.click()
    page.get_by_role("button", name=act, exact=True).click()


def merge(page: Page) -> None:
    more(page, "Merge into its base")
    page.get_by_role("dialog").get_by_role("button", name="Merge", exact=True).click()
    expect(page.get_by_text("the same greedy tokens as base and adapter for 20 of 20 prompts")).to_be_visible()
    page.get_by_role("link", name="Open the merged model").click()
    expect(page.get_by_text("Merged model", exact=True)).to_be_visible()


def download(page: Page, folder: Path) -> bytes:
    """The weights in the archive, whose checksum is that on the page."""
    more(page, "Download")
    save = page.get_by_role("link", name="Save")
    expect(save).to_be_visible()
    checksum = page.get_by_text("sha256", exact=False).locator("code").last.get_attribute("title")
    with page.expect_download() as saving:
        save.click()
    saving.value.save_as(folder / "model.tar")
    whole = (folder / "model.tar").read_bytes()
    assert hashlib.sha256(whole).hexdigest() == checksum
    rest = page.request.get(saving.value.url, headers={"Range": "bytes=1000-"})
    assert (rest.status, rest.body()) == (206, whole[1000:])
    with tarfile.open(folder / "model.tar") as tar:
        content = tar.extractfile(next(name for name in tar.getnames() if name.endswith("/model.safetensors")))
        assert content is not None
        return content.read()


def delete(page: Page) -> None:
    more(page, "Delete")
    page.get_by_role("button", name="Delete model").click()
    expect(page.get_by_text("This model was deleted")).to_be_visible()
