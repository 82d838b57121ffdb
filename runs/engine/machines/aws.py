"""GPU instance types of AWS: their resources, and their on-demand list prices for Linux in us-east-1. Spot prices
aren't listed, because they change hourly. P5e is omitted, because AWS sells it only in reserved blocks of time."""

import csv
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import msgspec

REGION = "us-east-1"
SOURCE = f"AWS on-demand list price, {REGION}"


@dataclass(frozen=True)
class Instance:
    type: str
    gpus: int
    gpu_kind: str
    gpu_memory_gib: int
    """Memory of one GPU, according to AWS."""
    cpus: int
    memory_gib: int
    usd_per_hour: Decimal
    spot: bool
    as_of: str
    """Date of the price list, or only its year."""

    @property
    def sentence(self) -> str:
        gpus = f"{self.gpus} × {self.gpu_kind} {self.gpu_memory_gib} GiB"
        listing = f"listed on {self.as_of}" if "-" in self.as_of else f"listed in {self.as_of}, date unknown"
        return f"{gpus}, {self.cpus} vCPUs, {self.memory_gib:,} GiB, ${self.usd_per_hour:.2f} per hour ({listing})"


with Path(__file__).with_name("aws_instances.csv").open(newline="") as _file:
    INSTANCES = {
        row["type"]: msgspec.convert({**row, "spot": row["spot"] == "yes"}, Instance, strict=False)
        for row in csv.DictReader(_file)
    }
