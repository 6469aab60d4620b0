"""JSON schemas of what commands print with `--json`.

Fields are only added before version 1.0: programs must ignore those that they do not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from smdwidgets.finding import CONFIDENCES, LEVELS

__all__ = ["SCHEMAS", "schema_of"]

_Schema = Mapping[str, Any]

_TEXT: Final[_Schema] = {"type": "string"}
_WHOLE: Final[_Schema] = {"type": "integer"}
_FLAG: Final[_Schema] = {"type": "boolean"}
#: JSON has no NaN and no infinities: they are text.
_NUMBER: Final[_Schema] = {"type": ["number", "string"]}
_ANY: Final[_Schema] = {}


def _or_null(schema: _Schema) -> _Schema:
    """Return a schema of the same values and null.

    >>> _or_null({"type": "string"})["type"]
    ['string', 'null']
    """
    kinds = schema.get("type")
    if kinds is None:
        return {"anyOf": [schema, {"type": "null"}]}
    return {**schema, "type": [*([kinds] if isinstance(kinds, str) else kinds), "null"]}


def _list(item: _Schema) -> _Schema:
    return {"type": "array", "items": item}


def _table(value: _Schema) -> _Schema:
    """Return the schema of an object with any names, such as those of tensors."""
    return {"type": "object", "additionalProperties": value}


def _object(fields: Mapping[str, _Schema], optional: Mapping[str, _Schema] | None = None) -> _Schema:
    return {"type": "object", "properties": {**fields, **(optional or {})}, "required": list(fields)}


def _finding() -> _Schema:
    curve = _object(
        {
            "name": _TEXT,
            "steps": _list(_WHOLE),
            "values": _list(_NUMBER),
            "begin": _or_null(_WHOLE),
            "end": _or_null(_WHOLE),
        }
    )
    evidence = _object(
        {
            "text": _TEXT,
            "subject": _TEXT,
            "step": _or_null(_WHOLE),
            "value": _or_null(_NUMBER),
            "limit": _or_null(_NUMBER),
            "worker": _TEXT,
        },
        {"curve": curve},
    )
    return _object(
        {
            "id": {**_TEXT, "description": "stable: kind, subject and first step"},
            "kind": {**_TEXT, "description": "a row of `smdwidgets explain`"},
            "level": {**_TEXT, "enum": list(LEVELS)},
            "confidence": {**_TEXT, "enum": list(CONFIDENCES)},
            "subject": _TEXT,
            "first": _or_null(_WHOLE),
            "last": _or_null(_WHOLE),
            "rank": _WHOLE,
            "title": _TEXT,
            "text": _TEXT,
            "try": _TEXT,
            "evidence": _list(evidence),
            "explains": {**_list(_TEXT), "description": "ids of findings that follow from it"},
            "rivals": {**_list(_TEXT), "description": "kinds of other causes within reach"},
            "source": _TEXT,
            "incident": _or_null(_WHOLE),
            "others": _list(_TEXT),
            "url": _TEXT,
        }
    )


def _diagnosis() -> _Schema:
    judged = {
        "name": _TEXT,
        "kind": _TEXT,
        "role": _TEXT,
        "points": _WHOLE,
        "partner": _TEXT,
        "superseded": _WHOLE,
        "mode": _TEXT,
    }
    lists = dict.fromkeys(("findings", "notes", "explained", "withdrawn"), _list(_finding()))
    return _object(
        {
            "run": _TEXT,
            "summary": _TEXT,
            "can_tell": {**_FLAG, "description": "whether anything could be judged"},
            "steps": _list(_WHOLE),
            **lists,
            "judged": _list(_object(judged)),
            "unjudged": _list(_object({"name": _TEXT, "reason": _TEXT})),
            "checks": _list(_TEXT),
            "not_recorded": _list(_TEXT),
        }
    )


def _check() -> _Schema:
    rule = _object(
        {
            "RuleConfigurationName": _TEXT,
            "RuleEvaluationStatus": _TEXT,
            "parameters": _table(_TEXT),
            "steps": _WHOLE,
            "judged": _WHOLE,
            "errors": _WHOLE,
            "fired": _WHOLE,
            "first_fired": _or_null(_WHOLE),
            "finding": _or_null(_finding()),
        },
        {"StatusDetails": _TEXT},
    )
    return _object(
        {
            "run": _TEXT,
            "exit_code": _WHOLE,
            "ended": _FLAG,
            "in_time": _FLAG,
            "empty": _FLAG,
            "notes": _list(_TEXT),
            "diagnosis": _or_null(_diagnosis()),
            "rules": _list(rule),
        }
    )


def _coordcheck() -> _Schema:
    numbers = _list(_list(_NUMBER))
    layer = _object(
        {
            "name": _TEXT,
            "verdict": {**_TEXT, "enum": ["steady", "grows", "vanishes", "not finite"]},
            "start_slope": _NUMBER,
            "slope": _NUMBER,
            "change_slope": _NUMBER,
            "sizes": {**numbers, "description": "by width and number of updates"},
            "changes": numbers,
        }
    )
    return _object(
        {
            "passed": _FLAG,
            "summary": _TEXT,
            "widths": _list(_WHOLE),
            "steps": _WHOLE,
            "seeds": _WHOLE,
            "tolerance": _NUMBER,
            "layers": _list(layer),
        }
    )


def _bisect() -> _Schema:
    difference = _object(
        {
            "step": _WHOLE,
            "tensor": _TEXT,
            "kind": _TEXT,
            "what": _TEXT,
            "relative": _NUMBER,
            "a": _ANY,
            "b": _ANY,
            "exact": _FLAG,
            "index": _list(_WHOLE),
            "changed": _WHOLE,
            "count": _WHOLE,
            "worker": _or_null(_TEXT),
            "updated_after": _or_null(_WHOLE),
            "gradients_equal": _FLAG,
            "equal_until": _or_null(_WHOLE),
            "meaning": _TEXT,
        }
    )
    line = _or_null(_object({"file": _TEXT, "line": _WHOLE, "text": _TEXT}))
    called = _object(
        {**dict.fromkeys(("name", "phase", "module", "node"), _TEXT), **dict.fromkeys(("place", "user"), line)}
    )
    operator = _object(
        {
            "step": _WHOLE,
            "what": _TEXT,
            "text": _TEXT,
            "operators": _list(_or_null(called)),
            "equal": _WHOLE,
            "verified": _list(_TEXT),
        }
    )
    return _object(
        {
            "version": _WHOLE,
            "a": _TEXT,
            "b": _TEXT,
            "equal": _FLAG,
            "tolerance": _NUMBER,
            "first": _or_null(difference),
            "noise": _or_null(difference),
            "noise_level": _NUMBER,
            "steps": _WHOLE,
            "tensors": _WHOLE,
            "only_a": _list(_TEXT),
            "only_b": _list(_TEXT),
            "unreadable": _WHOLE,
            "unequal_lengths": _or_null(_list(_WHOLE)),
            "operator": _or_null(operator),
            "no_operator": _TEXT,
        }
    )


def _catalog() -> _Schema:
    names = dict.fromkeys(("added", "changed", "removed"), _list(_TEXT))
    return _object({"place": _TEXT, "runs": _WHOLE, **names, "findings": _table(_WHOLE)})


def _compact() -> _Schema:
    counts = dict.fromkeys(("folders", "written", "files", "steps", "bytes", "left", "pyramids"), _WHOLE)
    return _list(_object({"path": _TEXT, **counts, "last_step": _or_null(_WHOLE), "why": _TEXT}))


def _doctor() -> _Schema:
    state = {**_TEXT, "enum": ["ok", "absent", "problem"]}
    check = _object({"group": _TEXT, "name": _TEXT, "state": state, "text": _TEXT, "remedy": _TEXT})
    return _object({"ok": _FLAG, "checks": _list(check)})


def _du() -> _Schema:
    sizes = {"size": _WHOLE, "parts": _table(_WHOLE), "tensors": _table(_WHOLE)}
    return _list(_object({"name": _TEXT, "path": _TEXT, "kind": _TEXT, **sizes}))


def _export() -> _Schema:
    counts = dict.fromkeys(("records", "tensors", "steps", "bytes"), _WHOLE)
    failure = _object({"tensor": _TEXT, "step": _WHOLE, "worker": _or_null(_TEXT), "error": _TEXT})
    return _object({"path": _TEXT, "format": _TEXT, **counts, "left_out": _list(failure)})


def _inspect() -> _Schema:
    span = _object({"count": _WHOLE, "first": _or_null(_WHOLE), "last": _or_null(_WHOLE)})
    index = _object({"folders": _WHOLE, "steps": _WHOLE, "last_step": _or_null(_WHOLE), "bytes": _WHOLE})
    tensor = _object(
        {"name": _TEXT, "steps": span, "dtype": _or_null(_TEXT), "shape": _or_null(_list(_WHOLE))}, {"error": _TEXT}
    )
    return _object(
        {
            "path": _TEXT,
            "ended": _FLAG,
            "end": _or_null(_TEXT),
            "steps": span,
            "modes": _table(span),
            "workers": _list(_TEXT),
            "collections": _table(_WHOLE),
            "bytes": _or_null(_WHOLE),
            "compacted_index": _or_null(index),
            "incidents": _list(_object({"step": _WHOLE, "text": _TEXT})),
            "notes": _list(_object({"worker": _TEXT, "message": _TEXT})),
            "problems": _list(_object({"file": _TEXT, "message": _TEXT})),
            "tensors": _list(tensor),
        }
    )


def _rows() -> _Schema:
    """Return the schema of rows whose columns depend on the question."""
    return _list(_table({"type": ["string", "number", "boolean", "null"]}))


def _replay() -> _Schema:
    step = {"step": _WHOLE, "losses": _list(_NUMBER)}
    facts = _object(
        {
            "step": _WHOLE,
            "text": _TEXT,
            "why_not": _or_null(_TEXT),
            "bytes": _or_null(_WHOLE),
            "source": _ANY,
            "lost": _list(_ANY),
            "steps": _list(_object({**step, "rows": _or_null(_list(_ANY)), "by_order": _FLAG})),
        }
    )
    executed = _object({**step, "equal": _or_null(_FLAG), "detail": _TEXT})
    answers = {"explanation": _ANY, "what_if": _list(_ANY), "ranking": _ANY}
    workers = {"worker": _TEXT, "workers": _ANY}
    return {"anyOf": [facts, _object({"steps": _list(executed), "text": _TEXT}, {**answers, **workers})]}


def _show() -> _Schema:
    return _object(
        {
            "tensor": _TEXT,
            "step": _WHOLE,
            "mode": _or_null(_TEXT),
            "mode_step": _or_null(_WHOLE),
            "shape": _list(_WHOLE),
            "statistics": _table(_NUMBER),
        },
        {
            "dtype": _TEXT,
            "bytes": _WHOLE,
            "elements": _WHOLE,
            "values": _list(_NUMBER),
            "counts": _table(_WHOLE),
            "percentiles": _table(_NUMBER),
            "histogram": _object({"edges": _list(_NUMBER), "counts": _list(_WHOLE)}),
        },
    )


def _thin() -> _Schema:
    sizes = {"bytes": _WHOLE, "freed": _WHOLE, "steps": _list(_WHOLE), "every": _WHOLE}
    return _list(_object({"run": _TEXT, "path": _TEXT, **sizes, "kept": _table(_WHOLE), "skipped": _TEXT}))


def _verify() -> _Schema:
    fault = _object(
        {"file": _or_null(_TEXT), "offset": _or_null(_WHOLE), "message": _TEXT},
        {"run": _TEXT, "tensor": _TEXT, "step": _WHOLE, "worker": _or_null(_TEXT)},
    )
    counts = dict.fromkeys(("records", "bytes", "footer_crc", "footer_constant", "index_crc", "unverifiable"), _WHOLE)
    hook = _object({"ended": _FLAG, "steps": _WHOLE, "statistics": _WHOLE, "samples": _WHOLE, **counts})
    source = _object(
        {
            "run": _TEXT,
            "name": _TEXT,
            "format": _TEXT,
            **dict.fromkeys(("files", "scalars", "values", "tensors"), _WHOLE),
            "checksums": _or_null(_WHOLE),
        }
    )
    return _object(
        {"path": _TEXT, "ended": _FLAG, "steps": _WHOLE, "faults": _list(fault)},
        {
            "statistics": _WHOLE,
            "samples": _WHOLE,
            **counts,
            "files": _WHOLE,
            "runs": _list(_TEXT),
            "others": _table(_TEXT),
            "sources": _list(source),
            "hooks": _table(hook),
        },
    )


#: What each command prints with `--json`.
SCHEMAS: Final[Mapping[str, Callable[[], _Schema]]] = {
    "bisect": _bisect,
    "coordcheck": _coordcheck,
    "catalog": _catalog,
    "check": _check,
    "compact": _compact,
    "diagnose": lambda: _list(_diagnosis()),
    "doctor": _doctor,
    "du": _du,
    "export": _export,
    "inspect": _inspect,
    "query": _rows,
    "replay": _replay,
    "runs": _rows,
    "show": _show,
    "thin": _thin,
    "verify": _verify,
}


def schema_of(command: str) -> dict[str, Any]:
    """Return the JSON schema of what a command prints with `--json`.

    >>> schema_of("doctor")["properties"]["ok"]
    {'type': 'boolean'}
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"smdwidgets {command} --json",
        **SCHEMAS[command](),
    }
