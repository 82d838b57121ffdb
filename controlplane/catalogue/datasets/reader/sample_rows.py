"""The verb `sample`: small files with usable rows, as models for other files."""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from controlplane.catalogue.datasets.reader.parsing.formats import CSV, JSON, JSONL, PARQUET, TSV

_TASKS = (
    ("A box holds 12 eggs. How many eggs are in 7 boxes?", "84", "easy"),
    ("A train leaves at 9:40 and arrives at 11:05. How many minutes does it take?", "85", "easy"),
    ("Three pens cost 4.50. What do eight pens cost?", "12", "easy"),
    ("A tank of 240 litres is filled at 16 litres a minute. After how many minutes is it half full?", "7.5", "medium"),
    ("What is the sum of all odd numbers between 10 and 20?", "75", "medium"),
    ("A shirt costs 40 after a discount of 20 %. What did it cost before?", "50", "medium"),
    ("Two numbers differ by 6 and their product is 91. What is the larger one?", "13", "hard"),
    ("In how many ways can 4 people sit on a bench if two of them insist on sitting together?", "12", "hard"),
)
ROWS = [{"question": question, "answer": answer, "difficulty": level} for question, answer, level in _TASKS]


def export(folder: Path, arguments: Mapping[str, Any], out: BinaryIO) -> None:
    """Write a sample file to `out`, in {"format": one of formats.NAMES}. `folder` isn't used."""
    kind = arguments["format"]
    if kind == JSONL:
        out.write("".join(f"{json.dumps(row)}\n" for row in ROWS).encode())
    elif kind == JSON:
        out.write(json.dumps(ROWS, indent=2).encode() + b"\n")
    elif kind in (CSV, TSV):
        buffer = io.StringIO()
        table = csv.DictWriter(buffer, list(ROWS[0]), delimiter="," if kind == CSV else "\t", lineterminator="\n")
        table.writeheader()
        table.writerows(ROWS)
        out.write(buffer.getvalue().encode())
    elif kind == PARQUET:
        pq.write_table(pa.Table.from_pylist(ROWS), out)
    else:
        raise ValueError(f"There is no format {kind!r}.")
