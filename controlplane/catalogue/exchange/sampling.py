"""Dynamic sampling under the names of other trainers: ms-swift, verl, NeMo RL and OpenRLHF."""

from typing import Any

from controlplane.catalogue.exchange.keys import Rule, Take, flag, text, whole
from controlplane.catalogue.exchange.reading import KeyVerdict, Reading
from workers.contract.run.prompts import MAX_ROUNDS

USUAL_ROUNDS = 3
"""ms-swift's max_resample_times, taken where a document only switches dynamic sampling on."""
OF_THE_TOTAL = ("score", "seq_reward", "seq_final_reward")
"""verl's filter_groups.metric for the whole reward; others are a component."""


def batches(raw: Any) -> int:
    """Convert batches to extra rounds: verl and NeMo RL count the first batch too, and verl's 0 means no bound."""
    return whole(raw) - 1 if whole(raw) > 0 else MAX_ROUNDS


TABLE: dict[str, Rule] = {
    **dict.fromkeys(
        ("dynamic_sample", "dynamic_sampling", "use_dynamic_sampling", "dynamic_filtering"),
        Take("_dynamic_sampling", flag),
    ),
    "max_resample_times": Take("_extra_rounds", whole),
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
    on, rounds, metric = (reading.pop(f"_{name}") for name in ("dynamic_sampling", "extra_rounds", "spread_in"))
    if not on:
        return
    if rounds is None:
        text = f"The document sets no bound: {USUAL_ROUNDS} extra rounds, as in ms-swift."
        reading.note(KeyVerdict.ASSUMED, source, text, path="extra_rounds")
    reading.put("prompts.extra_rounds", min(USUAL_ROUNDS if rounds is None else rounds, MAX_ROUNDS), source)
    if metric and metric not in OF_THE_TOTAL:
        text = f"The spread of the total reward counts; for that of {metric[:80]}, name its component under Spread of."
        reading.note(KeyVerdict.LEFT_OUT, metric_key, text, path="spread_in")
