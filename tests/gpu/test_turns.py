"""The figures of turns, of an adapter beside its base and of the button, as far as they can be tested without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gpu import gain, lora, lora_kernels, turns
from tests.gpu.figures import Row
from tests.gpu.lora_kernels import EXPAND, SHRINK, Layer
from tests.gpu.turns import BARE, BESIDE, PRODUCT, Turn
from workers.contract.stack import adapters
from workers.contract.stack.adapters import Speed


def lines(begun: float, seconds: float, count: int) -> list[Row]:
    return [Row(begun + number * seconds, number, {"loss": 0.0}) for number in range(count)]


def test_only_steps_within_a_turn_count_and_a_pair_is_of_one_round() -> None:
    rounds = [[Turn(mode, n, 100 * n + at, 100 * n + at + 9) for mode, at in TURNS] for n in range(3)]
    product = [row for n in range(3) for row in lines(100 * n + 0.5, 1.1, 8)]
    bare = [row for n in range(3) for at in (10, 20) for row in lines(100 * n + at + 0.5, 1.0, 8)]
    both = {PRODUCT: product, BESIDE: bare, BARE: bare}
    found = turns.figures([turn for each in rounds for turn in each], both, 128)
    assert found["step_ratio_pairs"] == pytest.approx([1.1, 1.1, 1.1])
    assert found["step_ratio_interval"] == pytest.approx([1.1, 1.1])
    assert (found["step_ratio"], found["beside_ratio"]) == (pytest.approx(1.1), pytest.approx(1.0))
    assert "3 pairs" in found["step_ratio_how"]


TURNS = ((PRODUCT, 0), (BESIDE, 10), (BARE, 20))


def test_an_interval_is_wide_where_pairs_differ_and_needs_two() -> None:
    low, high = turns.interval([0.9, 1.1, 0.95, 1.05, 1.0, 1.02, 0.98, 1.2]) or (0.0, 0.0)
    assert 0.9 < low < 1.02 < high < 1.15
    assert turns.interval([1.0]) is None


def test_the_buttons_values_are_read_off_the_panel() -> None:
    values = {"per_device_train_batch_size": "32", "gradient_accumulation_steps": "1"}
    escaped = json.dumps(values).replace('"', "&quot;")
    panel = f'<button class="button small" type="button" data-fix="{escaped}">Use the memory: 32 per process</button>'
    assert gain.fix_of(f'<button data-fix="{{}}">Use “CPU”</button>{panel}') == values
    with pytest.raises(gain.GainError):
        gain.fix_of("<p>nothing</p>")


def test_what_was_measured_of_adapters_goes_into_the_products_table_and_keeps_what_it_lacks() -> None:
    plain = {"base": 25_000.0, "adapter": 22_000.0, "over_base": 0.88, "swap_s": 0.2}
    tuned = {"base": 25_000.0, "adapter": 23_750.0, "over_base": 0.95, "swap_s": 0.2}
    settings = {"r32": plain, "r32-tuned": tuned, "merged": {"base": 25_500.0}}
    entry = lora.entry(settings, "H100", "0.22.1", rehearsal=False)
    assert entry["lora_over_base_256"] == {"r32": 0.95}
    known = Speed("H100", "0.22.1", entry["lora_parameters"], 32, 256, push_s=0.9)
    [row] = lora.speeds([entry, {"name": "other"}], [known])
    assert (row["base_tokens_per_s"], row["plain_tokens_per_s"], row["tuned_tokens_per_s"]) == (25_500, 22_000, 23_750)
    assert (row["swap_s"], row["push_s"]) == (0.2, 0.9)


def test_the_push_of_merged_weights_is_what_a_step_takes_more_without_its_quicker_generation() -> None:
    known = Speed("H100", "0.22.1", 7_000_000_000, 32, 256, 25_000.0, 20_000.0, swap_s=0.2)
    roads = [
        {"name": name, "machine": "2 × H100; 32 CPU cores", "step_median_s": seconds}
        for name, seconds in (("lora-swapped-7b", 10.0), ("lora-merged-7b", 10.5))
    ]
    [row] = lora.speeds(roads, [known])
    assert row["push_s"] == pytest.approx(0.2 + 0.5 + 65_536 / 20_000 - 65_536 / 25_000, abs=0.001)
    assert lora.speeds(roads[:1], [known])[0]["push_s"] is None


class Timed:
    """A bench that has measured already."""

    def default(self, tokens: int) -> lora_kernels.Config:
        return {"block_m": 99}

    def default_s(self, tokens: int) -> float:
        return 10.0


@pytest.mark.parametrize(("kernel", "k", "n"), [(SHRINK, "3584", "16"), (EXPAND, "16", "3584")])
def test_a_table_of_kernels_has_the_quickest_and_the_default_where_nothing_is_quicker(
    kernel: str, k: str, n: str
) -> None:
    table: dict[str, dict[str, dict[str, dict[str, dict[str, lora_kernels.Config]]]]] = {}
    config = next(lora_kernels.candidates(kernel, 16))
    tried = [(config, {1: 5.0, 8: 9.9})]
    gains = lora_kernels.fill(table, Layer(3, 3584, (3584, 512, 512)), 16, kernel, Timed(), tried)  # type: ignore[arg-type]
    assert table["2"]["3"]["1"][k][n] == config
    assert table["2"]["3"]["8"][k][n] == {"block_m": 99}
    assert (gains[0], gains[1]) == (0.5, 1.0)


def test_kernels_are_found_by_card_and_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "KERNELS", tmp_path)
    (tmp_path / "0.22.1").mkdir()
    (tmp_path / "0.22.1" / "NVIDIA_H100_80GB_HBM3_SHRINK.json").write_text("{}")
    assert adapters.kernels("NVIDIA H100 80GB HBM3", "0.22.1+cu130") == tmp_path / "0.22.1"
    assert adapters.kernels("NVIDIA H200", "0.22.1") is None
    assert adapters.kernels("NVIDIA H100 80GB HBM3", "") is None
