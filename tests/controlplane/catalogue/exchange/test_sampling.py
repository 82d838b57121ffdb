"""Dynamic sampling as other trainers' configs name it."""

from __future__ import annotations

import pytest

from controlplane.catalogue.exchange import documents, trl
from controlplane.catalogue.exchange.reading import KeyVerdict

MODEL = "model_name_or_path: org/small\n"
AXOLOTL = "base_model: org/small\nrl: grpo\n"
VERL = "algorithm:\n  filter_groups:\n    enable: true\n    metric: {}\n    max_num_gen_batches: {}\n"


@pytest.mark.parametrize(
    ("text", "rounds"),
    [
        (MODEL + "dynamic_sample: true\nmax_resample_times: 5\n", 5),
        (MODEL + "dynamic_sample: true\n", 3),
        (MODEL + "dynamic_sample: false\nmax_resample_times: 5\n", None),
        (MODEL + VERL.format("score", 10), 9),
        (MODEL + VERL.format("score", 0), 20),
        (MODEL + "use_dynamic_sampling: true\ndynamic_sampling_max_gen_batches: 4\n", 3),
        (AXOLOTL + "dynamic_sampling: true\n", 3),
        ("trl grpo --model_name_or_path org/small --dynamic_sample true --max_resample_times 2", 2),
    ],
)
def test_a_config_switches_dynamic_sampling_on(text: str, rounds: int | None) -> None:
    reading = documents.read(text.encode(), trl.BASIC_SETTINGS)
    assert reading.values.get("prompts.extra_rounds") == rounds
    assert not [note for note in reading.notes if note.verdict in (KeyVerdict.UNKNOWN, KeyVerdict.WRONG)]


def test_a_metric_that_is_one_component_is_left_to_the_person() -> None:
    reading = documents.read((MODEL + VERL.format("acc", 2)).encode(), trl.BASIC_SETTINGS)
    [note] = [note for note in reading.notes if note.path == "spread_in"]
    assert (note.key, note.verdict) == ("algorithm.filter_groups.metric", KeyVerdict.LEFT_OUT)


def test_a_bound_that_is_assumed_is_told() -> None:
    reading = documents.read((MODEL + "dynamic_sample: true\n").encode(), trl.BASIC_SETTINGS)
    assumed = {note.key for note in reading.notes if note.verdict == KeyVerdict.ASSUMED}
    assert assumed - set(reading.by_default) == {"dynamic_sample"}
