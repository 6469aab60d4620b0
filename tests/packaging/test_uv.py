"""Settings of pip are passed to uv, which does not read them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def from_pip(repository: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(repository / "tools"))
    from uv import from_pip

    return from_pip


def test_no_settings(from_pip):
    assert from_pip("") == ({}, [])
    assert from_pip("global.disable-pip-version-check='1'\n") == ({}, [])


def test_environment_takes_precedence_over_install_and_global(from_pip):
    config = ":env:.index-url='file:///c'\nglobal.index-url='file:///a'\ninstall.index-url='file:///b'\n"
    assert from_pip(config)[0] == {"UV_DEFAULT_INDEX": "file:///c"}
    assert from_pip(config.partition("\n")[2])[0] == {"UV_DEFAULT_INDEX": "file:///b"}


def test_several_indexes_use_the_best_version(from_pip):
    env, _ = from_pip("global.extra-index-url='\\nfile:///a\\nfile:///b'\n")
    assert env == {"UV_INDEX": "file:///a file:///b", "UV_INDEX_STRATEGY": "unsafe-best-match"}


def test_missing_folders_are_omitted(from_pip, tmp_path):
    missing = str(tmp_path / "missing")
    env, _ = from_pip("global.find-links=" + repr(f"{tmp_path} {missing} file:///x"))
    assert env == {"UV_FIND_LINKS": f"{tmp_path},file:///x"}
    assert from_pip("global.find-links=" + repr(missing)) == ({}, [])


def test_no_index_is_an_option(from_pip):
    assert from_pip("global.no-index='true'\n") == ({}, ["--no-index"])
    assert from_pip("global.no-index='false'\n") == ({}, [])


def test_certificates_timeout_and_trusted_hosts(from_pip):
    config = "global.cert='/a.pem'\n:env:.default-timeout='180'\nglobal.trusted-host='a b'\n"
    env = {"SSL_CERT_FILE": "/a.pem", "UV_HTTP_TIMEOUT": "180", "UV_INSECURE_HOST": "a b"}
    assert from_pip(config) == (env, [])
