"""Implementations that a higher layer registers, loaded at first use.

Plots and exports depend on trials, so trials must not import them. ``smdwidgets/__init__.py`` registers a loader for
each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Extension(Generic[T]):
    """An implementation, loaded at first use.

    >>> extension = Extension("plots")
    >>> extension.register(lambda: "implementation")
    >>> extension.load()
    'implementation'
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loader: Callable[[], T] | None = None

    def register(self, loader: Callable[[], T]) -> None:
        """Set the function that returns the implementation."""
        self._loader = loader

    def load(self) -> T:
        """Return the implementation."""
        if self._loader is None:
            raise RuntimeError(f"no implementation of {self._name} is registered")
        return self._loader()


# The types of the implementations are declared in `trials/extensions.py`.
tensor_plotter: Extension[Any] = Extension("tensor.plot")
trial_plotter: Extension[Any] = Extension("trial.plot")
exporter: Extension[Any] = Extension("trial.export")
lazy_reader: Extension[Any] = Extension("tensor.to_dask")
explorer: Extension[Any] = Extension("explorer of a table of runs")
catalog_writer: Extension[Any] = Extension("Hook(catalog=...)")
