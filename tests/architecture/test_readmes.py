"""The tables of the READMEs against the code. A failure names the line to mend, and what it shall say."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
from django.conf import settings as django_settings

from controlplane.serving.embedded import BASE_DIR as ROOT
from runs.states import EDGES, EndReason, final_status, sentence
from workers.contract import LOG_NAMES, EventKind, FileName, GpuReceipt, Phase, Receipt, Task
from workers.host.celery import app
from workers.host.settings import HostSettings, variable
from workers.supervisor import ends, killing
from workers.supervisor.steps import Step

CODE = re.compile(r"`([^`]+)`")
DEADLINE = re.compile(r"_(deadline|silence|grace|wait|timeout|hung)_s$|^settle_s$")
"""Names of the host's settings that end something by themselves; the others are intervals and sizes."""
HOST = {variable(field.name): field for field in fields(HostSettings)}
UNITS = {"_s": " s", "_mib": " MiB", "_bytes": " bytes"}


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
    check(differences(table("runs/README.md", "status"), {old: (new,) for old, new in edges.items()}, "runs.states"))


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "nowhere: final"


def test_the_reasons_for_an_end() -> None:
    wanted = {reason.value: (final_status(reason).value, sentence(reason)) for reason in EndReason}
    check(differences(table("runs/README.md", "reason"), wanted, "runs.states.EndReason"))


def test_every_reason_says_what_it_is_known_by() -> None:
    known = table("runs/README.md", "reason").column("known by")
    check([f"runs/README.md:{line}: say what this reason is known by." for line, words in known if not words])


def test_the_processes_of_a_host() -> None:
    processes = table("workers/README.md", "process")
    roles = {re.sub(r"-[0-9]+$", "-N", name) for name in LOG_NAMES}
    names = {*(task.removeprefix("workers.") for task in Task), *roles}
    check(
        [
            f"{processes.end}: there is a process {name}: add it to a row."
            for name in sorted(names - {*processes.names()})
        ]
        + [f"{processes.end}: no process is called {name}." for name in processes.names() if name not in names]
    )
    parents = " ".join(words for _, words in processes.column("parent and session"))
    limits = (f"{app.conf.worker_concurrency} pool children", f"{app.conf.task_time_limit} s at most")
    check([f"{processes.end}: workers/host/celery.py says: {limit}." for limit in limits if limit not in parents])


def test_the_kill_protocol() -> None:
    steps = re.split(r"\n(?=[0-9]\. )", section("workers/README.md", "The kill protocol").split("\n\n|")[0])[1:]
    first, rounds, receipt = (steps[number - 1] for number in (1, 4, 6))
    told = {name for name in CODE.findall(receipt) if name != EventKind.ENDED}
    wanted = {field.name for one in (Receipt, GpuReceipt) for field in fields(one)}
    check(
        [f"The receipt has {name}: say so in step 6." for name in sorted(wanted - told)]
        + [f"The receipt has no {name}: take it out of step 6." for name in sorted(told - wanted)]
    )
    assert CODE.findall(first) == [Phase.STOPPING]
    assert f"up to {killing.ROUNDS_A_TICK} a tick" in rounds


def section(document: str, title: str) -> str:
    """What stands below a heading of the second level."""
    return (ROOT / document).read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("document", ["README.md", "runs/README.md", "workers/README.md"])
def test_every_setting_of_a_host_that_is_named_exists(document: str) -> None:
    named = set(re.findall(r"`(GRPO_[A-Z0-9_]+)`", (ROOT / document).read_text()))
    check([f"{document}: there is no {name}." for name in sorted(named - {*HOST})])


def test_the_exit_codes_that_mean_something() -> None:
    codes = {ends.SPEC_REFUSED_CODE: EndReason.SPEC_REFUSED, ends.NO_STEPS_CODE: EndReason.NO_STEPS}
    codes |= {ends.MODEL_UNAVAILABLE_CODE: EndReason.MODEL_UNAVAILABLE}
    codes |= {ends.REWARD_FAILED_CODE: EndReason.REWARD_FAILED}
    told = table("workers/README.md", "exit code")
    means = {row.cells[0]: row.cells[-1] for row in told.rows}
    missing = {code: name for code, name in codes.items() if f"`{name}`" not in means.get(str(code), "")}
    check([f"{told.end}: {code} means `{name}`: say so in its row." for code, name in missing.items()])


def test_the_files_of_an_attempt() -> None:
    names = [value for name, value in vars(FileName).items() if name.isupper() and value != FileName.LOGS]
    # Servers after the first have logs of the same kind.
    logs = dict.fromkeys(f"{FileName.LOGS}/{re.sub(r'-[0-9]+$', '-N', name)}.log" for name in LOG_NAMES)
    files = table("workers/README.md", "file")
    told = [name.rstrip("/") for name in files.names()]
    check(
        [f"{files.end}: workers.contract names {name}: add a row." for name in (*names, *logs) if name not in told]
        + [f"{files.end}: {name} is no file of workers.contract." for name in told if name not in {*names, *logs}]
    )


def test_the_steps_and_the_phases() -> None:
    steps = table("workers/README.md", "step")
    check(differences(steps, {step.value: () for step in Step}, "workers.supervisor.steps.Step"))
    told = {name for _, cell in steps.column("phase told") for name in CODE.findall(cell)}
    check(
        [f"{steps.end}: no step tells the phase {phase}." for phase in Phase if phase not in told]
        + [f"{steps.end}: workers.contract.Phase has no {name}." for name in sorted(told - set(Phase))]
    )


