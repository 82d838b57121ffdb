"""Custom code: who may save and try it, and the check without which it isn't saved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.catalogue.rewards import code_check, saving, turns
from controlplane.catalogue.rewards.models import RewardConfig, RewardVersion
from controlplane.catalogue.versioned.saving import code_refused, may_use_part
from controlplane.platform.accounts.models import Role, User
from tests.controlplane.people import make_user, signed_in
from workers.contract.run.spec import RewardSpec
from workers.rewards.entries import custom
from workers.rewards.reward import Completion
from workers.sandbox import selftest
from workers.sandbox.outcomes import SandboxUnavailable

pytestmark = pytest.mark.django_db

GOOD = "def reward(completions, **columns):\n    return [1.0 for _ in completions]\n"
OTHER = "def reward(completions, **columns):\n    return [0.5 for _ in completions]\n"
needs_sandbox = pytest.mark.skipif(selftest.probe().backend is None, reason="no sandbox holds on this machine")


def code(source: str = GOOD, name: str = "own", weight: float = 1.0, **params: Any) -> RewardSpec:
    return RewardSpec(name, "python", weight, {"source": source, **params})


def part(spec: RewardSpec) -> dict[str, Any]:
    return {"name": spec.name, "function": spec.function, "weight": spec.weight, "params": spec.params}


@pytest.fixture
def admin() -> User:
    return make_user(Role.ADMIN)


@pytest.fixture
def operator() -> User:
    return make_user(Role.OPERATOR)


@pytest.fixture
def web_sandbox() -> Iterator[None]:
    yield
    turns.close()


# --- who may ----------------------------------------------------------------------------------------------------


def test_an_admin_may_use_any_code_and_everybody_what_is_no_code(admin: User, operator: User) -> None:
    assert may_use_part(RewardVersion, admin, code())
    assert may_use_part(RewardVersion, operator, RewardSpec("format", "think_tags"))
    assert may_use_part(RewardVersion, operator, RewardSpec("old", "gone_from_the_library"))


@pytest.mark.parametrize("role", [Role.ADMIN, Role.OPERATOR])
def test_what_is_put_before_a_completions_code_is_anybodys_and_no_function_to_check(role: Role) -> None:
    page = signed_in(role).get("/rewards/component/", {"function": "tests_passed"}).content.decode()
    assert 'data-code="python"' in page
    assert "data-locked" not in page
    assert "Only an admin" not in page
    assert "/rewards/code/" not in page


def test_an_operator_may_use_none_that_no_config_has(operator: User) -> None:
    saving.make("theirs", [part(code(OTHER)), {"name": "format", "function": "think_tags"}])
    assert not may_use_part(RewardVersion, operator, code(GOOD))


def test_an_operator_may_use_what_a_config_has_under_another_name_and_weight(operator: User) -> None:
    saving.make("theirs", [part(code())])
    assert may_use_part(RewardVersion, operator, code(name="mine", weight=0.2))


@pytest.mark.parametrize("change", [{"seconds": 600.0}, {"memory_mb": 16_000}, {"source": GOOD + "\n"}])
def test_an_operator_may_change_nothing_of_it(operator: User, change: dict[str, Any]) -> None:
    saving.make("theirs", [part(code())])
    assert not may_use_part(RewardVersion, operator, code(**change))


def test_a_parameter_that_says_the_default_is_the_same_as_none(operator: User) -> None:
    saving.make("theirs", [part(code(seconds=30.0))])
    assert may_use_part(RewardVersion, operator, code())
    assert may_use_part(RewardVersion, operator, code(seconds=30.0, memory_mb=512))


def test_code_of_an_older_version_counts(operator: User) -> None:
    config = saving.make("theirs", [part(code())]).config
    saving.save(config, [part(code(OTHER))])
    assert may_use_part(RewardVersion, operator, code())


# --- the check --------------------------------------------------------------------------------------------------


@needs_sandbox
def test_code_that_works_may_be_saved(admin: User, web_sandbox: None) -> None:
    assert code_check.problems([code()], admin) == {}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def reward(completions:\n", "line 1"),
        ("other = 1\n", "no function reward"),
        ("def reward(unclear, **columns):\n    return []\n", "must be completions"),
    ],
)
def test_code_that_can_not_be_a_reward_is_refused_with_what_is_wrong(admin: User, source: str, words: str) -> None:
    found = code_check.problems([RewardSpec("format", "think_tags"), code(source)], admin)
    assert list(found) == [1]
    assert words in found[1]
    assert found[1].startswith("This code can't be saved: ")


@needs_sandbox
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ValueError('no such luck')", "no such luck"),
        ("return [1.0]", "1 score"),
        ("return [float('nan')] * len(completions)", "not a finite number"),
        ("return ['high'] * len(completions)", "not a finite number"),
        ("return None", "nothing"),
        ("return [open('/etc/passwd').read()] * len(completions)", "passwd"),
    ],
)
def test_code_that_fails_on_the_samples_is_refused(admin: User, web_sandbox: None, body: str, words: str) -> None:
    found = code_check.problems([code(f"def reward(completions, **columns):\n    {body}\n")], admin)
    assert words in found[0]


@needs_sandbox
def test_it_is_tried_on_what_stands_in_the_playground(admin: User, web_sandbox: None) -> None:
    source = (
        "def reward(completions, hint, **columns):\n    return [float(h == t) for h, t in zip(hint, completions)]\n"
    )
    assert "hint" in code_check.problems([code(source)], admin)[0]
    samples = [(Completion("yes"), {"row": 3, "hint": "yes"})]
    assert code_check.problems([code(source)], admin, lambda: samples) == {}
    assert code_check.check(source, samples).scores.values == [1.0]


def test_a_config_without_new_code_asks_for_no_samples(admin: User) -> None:
    saving.make("theirs", [part(code())])
    specs = [code(), RewardSpec("format", "think_tags")]
    assert code_check.problems(specs, admin, lambda: pytest.fail("they were read")) == {}


def test_saved_code_is_not_tried_again(admin: User, operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    saving.make("theirs", [part(code())])
    monkeypatch.setattr(code_check, "check", lambda *_: pytest.fail("it was tried"))
    assert code_check.problems([code(name="mine")], admin) == {}
    assert code_check.problems([code(name="mine")], operator) == {}


def test_an_operators_code_is_refused_before_it_is_tried(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_check, "check", lambda *_: pytest.fail("it was tried"))
    assert code_check.problems([code()], operator) == {0: code_refused(RewardVersion)}


def test_without_a_sandbox_nothing_is_run_and_nothing_saved(admin: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(preload: tuple[str, ...]) -> Any:
        raise SandboxUnavailable("bubblewrap: not installed")

    monkeypatch.setattr(turns, "shared_sandbox", none)
    assert "bubblewrap: not installed" in code_check.problems([code()], admin)[0]


# --- the button -------------------------------------------------------------------------------------------------


def pressed(source: str, **fields: Any) -> Any:
    """The editor's form as htmx sends it."""
    sent = {"row": "c1", "c1-function": "python", "c1-name": "own", "c1-weight": "1", "c1-p_source": source, **fields}
    return signed_in(Role.ADMIN).post("/rewards/code/?of=c1", sent)


