"""What pages load ahead: Plotly, Ace and the typeface from their packages, and the modules that a module imports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from urllib.parse import unquote

import pytest
from django.contrib.staticfiles import finders

from controlplane.platform import packagefinder
from controlplane.platform.templatetags import scripts
from controlplane.setup.serving.processes import BASE_DIR


def test_plotly_has_its_version_in_its_address_and_is_found_there_alone() -> None:
    assert scripts.plotly_src() == f"/static/{packagefinder.PLOTLY}"
    assert Path(str(finders.find(packagefinder.PLOTLY))).is_file()
    for name in ("plotly/plotly.min.js", "plotly/datasets/iris.csv.gz", packagefinder.PLOTLY.replace("min.js", "js")):
        assert finders.find(name) is None


def test_the_basic_build_of_plotly_is_served_where_it_is_installed_else_the_wheels(tmp_path: Path) -> None:
    folder, name = packagefinder.plotly(tmp_path)
    assert name == f"plotly/{version('plotly')}/plotly.min.js"
    with (folder / "plotly.min.js").open() as file:
        whole = file.read(200)
    basic = tmp_path / "plotly.js-basic-dist-min"
    basic.mkdir()
    (basic / "plotly-basic.min.js").touch()
    (basic / "package.json").write_text(json.dumps({"version": "4.0.0"}))
    assert packagefinder.plotly(tmp_path) == (basic, "plotly-basic/4.0.0/plotly-basic.min.js")
    wanted = json.loads((BASE_DIR / "frontend" / "package.json").read_text())["dependencies"]
    assert f"plotly.js v{wanted['plotly.js-basic-dist-min']}\n" in whole, "both are to draw alike"


def test_of_the_code_editor_only_what_python_needs_is_found() -> None:
    assert scripts.ace_src() == f"/static/ace/{version('django-ace')}/ace.js"
    assert scripts.ace_src("") == f"/static/ace/{version('django-ace')}/"
    for name in packagefinder.AceFinder.files:
        assert Path(str(finders.find(f"{packagefinder.ACE_FOLDER}/{name}"))).is_file()
    for name in ("worker-javascript.js", "../widget.js", "theme-chaos.js", "", "css/../ace.js"):
        assert finders.find(f"{packagefinder.ACE_FOLDER}/{name}") is None
    assert finders.find("ace/ace.js") is None


def test_every_image_that_the_editors_style_sheet_names_is_served() -> None:
    styles = Path(str(finders.find(f"{packagefinder.ACE_FOLDER}/{packagefinder.ACE_STYLES}"))).read_text("utf-8")
    named = set(re.findall(r"""url\(["']?\./([^"')]+)""", styles))
    assert named
    assert {f"css/{name}" for name in named} == set(packagefinder.ACE_IMAGES)


def test_the_typeface_comes_from_its_packages_and_is_loaded_ahead() -> None:
    styles = (BASE_DIR / "frontend/static/css/tokens.css").read_text()
    named = [unquote(path) for path in re.findall(r'url\("\.\./(fonts/[^"]+)"\)', styles)]
    assert named[0] == packagefinder.FONT
    assert all(str(finders.find(name)).endswith(f"/files/{Path(name).name}") for name in named)
    assert scripts.font_src() == "/static/fonts/geist/Geist%5Bwght%5D.ttf"
    assert finders.find("fonts/geist/Geist-Italic[wght].ttf") is None


@pytest.mark.processes
def test_files_with_their_version_in_the_address_are_kept_for_good(tmp_path: Path) -> None:
    """What a start collects is served to browsers under a path that changes with it."""
    environment = {**os.environ, "CONTROLPLANE_DATA": str(tmp_path), "DJANGO_SETTINGS_MODULE": "controlplane.settings"}
    words = [sys.executable, "-c", VERSIONED]
    done = [subprocess.run(words, env=environment, cwd=BASE_DIR, capture_output=True, text=True) for _ in range(2)]
    assert [each.returncode for each in done] == [0, 0], done[-1].stderr
    first, second = (json.loads(each.stdout) for each in done)
    assert first == {"url": "/static/js/theme.js", "status": 200, "kept": "max-age=0, public", "old": 200}
    assert re.fullmatch(r"/static/[0-9a-f]{12}/js/theme\.js", second.pop("url"))
    assert second == {"status": 200, "kept": "max-age=315360000, public, immutable", "old": 200}


def test_every_module_that_a_page_needs_is_loaded_ahead_once() -> None:
    modules = scripts.imported("js/pages/run_page/run_page.js")
    assert {"js/insight/metrics/charts_page.js", "js/insight/metrics/plotly_figure.js", "js/urlstate.js"} <= set(
        modules
    )
    assert "js/pages/run_page/run_page.js" not in modules
    assert len(set(modules)) == len(modules)
    assert str(scripts.preload_modules("js/pages/run_page/run_page.js")).count(
        '<link rel="modulepreload" href="/static/js/'
    ) == len(modules)


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(LookupError, match=r"js/nowhere\.js"):
        scripts.imported("js/nowhere.js")


VERSIONED = """
import json, django
django.setup()
from django.templatetags.static import static
from django.test import Client
from controlplane.platform import staticfiles
staticfiles.collect(lambda words: None)
url = static("js/theme.js")
answer, old = Client().get(url), Client().get("/static/0123456789ab/js/theme.js")
print(json.dumps({"url": url, "status": answer.status_code, "kept": answer["Cache-Control"], "old": old.status_code}))
"""
MODULE = re.compile(r'<script type="module" src="{% static "js/(?:[\w-]+/)*([\w-]+\.js)" %}"([^>]*)>')


def test_no_page_is_painted_before_its_script_listens() -> None:
    templates = [path.read_text() for path in (BASE_DIR / "frontend" / "templates").rglob("*.html")]
    assert sum(text.count('type="module"') for text in templates) == sum(len(MODULE.findall(t)) for t in templates)
    assert not [name for text in templates for name, rest in MODULE.findall(text) if 'blocking="render"' not in rest]


def test_no_script_of_a_page_waits_before_it_listens() -> None:
    scripts = (BASE_DIR / "frontend" / "static" / "js").rglob("*.js")
    assert [path.name for path in scripts if re.search(r"^[^\s/*}].*\bawait\b", path.read_text(), re.MULTILINE)] == []
