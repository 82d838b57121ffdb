"""One verifier for many candidates: none of them can change what is said of another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.workers.sandbox.cheats import CHEATS
from workers.sandbox import Backend, Kind, Limits, Sandbox, SandboxUnavailable, judging, needs, orders, pool
from workers.sandbox import TestJob as Trial  # under their own names pytest takes them for tests

LIMITS = Limits(seconds=20, memory_mb=128)
LOOP = "for _ in range(f(1)):\n    pass\nassert f(1) > -1"
"""A test whose time is what a candidate says."""
ROOM = "assert len([0] * f(1)) == f(1)"
"""A test whose memory is what a candidate says."""


@pytest.fixture(scope="module", params=[Backend.BUBBLEWRAP, Backend.LANDLOCK, Backend.BARE])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    try:
        made = Sandbox(request.param, parallel=2)
    except SandboxUnavailable as problem:
        pytest.skip(str(problem))
    yield made
    made.close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[judging.Verifier]:
    """Every verifier that there was, those that lay ready at the end included."""
    found: list[judging.Verifier] = []

    class Counted(judging.Verifier):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]
            found.append(self)

    monkeypatch.setattr(pool, "Verifier", Counted)
    return found


def gives(value: object) -> str:
    return f"def f(x):\n    return {value!r}\n"


@pytest.mark.processes
def test_one_verifier_judges_many_candidates_in_their_order(sandbox: Sandbox, made: list[judging.Verifier]) -> None:
    jobs = [Trial(gives(n), (f"assert f(1) == {n}", f"assert f(2) == {n % 3}")) for n in range(40)]
    outcomes = sandbox.test(jobs, LIMITS)
    assert [[one.passed for one in outcome.results] for outcome in outcomes] == [[True, n < 3] for n in range(40)]
    assert len([verifier for verifier in made if verifier.judged]) < 6
    assert max(verifier.judged for verifier in made) > 8


HOSTILE = [
    *(gives(10**15), gives(10**7), "def f(x):\n    while True:\n        pass\n", "import os\nos._exit(0)\n", "1 / 0\n"),
    *(
        "def f(x):\n    return 'x' * 10**6\n",
        "def f(x):\n    raise MemoryError\n",
        "while True:\n    print('x' * 1000)\n",
    ),
    *(CHEATS["answers twice"], CHEATS["writes forged results to every descriptor"]),
]


@pytest.mark.processes
@pytest.mark.parametrize("test", [LOOP, ROOM])
def test_ten_hostile_ones_among_sixty_four_harm_nobody_else(sandbox: Sandbox, test: str) -> None:
    sources = [gives(number) for number in range(64)]
    places = range(3, 63, 6)
    for place, source in zip(places, HOSTILE, strict=True):
        sources[place] = source
    tests = [(test, f"assert f(2) == {number}") for number in range(64)]
    outcomes = sandbox.test([Trial(*pair) for pair in zip(sources, tests, strict=True)], Limits(1, 128))
    good = [outcome for place, outcome in enumerate(outcomes) if place not in places]
    assert [outcome.passed for outcome in good] == [2] * 54
    assert {outcome.candidate.kind for outcome in good} == {Kind.OK}
    assert all(not outcomes[place].results[1].passed for place in places)
    assert not outcomes[places[0]].results[0].passed


@pytest.mark.processes
def test_who_is_not_judged_to_the_end_is_judged_again_by_one_of_its_own(
    sandbox: Sandbox, made: list[judging.Verifier]
) -> None:
    sources = [gives(1), gives(1), gives(1), gives(10**15), gives(2)]
    with_one_place = Sandbox(sandbox.backend, parallel=1)
    with with_one_place:
        outcomes = with_one_place.test([Trial(source, ("assert f(1)", LOOP)) for source in sources], Limits(1, 128))
    assert [[one.passed for one in outcome.results] for outcome in outcomes] == [
        [True, True], [True, True], [True, True], [True, False], [True, True],
    ]  # fmt: skip
    assert [(verifier.jobs, verifier.judged) for verifier in made] == [(5, 3), (1, 0), (5, 1), (5, 0)]


@pytest.mark.processes
def test_who_leaves_much_behind_is_the_last_one_there(sandbox: Sandbox, made: list[judging.Verifier]) -> None:
    jobs = [Trial(gives(n), (ROOM,)) for n in (1, 5_000_000, 1, 1)]
    with Sandbox(sandbox.backend, parallel=1) as one:
        assert [outcome.passed for outcome in one.test(jobs, LIMITS)] == [1] * 4
    assert [(verifier.judged, verifier.spent) for verifier in made if verifier.judged] == [(2, True), (2, False)]


@pytest.mark.processes
def test_tests_that_reach_further_have_a_verifier_of_their_own(sandbox: Sandbox, made: list[judging.Verifier]) -> None:
    spoiling = "import math\nassert f(1) == 1\nmath.pi = 3"
    jobs = [Trial(gives(1), (spoiling,)), Trial(gives(1), ("assert f(1) < math.pi - 0.1 and math.pi > 3.1",))]
    assert [outcome.passed for outcome in sandbox.test(jobs * 4, LIMITS)] == [1] * 8
    assert sum(verifier.jobs == 1 for verifier in made) >= 4


@pytest.mark.processes
def test_no_more_are_judged_by_one_than_it_has_sockets(sandbox: Sandbox, made: list[judging.Verifier]) -> None:
    with Sandbox(sandbox.backend, parallel=1) as one:
        outcomes = one.test([Trial(gives(1), ("assert f(1) == 1",))] * (orders.MOST_JOBS + 2), LIMITS)
    assert [outcome.passed for outcome in outcomes] == [1] * (orders.MOST_JOBS + 2)
    assert [verifier.judged for verifier in made] == [orders.MOST_JOBS, 2, 0]


CLOSED = [
    *("assert f(1) == 2", "import math\nassert math.isclose(f(1), 2)", "assert sorted(f([2, 1])) == [1, 2]"),
    *("x = [1]\nx[0] = f(1)\nassert x == [2]", "assert [f(_) for _ in range(3)] == [0, 1, 2]"),
    *("def check(c):\n    assert c(1) == 1\ncheck(f)", "try:\n    f(1)\nexcept ValueError as e:\n    assert str(e)"),
    *("from collections import Counter\nassert f('a') == Counter('a')", "assert f([1].copy())"),
]
OPEN = [
    *("import math\nmath.pi = f(1)", "import random\nrandom.seed(f(1))", "import sys\nf(sys.argv)"),
    *("__builtins__['len'] = f(1)", "f.__globals__['x'] = 1", "import numpy as np\nnp.seterr(f(1))"),
    *("import fractions\nfractions.sys.x[1] = f(1)", "from fractions import sys\nf(1)", "exec('f(1)')"),
    *("setattr(int, 'x', f(1))", "class A:\n    def __del__(self): f(1)", "def g():\n    yield f(1)\nlist(g())"),
    *(
        "import decimal\ndecimal.getcontext().prec = f(1)",
        "open(f(1))",
        "with f(1) as x:\n    pass",
        "global x\nx = f(1)",
    ),
    *("@f\ndef g(): pass", "from os import *\nf(1)", "del f(1).x", "assert getattr(f(1), 'x')", "import os.path\nf(1)"),
]


@pytest.mark.parametrize("test", CLOSED)
def test_what_stays_in_its_own_names_is_closed(test: str) -> None:
    assert needs.read(test).closed


@pytest.mark.parametrize("test", OPEN)
def test_what_could_leave_something_behind_is_not(test: str) -> None:
    assert not needs.read(test).closed