@needs_sandbox
def test_the_button_says_that_it_works_and_what_each_sample_got(web_sandbox: None) -> None:
    body = "print('hello')\n    return [float(a in c) for a, c in zip(answer, completions)]"
    source = f"def reward(completions, answer):\n    {body}\n"
    page = pressed(source, **{"from": "hand", "answer": "7", "completion": ["it is 7", "it is 8"], "of": ["", ""]})
    text = page.content.decode()
    assert "It works." in text
    assert "playground’s completions" in text
    assert "hello" in text
    assert [one.strip() for one in re.findall(r'class="num">([^<]*)<', text)] == ["1", "0"]


@needs_sandbox
def test_the_button_shows_the_traceback_of_what_fails(web_sandbox: None) -> None:
    text = pressed("def reward(completions):\n    return [1 / 0 for _ in completions]\n").content.decode()
    assert "This can’t be saved." in text
    assert "ZeroDivisionError" in text
    assert '<pre class="verbatim' in text


@needs_sandbox
def test_lines_that_a_browser_ends_in_its_own_way_are_python_all_the_same(web_sandbox: None) -> None:
    assert "It works." in pressed(GOOD.replace("\n", "\r\n")).content.decode()


def test_what_code_prints_is_text_on_the_page(web_sandbox: None) -> None:
    text = pressed("def reward(completions):\n    raise ValueError('<script>alert(1)</script>')\n").content.decode()
    assert "<script>" not in text