@pytest.mark.parametrize("document", ["runs/README.md", "workers/README.md"])
def test_the_deadlines_and_their_defaults(document: str) -> None:
    deadlines = table(document, "deadline")
    wanted = {name: _default(name) for name in deadlines.names()}
    unknown = [f"{document}: there is no {name}: take the row out." for name, value in wanted.items() if not value]
    check(unknown or differences(deadlines, {name: (value,) for name, value in wanted.items()}, "the code"))


def test_every_deadline_of_a_host_is_told() -> None:
    told = table("workers/README.md", "deadline")
    names = [name for name, field in HOST.items() if DEADLINE.search(field.name)]
    rows = [f"| `{name}` | {_default(name)} | ... |" for name in names if name not in told.names()]
    check([f"{told.end}: add a row: {row}" for row in rows])


def _default(name: str) -> str:
    """Of GRPO_..., CONTROLPLANE_... or a constant's dotted name; "" when there is none."""
    if name.startswith("GRPO_"):
        return _with_unit(HOST[name].name, HOST[name].default) if name in HOST else ""
    if name.startswith("CONTROLPLANE_"):
        short = name.removeprefix("CONTROLPLANE_")
        return _with_unit(short, getattr(django_settings, short, None))
    module, _, constant = name.rpartition(".")
    return _with_unit(constant, getattr(importlib.import_module(module), constant, None))


def _with_unit(name: str, value: object) -> str:
    if not isinstance(value, int | float):
        return ""
    return f"{value:g}" + next((unit for ending, unit in UNITS.items() if name.lower().endswith(ending)), "")


MODULE_TABLES = {
    (each.document, each.header[0]): each
    for document in ("README.md", "runs/README.md", "workers/README.md")
    for each in tables_of(document)
    if re.fullmatch(r"`[a-z_/]+/`", each.header[0])
}
"""Tables of modules: their first column is called after the folder."""


@pytest.mark.parametrize("place", MODULE_TABLES, ids=lambda place: place[1])
def test_modules_that_a_table_names_are_there(place: tuple[str, str]) -> None:
    modules = MODULE_TABLES[place]
    folder = ROOT / place[1].strip("`")
    named = [(row.line, name) for row in modules.rows for name in row.names]
    missing = [(line, name) for line, name in named if not _is_module(folder, name)]
    check([f"{modules.document}:{line}: {folder.relative_to(ROOT)} has no module {name}." for line, name in missing])


def _is_module(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() if not name.endswith("/") else (folder / name).is_dir()


@pytest.mark.parametrize("name", ["runs", "workers", "workers/supervisor"])
def test_every_module_has_a_place_in_its_table(name: str) -> None:
    told = [each for place, each in MODULE_TABLES.items() if place[1] == f"`{name}/`"]
    assert told, f"No README has a table of modules whose first column is `{name}/`."
    there = {path.stem for path in (ROOT / name).glob("*.py")} - {"__init__"}
    missing = sorted(there - set(told[0].names()))
    check([f"{told[0].end}: {name}/{module}.py stands in no row: add it to one." for module in missing])


def test_the_threads_of_the_host_side() -> None:
    threads = table("workers/README.md", "thread")
    paths = [path for path in sorted((ROOT / "workers").glob("**/*.py")) if not {"rewards", "sandbox"} & {*path.parts}]
    started = {name for path in paths for name in _threads(path)}
    check(
        [f"{threads.end}: a thread {name!r} is started: add a row." for name in sorted(started - {*threads.names()})]
        + [f"{threads.end}: no thread is called {name!r}." for name in threads.names() if name not in started]
    )


def _threads(path: Path) -> Iterator[str]:
    """Names given to Loop, Job and Reporting's _start; a part that is known only then is a star."""
    for call in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(call, ast.Call) and call.args):
            continue
        if getattr(call.func, "id", getattr(call.func, "attr", "")) not in ("Loop", "Job", "_start"):
            continue
        first = call.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value
        elif isinstance(first, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in first.values)


def test_the_settings_that_the_readme_names_exist() -> None:
    words = {word for path in _sources() for word in re.findall(r"\b[A-Z][A-Z0-9_]+\b", path.read_text())}
    rows = table("README.md", "variable").rows
    names = [(row.line, name.partition("=")[0]) for row in rows for name in row.names]
    check([f"README.md:{line}: no code reads {name}." for line, name in names if not _is_read(name, words)])


def _is_read(name: str, words: set[str]) -> bool:
    """Seconds of the control plane are read by their short name."""
    if name.startswith("GRPO_"):
        return name in HOST
    return name in words or hasattr(django_settings, name.removeprefix("CONTROLPLANE_"))


def _sources() -> Iterator[Path]:
    yield ROOT / "manage.py"
    for package in ("controlplane", "runs", "workers"):
        yield from (ROOT / package).rglob("*.py")


def test_the_defaults_that_the_readme_gives_for_a_host() -> None:
    wrong = []
    for row in table("README.md", "variable").rows:
        said = re.search(r"default ([0-9][0-9.-]*)", row.cells[1])
        if said and row.names[0] in HOST:
            default = HOST[row.names[0]].default
            right = "-".join(map(str, default)) if isinstance(default, tuple) else f"{default:g}"
            if said[1].rstrip(".") != right:
                wrong.append(f"README.md:{row.line}: the default is {right}, not {said[1]}.")
    check(wrong)


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
