"""Rows of a ready version by filter, in full, and to take away."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.versions import derive_rows, find_rows, shown
from controlplane.catalogue.datasets.reader.versions.filtering import FilterError, RowFilter
from controlplane.catalogue.datasets.reader.versions.find_rows import export, find
from tests.controlplane.catalogue.datasets.tokenizers import a_tokenizer

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
SCHEMA = pa.schema(
    [
        ("row_id", pa.int64()),
        ("prompt", pa.list_(MESSAGE)),
        ("answer", pa.string()),
        ("test_cases", pa.list_(pa.string())),
        ("metadata", pa.string()),
        ("split", pa.string()),
    ],
    metadata={b"grpo": b'{"format": 1, "chat": true}'},
)

SHORT = "{% for message in messages %}[{{ message.content }}]{% endfor %}"


TEN_OF_A_THOUSAND = [83, 210, 223, 227, 271, 370, 371, 502, 779, 943]
"""With seed 7. Changing these would change the versions that people can draw again."""


def a_row(number: int, content: str = "", **changes: Any) -> dict[str, Any]:
    prompt = [{"role": "system", "content": "Think."}, {"role": "user", "content": content or f"What is {number}?"}]
    row = {
        "row_id": number,
        "prompt": prompt,
        "answer": str(number),
        "test_cases": [],
        "metadata": {},
        "split": "train",
    }
    return {**row, **changes}


def stored(folder: Path, rows: list[dict[str, Any]], group: int = 1000) -> Path:
    plain = [{**row, "metadata": json.dumps(row["metadata"])} for row in rows]
    pq.write_table(pa.Table.from_pylist(plain, SCHEMA), folder / files.ROWS, row_group_size=group)
    return folder


def ids(answer: dict[str, Any]) -> list[int]:
    return [row["row_id"] for row in answer["rows"]]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    return stored(
        tmp_path,
        [
            a_row(0, metadata={"difficulty": "easy", "tags": ["sums"]}),
            a_row(1, "Größe of a “quoted”\nthing", answer=None, split="validation"),
            a_row(2, metadata={"difficulty": 3, "tags": "sorting", "note": 'says "yes"'}),
            a_row(3, "Think.", answer="Forty-TWO", metadata={"difficulty": "easy"}),
            a_row(
                4,
                prompt=[{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}],
                test_cases=["assert one()", "assert Both()"],
            ),
        ],
        group=2,
    )


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"text": "GRÖSSE"}, []),
        ({"text": "größe"}, [1]),
        ({"text": "GRÖẞE".lower()}, [1]),
        ({"text": "“quoted”\nthing"}, [1]),
        ({"text": "forty-two"}, [3]),
        ({"text": 'says "YES"'}, [2]),
        ({"text": "both()"}, [4]),
        ({"text": ".*"}, []),
        ({"difficulty": ["easy"]}, [0, 3]),
        ({"difficulty": ["3", "easy"]}, [0, 2, 3]),
        ({"difficulty": [""]}, [1, 4]),
        ({"tags": ["sums", "sorting"]}, [0, 2]),
        ({"difficulty": ["easy"], "tags": ["sums"]}, [0]),
        ({"part": "validation"}, [1]),
        ({"row_ids": [4, 0, 77]}, [0, 4]),
        ({"row_ids": []}, []),
        ({"row_ids": [0, 4], "left_out": [4]}, [0]),
        ({"max_prompt_chars": 6}, [3]),
        ({"min_prompt_chars": 7, "max_prompt_chars": 7}, [4]),
    ],
)
def test_a_filter_finds_what_it_says(mixed: Path, wanted: dict[str, Any], found: list[int]) -> None:
    answer = find(mixed, {"filter": wanted})
    assert (ids(answer), answer["next"]) == (found, None)
    assert find(mixed, {"filter": wanted, "count": True}) == {"count": len(found)}


def test_pages_follow_each_other_without_gap_or_repeat(tmp_path: Path) -> None:
    folder = stored(tmp_path, [a_row(n, "even" if n % 2 == 0 else "odd") for n in range(1001)], group=100)
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        answer = find(folder, {"filter": {"text": "EVEN"}, "after": after, "limit": 33})
        assert [row["position"] for row in answer["rows"]] == ids(answer)
        seen += ids(answer)
        after = answer["next"]
    assert seen == list(range(0, 1001, 2))
    assert find(folder, {"filter": {}, "after": 5_000, "limit": 3})["rows"] == []


def test_a_rare_text_is_looked_for_with_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stored(tmp_path, [a_row(n) for n in range(40)], group=10)
    monkeypatch.setattr(find_rows, "MAX_SEARCH_S", -1.0)
    answer = find(folder, {"filter": {"text": "What is 39?"}})
    assert answer == {"rows": [], "next": 10}
    assert ids(find(folder, {"filter": {"text": "What is 39?"}, "after": 30})) == [39]


def test_a_row_in_full_is_found_by_its_id_wherever_it_lies(tmp_path: Path) -> None:
    long = "x" * 50_000
    folder = stored(tmp_path, [a_row(n * 3, long if n == 7 else "") for n in range(20)], group=5)
    row = find(folder, {"row_id": 21})["row"]
    assert row["prompt"][1]["content"] == long
    assert row["metadata"] == {}
    assert find(folder, {"row_id": 22}) == {"row": None, "before": 21, "after": 24}


def test_a_row_knows_its_neighbors_under_the_filter_that_led_to_it(mixed: Path) -> None:
    def between(row_id: int, **wanted: Any) -> list[int | None]:
        found = find(mixed, {"row_id": row_id, "filter": wanted})
        return [found["before"], found["after"]]

    assert (between(0), between(2), between(4)) == ([None, 1], [1, 3], [3, None])
    assert between(2, difficulty=["3", "easy"]) == [0, 3]
    assert between(0, difficulty=["easy"]) == [None, 3]


def test_what_is_taken_away_is_what_was_meant(mixed: Path) -> None:
    out = io.BytesIO()
    export(mixed, {"format": "jsonl", "filter": {"difficulty": ["easy"]}}, out)
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["row_id"], first["metadata"]) == (0, {"difficulty": "easy", "tags": ["sums"]})
    assert second["prompt"][1] == {"role": "user", "content": "Think."}
    out = io.BytesIO()
    export(mixed, {"format": "parquet", "filter": {"part": "train"}}, out)
    table = pq.read_table(io.BytesIO(out.getvalue()))
    assert table.column("row_id").to_pylist() == [0, 2, 3, 4]
    assert table.schema.metadata == SCHEMA.metadata
    out = io.BytesIO()
    export(mixed, {"format": "parquet", "filter": {"row_ids": []}}, out)
    assert pq.read_table(io.BytesIO(out.getvalue())).num_rows == 0


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"part": "test"}, "train or validation"),
        ({"colour": "red"}, "colour"),
        ({"difficulty": "easy"}, "can't be read"),
        ({"min_prompt_chars": 5, "max_prompt_chars": 4}, "No prompt has"),
        ({"max_prompt_tokens": "5"}, "can't be read"),
    ],
)
def test_what_is_no_filter_is_said_in_words(wanted: dict[str, Any], words: str) -> None:
    with pytest.raises(FilterError, match=words):
        RowFilter.from_dict(wanted)


def test_a_filter_is_kept_and_told_as_what_it_asks_for() -> None:
    wanted = RowFilter(text="prime", difficulty=("easy", ""), max_prompt_chars=400, max_prompt_tokens=9, row_ids=(1, 2))
    assert RowFilter.from_dict(json.loads(json.dumps(wanted.as_dict()))) == wanted
    assert wanted.sentence() == (
        "with “prime”; difficulty easy or none; prompts of at most 400 characters; prompts of at most 9 tokens; "
        "2 rows by number"
    )
    assert (RowFilter().as_dict(), RowFilter().sentence(), bool(RowFilter()), bool(wanted)) == ({}, "", False, True)


def test_some_rows_become_a_version_of_their_own(mixed: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    mapped = derive_rows.run(new, {"parent": str(mixed), "filter": {"row_ids": [1, 3, 4]}})
    assert (mapped["usable"], mapped["rows"], mapped["validation_rows"]) == (True, 3, 1)
    assert json.loads((new / files.MAPPED_FILE).read_text()) == json.loads(json.dumps(mapped))
    table = pq.read_table(new / files.ROWS)
    assert table.column("row_id").to_pylist() == [1, 3, 4]
    assert table.column("split").to_pylist() == ["validation", "train", "train"]
    assert [row["row_id"] for row in shown.page(new, 0, 9)] == [1, 3, 4]
    assert mapped["statistics"]["rows"] == 3


def test_a_filter_that_no_row_passes_makes_no_version(mixed: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    mapped = derive_rows.run(new, {"parent": str(mixed), "filter": {"text": "nowhere"}})
    assert (mapped["usable"], mapped["file_error"]["message"]) == (False, "No row passes this filter.")
    assert sorted(path.name for path in new.iterdir() if path.name != files.PROGRESS) == [
        files.MAPPED_FILE,
        files.MAPPED_PROBLEMS,
    ]


def test_prompts_with_too_many_tokens_are_left_out_where_a_version_is_made(mixed: Path, tmp_path: Path) -> None:
    wanted, tokenizer = {"part": "train", "max_prompt_tokens": 16}, a_tokenizer(tmp_path / "t", chat_template=SHORT)
    mapped = derived(tmp_path, {"parent": str(mixed), "filter": wanted, "tokenizer": str(tokenizer)})
    # A token is a byte of “[Think.][Think.]” and “[one][two]”.
    assert mapped["statistics"]["lengths"]["prompt_tokens"]["longest"] == 16
    assert pq.read_table(tmp_path / "new" / files.ROWS).column("row_id").to_pylist() == [3, 4]
    with pytest.raises(FilterError, match="only possible when deriving a version"):
        find(mixed, {"filter": wanted})


def test_prompts_that_the_template_refuses_are_left_out_and_told(mixed: Path, tmp_path: Path) -> None:
    picky = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system') }}{% endif %}x"
    given = {"parent": str(mixed), "filter": {"max_prompt_tokens": 99}}
    given["tokenizer"] = str(a_tokenizer(tmp_path / "t", chat_template=picky))
    mapped = derived(tmp_path, given)
    assert (mapped["rows"], [problem["line"] for problem in mapped["problems"]]) == (1, [1, 2, 3, 4])
    assert {problem["kind"] for problem in mapped["problems"]} == {"not_counted"}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (None, "is no longer available"),
        ({"chat_template": ""}, "No row passes this filter. The tokens of 5 rows can't be counted"),
        ({"chat_template": "{% if"}, "chat template can't be read"),
    ],
)
def test_a_tokenizer_that_counts_nothing_makes_no_version(
    mixed: Path, tmp_path: Path, config: dict[str, str] | None, said: str
) -> None:
    tokenizer = None if config is None else str(a_tokenizer(tmp_path / "t", **config))
    given = {"parent": str(mixed), "filter": {"max_prompt_tokens": 99}, "tokenizer": tokenizer}
    mapped = derived(tmp_path, given)
    assert (mapped["usable"], said in mapped["file_error"]["message"]) == (False, True)
    assert not (tmp_path / "new" / files.ROWS).exists()


def chosen(folder: Path, parent: Path, **conditions: Any) -> list[tuple[int, str]]:
    folder.mkdir()
    derived(folder, {"parent": str(parent), "filter": conditions})
    table = pq.read_table(folder / "new" / files.ROWS)
    return list(zip(table.column("row_id").to_pylist(), table.column("split").to_pylist(), strict=True))


def test_the_first_rows_are_taken_after_all_other_conditions(mixed: Path, tmp_path: Path) -> None:
    assert chosen(tmp_path / "a", mixed, part="train", first=2) == [(0, "train"), (2, "train")]
    assert len(chosen(tmp_path / "b", mixed, first=99)) == 5
    tokens = {"max_prompt_tokens": 16, "part": "train", "first": 1}
    tokenizer = a_tokenizer(tmp_path / "t", chat_template=SHORT)
    mapped = derived(tmp_path, {"parent": str(mixed), "filter": tokens, "tokenizer": str(tokenizer)})
    assert mapped["rows"] == 1
    assert pq.read_table(tmp_path / "new" / files.ROWS).column("row_id").to_pylist() == [3]


def test_random_rows_are_the_same_on_every_machine_and_keep_their_order_and_part(tmp_path: Path) -> None:
    rows = [a_row(number, split="validation" if number % 10 == 0 else "train") for number in range(1000)]
    parent = stored(tmp_path, rows, group=300)
    ten = chosen(tmp_path / "ten", parent, random=10, seed=7)
    assert [row_id for row_id, _ in ten] == TEN_OF_A_THOUSAND
    assert all(part == rows[row_id]["split"] for row_id, part in ten)
    assert set(ten) < set(chosen(tmp_path / "more", parent, random=500, seed=7))
    assert ten != chosen(tmp_path / "other", parent, random=10, seed=8)
    assert len(chosen(tmp_path / "all", parent, random=5000)) == 1000
    assert {part for _, part in chosen(tmp_path / "part", parent, part="validation", random=20)} == {"validation"}


def test_the_choice_of_the_first_or_of_random_rows_is_said_and_checked(mixed: Path) -> None:
    assert RowFilter(part="train", first=1000).sentence() == "the training part; the first 1,000 rows"
    assert RowFilter(random=1).sentence() == "1 random row, drawn with seed 42"
    assert (bool(RowFilter(seed=7)), bool(RowFilter(random=1))) == (False, True)
    for conditions, message in (({"first": 1, "random": 1}, "not both"), ({"random": 0}, "at least one row")):
        with pytest.raises(FilterError, match=message):
            RowFilter.from_dict(conditions)
    with pytest.raises(FilterError, match="only possible when deriving a version"):
        find(mixed, {"filter": {"first": 1}})


def derived(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    (folder / "new").mkdir()
    mapped = derive_rows.run(folder / "new", given)
    assert json.loads((folder / "new" / files.MAPPED_FILE).read_text()) == json.loads(json.dumps(mapped))
    return mapped


def test_rows_are_given_without_a_letter_changed_as_far_as_there_is_room(tmp_path: Path) -> None:
    odd = a_row(3, "a\x00b\r\n" + "x" * 300_000, test_cases=["assert f(1)"] * 3000, metadata={"k": "\ufeff"})
    folder = stored(tmp_path, [a_row(1), a_row(2), odd, a_row(9)], group=2)
    whole = find(folder, {"exact": [9, 3, 4], "bytes": 2**20})
    assert whole == {"rows": [odd, a_row(9)], "chat": True, "left_out": 0}
    assert (ids(find(folder, {"exact": [1, 3], "bytes": 1000})), ids(find(folder, {"exact": [], "bytes": 1}))) == (
        [1],
        [],
    )
    assert find(folder, {"exact": [3], "bytes": 1000})["left_out"] == 1
