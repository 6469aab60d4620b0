"""The front end's bundle: size, reproducibility, and no external resources."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from frontend import BUNDLE


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


def test_bundle_size_is_limited(rebuilt):
    code = rebuilt[0]["widget.js"] + rebuilt[0]["widget.css"]
    assert len(code) <= 400 * 1024
    assert len(gzip.compress(code, mtime=0)) <= 144 * 1024


def test_bundle_has_no_external_resources(rebuilt):
    code = rebuilt[0]["widget.js"].decode()
    for outside in ("unpkg.com", "jsdelivr", "cdnjs", "esm.sh", "importScripts(", "@import"):
        assert outside not in code
    assert "url(http" not in rebuilt[0]["widget.css"].decode()


def test_bundled_packages_have_no_install_scripts(repository: Path):
    lock = json.loads((repository / "js" / "package-lock.json").read_text())
    shipped = {name: entry for name, entry in lock["packages"].items() if name and not entry.get("dev")}
    assert [name for name, entry in shipped.items() if entry.get("hasInstallScript")] == []
    assert "ignore-scripts=true" in (repository / "js" / ".npmrc").read_text().split()
