"""Three programs, three import worlds: who may import what, by our modules and by what a real start loads."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controlplane.serving.embedded import BASE_DIR as ROOT
from tests.trainer.preloaded import Preloaded

TRAINER_STACK = {"torch", "transformers", "trl", "peft", "datasets", "accelerate", "vllm", "deepspeed", "bitsandbytes"}
WEB_STACK = {"django", "channels", "celery", "redis", "kombu", "uvicorn"}


@dataclass(frozen=True)
class Program:
    """Its modules, what of ours it may import besides, and what it never imports."""

    modules: tuple[str, ...]
    ours: tuple[str, ...]
    never: frozenset[str]
    not_modules: tuple[str, ...] = ()

    def holds(self, module: str) -> bool:
        return is_under(module, self.modules) and not is_under(module, self.not_modules)


PROGRAMS = {
    "control plane": Program(
        modules=("controlplane", "runs", "manage"),
        ours=(
            "workers.contract",
            "workers.rewards",
            "workers.sandbox",
        ),
        never=frozenset(TRAINER_STACK),
    ),
    "host side": Program(
        modules=("workers",),
        not_modules=("workers.trainer", "workers.rewards", "workers.sandbox", "workers.contract"),
        ours=("workers.contract",),
        never=frozenset({*TRAINER_STACK, "django", "channels", "uvicorn", "sqlite3"}),
    ),
    "trainer": Program(
        modules=("workers.trainer",),
        ours=(
            "workers.contract",
            "workers.rewards",
            "workers.sandbox",
        ),
        never=frozenset(WEB_STACK | {"psutil", "pynvml"}),
    ),
    "rewards": Program(
        modules=("workers.rewards",), ours=("workers.contract", "workers.sandbox"), never=frozenset(WEB_STACK)
    ),
}
STANDARD_LIBRARY_ONLY = (
    "workers.contract",
    "runs.states", "controlplane.bootstrap", "controlplane.datafolder",
)  # fmt: skip


def is_under(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def our_modules() -> Iterator[tuple[str, Path]]:
    for package in ("controlplane", "runs", "workers"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path
    yield "manage", ROOT / "manage.py"


def imports_of(path: Path, module: str) -> Iterator[str]:
    """Every module that a file names in an import, inside functions too; type-checking blocks are no imports."""
    tree = ast.parse(path.read_text())
    skipped = {id(inner) for node in ast.walk(tree) if _is_type_checking(node) for inner in ast.walk(node)}
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (base, node.module or "") if part)
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names if source.split(".")[0] in OURS)


OURS = ("controlplane", "runs", "workers", "tests")


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_imports_only_what_its_row_of_the_table_allows(name: str) -> None:
    program = PROGRAMS[name]
    wrong = []
    for module, path in our_modules():
        if not program.holds(module):
            continue
        for imported in imports_of(path, module):
            top = imported.partition(".")[0]
            if top in program.never:
                wrong.append(f"{module} imports {imported}")
            if top in OURS and not program.holds(imported) and not is_under(imported, program.ours):
                if imported in OURS:
                    continue  # the bare package, which is empty
                wrong.append(f"{module} imports {imported}")
    assert wrong == []


@pytest.mark.parametrize("name", STANDARD_LIBRARY_ONLY)
def test_what_everybody_imports_needs_nothing_but_the_standard_library(name: str) -> None:
    wrong = [
        f"{module} imports {imported}"
        for module, path in our_modules()
        if is_under(module, (name,))
        for imported in imports_of(path, module)
        if imported.partition(".")[0] not in sys.stdlib_module_names
        and not (imported in OURS or is_under(imported, STANDARD_LIBRARY_ONLY))
    ]
    assert wrong == []


REPORT = "import sys; print('\\x1e' + ' '.join(sys.modules))"
DRY_RUNS = {
    "the web": (
        "import controlplane.asgi; from django.urls import get_resolver; get_resolver().url_patterns",
        TRAINER_STACK | {"pyarrow", "tokenizers", "jinja2", "workers.supervisor", "workers.trainer", "pynvml"},
    ),
    "the control worker": (
        "from controlplane.celery import app; app.loader.import_default_modules(); app.finalize()",
        TRAINER_STACK | {"workers.supervisor", "workers.trainer"},
    ),
    "the host worker": (
        "from workers.host.celery import app; app.loader.import_default_modules(); app.finalize()",
        # Kombu and Celery take two names of django.utils where Django is installed; Django itself stays out.
        TRAINER_STACK
        | {"django.conf", "django.db", "django.apps", "channels", "workers.trainer", "runs", "controlplane"},
    ),
    "the supervisor": (
        "import workers.supervisor.__main__",
        TRAINER_STACK | {"django", "celery", "redis", "channels", "workers.trainer", "runs", "controlplane"},
    ),
    "the trainer's help": (
        "import workers.trainer.__main__",
        TRAINER_STACK | WEB_STACK | {"workers.supervisor", "runs", "controlplane"},
    ),
}


@pytest.mark.processes
@pytest.mark.parametrize("name", DRY_RUNS)
def test_a_real_start_loads_nothing_forbidden(name: str, tmp_path: Path) -> None:
    code, forbidden = DRY_RUNS[name]
    assert sorted(loaded_by(code, tmp_path, sys.executable) & forbidden) == []


@pytest.mark.trainer
@pytest.mark.processes
def test_the_trainer_with_its_real_libraries_loads_nothing_of_the_web(preloaded: Preloaded) -> None:
    code = "import pkgutil, importlib, workers.trainer as t\n" + (
        "for m in pkgutil.iter_modules(t.__path__, 'workers.trainer.'): importlib.import_module(m.name)"
    )
    loaded = preloaded.run("-c", f"{code}\n{REPORT}").stdout
    forbidden = WEB_STACK | {"workers.supervisor", "runs", "controlplane"}
    assert sorted(set(loaded.rpartition("\x1e")[2].split()) & forbidden) == []


def loaded_by(code: str, folder: Path, python: str) -> set[str]:
    env = {
        **os.environ,
        "CONTROLPLANE_DATA": str(folder),
        "GRPO_RUNS_DIR": str(folder),
        "GRPO_CONTROL_URL": "http://127.0.0.1:1",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run([python, "-c", f"{code}\n{REPORT}"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("\x1e")[2].split())
