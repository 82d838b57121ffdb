"""The health presets that ship with the product."""

from typing import Any

SHIPPED_PRESETS: list[tuple[str, str, str, dict[str, dict[str, Any]]]] = [
    (
        "mixed",
        "Mixed",
        "Each rule’s default thresholds: the more lenient of the guides’ values, or our own if the guides give none.",
        {},
    ),
    (
        "atropos",
        "Atropos example trainer",
        "The table of key metrics in the README of the Atropos example trainer: healthy ranges and warning signs.",
        {
            "kl": {
                "warning": 0.1,
                "bad": 0.5,
                "source": "mean_kl: healthy from 0.01 to 0.1; above 0.5 the policy drifts.",
            },
            "clip": {
                "warning": 0.3,
                "bad": 0.5,
                "source": "clipped_fraction: healthy below 0.3; above 0.5 the learning rate is too high.",
            },
            "ratio": {
                "warning": 0.2,
                "bad": 0.5,
                "source": "mean_ratio: healthy from 0.8 to 1.2; far from 1 the policy changed too much. The "
                "second threshold is our own.",
            },
        },
    ),
    (
        "axolotl",
        "Axolotl training stability",
        "Axolotl’s guide to training stability (docs/training_stability.qmd): good and bad ranges of TRL’s metrics.",
        {
            "kl": {"warning": 0.5, "bad": 2.0, "source": "kl: 0 to 0.5 is good; above 2 is bad."},
            "clip": {
                "warning": 0.1,
                "bad": 0.3,
                "source": "clip_ratio/region_mean: below 0.1 is good; above 0.3 is bad.",
            },
            "entropy": {
                "warning": 0.05,
                "bad": 0.01,
                "source": "entropy: 0.05 to 0.5 is good; below 0.01 it has collapsed.",
            },
            "entropy_high": {"warning": 1.0, "bad": None, "source": "entropy: above 1 it is not settling."},
            "component_low": {
                "warning": 0.15,
                "bad": 0.001,
                "source": "rewards/NAME/mean: should exceed 0.15 within 20 steps; at 0, it is broken or too hard.",
            },
            "zero_spread": {
                "warning": 0.8,
                "bad": 0.98,
                "source": "frac_reward_zero_std: should be below 0.8; 1.0 at every step means no learning.",
            },
            "grad_high": {
                "warning": 10.0,
                "bad": None,
                "source": "grad_norm: 0.001 to 1 is good; above 10 is unstable.",
            },
            "truncation": {
                "warning": 0.3,
                "bad": 0.8,
                "source": "completions/clipped_ratio: should be below 0.3; if above 0.8, raise the limit.",
            },
            "stale": {
                "warning": 0.1,
                "bad": 1.0,
                "source": "sampling_logp_difference/mean: below 0.1 is good; above 1 the two have diverged.",
            },
            "stale_least": {
                "warning": 0.1,
                "bad": 0.01,
                "source": "importance_sampling_ratio/min: above 0.1 is good, near 0 is stale; 0.01 is our own.",
            },
        },
    ),
]
"""Presets, as (slug, name, source, rule -> the bounds that differ from the defaults)."""
