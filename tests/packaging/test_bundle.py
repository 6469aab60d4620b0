"""The front end's bundle: size, reproducibility, and no external resources."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from frontend import BUNDLE
from smdwidgets.widgets import bundle


@pytest.fixture(scope="module")
def rebuilt(repository, tmp_path_factory) -> list[dict[str, bytes]]:
    """The bundle, built from two copies of the sources in different folders."""
    built = []
    for name in ("one", "another name"):
        root = tmp_path_factory.mktemp(name)
        ignored = shutil.ignore_patterns("node_modules")
        shutil.copytree(repository / "js", root / "js", ignore=ignored)
        (root / "js" / "node_modules").symlink_to(repository / "js" / "node_modules", target_is_directory=True)
        (root / "python" / "smdwidgets").mkdir(parents=True)
        subprocess.run(["node", "scripts/build.mjs"], cwd=root / "js", check=True, capture_output=True)
        built.append({file.name: file.read_bytes() for file in (root / "python" / "smdwidgets" / "static").iterdir()})
    return built


def test_builds_are_reproducible(rebuilt):
    one, other = rebuilt
    assert sorted(one) == sorted(BUNDLE)
    for name in BUNDLE:
        assert hashlib.sha256(one[name]).digest() == hashlib.sha256(other[name]).digest(), name


def test_package_contains_the_bundle_of_these_sources(repository, rebuilt):
    static = repository / "python" / "smdwidgets" / "static"
    assert {file.name: file.read_bytes() for file in static.iterdir()} == rebuilt[0]


#: By kind of widget, the most bytes of JavaScript and of style sheets until its first picture.
FIRST_PICTURE = {"explorer": (205 * 1024, 26 * 1024), "slider": (60 * 1024, 10 * 1024)}
#: The most bytes of all parts together.
ALL = 446 * 1024


def first_picture(kind: str) -> tuple[int, int]:
    """Return the bytes of code and of styles before a page shows a widget."""
    files = bundle.answer(kind, many=False)["files"]
    code = {name: text for name, text in files.items() if name.endswith(".js")} | {
        "loader.js": bundle.text("loader.js")
    }
    styles = {name: text for name, text in files.items() if name.endswith(".css")}
    assert len(code) + len(styles) == len(files) + 1
    return tuple(sum(len(text.encode()) for text in texts.values()) for texts in (code, styles))


@pytest.mark.parametrize("kind", FIRST_PICTURE)
def test_code_of_the_first_picture_is_limited(kind):
    code, styles = first_picture(kind)
    most_code, most_styles = FIRST_PICTURE[kind]
    assert 10_000 < code <= most_code
    assert 1_000 < styles <= most_styles


def test_size_of_all_parts_is_limited(rebuilt):
    texts = json.loads(rebuilt[0]["parts.json"])["files"].values()
    assert sum(len(text.encode()) for text in texts) <= ALL


def test_parts_that_are_loaded_later_are_not_in_the_first_picture():
    later = {"widgets/inspector/pictures", "widgets/multiples/grid", "widgets/compare/bar", "widgets/rules/row"}
    later |= {"query/complete", "widgets/common/picture-file", "widgets/scalars/panel", "widgets/kinds/many"}
    assert later <= bundle.parts()["needs"].keys()
    assert not later.intersection(bundle.first_parts("explorer", many=False))


STATES = """
import json, sys
import smdwidgets
from smdwidgets.numpy import Hook

def size(widget):
    state = widget.get_state()
    text = [v if isinstance(v, str) else json.dumps(v) for k, v in state.items() if k != "_boot"]
    return sum(map(len, [*text, *state["_boot"]]))

with Hook(sys.argv[1], save_all=True) as hook:
    for step in range(30):
        hook.save_scalar("loss", 1 / (step + 1))
print(size(smdwidgets.explore(sys.argv[1])), size(smdwidgets.explore(sys.argv[1])), size(smdwidgets.StepSlider([1, 2, 3])))
"""


def test_the_second_widget_of_a_kernel_adds_little_state(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", STATES, str(tmp_path / "run")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    first, second, slider = map(int, done.stdout.split())
    assert first > 100_000  # the first one carries the code, so that it needs no message
    assert second <= 3 * 1024
    # Its own parts, which the explorer does not have, come with the first slider.
    assert slider <= 9 * 1024


def test_every_part_can_be_reached_and_has_what_it_needs():
    content = bundle.parts()
    names = set(content["needs"])
    files = {f"{name}.js" for name in names} | {sheet for sheets in content["styles"].values() for sheet in sheets}
    assert content["files"].keys() == files | {"parts.js"}
    reached, waiting = set(), ["widget", "exported-page"]
    while waiting:
        if (name := waiting.pop()) not in reached:
            reached.add(name)
            waiting += [*content["needs"][name], *content["later"][name]]
    assert reached == names


def test_an_exported_page_has_the_parts_of_its_widget_only():
    slider, explorer = (bundle.page_code(kind, many=False) for kind in ("slider", "explorer"))
    assert 'define("widgets/kinds/slider"' in slider.script
    assert 'define("widgets/kinds/explorer"' not in slider.script
    assert 'define("widgets/inspector/values"' in explorer.script
    assert 'define("widgets/kinds/many"' not in explorer.script
    assert 'define("widget",' not in explorer.script
    assert len(slider.script) < 80 * 1024
    assert len(slider.style) < len(explorer.style)


def test_an_unknown_part_is_refused():
    assert "is not a part" in bundle.answer("explorer", False, ["../secret"])["error"]


def test_parts_that_the_page_has_are_not_sent_again():
    needs = bundle.parts()["needs"]["widgets/inspector/pictures"]
    answer = bundle.answer("explorer", False, ["widgets/inspector/pictures"], needs)
    assert [name for name in answer["files"] if name.endswith(".js")] == ["widgets/inspector/pictures.js"]


def test_bundle_has_no_external_resources(rebuilt):
    for text in json.loads(rebuilt[0]["parts.json"])["files"].values():
        for outside in ("unpkg.com", "jsdelivr", "cdnjs", "esm.sh", "importScripts(", "@import", "url(http"):
            assert outside not in text


def test_bundled_packages_have_no_install_scripts(repository: Path):
    lock = json.loads((repository / "js" / "package-lock.json").read_text())
    shipped = {name: entry for name, entry in lock["packages"].items() if name and not entry.get("dev")}
    assert [name for name, entry in shipped.items() if entry.get("hasInstallScript")] == []
    assert "ignore-scripts=true" in (repository / "js" / ".npmrc").read_text().split()
