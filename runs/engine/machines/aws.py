"""GPU instance types of AWS: what each has, and AWS's on-demand list price for Linux in us-east-1.

Spot prices change hourly and aren't listed. P5e is missing, because AWS sells it only in blocks of reserved time.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

REGION = "us-east-1"
SOURCE = f"AWS on-demand list price, {REGION}"


@dataclass(frozen=True)
class Instance:
    type: str
    gpus: int
    gpu_kind: str
    gpu_memory_gib: int
    """Memory of one GPU, as AWS states it."""
    cpus: int
    """vCPUs."""
    memory_gib: int
    usd_per_hour: Decimal
    spot: bool
    """True if AWS offers it as a spot instance."""
    as_of: str
    """The date, or only the year, of the price list."""

    @property
    def sentence(self) -> str:
        gpus = f"{self.gpus} × {self.gpu_kind} {self.gpu_memory_gib} GiB"
        return f"{gpus}, {self.cpus} vCPUs, {self.memory_gib:,} GiB, ${self.usd_per_hour:.2f} per hour ({self.dated})"

    @property
    def dated(self) -> str:
        return f"listed on {self.as_of}" if "-" in self.as_of else f"listed in {self.as_of}, day unknown"


def _instance(row: dict[str, str]) -> Instance:
    return Instance(
        type=row["type"],
        gpus=int(row["gpus"]),
        gpu_kind=row["gpu_kind"],
        gpu_memory_gib=int(row["gpu_memory_gib"]),
        cpus=int(row["cpus"]),
        memory_gib=int(row["memory_gib"]),
        usd_per_hour=Decimal(row["usd_per_hour"]),
        spot=row["spot"] == "yes",
        as_of=row["as_of"],
    )


with Path(__file__).with_name("aws_instances.csv").open(newline="") as _file:
    INSTANCES = {row["type"]: _instance(row) for row in csv.DictReader(_file)}
