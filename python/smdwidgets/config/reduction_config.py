"""ReductionConfig: reductions to save instead of, or in addition to, values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from smdwidgets.config._parse import choices, mapping, texts, truth

ALLOWED_REDUCTIONS: Final = ("min", "max", "mean", "std", "variance", "sum", "prod")
ALLOWED_NORMS: Final = ("l1", "l2")


class ReductionConfig:
    """Reductions to save for each tensor of a collection.

    Args:
        reductions: reductions of the tensor.
        abs_reductions: reductions of its absolute value.
        norms: norms of the tensor.
        abs_norms: norms of its absolute value.
        save_raw_tensor: also save the value.
        save_shape: also save the shape.

    >>> config = ReductionConfig(reductions=["mean"], abs_norms=["l2"])
    >>> config.to_json_dict()
    {'save_raw_tensor': False, 'reductions': 'mean,abs_l2_norm', 'save_shape': False}
    >>> ReductionConfig.from_dict(config.to_json_dict()) == config
    True
    """

    def __init__(
        self,
        reductions: Iterable[str] | str | None = None,
        abs_reductions: Iterable[str] | str | None = None,
        norms: Iterable[str] | str | None = None,
        abs_norms: Iterable[str] | str | None = None,
        save_raw_tensor: bool | str = False,
        save_shape: bool | str = False,
    ) -> None:
        self.reductions = texts(reductions or [], "reductions")
        self.abs_reductions = texts(abs_reductions or [], "abs_reductions")
        self.norms = texts(norms or [], "norms")
        self.abs_norms = texts(abs_norms or [], "abs_norms")
        self.save_raw_tensor = truth(save_raw_tensor, "save_raw_tensor")
        self.save_shape = truth(save_shape, "save_shape")
        choices(self.reductions, ALLOWED_REDUCTIONS, "reductions")
        choices(self.abs_reductions, ALLOWED_REDUCTIONS, "abs_reductions")
        choices(self.norms, ALLOWED_NORMS, "norms")
        choices(self.abs_norms, ALLOWED_NORMS, "abs_norms")

    def pairs(self) -> list[tuple[str, bool]]:
        """Return all reductions and norms as pairs (name, abs).

        >>> ReductionConfig(reductions=["min"], abs_norms=["l1"]).pairs()
        [('min', False), ('l1', True)]
        """
        plain = [(name, False) for name in self.reductions + self.norms]
        return plain + [(name, True) for name in self.abs_reductions + self.abs_norms]

    def to_json_dict(self) -> dict[str, object]:
        """Return the dictionary form used in collection files."""
        parts = [*self.reductions, *(f"{norm}_norm" for norm in self.norms)]
        parts += [*(f"abs_{name}" for name in self.abs_reductions), *(f"abs_{norm}_norm" for norm in self.abs_norms)]
        return {
            "save_raw_tensor": self.save_raw_tensor,
            "reductions": ",".join(parts),
            "save_shape": self.save_shape,
        }

    def to_json(self) -> str:
        """Return the JSON form used in collection files."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params: Mapping[str, object] | None) -> ReductionConfig | None:
        """Create a configuration from its dictionary form; return None for None."""
        if params is None:
            return None
        params = mapping(params, "reduction_config")
        kinds: dict[tuple[bool, bool], list[str]] = {(a, n): [] for a in (False, True) for n in (False, True)}
        for part in texts(params.get("reductions") or [], "reductions"):
            absolute, norm = part.startswith("abs_"), part.endswith("_norm")
            kinds[absolute, norm].append(part.removeprefix("abs_").removesuffix("_norm"))
        return cls(
            reductions=kinds[False, False],
            abs_reductions=kinds[True, False],
            norms=kinds[False, True],
            abs_norms=kinds[True, True],
            save_raw_tensor=truth(params.get("save_raw_tensor", False), "save_raw_tensor"),
            save_shape=truth(params.get("save_shape", False), "save_shape"),
        )

    @classmethod
    def from_json(cls, json_str: str) -> ReductionConfig | None:
        """Create a configuration from its JSON form."""
        return cls.from_dict(json.loads(json_str))

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, ReductionConfig) else NotImplemented

    def __hash__(self) -> int:
        return hash((tuple(self.pairs()), self.save_raw_tensor, self.save_shape))

    def __repr__(self) -> str:
        given = [f"{key}={value!r}" for key, value in vars(self).items() if value]
        return f"ReductionConfig({', '.join(given)})"
