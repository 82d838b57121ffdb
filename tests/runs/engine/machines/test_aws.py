"""AWS's instance types as data."""

from __future__ import annotations

from datetime import date

import pytest

from runs.engine.machines.aws import INSTANCES


def test_an_instance_type_is_complete_and_plausible(subtests: pytest.Subtests) -> None:
    for instance in INSTANCES.values():
        with subtests.test(instance=instance):
            assert instance.gpus in {1, 4, 8}
            assert instance.cpus >= 4 * instance.gpus
            assert 0.5 < instance.usd_per_hour / instance.gpus < 20
            assert instance.as_of == "2026" or date.fromisoformat(instance.as_of) < date(2026, 11, 1)


def test_a_family_has_one_kind_of_gpu_and_more_of_it_costs_more(subtests: pytest.Subtests) -> None:
    for family in sorted({name.partition(".")[0] for name in INSTANCES}):
        with subtests.test(family=family):
            own = [each for name, each in INSTANCES.items() if name.startswith(f"{family}.")]
            cheapest = {
                count: min(each.usd_per_hour for each in own if each.gpus == count) for count in {e.gpus for e in own}
            }
            assert [cheapest[count] for count in sorted(cheapest)] == sorted(cheapest.values())
            assert len({(each.gpu_kind, each.gpu_memory_gib) for each in own}) == 1


def test_an_instance_type_reads_as_a_sentence() -> None:
    dear, dated_by_the_year = INSTANCES["p5.48xlarge"].sentence, INSTANCES["g5.2xlarge"].sentence
    assert dear == "8 × H100 80 GiB, 192 vCPUs, 2,048 GiB, $55.04 per hour (listed on 2026-07-28)"
    assert dated_by_the_year.endswith("per hour (listed in 2026, date unknown)")
