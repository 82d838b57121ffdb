"""A component that applies only to some rows: in the editor, in YAML, between versions, in balance and playground."""

from __future__ import annotations

import pytest

from controlplane.catalogue.references.judging import judge, judges
from controlplane.catalogue.rewards import config_yaml, saving
from controlplane.catalogue.rewards.balance import balance
from controlplane.catalogue.rewards.models import RewardConfig, RewardVersion
from controlplane.catalogue.rewards.turns import turn
from controlplane.catalogue.rewards.views import differences
from runs.insight.scoring.evaluating import column
from runs.insight.scoring.rows import NamedRow
from runs.insight.scoring.scoring import try_on
from runs.pages.playground.replay import recorded_as
from tests.controlplane.catalogue.rewards.test_pages import fields, save
from tests.controlplane.people import operator
from tests.runs.builders import a_run
from workers.contract.run.spec import RewardSpec
from workers.contract.wire.documents import from_dict, to_dict
from workers.rewards.reward import Completion
from workers.rewards.tools import Tools

pytestmark = pytest.mark.django_db

ALL = {"name": "said", "function": "length", "weight": 1.0, "params": {}}
ONLY = {"name": "right", "function": "exact_match", "weight": 2.0, "params": {}, "applies_to": ["math", 'a "b"']}


def test_the_editor_saves_shows_and_refuses_them() -> None:
    sent = fields("length", "think_tags", **{"c0-applies_to": "math, code", "c1-applies_to": " ,"})
    assert save(sent).status_code == 302
    limited, other = RewardVersion.objects.get().components
    assert (limited["applies_to"], "applies_to" in other) == (["math", "code"], False)
    config = RewardConfig.objects.get()
    sets = [{"names": ["algebra"], "rows": 3}]
    a_run().dataset_version.dataset.versions.update(report={"mapped": {"statistics": {"name_sets": sets}}})
    page = operator().get(f"/rewards/{config.pk}/").content.decode()
    assert all(f'<option value="{name}"></option>' in page for name in ("sums", "algebra"))
    assert 'value="math, code"' in page
    assert '<span class="tag">code</span>' in operator().get(f"/rewards/{config.pk}/v1/").content.decode()
    refused = save(fields("length", name="other", **{"c0-applies_to": "a, a"}))
    assert (refused.status_code, b"A name stands there twice." in refused.content) == (422, True)
    kept = {"function": "length", "instead": "c0", "c0-name": "mine", "c0-applies_to": "math"}
    assert 'value="math"' in operator().get("/rewards/component/", kept).content.decode()


def test_yaml_and_versions_carry_them_old_components_stay_as_they_are_and_what_are_no_names_is_refused() -> None:
    document = config_yaml.export(saving.make("mine", [ALL, ONLY]))
    assert document.count("applies_to") == 1
    [every, limited] = config_yaml.read(document.encode()).rows
    assert (every.spec().applies_to, limited.spec().applies_to) == ((), ("math", 'a "b"'))
    for names, said in (
        ("math", "expected a list of names of datasets, sources or tags, got math"),
        ("[1, 2]", "expected a list"),
        ("{a: 1}", "expected a list"),
        ("['', b]", "is not a name"),
        ("['a, b']", "has a comma"),
        ('["a\\tb"]', "be shown"),
        ('["a\\ud800"]', ""),
    ):
        of = f"name: n\ncomponents:\n- function: length\n  applies_to: {names}\n"
        try:
            text = " ".join(str(form.errors) for form in config_yaml.read(of.encode()).rows)
        except config_yaml.safe_yaml.YamlRefused:
            text = said
        assert said in text, names

    assert to_dict(from_dict(RewardSpec, ALL))["applies_to"] == []
    first = saving.make("old", [ALL])
    assert saving.save(first.config, [{**ALL, "applies_to": []}])[1] is False
    second, is_new = saving.save(first.config, [{**ALL, "applies_to": ["math"]}])
    assert is_new
    [change] = differences(first, second)
    assert (change.name, change.before, change.after) == ("said applies to", "all rows", "rows of math")


def test_a_component_of_other_rows_dominates_none_and_adds_nothing_there() -> None:
    small, large = RewardSpec("a", "exact_match", 0.1, applies_to=("x",)), RewardSpec("b", "exact_match", 9.0)
    assert balance([small, large], "normalize_then_sum").drowns is not None
    assert balance([small, RewardSpec("b", "exact_match", 9.0, applies_to=("y",))], "normalize_then_sum").drowns is None
    shifted = RewardSpec("c", "exact_match", -2.0, applies_to=("x",))
    assert balance([RewardSpec("a", "exact_match"), shifted], "sum_then_normalize").range == "\N{MINUS SIGN}2 to 1"


def test_playground_replay_and_the_check_of_answers_score_only_its_rows() -> None:
    specs = [RewardSpec("said", "length"), RewardSpec("variety", "unique_chars_normalised", applies_to=("math",))]
    texts: list[Completion | str] = ["aab", "abc"]
    for row, scored, note in (
        (NamedRow({}, ["math", "hard"]), [2 / 3, 1.0], ""),
        (NamedRow({}, ["words"]), [None, None], "It applies only to rows of math."),
        ({}, [2 / 3, 1.0], ""),  # made up
    ):
        trial = try_on(specs, row, texts)
        assert [one.scores[1].value for one in trial.group] == [None if x is None else pytest.approx(x) for x in scored]
        assert {one.scores[1].note for one in trial.group} == {note}
        assert all(one.total is not None for one in trial.group)
    rows = [NamedRow({}, ["words"]), NamedRow({}, ["math"])]
    used = column(specs[1], [Completion("aa"), Completion("ab")], rows, turn(10), recorded=None)
    assert used.values == [None, 1.0]

    for limits, asked, reused in (
        ([], (), True),
        ([], ("math",), True),
        (["math", "code"], ("math",), True),
        (["math"], ("math", "code"), False),
        (["math"], (), False),
    ):
        spec = {"rewards": [{"name": "r", "function": "length", "applies_to": limits}]}
        assert bool(recorded_as(spec, RewardSpec("x", "length", applies_to=asked))) == reused, (limits, asked)

    [judged] = judges([{**ONLY, "applies_to": ["math", "sums"]}])
    rows = [{"row": 0, "answer": "1", "tags": ["math"]}, {"row": 1, "answer": "2"}]
    tools = Tools(open_sandbox=lambda _: pytest.fail("no reward needs one"))
    assert [judge(judged, rows, tools, name).scored for name in ("words", "sums")] == [1, 2]
