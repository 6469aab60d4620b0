"""The cache of built extension modules, `tools/extension.py`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    before = set(sys.modules)
    module = importlib.import_module("extension")
    monkeypatch.setattr(module, "_cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(module, "PACKAGE", tmp_path / "python" / "smdwidgets")
    module.PACKAGE.mkdir(parents=True)
    yield module
    for name in {"extension", "steps", "uv", "processes"} - before:
        sys.modules.pop(name, None)


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    metadata = tmp_path / "venv" / "lib" / "site-packages" / "smdwidgets-9.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Name: smdwidgets", encoding="utf-8")
    return tmp_path / "venv"


def test_the_second_build_of_the_same_sources_compiles_nothing(extension, venv, monkeypatch):
    compiled, installed = [], []

    def compile_(*command: object, **options: object) -> None:
        compiled.append(command)
        (extension.PACKAGE / "_core.abi3.so").write_bytes(b"built")

    monkeypatch.setattr(extension, "run", compile_)
    monkeypatch.setattr(extension, "install", lambda venv, *words: installed.append(words))
    extension.build(venv)
    (extension.PACKAGE / "_core.abi3.so").unlink()
    extension.build(venv)
    assert len(compiled) == len(installed) == 1
    assert (extension.PACKAGE / "_core.abi3.so").read_bytes() == b"built"


def test_other_sources_are_another_build(extension, monkeypatch):
    first = extension._digest("rustc 1.90")
    assert extension._digest("rustc 1.91") != first
    monkeypatch.setattr(extension, "hash_files", lambda paths: "changed")
    assert extension._digest("rustc 1.90") != first


def test_old_builds_are_removed(extension, venv):
    (extension.PACKAGE / "_core.abi3.so").write_bytes(b"built")
    for number in range(extension.KEPT + 2):
        extension._keep(extension._cache() / str(number), venv)
    assert len(list(extension._cache().iterdir())) == extension.KEPT


@pytest.mark.parametrize(
    ("path", "answer", "problem"),
    [
        (None, "", "no cargo is on the PATH"),
        ("/bin/cargo", "rustc 1.50.0 (2021)", "this is rustc 1.50 (`rustup update` installs a newer one)"),
    ],
)
def test_without_rust_one_message_says_how_to_install_it(extension, monkeypatch, path, answer, problem):
    monkeypatch.setattr(extension.shutil, "which", lambda name: path)
    done = SimpleNamespace(returncode=0, stdout=answer, stderr="")
    monkeypatch.setattr(extension.subprocess, "run", lambda *words, **options: done)
    with pytest.raises(extension.SetupError) as raised:
        extension.require_rust()
    assert problem in str(raised.value)
    assert "https://rustup.rs" in str(raised.value)
