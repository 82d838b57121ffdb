"""A trained adapter, by hand: merged, downloaded, trained on from, deleted."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, expect

from tests.benchmarks._finished_models import TRAIN
from tests.browser import real_runs
from tests.browser.conftest import Complaints, sign_in
from tests.browser.real_runs import GRPO, RealRun
from tests.stack import Stack

pytestmark = [*real_runs.MARKS]


def test_an_adapter_is_merged_downloaded_trained_on_from_and_deleted(
    training_site: Stack, page: Page, context: BrowserContext, complaints: Complaints, tmp_path: Path
) -> None:
    run = adapter(training_site)
    sign_in(training_site, context)
    page.goto(f"{training_site.url}/models/")
    page.get_by_role("link", name="adapter · step 2").click()
    merge(page)
    weights = download(page, tmp_path)
    merged = next(training_site.runs_dir.glob("*/1/checkpoints/checkpoint-2/merged_from.json")).parent
    assert weights == (merged / "model.safetensors").read_bytes()
    train_on(page, str(merged))
    delete(page)
    assert not merged.exists()
    assert (run.folder / "checkpoints/checkpoint-2").exists()
    assert complaints.heard == []


def adapter(stack: Stack) -> RealRun:
    """Of a run of two steps."""
    grpo = {name: value for name, value in GRPO.items() if not name.startswith("eval")}
    model = str(stack.installation.models_dir / "tiny")
    run = RealRun(
        stack, stack.django(TRAIN, model=model, grpo={**grpo, "max_steps": 2, "learning_rate": 1e-2}), "adapter"
    )
    run.wait_for_end("succeeded")
    return run


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


def train_on(page: Page, model: str) -> None:
    address = page.url
    page.get_by_role("link", name="Train on").click()
    expect(page.get_by_role("combobox", name="Model")).to_have_value(model)
    expect(page.get_by_role("button", name="Launch")).to_be_enabled()
    page.goto(address)


def delete(page: Page) -> None:
    more(page, "Delete")
    page.get_by_role("button", name="Delete model").click()
    expect(page.get_by_text("This model was deleted")).to_be_visible()
