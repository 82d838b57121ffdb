"""What of similar names is never cut."""

from __future__ import annotations

from itertools import product

from runs.engine.names import MAX_DISTINGUISHING_CHARS, distinguish, own_words


def test_runs_of_a_sweep_keep_what_differs_wherever_it_is() -> None:
    names = [
        f"qwen-gsm8k-think-lr{lr}-beta{beta}-generations8-s{n}"
        for lr, beta, n in product(("1e-06", "3e-05"), (0, 4), (1, 2))
    ]
    found = distinguish([*names, "another one", "llama-gsm8k-think-lr1e-06"])
    assert found[names[0]] == [("qwen-gsm8k-think-", "lr1e-06-beta0-"), ("generations8-", "s1")]
    assert list(found) == names
    assert own_words(found[names[0]]) == "lr1e-06-beta0 s1"


def test_a_difference_in_the_middle_alone_leaves_an_end_to_be_cut() -> None:
    assert distinguish(["a long name, lr=0.1, seeds", "a long name, lr=0.2, seeds"])["a long name, lr=0.1, seeds"] == [
        ("a long name, lr=", "0.1,"),
        (" seeds", ""),
    ]


def test_nothing_is_lost_and_no_more_is_kept_than_a_narrow_cell_holds() -> None:
    names = [f"experiment number {n}: " + f"{'xyz'[n]}" * 30 + f" and {n}" for n in range(3)]
    for name, parts in distinguish(names).items():
        assert "".join(shared + own for shared, own in parts) == name
        assert sum(len(own) for _, own in parts) == MAX_DISTINGUISHING_CHARS
        assert name.endswith(parts[-1][1])


def test_one_name_of_several_runs_is_similar_to_no_other() -> None:
    assert distinguish(["the same name twice"] * 2) == {}
