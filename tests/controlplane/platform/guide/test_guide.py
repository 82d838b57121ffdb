"""The glossary, the documentation as pages, and the tour that a person sees once."""

from __future__ import annotations

import re

import pytest
from django.template import Context, Template

from controlplane.platform.guide import documents
from controlplane.platform.guide.glossary import by_field, by_metric, terms
from runs.engine.spec import spec_of
from runs.insight.metrics import run_charts
from runs.launch.new_run.forms import LaunchForm
from tests.controlplane.people import signed_in, viewer
from tests.runs.builders import a_run, a_user

pytestmark = pytest.mark.django_db


def test_every_word_of_grpo_that_the_pages_use_is_explained() -> None:
    words = {"group", "advantage", "kl", "beta", "clip", "entropy", "zero-variance", "rollout", "reference", "ratio"}
    assert words <= set(terms())
    page = viewer().get("/glossary/").content.decode()
    assert all(f'id="{slug}"' in page for slug in terms())


def test_the_glossary_names_only_metrics_and_fields_that_there_are() -> None:
    run = a_run(grpo={"max_steps": 20, "beta": 0.1, "num_iterations": 2})
    drawn = set(run_charts.metrics(run_charts.plan(spec_of(run)))) | {"clip_ratio", "cispo_clip_ratio"}
    assert set(by_metric()) <= drawn
    of_trl = {"num_generations_eval", "steps_per_generation", "mask_truncated_completions"}
    assert set(by_field()) <= set(LaunchForm().fields) | of_trl


def test_the_question_mark_beside_a_word_is_a_link_that_says_what_it_is() -> None:
    drawn = Template('{% load guide %}{% term "kl" %}{% term_of_metric "unheard/of" %}').render(Context())
    assert drawn.count('class="why"') == 1
    assert 'href="/glossary/#kl"' in drawn
    assert 'aria-label="What is KL?"' in drawn


def test_the_documentation_is_the_readme_with_its_links_and_pictures() -> None:
    page = viewer().get("/help/").content.decode()
    assert 'href="/help/runs/"' in page
    assert re.search(r'<img src="[^"]*run-page[^"]*\.png"', page)
    assert 'id="two-commands"' in page
    assert "frontend/static" not in page.partition("<article")[2].partition("<pre>")[0]


def test_every_document_is_a_page_whose_anchors_hold(subtests: pytest.Subtests) -> None:
    for document in documents.DOCUMENTS:
        with subtests.test(document.path):
            assert viewer().get(documents.address(document)).status_code == 200
            html = documents.render_document(document).html
            anchors = set(re.findall(r'href="#([^"]+)"', html))
            assert anchors <= set(re.findall(r'id="([^"]+)"', html))


def test_a_document_that_is_not_installed_is_not_offered(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(documents, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text("# Here")
    assert [document.slug for document in documents.installed_documents()] == [""]
    assert viewer().get("/help/runs/").status_code == 404


def test_the_tour_is_on_the_first_page_of_a_run_and_never_again_for_that_person() -> None:
    run, user = a_run(), a_user()
    client = signed_in(user)
    assert "data-tour-begins" in client.get(f"/runs/{run.pk}/").content.decode()
    assert client.post("/help/tour").status_code == 204
    assert "data-tour-begins" not in client.get(f"/runs/{run.pk}/").content.decode()
    assert "data-tour-begins" in viewer().get(f"/runs/{run.pk}/").content.decode()
