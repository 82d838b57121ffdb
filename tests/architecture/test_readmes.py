"""The tables of the READMEs against the code. A failure names the line to mend, and what it shall say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from django.conf import settings as django_settings

from controlplane.platform.guide import documents
from controlplane.setup.serving.processes import BASE_DIR as ROOT
from runs.engine.states import EDGES, final_status, sentence
from tests.benchmarks._settings_named import settings_named, settings_read, settings_without_readme
from workers.contract.wire.names import EndReason
from workers.settings import HostSettings, variable
from workers.supervisor import end_reasons

CODE = re.compile(r"`([^`]+)`")
SETTINGS = ("controlplane/settings.md", "workers/host/README.md")
HOST = {variable(field.name): field for field in fields(HostSettings)}


@dataclass(frozen=True)
class Row:
    line: int
    cells: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """What the first cell sets in code."""
        return CODE.findall(self.cells[0])


@dataclass(frozen=True)
class Table:
    document: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def end(self) -> str:
        return f"{self.document}:{self.rows[-1].line}"

    def names(self) -> list[str]:
        return [name for row in self.rows for name in row.names]

    def column(self, name: str) -> Iterator[tuple[int, str]]:
        place = self.header.index(name)
        return ((row.line, row.cells[place]) for row in self.rows)


def tables(text: str, document: str) -> list[Table]:
    """Markdown's pipe tables: a header, a ruler, rows."""
    found: list[Table] = []
    block: list[Row] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.startswith("|"):
            block.append(Row(number, tuple(cell.strip() for cell in line.strip().strip("|").split("|"))))
        elif block:
            found.append(Table(document, block[0].cells, tuple(block[2:])))
            block = []
    return found


def tables_of(document: str) -> list[Table]:
    return tables((ROOT / document).read_text(), document)


def table(document: str, first: str) -> Table:
    """The one whose first column is called so."""
    found = [each for each in tables_of(document) if each.header[0] == first]
    assert len(found) == 1, f"{document} has {len(found)} tables whose first column is {first!r}; it needs one."
    return found[0]


def differences(table: Table, wanted: Mapping[str, tuple[str, ...]], of: str) -> list[str]:
    """`wanted`: the first cell's name -> the cells after it. Columns beyond those are the document's own."""
    wrong = []
    for row in table.rows:
        name = " ".join(row.names)
        if name not in wanted:
            wrong.append(f"{table.document}:{row.line}: {of} has no {name or row.cells[0]}. Take the row out.")
            continue
        for title, said, right in zip(table.header[1:], row.cells[1:], wanted[name], strict=False):
            if said != right:
                wrong.append(f"{table.document}:{row.line}: {title} of {name} is {right!r} in {of}, not {said!r}.")
    told = [" ".join(row.names) for row in table.rows]
    for name in wanted:
        if told.count(name) != 1:
            row = " | ".join((f"`{name}`", *wanted[name]))
            wrong.append(f"{table.end}: {of} has {name}, told {told.count(name)} times here. One row: | {row} |")
    return wrong


def check(wrong: list[str]) -> None:
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_states_and_their_edges() -> None:
    edges = {old.value: _listed([new.value for new in EDGES if new in EDGES[old]]) for old in EDGES}
    check(
        differences(
            table("runs/README.md", "status"), {old: (new,) for old, new in edges.items()}, "runs.engine.states"
        )
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "nowhere: final"


def test_the_reasons_for_an_end() -> None:
    wanted = {reason.value: (final_status(reason).value, sentence(reason)) for reason in EndReason}
    check(differences(table("runs/README.md", "reason"), wanted, "runs.engine.states.EndReason"))


def test_every_reason_says_what_it_is_known_by() -> None:
    known = table("runs/README.md", "reason").column("known by")
    check([f"runs/README.md:{line}: say what this reason is known by." for line, words in known if not words])


def test_every_variable_that_the_code_reads_is_named_in_a_readme_and_the_other_way_round() -> None:
    read = settings_read(ROOT)
    unnamed = sorted(read - settings_named(ROOT))
    wrong = [f"{name}: say in the README of its part what it is for." for name in unnamed]
    for document in documents.DOCUMENTS:
        named = set(re.findall(r"`((?:GRPO|GRPOCTL)_[A-Z0-9_]+)`", (ROOT / document.path).read_text()))
        wrong += [f"{document.path}: there is no {name}." for name in sorted(named - read)]
    check(wrong)


def test_a_variable_that_no_readme_names_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "reading.py").write_text(READS)
    (tmp_path / "README.md").write_text("`REDIS_URL` and `CONTROLPLANE_DATA`.")
    unnamed = ["CONTROLPLANE_TICK_S", "GRPO_GPUS", "HF_HOME", "PGPASSFILE"]
    assert settings_without_readme(tmp_path) == unnamed
    (tmp_path / "runs" / "README.md").write_text("\n".join(f"- `{name}`" for name in unnamed))
    assert settings_without_readme(tmp_path) == []


READS = """
import os

FILE = "PGPASSFILE"
data, redis = os.environ.get("CONTROLPLANE_DATA"), os.environ["REDIS_URL"]
password = "HF_HOME" in os.environ and os.environ.pop(FILE)
os.environ["WRITTEN"] = "1"


def seconds(name):
    return float(os.environ.get(f"CONTROLPLANE_{name}", 1))


TICK = seconds("TICK_S")


class HostSettings:
    gpus: str = ""
"""


def test_the_exit_codes_that_mean_something() -> None:
    codes = {**end_reasons.TRAINER_CODES, end_reasons.MODEL_UNAVAILABLE_CODE: EndReason.MODEL_UNAVAILABLE}
    told = table("workers/supervisor/stopping.md", "exit code")
    means = {row.cells[0]: row.cells[-1] for row in told.rows}
    missing = {code: name for code, name in codes.items() if f"`{name}`" not in means.get(str(code), "")}
    check([f"{told.end}: {code} means `{name}`: say so in its row." for code, name in missing.items()])


def test_the_settings_that_the_readmes_name_exist() -> None:
    words = {word for path in _sources() for word in re.findall(r"\b[A-Z][A-Z0-9_]+\b", path.read_text())}
    tables = [table(document, "variable") for document in SETTINGS]
    names = [(each.document, row, name.partition("=")[0]) for each in tables for row in each.rows for name in row.names]
    check(
        [f"{document}:{row.line}: no code reads {name}." for document, row, name in names if not _is_read(name, words)]
    )


def _is_read(name: str, words: set[str]) -> bool:
    """Seconds of the control plane are read by their short name."""
    if name.startswith("GRPO_"):
        return name in HOST
    return name in words or hasattr(django_settings, name.removeprefix("CONTROLPLANE_"))


def _sources() -> Iterator[Path]:
    yield ROOT / "manage.py"
    for package in ("controlplane", "runs", "workers"):
        yield from (ROOT / package).rglob("*.py")


EXAMPLE = """
| reason | ends as |
|---|---|
| `done` | good |
| `odd` | bad |
"""


def test_a_table_that_differs_is_noticed_with_its_line() -> None:
    (example,) = tables(EXAMPLE, "x.md")
    assert differences(example, {"done": ("good",), "odd": ("bad",)}, "the code") == []
    assert differences(example, {"done": ("bad",), "late": ("bad",)}, "the code") == [
        "x.md:4: ends as of done is 'bad' in the code, not 'good'.",
        "x.md:5: the code has no odd. Take the row out.",
        "x.md:5: the code has late, told 0 times here. One row: | `late` | bad |",
    ]
