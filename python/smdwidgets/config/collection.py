"""Collection: a named group of tensors and their save settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from smdwidgets._text import shown
from smdwidgets.config._parse import mapping, texts, truth
from smdwidgets.config.reduction_config import ReductionConfig
from smdwidgets.config.save_config import SaveConfig, SaveConfigMode
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.modes import ModeKeys


class Collection:
    """A group of tensors, by name and by pattern, and their save settings.

    A tensor belongs to the collection if its name is in ``tensor_names`` or any pattern of ``include_regex`` is found
    in it.

    >>> relu = Collection("relu", include_regex=["relu"])
    >>> relu.include("gelu")
    >>> relu.include_regex
    ['relu', 'gelu']
    """

    #: How often an attribute of any collection was set in this process.
    changes: ClassVar[int] = 0

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

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        Collection.changes += 1

    @property
    def tensor_names(self) -> set[str]:
        """Names of tensors that belong to the collection regardless of the patterns."""
        return self._tensor_names

    @tensor_names.setter
    def tensor_names(self, tensor_names: Iterable[str] | None) -> None:
        if tensor_names is None:
            self._tensor_names: set[str] = set()
        elif isinstance(tensor_names, str):
            raise SMDebugTypeError(
                f"tensor_names must be a list of strings, got {shown(tensor_names)}; pass [{shown(tensor_names)}]"
            )
        else:
            self._tensor_names = set(texts(tensor_names, "tensor_names"))

    @property
    def reduction_config(self) -> ReductionConfig | None:
        """Reductions to save; None: those of the hook."""
        return self._reduction_config

    @reduction_config.setter
    def reduction_config(self, reduction_config: ReductionConfig | None) -> None:
        if not (reduction_config is None or isinstance(reduction_config, ReductionConfig)):
            raise SMDebugTypeError(f"reduction_config must be a ReductionConfig, got {type(reduction_config).__name__}")
        self._reduction_config = reduction_config

    @property
    def save_config(self) -> SaveConfig | None:
        """Steps at which to save; None: those of the hook."""
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
        """Return whether a tensor is listed by name; ignores patterns."""
        return tname in self._tensor_names

    def remove_tensor_name(self, tname: str) -> None:
        """Remove one tensor by name."""
        self._tensor_names.discard(tname)

    def state(self) -> tuple[object, ...]:
        """Return a value that changes with the patterns, the tensors and the settings."""
        save, reduce = self._save_config, self._reduction_config
        return len(self.include_regex), len(self._tensor_names), id(save), save, id(reduce), reduce

    def to_json_dict(self) -> dict[str, object]:
        """Return the dictionary form used in collection files."""
        return {
            "name": self.name,
            "include_regex": self.include_regex,
            "tensor_names": sorted(self.tensor_names),
            "reduction_config": self.reduction_config.to_json_dict() if self.reduction_config else None,
            "save_config": self.save_config.to_json_dict() if self.save_config else None,
            "save_histogram": self.save_histogram,
        }

    def to_json(self) -> str:
        """Return the JSON form used in collection files."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params: Mapping[str, Any]) -> Self:
        """Create a collection from its dictionary form."""
        params = mapping(params, "collection")
        name = params.get("name")
        if not isinstance(name, str):
            raise SMDebugValueError(f"collection name must be a string, got {shown(name)}")
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
        """Create a collection from its JSON form."""
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
    """Return a list of patterns. A string is one pattern, even if it contains commas."""
    return [given] if isinstance(given, str) else texts(given, "include_regex")
