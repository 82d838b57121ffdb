"""Prompts that nearly repeat an earlier one, told by their words."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from controlplane.catalogue.datasets.reader.checking import duplicates, near, spilling
from controlplane.catalogue.datasets.reader.checking.near import NearDuplicates, NearMatch

SOLD = "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How many?"
WORDS = [
    "apple river table green seven window paper stone cloud bridge candle garden mirror yellow carpet engine"
    " ladder market needle orange pencil rabbit silver ticket violin winter basket copper dinner finger hammer"
][0].split()


def found(folder: Path, *texts: str) -> list[NearMatch]:
    with NearDuplicates(folder) as prompts:
        for at in range(0, len(texts), 16):
            batch = list(texts[at : at + 16])
            prompts.add(near.signatures(batch, list(range(at + 1, at + 1 + len(batch)))))
        return list(prompts.matches())


def sentence(chance: random.Random, words: int = 40) -> str:
    return " ".join(chance.choice(WORDS) + str(chance.randrange(100)) for _ in range(words))


def test_prompts_that_differ_in_a_number_are_told_as_such(tmp_path: Path) -> None:
    answer = found(tmp_path, SOLD, "Something else entirely, which is asked in between?", SOLD.replace("48", "72"))
    assert [(one.line, one.earlier_line, one.numbers_only) for one in answer] == [(3, 1, True)]
    assert 0.8 <= answer[0].similarity < 1
    assert answer[0].excerpt == SOLD.replace("48", "72")


def test_one_other_number_in_a_long_prompt_is_told_from_none(tmp_path: Path) -> None:
    long = " ".join(f"{word} and" for word in WORDS * 20)
    (one,) = found(tmp_path, f"{long} 5", f"{long} 6")
    assert (one.numbers_only, one.same_words) == (True, False)
    assert one.excerpt == f"{long[: near.MAX_EXCERPT]}…"


def test_a_changed_name_is_nearly_the_same(tmp_path: Path) -> None:
    answer = found(tmp_path, SOLD, SOLD.replace("Natalia", "Olga"))
    assert [(one.line, one.earlier_line, one.numbers_only) for one in answer] == [(2, 1, False)]


@pytest.mark.parametrize("again", [SOLD, SOLD.upper(), SOLD.replace(",", " ;"), f"  {SOLD}\n"])
def test_what_differs_in_case_and_punctuation_is_told(again: str, tmp_path: Path) -> None:
    """An exact repetition is the first pass's to tell, another spelling is ours."""
    answer = found(tmp_path, SOLD, again)
    assert [(one.line, one.same_words, one.numbers_only) for one in answer] == (
        [] if again == SOLD else [(2, True, False)]
    )


def test_other_words_and_another_order_are_not_alike(tmp_path: Path) -> None:
    words = SOLD.split()
    assert found(tmp_path, SOLD, " ".join(reversed(words)), "Who painted the ceiling of this chapel, and when?") == []


def test_short_patterns_with_other_numbers_are_what_they_are_meant_to_be(tmp_path: Path) -> None:
    assert found(tmp_path, "What is 3 + 4?", "What is 5 + 6?", "7 + 8 =", "1 + 8 =", "", "?", "12") == []


def test_texts_without_spaces_go_by_characters(tmp_path: Path) -> None:
    asked = "小明有五个苹果他又买了三个苹果然后吃掉了两个苹果请问小明现在还剩下多少个苹果"
    answer = found(
        tmp_path, asked, asked.replace("小明", "小红", 1), "这是一个完全不同的问题关于火车的速度和距离以及时间"
    )
    assert [(one.line, one.earlier_line) for one in answer] == [(2, 1)]


def test_halves_of_characters_and_long_words_are_text_like_any(tmp_path: Path) -> None:
    odd = "a \ud800 b c d e f " + "x" * 10_000
    assert [one.line for one in found(tmp_path, odd, odd.replace("a ", "A! "))] == [2]


def test_all_planted_copies_among_many_are_found_through_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spilling, "BLOCK", 512)
    monkeypatch.setattr(near, "MAX_PAIRS_IN_MEMORY", 700)
    monkeypatch.setattr(duplicates, "MAX_PAIRS_IN_MEMORY", 50)
    monkeypatch.setattr(near, "BATCH_LINES", 16)
    chance = random.Random(4)
    texts = [sentence(chance) for _ in range(600)]
    copies = {line: chance.randrange(300) for line in range(300, 600, 10)}
    for line, of in copies.items():
        words = texts[of].split()
        words[chance.randrange(40)] = "changed"
        texts[line] = " ".join(words)
    answer = found(tmp_path, *texts)
    assert {one.line - 1: one.earlier_line - 1 for one in answer} == copies
    assert [one.line for one in answer] == sorted(one.line for one in answer)
    assert list(tmp_path.iterdir()) == []


def test_the_best_of_several_is_told_once(tmp_path: Path) -> None:
    chance = random.Random(7)
    first = sentence(chance)
    words = first.split()
    further = " ".join(["one", "two", "three", *words[3:]])
    nearest = " ".join(["one", "two", "three", *words[3:-1], "last"])
    answer = found(tmp_path, first, further, nearest)
    assert [(one.line, one.earlier_line) for one in answer] == [(2, 1), (3, 2)]


def test_the_estimate_is_close_to_the_true_share(tmp_path: Path) -> None:
    chance = random.Random(11)
    first = sentence(chance, 400)
    words = first.split()
    for place in range(0, 400, 50):  # eight words, each in two pairs: 16 of 400
        words[place] = f"other{place}"
    (one,) = found(tmp_path, first, " ".join(words))
    assert one.similarity == pytest.approx((400 - 16) / (400 + 16), abs=0.1)
