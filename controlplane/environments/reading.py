"""The stored parts and limits of a version, in the contract's types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workers.contract import ContractError, from_dict
from workers.contract.episodes import EpisodeLimits, PartSpec


def specs(parts: Iterable[Any]) -> list[PartSpec]:
    """Those that the contract can read."""
    readable = []
    for part in parts:
        try:
            readable.append(from_dict(PartSpec, part))
        except ContractError:
            continue
    return readable


def limits_of(stored: Mapping[str, Any]) -> EpisodeLimits:
    """The defaults if the contract can't read them."""
    try:
        return from_dict(EpisodeLimits, dict(stored))
    except ContractError:
        return EpisodeLimits()