@pytest.mark.parametrize("of", ["", "c2", "../x", "c1-p_source"])
def test_a_row_that_is_not_there_is_not_found(of: str) -> None:
    assert signed_in(Role.ADMIN).post(f"/rewards/code/?of={of}", {"c1-p_source": GOOD}).status_code == 404


def test_an_operator_presses_it_in_vain(operator: User) -> None:
    assert signed_in(user=operator).post("/rewards/code/?of=c1", {"c1-p_source": GOOD}).status_code == 403


def test_code_without_end_is_refused_before_it_is_read() -> None:
    assert "longer than" in pressed("#" * 100_001).content.decode()


# --- the ways into a config -------------------------------------------------------------------------------------


def editor(source: str, name: str = "mine", **changes: Any) -> dict[str, Any]:
    params = {"source": source, "seconds": "30", "memory_mb": "512", "lowest": "0", "highest": "1"} | changes
    sent = {"name": name, "row": "c1", "c1-function": "python", "c1-name": "own", "c1-weight": "1"}
    return sent | {f"c1-p_{param}": value for param, value in params.items()}


@needs_sandbox
def test_an_admin_saves_code_that_works_and_none_that_fails(admin: User, web_sandbox: None) -> None:
    client = signed_in(user=admin)
    refused = client.post("/rewards/new/", editor("def reward(completions):\n    return [1]\n"))
    assert refused.status_code == 422
    assert "This code can&#x27;t be saved" in refused.content.decode()
    assert not RewardConfig.objects.exists()
    assert client.post("/rewards/new/", editor(GOOD)).status_code == 302
    assert RewardConfig.objects.get().newest().components[0]["params"]["source"] == GOOD


def test_an_operators_form_with_new_code_is_refused_beside_the_code(operator: User) -> None:
    answer = signed_in(user=operator).post("/rewards/new/", editor(GOOD))
    assert answer.status_code == 422
    [form] = answer.context["editor"].rows
    assert form.errors == {"p_source": [code_refused(RewardVersion)]}
    assert not RewardConfig.objects.exists()


def test_an_operator_saves_a_config_with_code_as_it_stands_and_copies_it(operator: User) -> None:
    config = saving.make("theirs", [part(code())]).config
    client = signed_in(user=operator)
    again = {**editor(GOOD, name="theirs"), "c1-weight": "0.5"}
    assert client.post(f"/rewards/{config.pk}/", again).status_code == 302
    assert config.newest().components[0]["weight"] == 0.5
    assert client.post(f"/rewards/{config.pk}/v1/duplicate/").status_code == 302
    assert RewardConfig.objects.count() == 2
    changed = client.post(f"/rewards/{config.pk}/", editor(OTHER, name="theirs"))
    assert changed.status_code == 422
    assert config.newest().components[0]["params"]["source"] == GOOD


def test_code_from_a_document_is_only_read_into_the_form_and_runs_for_no_operator(
    operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custom, "python", lambda *_: pytest.fail("it was run"))
    monkeypatch.setattr(turns, "shared_sandbox", lambda *_: pytest.fail("a sandbox was opened"))
    text = "name: mine\ncomponents:\n  - name: own\n    function: python\n    params:\n      source: |\n"
    text += "".join(f"        {line}\n" for line in GOOD.splitlines())
    client = signed_in(user=operator)
    read = client.post("/rewards/import/", {"text": text})
    assert "def reward(completions" in read.content.decode()
    assert not RewardConfig.objects.exists()
    assert code_refused(RewardVersion) in client.post("/rewards/try/", editor(GOOD, completion="x")).content.decode()
