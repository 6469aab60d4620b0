"""Describe values in JSON, so that two processes can be compared."""

from __future__ import annotations

import hashlib
import re
from typing import Any

_TIME = re.compile(r"\d{8}-?\d{6}|\d{4}-\d\d-\d\d[-T ]\d\d[-:]?\d\d[-:]?\d\d")
MOST = 2000  # elements of a list that are described


def without_time(text: str) -> str:
    """A text without dates with a time, which programs put into names."""
    return _TIME.sub("TIME", text)


def describe(value: Any) -> Any:
    """A value in JSON's types.

    Arrays as dtype, shape, checksum and statistics, other objects as the name of their type.
    """
    import numpy as np

    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return without_time(value)
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, np.ndarray | np.generic):
        return _array(np.asarray(value))
    if isinstance(value, dict):
        return {
            "dict": sorted(
                ([str(describe(key)), describe(one)] for key, one in value.items()), key=lambda pair: pair[0]
            )
        }
    if isinstance(value, set | frozenset):
        return {"set": sorted((describe(one) for one in value), key=str)}
    if isinstance(value, list | tuple) or type(value).__name__ in ("dict_keys", "dict_values", "range"):
        found = [describe(one) for one in list(value)[:MOST]]
        return {"list": found, "length": len(value)}
    if isinstance(value, type):
        return {"type": value.__name__}
    if hasattr(value, "value") and hasattr(value, "name") and not callable(value.name):
        return {"enum": str(value.name)}
    return {"object": type(value).__name__}


def _array(array: Any) -> dict[str, Any]:
    import numpy as np

    found: dict[str, Any] = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if array.dtype.kind in "OUS":
        found["text"] = [str(one) for one in array.reshape(-1)[:MOST]]
        return found
    found["sha"] = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    if array.size and array.dtype.kind in "biuf":
        wide = array.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        found["statistics"] = [
            float(finite.sum()),
            float(np.abs(finite).sum()),
            float(finite.min()) if finite.size else 0.0,
            float(finite.max()) if finite.size else 0.0,
            float(wide.size - finite.size),
        ]
    return found
