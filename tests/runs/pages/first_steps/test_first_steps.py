"""The start page and its recipes, up to a filled New run page."""

from __future__ import annotations

import json
import re
from io import BytesIO
from urllib.parse import urlsplit

import pytest
from django.test import Client

from controlplane.catalogue.datasets import actions
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.hardware.models import HardwareProfile
from controlplane.catalogue.rewards.models import RewardConfig
from runs.pages.first_steps import recipes
from runs.pages.first_steps.recipes import RECIPES, StarterRecipe
from tests.controlplane.catalogue.datasets.steps import worked
from tests.controlplane.people import operator, viewer
from tests.runs.builders import a_host, a_run
from workers.rewards import library

pytestmark = pytest.mark.django_db

GSM8K = {"question": "How many are 2 and 3?", "answer": "They are 2 + 3 = 5.\n#### 5"}
MBPP = {
    "text": "Write a function that adds one.",
    "code": "def add(n): return n + 1",
    "test_list": ["assert add(1) == 2", "assert add(-1) == 0"],
    "test_setup_code": "",
}


def page(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_an_installation_without_runs_opens_on_the_first_steps() -> None:
    client = operator()
    assert client.get("/").headers["Location"] == "/start/"
    assert "Done: " not in page(client, "/start/")
    a_run("first")
    a_host(inventory={"trainer": "ready"})
    assert client.get("/").headers["Location"] == "/runs/"
    assert page(client, "/start/").count("Done: ") == 4


def test_sums_are_made_and_open_a_filled_in_new_run() -> None:
    client, asked = operator(), {"HX-Request": "true"}
    assert client.post("/start/sums/prepare").headers["Location"] == "/start/sums/"
    assert client.get("/start/sums/", headers=asked).status_code == 200
    version = worked(DatasetVersion.objects.get())
    assert (version.status, version.rows) == (DatasetVersion.READY, 2000)
    address = client.get("/start/sums/", headers=asked).headers["HX-Redirect"]
    assert address.replace("&", "&amp;") in page(client, "/start/sums/")
    form = page(client, address)
    assert "HuggingFaceTB/SmolLM2-135M-Instruct" in form
    for chosen in (version.pk, RewardConfig.objects.get().newest().pk, HardwareProfile.objects.get(name="CPU").pk):
        assert f'<option value="{chosen}" selected' in form
    assert client.post("/start/sums/prepare").headers["Location"] == address
    assert viewer().get("/start/sums/", headers=asked).status_code == 286


def test_the_recipe_that_fits_a_host_comes_first_and_is_the_pages_next_act() -> None:
    client = operator()
    assert "button primary" not in page(client, "/start/")
    a_host(inventory={"trainer": "ready", "cpu_slots": 1})
    first = page(client, "/start/").split('class="card recipe"')[1]
    assert "Sums on the CPU" in first
    assert '<button class="button primary">Create dataset and rewards' in first
    assert "Fits box." in page(client, "/start/sums/")
    assert "No reachable host has everything it needs." in page(client, "/start/gsm8k/")
    client.post("/start/sums/prepare")
    assert "The dataset is being read" in page(client, "/start/")
    worked(DatasetVersion.objects.get())
    assert re.search(r'button primary" href="/runs/new/\?[^"]+">Continue', page(client, "/start/"))


def test_what_is_there_is_neither_made_again_nor_changed() -> None:
    client = operator()
    for _ in range(2):
        client.post("/start/sums/prepare")
    assert DatasetVersion.objects.count() == RewardConfig.objects.count() == 1


def test_a_viewer_reads_and_makes_nothing() -> None:
    client = viewer()
    assert "An operator can create the missing parts." in page(client, "/start/gsm8k/")
    assert client.post("/start/gsm8k/prepare").status_code == 403
    assert client.get("/start/other/").status_code == 404


@pytest.mark.parametrize(("slug", "row"), [("gsm8k", GSM8K), ("code", MBPP)])
def test_rows_of_the_hubs_dataset_fit_the_recipes_mapping(slug: str, row: dict[str, object]) -> None:
    recipe = recipes.find(slug)
    assert recipe is not None
    content = "".join(json.dumps({**row, "n": number}) + "\n" for number in range(3)).encode()
    version = actions.create_from_upload(None, "rows", BytesIO(content), "rows.jsonl", mapping=recipe.mapping)
    assert worked(version).status == DatasetVersion.READY, version.report


def test_a_dataset_of_the_hub_is_imported_by_the_recipes_mapping() -> None:
    operator().post("/start/gsm8k/prepare")
    version = DatasetVersion.objects.get()
    assert (version.status, version.source["id"]) == (DatasetVersion.FETCHING, "openai/gsm8k")
    assert version.mapping["answer"] == "answer"


def test_a_recipe_whose_dataset_could_not_be_read_says_why_and_leads_to_it() -> None:
    client = operator()
    client.post("/start/gsm8k/prepare")
    report = {"file_error": {"kind": "source", "message": "The hub doesn't answer.", "advice": "Try again."}}
    DatasetVersion.objects.update(status=DatasetVersion.INVALID, report=report)
    version = DatasetVersion.objects.get()
    shown = page(client, "/start/gsm8k/")
    assert "The hub doesn&#x27;t answer. Try again." in shown
    assert f'<a class="button primary" href="{version.get_absolute_url()}">Open the dataset</a>' in shown


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_use_what_there_is(recipe: StarterRecipe) -> None:
    assert all(part["function"] in library.LIBRARY for part in recipe.components)
    assert recipes.parts(recipe).profile is not None
    assert urlsplit(recipes.parts(recipe).address).path == "/runs/new/"
