"""What a real start of each program loads. Who may import what of our modules is held by `lint-imports`, with the
contracts in pyproject.toml."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.trainer.preloaded import Preloaded

TRAINER_STACK = {"torch", "transformers", "trl", "peft", "datasets", "accelerate", "vllm", "deepspeed", "bitsandbytes"}
WEB_STACK = {"django", "channels", "celery", "redis", "kombu", "uvicorn"}
STANDARD_LIBRARY_ONLY = (
    "workers.contract", "workers.diagnosis",
    "runs.engine.states", "controlplane.setup.bootstrap", "controlplane.platform.datafolder",
)  # fmt: skip


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    return grimp.build_graph(
        *("controlplane", "runs", "workers"),
        include_external_packages=True,
        exclude_type_checking_imports=True,
        cache_dir=None,
    )


@pytest.mark.parametrize("name", STANDARD_LIBRARY_ONLY)
def test_what_everybody_imports_needs_nothing_but_the_standard_library(name: str, imports: grimp.ImportGraph) -> None:
    wrong = [
        f"{module} imports {imported}"
        for module in sorted({name} | imports.find_descendants(name))
        for imported in sorted(imports.find_modules_directly_imported_by(module))
        if imported.partition(".")[0] not in sys.stdlib_module_names
        and not any(f"{imported}.".startswith(f"{allowed}.") for allowed in STANDARD_LIBRARY_ONLY)
    ]
    assert wrong == []


def passed_on(path: Path) -> list[str]:
    """Names that a module imports for other modules: it doesn't use them itself."""
    tree = ast.parse(path.read_text())
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    imports = [alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    return [
        alias.name
        for alias in imports
        if alias.asname == alias.name
        or (path.name == "__init__.py" and (alias.asname or alias.name) not in read | {"annotations"})
    ]


def test_no_module_passes_on_the_names_of_another() -> None:
    modules = [path for folder in ("controlplane", "runs", "workers") for path in (ROOT / folder).rglob("*.py")]
    assert {str(path.relative_to(ROOT)): names for path in modules if (names := passed_on(path))} == {}


@pytest.mark.parametrize("line", ["from a import X as X", "from a import X"])
def test_a_name_that_is_passed_on_is_noticed(line: str, tmp_path: Path) -> None:
    module = tmp_path / "__init__.py"
    module.write_text(f"from __future__ import annotations\n{line}\n__all__ = ['X']\n")
    assert passed_on(module) == ["X"]


def test_migrations_use_no_code_of_ours() -> None:
    """What they would import changes after them. `new_run_id` is a default that Django writes down by its name."""
    imported = {
        f"{path.parent.parent.name}.{path.stem}: {line}"
        for package in ("controlplane", "runs")
        for path in (ROOT / package).glob("**/migrations/0*.py")
        for line in re.findall(r"^(?:from|import) ((?:controlplane|runs|workers)\S*)", path.read_text(), re.MULTILINE)
    }
    assert imported == {"engine.0001_tables: runs.engine.models"}


REPORT = "import sys; print('\\x1e' + ' '.join(sys.modules))"
DRY_RUNS = {
    "the web": (
        "import controlplane.asgi; from django.urls import get_resolver; get_resolver().url_patterns",
        # jinja2 comes with django-ninja, which loads django.test; nothing of the web renders with it.
        TRAINER_STACK | {"pyarrow", "tokenizers", "workers.supervisor", "workers.trainer", "pynvml"},
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
