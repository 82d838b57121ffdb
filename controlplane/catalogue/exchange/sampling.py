"""Dynamic sampling as configured in other trainers: ms-swift, verl, NeMo RL and OpenRLHF."""

from typing import Any

from controlplane.catalogue.exchange.keys import Rule, Take, flag, integer, text
from controlplane.catalogue.exchange.reading import KeyVerdict, Reading
from workers.contract.run.prompts import MAX_ROUNDS

DEFAULT_ROUNDS = 3
"""ms-swift's max_resample_times, used if a document enables dynamic sampling without a limit."""
TOTAL_METRICS = ("score", "seq_reward", "seq_final_reward")
"""Values of verl's filter_groups.metric that mean the total reward; any other names a component."""


def batches(raw: Any) -> int:
    """Convert a number of batches to extra rounds: verl and NeMo RL count the first batch, too; verl's 0 means no
    limit."""
    return integer(raw) - 1 if integer(raw) > 0 else MAX_ROUNDS


TABLE: dict[str, Rule] = {
    **dict.fromkeys(
        ("dynamic_sample", "dynamic_sampling", "use_dynamic_sampling", "dynamic_filtering"),
        Take("_dynamic_sampling", flag),
    ),
    "max_resample_times": Take("_extra_rounds", integer),
    "dynamic_sampling_max_gen_batches": Take("_extra_rounds", batches),
    **{
        f"{section}.{key}": rule
        for section in ("filter_groups", "algorithm.filter_groups")
        for key, rule in {
            "enable": Take("_dynamic_sampling", flag),
            "metric": Take("_spread_in", text),
            "max_num_gen_batches": Take("_extra_rounds", batches),
        }.items()
    },
}
SECTIONS = frozenset({"filter_groups", "algorithm", "algorithm.filter_groups"})


def finish(reading: Reading) -> None:
    source = reading.sources.get("_dynamic_sampling", "dynamic_sampling")
    metric_key = reading.sources.get("_spread_in", "filter_groups.metric")
    is_enabled, rounds, metric = (reading.pop(f"_{name}") for name in ("dynamic_sampling", "extra_rounds", "spread_in"))
    if not is_enabled:
        return
    if rounds is None:
        message = f"The document sets no limit; {DEFAULT_ROUNDS} extra rounds are used, as in ms-swift."
        reading.note(KeyVerdict.ASSUMED, source, message, path="extra_rounds")
    reading.put("prompts.extra_rounds", min(DEFAULT_ROUNDS if rounds is None else rounds, MAX_ROUNDS), source)
    if metric and metric not in TOTAL_METRICS:
        message = (
            f"Dynamic sampling uses the spread of the total reward. To use {metric[:80]} instead, enter its component "
            "under “Spread of”."
        )
        reading.note(KeyVerdict.LEFT_OUT, metric_key, message, path="spread_in")
