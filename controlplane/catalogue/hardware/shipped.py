"""The built-in hardware profiles of shipped.toml, each with the settings of the setup that it reproduces.

Where today's versions (TRL 1.16, vLLM 0.22 to 0.31) reject the original, the profile is corrected and a comment says
how. Batches are divided into as few passes as the named GPUs have room for, which doesn't affect training. A migration
inserts the profiles once.
"""

import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

from controlplane.catalogue.hardware.profiles import Profile
from workers.contract.wire.documents import from_dict


@dataclass(frozen=True, kw_only=True)
class Shipped(Profile):
    """Built-in profile, whose name is also set in its `spec`."""

    slug: str
    """Id that stays the same when the name changes."""
    setup: str
    """Description of the reproduced setup and its hardware."""
    card_gib: float = 0.0
    """Memory of each GPU of that hardware; 0 if the setup names no GPU."""
    measured: bool = True
    """True if runs with it were measured on GPUs (tests/gpu)."""
    model: str = ""
    """Model for which the memory estimate divided the batch on such GPUs: that of the setup, or the largest usual one
    that fits; "" if the batch is divided as in the setup."""
    guide: dict[str, int] = field(default_factory=dict)
    """The setup's own division of the same batch, if it is different."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", replace(self.spec, profile=self.name))


def by_slug(slug: str) -> Shipped:
    return next(profile for profile in SHIPPED_PROFILES if profile.slug == slug)


def _read() -> tuple[Shipped, ...]:
    document = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return tuple(
        from_dict(Shipped, {**profile, "spec": {**profile["spec"], "profile": profile["name"]}})
        for profile in document["profile"]
    )


SHIPPED_PROFILES = _read()
