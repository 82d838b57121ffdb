"""reasoning-gym with the real package, where its interpreter is built: rows, checkers, and answers that attack them."""

from __future__ import annotations

import pytest

from tests.workers.packages.built import tools_with
from workers.packages import reasoning
from workers.packages.families import FAMILIES, WITHOUT_ANSWER
from workers.packages.reasoning import GenerationFailed, Recipe
from workers.rewards.library import LIBRARY
from workers.rewards.scoring import score
from workers.sandbox import selftest
from workers.sandbox.outcomes import Job, Limits

pytestmark = pytest.mark.processes
FEW = ("chain_sum", "string_insertion", "spiral_matrix", "n_queens", "binary_matrix", "simple_integration", "puzzle24",
       "polynomial_multiplication", "arc_agi", "zebra_puzzles", "knight_swap", "word_ladder")  # fmt: skip
ATTACKS = (
    "[open('{path}', 'w').write('x')]",
    "[__import__('os').system('touch {path}')]",
    "exec(chr(120) + '=1')",
    "__import__('socket').socket()",
    "().__class__.__base__.__subclasses__()",
    "[__import__('os').write(n, b'1.0') for n in range(20)]",
)


@pytest.fixture(scope="module", params=selftest.ORDER)
def tools(request):
    with tools_with("reasoning_gym", request.param) as opened:
        yield opened


def rows_of(family, tools, *, rows=2, **recipe):
    made = reasoning.generate(Recipe(family, rows, **recipe), tools.package(reasoning.MODULE))
    return [{"row": number, **row} for number, row in enumerate(row for piece in made for row in piece)]


def given(answers, rows, tools, **params):
    return score(LIBRARY["reasoning_gym"], [f"<answer>{answer}</answer>" for answer in answers], rows, params, tools)


def test_the_table_of_families_is_the_packages(tools):
    source = "from workers.packages.inside import reasoning\nfamilies = reasoning.families"
    [told] = tools.package(reasoning.MODULE).run([Job(source, "families")], Limits())
    known = {family["name"]: family["levels"] for family in told.value}
    assert known.keys() == FAMILIES.keys()
    assert all(family.levels <= known[name] for name, family in FAMILIES.items())


def test_stored_answers_score_1_by_the_families_own_checkers(tools):
    rows = [row for family in FEW for row in rows_of(family, tools, seed=3)]
    assert WITHOUT_ANSWER.isdisjoint(FEW)
    scored = given([row["answer"] for row in rows], rows, tools)
    assert (scored.values, scored.failures) == ([1.0] * len(rows), [])


def test_the_same_seed_makes_the_same_rows_and_a_level_makes_other_ones(tools):
    assert rows_of("chain_sum", tools, seed=5) == rows_of("chain_sum", tools, seed=5)
    assert rows_of("chain_sum", tools, seed=5) != rows_of("chain_sum", tools, seed=6)
    assert rows_of("chain_sum", tools, seed=5) != rows_of("chain_sum", tools, seed=5, level=9)


@pytest.mark.parametrize("family", ["string_insertion", "n_queens", "simple_integration", "puzzle24"])
def test_an_answer_that_attacks_its_checker_is_wrong_and_changes_nothing(family, tools, tmp_path):
    [row] = rows_of(family, tools, rows=1)
    attacks = [attack.format(path=tmp_path / "new") for attack in ATTACKS]
    scored = given([*attacks, row["answer"]], [row] * (len(attacks) + 1), tools)
    assert max(value for value in scored.values[:-1] if value is not None) < 0.5
    assert scored.values[-1] == 1.0
    assert list(tmp_path.iterdir()) == []


def test_wrong_missing_and_endless_answers_score_0_and_rows_of_others_nothing(tools):
    [row] = rows_of("simple_integration", tools, rows=1)
    scored = given(["7", "", "9**9**9**9**9"], [row] * 3, tools)
    assert scored.values == [0.0, 0.0, 0.0]
    assert given(["7"], [{"row": 0, "answer": "7"}], tools).values == [None]
    assert given(["7"], [{"row": 0, "reasoning_gym": {"dataset": "x"}}], tools).failures[0].kind == "error"


def test_a_family_that_makes_no_rows_says_why(tools):
    with pytest.raises(GenerationFailed, match="knight_swap generated no rows: AssertionError"):
        rows_of("knight_swap", tools, level=1)
