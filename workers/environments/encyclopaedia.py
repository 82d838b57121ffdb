"""An invented encyclopaedia of people, rivers and towns, with questions that it answers: samples for the search tool.

Its entries are always the same. Standard library only.
"""

import json
import random

NAME = "Sample encyclopaedia"
TOPIC = "invented people, rivers and towns"
QUESTIONS = "Sample encyclopaedia questions"
ENTRIES = 200
SEED = 7
_FIRST_SYLLABLES = (
    "Ba", "Ce", "Do", "Fe", "Gal", "Hu", "Ki", "Lo", "Mer", "Na",
    "Or", "Pel", "Qui", "Ros", "Sa", "Tor", "Ul", "Ve", "Wen", "Zo",
)  # fmt: skip
_MIDDLE_SYLLABLES = ("da", "ri", "lo", "me", "nu", "sha", "vi", "ka")
_TOWNS, _RIVERS = ("ford", "stead", "haven", "moor", "wick"), ("ell", "ane", "isk", "oss")
_FAMILY = ("brook", "vane", "thorpe", "lund", "marsh", "holt")
_TRADES = ("botanist", "clockmaker", "painter", "bridge builder", "composer", "astronomer", "baker", "printer")
_WORKS = ("a tide clock", "a seven-arched bridge", "a moss atlas", "a glass organ", "a star map", "a folding press")
_GOODS = ("blue pottery", "smoked pears", "copper bells", "woven sails", "juniper soap", "chess sets", "rye beer")


def documents() -> list[dict[str, str]]:
    """Return the entries as {"title", "text"}."""
    return [{"title": entry["title"], "text": entry["text"]} for entry in _entries()]


def questions() -> list[dict[str, str]]:
    """Return one question per entry as {"question", "answer"}; only that entry has the question's name and the
    answer."""
    return [{"question": entry["question"], "answer": entry["answer"]} for entry in _entries()]


def lines(rows: list[dict[str, str]]) -> bytes:
    """Encode rows as JSON Lines."""
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def _entries() -> list[dict[str, str]]:
    rng = random.Random(SEED)  # noqa: S311  samples, not secrets
    stems = [first + middle for first in _FIRST_SYLLABLES for middle in _MIDDLE_SYLLABLES]
    towns = _shuffled([stem + end for stem in stems for end in _TOWNS], rng)
    rivers = _shuffled([stem + end for stem in stems for end in _RIVERS], rng)
    people = _shuffled([f"{first} {stem}{end}" for first in stems for stem in stems[::7] for end in _FAMILY], rng)
    kinds = (_person, _river, _town)
    return [
        kinds[number % 3](rng, people[number], rivers[number // 3], towns[number // 3], towns[-1 - number])
        for number in range(ENTRIES)
    ]


def _shuffled(names: list[str], rng: random.Random) -> list[str]:
    rng.shuffle(names)
    return names


def _person(rng: random.Random, person: str, river: str, town: str, nearby: str) -> dict[str, str]:
    trade, work, year = rng.choice(_TRADES), rng.choice(_WORKS), rng.randrange(1610, 1890)
    text = (
        f"{person} was a {trade} who was born in {nearby} in {year}. After years of travel, {person.split()[0]} made "
        f"{work}, which still stands in the hall of the town. Letters show that the work took {rng.randrange(3, 19)} "
        "years."
    )
    return _entry(person, text, f"In which town was {person} born?", nearby)


def _river(rng: random.Random, person: str, river: str, town: str, nearby: str) -> dict[str, str]:
    length, features = rng.randrange(21, 940), ("trout", "red clay", "late ice", "mills")
    text = (
        f"The {river} is a river of {length} kilometres. It rises in the hills above {nearby} and is crossed by "
        f"{rng.randrange(2, 30)} bridges. Its water is known for {rng.choice(features)}."
    )
    return _entry(f"{river} (river)", text, f"How many kilometres long is the river {river}?", str(length))


def _town(rng: random.Random, person: str, river: str, town: str, nearby: str) -> dict[str, str]:
    goods = rng.choice(_GOODS)
    text = (
        f"{town} is a town of {rng.randrange(2, 90) * 100} people on the {river}. It was founded in "
        f"{rng.randrange(900, 1500)} by settlers from {nearby}, and its market sells {goods}, "
        "which the town is known for."
    )
    return _entry(town, text, f"What is the town of {town} known for selling?", goods)


def _entry(title: str, text: str, question: str, answer: str) -> dict[str, str]:
    return {"title": title, "text": text, "question": question, "answer": answer}
