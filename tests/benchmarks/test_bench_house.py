"""`manage.py bench house` on a small tree with offenders of each kind."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks import house

LONG = "x = 1\n" * 50
TREE = {
    "manage.py": LONG,
    "README.md": "# A house\n\nGRPO_NAMED\n",
    "CHANGELOG.md": "# Changes\n",
    "controlplane/__init__.py": "",
    "controlplane/platform/one.py": f"class Row: ...\ndef late():\n    from controlplane.platform import two\n{LONG}",
    "controlplane/platform/two.py": (
        f"class Row: ...\nfrom .one import Row\nfrom runs.engine.states import END\n"
        f"NAMED, UNNAMED = 'GRPO_NAMED', 'GRPO_UNNAMED'\n{LONG}"
    ),
    "controlplane/platform/apps.py": "",
    "controlplane/setup/four.py": LONG,
    "controlplane/urls.py": f"from runs.engine import states\n{LONG}",
    "controlplane/migrations/0001_initial.py": LONG,
    "runs/__init__.py": "",
    "runs/engine/states.py": (
        "from typing import TYPE_CHECKING\nEND = 1\nif TYPE_CHECKING:\n    from runs.insight.charts import draw\n"
    ),
    "runs/insight/charts.py": "from runs.engine import states\ndef draw():\n" + "    x = 1\n" * 41,
    "runs/pages/list/views.py": f"from runs.pages.page import views\n{LONG}",
    "runs/pages/page/views.py": LONG,
    "frontend/static/css/page.css": "a {\n}\n",
    "frontend/templates/page.html": "{% if a %}{% elif b %}{% else %}{% endif %}" + "\n" + "b" * 161 + "\n",
}


def test_each_kind_of_offender_is_counted_and_named(tmp_path: Path) -> None:
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    python = {name: text for name, text in TREE.items() if name.endswith(".py") and "migrations" not in name}
    figures = house.figures(tmp_path)
    assert {name: (figure.value, figure.offenders) for name, figure in figures.items()} == {
        "product_python_lines": (sum(len(text.splitlines()) for text in python.values()), []),
        "import_cycles": (
            2,
            ["controlplane.platform.one controlplane.platform.two", "runs.engine.states runs.insight.charts"],
        ),
        "upward_imports": (
            2,
            ["runs.engine.states imports runs.insight.charts", "runs.pages.list.views imports runs.pages.page.views"],
        ),
        "controlplane_imports_runs": (1, ["controlplane.platform.two imports runs.engine.states"]),
        "files_under_40_lines": (1, ["runs.engine.states (4)"]),
        "class_names_in_several_modules": (1, ["Row: controlplane.platform.one controlplane.platform.two"]),
        "functions_over_40_lines": (1, ["runs.insight.charts.draw (42)"]),
        "largest_room_modules": (
            3,
            ["controlplane.platform: controlplane.platform.apps controlplane.platform.one controlplane.platform.two"],
        ),
        "most_neighbours": (1, ["controlplane: runs.engine"]),
        "longest_module": (54, ["controlplane.platform.two"]),
        "css_lines": (2, []),
        "template_conditions": (2, []),
        "template_lines_over_160": (1, ["frontend/templates/page.html:2 (161)"]),
        "readme_lines": (3, []),
        "changelog_lines": (1, []),
        "settings": (2, ["GRPO_NAMED", "GRPO_UNNAMED"]),
        "settings_without_readme": (1, ["GRPO_UNNAMED"]),
    }
