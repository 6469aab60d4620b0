"""A named group of tensors and how they are saved."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Self

from smdwidgets._text import shown
from smdwidgets.config._parse import mapping, texts, truth
from smdwidgets.config.reduction_config import ReductionConfig
from smdwidgets.config.save_config import SaveConfig, SaveConfigMode
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.modes import ModeKeys


class Collection:
    """Tensors by name and by pattern, and how they are saved.

    A tensor belongs to it if its name is in ``tensor_names`` or any pattern of ``include_regex`` is found in its name.

    >>> relu = Collection("relu", include_regex=["relu"])
    >>> relu.include("gelu")
    >>> relu.include_regex
    ['relu', 'gelu']
    """

    def __init__(
        self,
        name: str,
        include_regex: Iterable[str] | None = None,
        tensor_names: Iterable[str] | None = None,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | SaveConfigMode | Mapping[ModeKeys, SaveConfigMode | None] | None = None,
        save_histogram: bool = True,
    ) -> None:
        self.name = name
        self.include_regex: list[str] = [] if include_regex is None else _patterns(include_regex)
        self.tensor_names = tensor_names
        self.reduction_config = reduction_config
        self.save_config = save_config
        self.save_histogram = truth(save_histogram, "save_histogram")

    @property
    def tensor_names(self) -> set[str]:
        """Names of tensors that belong to it, whatever the patterns say."""
        return self._tensor_names

    @tensor_names.setter
    def tensor_names(self, tensor_names: Iterable[str] | None) -> None:
        if tensor_names is None:
            self._tensor_names: set[str] = set()
        elif isinstance(tensor_names, str):
            raise SMDebugTypeError(f"tensor_names takes a list of names: give [{shown(tensor_names)}].")
        else:
            self._tensor_names = set(texts(tensor_names, "tensor_names"))

    @property
    def reduction_config(self) -> ReductionConfig | None:
        """Which reductions are saved; None for the hook's own."""
        return self._reduction_config

    @reduction_config.setter
    def reduction_config(self, reduction_config: ReductionConfig | None) -> None:
        if not (reduction_config is None or isinstance(reduction_config, ReductionConfig)):
            raise SMDebugTypeError(f"reduction_config takes a ReductionConfig, not {type(reduction_config).__name__}.")
        self._reduction_config = reduction_config

    @property
    def save_config(self) -> SaveConfig | None:
        """When it is saved; None for the hook's own."""
        return self._save_config

    @save_config.setter
    def save_config(
        self, save_config: SaveConfig | SaveConfigMode | Mapping[ModeKeys, SaveConfigMode | None] | None
    ) -> None:
        self._save_config = None if save_config is None else SaveConfig.parse(save_config)

    def include(self, t: str | Iterable[str]) -> None:
        """Add patterns (``re.search`` on the tensor's name)."""
        self.include_regex.extend(_patterns(t))

    def add_tensor_name(self, tname: str) -> None:
        """Add one tensor by name."""
        self._tensor_names.add(tname)

    def has_tensor_name(self, tname: str) -> bool:
        """Whether the tensor is listed by name; patterns are not asked."""
        return tname in self._tensor_names

    def remove_tensor_name(self, tname: str) -> None:
        """Take one tensor off the list."""
        self._tensor_names.discard(tname)

    def to_json_dict(self) -> dict[str, object]:
        """The form in a collection file."""
        return {
            "name": self.name,
            "include_regex": self.include_regex,
            "tensor_names": sorted(self.tensor_names),
            "reduction_config": self.reduction_config.to_json_dict() if self.reduction_config else None,
            "save_config": self.save_config.to_json_dict() if self.save_config else None,
            "save_histogram": self.save_histogram,
        }

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params: Mapping[str, Any]) -> Self:
        """From the form in a collection file."""
        params = mapping(params, "A collection")
        name = params.get("name")
        if not isinstance(name, str):
            raise SMDebugValueError(f"A collection's name must be a string, not {shown(name)}.")
        return cls(
            name=name,
            include_regex=params.get("include_regex") or [],
            tensor_names=params.get("tensor_names") or [],
            reduction_config=ReductionConfig.from_dict(params.get("reduction_config")),
            save_config=SaveConfig.from_dict(params.get("save_config")),
            save_histogram=params.get("save_histogram", True),
        )

    @classmethod
    def from_json(cls, json_str: str) -> Self:
        """From the same as text."""
        return cls.from_dict(json.loads(json_str))

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, Collection) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return str(self.to_json_dict())

    def __repr__(self) -> str:
        return f"Collection({shown(self.name)}, {len(self.tensor_names)} tensors, include_regex={self.include_regex})"


def _patterns(given: str | Iterable[str]) -> list[str]:
    """A pattern or a list of them. A comma is part of a pattern, so a string is one pattern."""
    return [given] if isinstance(given, str) else texts(given, "include_regex")
