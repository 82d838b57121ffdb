"""Which files of a hub repository are a split."""

from __future__ import annotations

import pytest

from controlplane.catalogue.datasets.fetching.choosing import NotFetched, choose, kind_of

GSM8K = [
    "README.md",
    "main/train-00000-of-00002.parquet",
    "main/train-00001-of-00002.parquet",
    "main/test-00000-of-00001.parquet",
    "socratic/train-00000-of-00001.parquet",
]
CARD = {
    "configs": [
        {
            "config_name": "main",
            "data_files": [{"split": "train", "path": "main/train-*"}, {"split": "test", "path": "main/test-*"}],
        },
        {"config_name": "socratic", "data_files": [{"split": "train", "path": "socratic/train-*"}]},
    ]
}


def test_the_readme_says_which_files_a_split_has_and_they_come_in_order():
    choice = choose(GSM8K, CARD, "main", "train")
    assert choice.files == ("main/train-00000-of-00002.parquet", "main/train-00001-of-00002.parquet")
    assert (choice.config, choice.kind) == ("main", "parquet")


@pytest.mark.parametrize(
    ("config", "split", "told"),
    [
        ("", "train", "main, socratic"),
        ("other", "train", "main, socratic"),
        ("main", "validation", "test, train"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(config, split, told):
    with pytest.raises(NotFetched) as refused:
        choose(GSM8K, CARD, config, split)
    assert told in refused.value.advice


def test_the_default_configuration_needs_no_name():
    card = {"configs": [{**CARD["configs"][1]}, {**CARD["configs"][0], "default": True}]}
    assert choose(GSM8K, card, "", "test").files == ("main/test-00000-of-00001.parquet",)


@pytest.mark.parametrize(
    ("names", "split", "files"),
    [
        (["data/train-0.jsonl", "data/test-0.jsonl"], "train", ("data/train-0.jsonl",)),
        (["training/a.csv", "eval/b.csv"], "test", ("eval/b.csv",)),
        (["questions.jsonl.gz", "README.md"], "train", ("questions.jsonl.gz",)),
        (["dev.json", "train.json"], "validation", ("dev.json",)),
        (["train.json", "dataset_infos.json"], "train", ("train.json",)),
        (["hard.jsonl", "train.jsonl"], "hard", ("hard.jsonl",)),
        (["test_questions/train.jsonl"], "train", ("test_questions/train.jsonl",)),
    ],
)
def test_without_a_readme_names_of_files_tell_the_split(names, split, files):
    assert choose(names, {}, "", split).files == files


def test_patterns_keep_to_their_folder_unless_they_say_otherwise():
    names = ["a/x.jsonl", "a/b/y.jsonl", "z.jsonl"]

    def files(pattern):
        return choose(names, {"configs": [{"data_files": pattern}]}, "", "train").files

    assert files("a/*.jsonl") == ("a/x.jsonl",)
    assert files("**/*.jsonl") == ("a/b/y.jsonl", "a/x.jsonl", "z.jsonl")
    assert files("a/**") == ("a/b/y.jsonl", "a/x.jsonl")
    assert files("[yz].jsonl") == ("z.jsonl",)
    assert files({"train": "z.jsonl", "test": "a/*"}) == ("z.jsonl",)
    assert files(["z.jsonl", "a/?.jsonl"]) == ("z.jsonl", "a/x.jsonl")


def test_a_folder_of_a_configuration_is_where_its_patterns_begin():
    card = {"configs": [{"config_name": "a", "data_dir": "deep/a", "data_files": "*.csv"}]}
    assert choose(["deep/a/x.csv", "x.csv"], card, "", "train").files == ("deep/a/x.csv",)


def test_a_dataset_of_a_script_is_refused_with_what_to_do():
    with pytest.raises(NotFetched, match="never run here") as refused:
        choose(["old.py", "README.md", "data.zip"], {}, "", "train")
    assert "refs/convert/parquet" in refused.value.advice


def test_a_script_beside_files_that_can_be_read_is_passed_over():
    assert choose(["old.py", "train.jsonl"], {}, "", "train").files == ("train.jsonl",)


@pytest.mark.parametrize("name", ["../../etc/train.jsonl", "/etc/train.jsonl", "a\\..\\train.jsonl"])
def test_names_that_would_leave_the_folder_are_never_chosen(name):
    with pytest.raises(NotFetched, match="no file in a supported format"):
        choose([name], {}, "", "train")


def test_files_of_several_kinds_are_no_split():
    with pytest.raises(NotFetched, match="csv, jsonl"):
        choose(["train.csv", "train.jsonl"], {}, "", "train")


@pytest.mark.parametrize(
    "card",
    [
        {},
        {"configs": "x"},
        {"configs": [1, None]},
        {"configs": [{"config_name": "a"}]},
        {"configs": [{"data_files": [3, {}, {"path": 7}]}]},
    ],
)
def test_a_readme_that_says_nothing_of_files_is_passed_over(card):
    assert choose(["train.jsonl"], card, "", "train").files == ("train.jsonl",)


@pytest.mark.parametrize("files", ["elsewhere/*", ["**/*.csv"], [{"split": "other", "path": "*"}], {"test": "*"}])
def test_a_readme_that_makes_no_sense_is_told(files):
    with pytest.raises(NotFetched):
        choose(["train.jsonl"], {"configs": [{"data_files": files}]}, "", "train")


def test_the_kind_is_by_the_ending():
    assert [kind_of(name) for name in ("a.JSONL", "b.tsv.gz", "c.py", ".x.csv", "d.parquet", "e.zst")] == [
        "jsonl", "tsv", "", "", "parquet", "",
    ]  # fmt: skip


def test_a_pattern_that_would_be_matched_for_ever_is_refused() -> None:
    card = {"configs": [{"config_name": "main", "data_files": "**/" * 8 + "x.parquet"}]}
    with pytest.raises(NotFetched, match="more than 6 stars"):
        choose(["a/" * 40 + "y.parquet"], card, "main", "train")
