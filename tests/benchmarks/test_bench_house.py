"""`manage.py bench house` on a small tree with one offender of each kind."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks import house

LONG = "x = 1\n" * 50
TREE = {
    "manage.py": LONG,
    "controlplane/__init__.py": "",
    "controlplane/one.py": f"class Row: ...\ndef late():\n    from controlplane import two\n{LONG}",
    "controlplane/two.py": f"class Row: ...\nfrom .one import Row\nfrom runs.engine.states import END\n{LONG}",
    "controlplane/urls.py": f"from runs import states\n{LONG}",
    "controlplane/migrations/0001_initial.py": LONG,
    "runs/__init__.py": "",
    "runs/engine/states.py": (
        "from typing import TYPE_CHECKING\nEND = 1\nif TYPE_CHECKING:\n    from controlplane.two import Row\n"
    ),
    "frontend/templates/page.html": "a" * 160 + "\n" + "b" * 161 + "\n",
}


def test_each_kind_of_offender_is_counted_and_named(tmp_path: Path) -> None:
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    figures = house.figures(tmp_path)
    assert {name: (figure.value, figure.offenders) for name, figure in figures.items()} == {
        "product_python_lines": (50 * 4 + 3 + 3 + 1 + 4, []),
        "import_cycles": (1, ["controlplane.one controlplane.two"]),
        "controlplane_imports_runs": (1, ["controlplane.two imports runs.engine.states"]),
        "files_under_40_lines": (1, ["runs.engine.states (4)"]),
        "class_names_in_several_modules": (1, ["Row: controlplane.one controlplane.two"]),
        "template_lines_over_160": (1, ["frontend/templates/page.html:2 (161)"]),
        "longest_module": (53, ["controlplane.one"]),
    }
