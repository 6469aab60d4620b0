"""Findings in the formats of code hosts: SARIF, and annotations of GitHub Actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from smdwidgets._text import visible
from smdwidgets.diagnosis import Diagnosis
from smdwidgets.finding import Finding, Level, kind_of

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_SARIF: Final[Mapping[Level, str]] = {"problem": "error", "warning": "warning", "note": "note"}
_GITHUB: Final[Mapping[Level, str]] = {"problem": "error", "warning": "warning", "note": "notice"}
#: Characters of a message.
_LONGEST: Final = 4000


def sarif(results: Sequence[Diagnosis]) -> dict[str, Any]:
    """Return the findings and notes of runs as one SARIF log, version 2.1.0.

    >>> spike = Finding("spike", "warning", "medium", "loss", 3, title="a", text="a.")
    >>> log = sarif([Diagnosis("runs/a", findings=(spike,))])
    >>> [result] = log["runs"][0]["results"]
    >>> result["ruleId"], result["level"], result["partialFingerprints"]
    ('spike', 'warning', {'smdwidgets/id': 'spike:loss:3'})
    """
    listed = [(result.run, finding) for result in results for finding in result.listed]
    kinds = list(dict.fromkeys(finding.kind for _, finding in listed))
    driver = {
        "name": "smdwidgets",
        "version": version("smdwidgets"),
        "rules": [_rule(kind) for kind in kinds],
    }
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [_result(run, finding, kinds.index(finding.kind)) for run, finding in listed],
            }
        ],
    }


def _rule(kind: str) -> dict[str, Any]:
    row = kind_of(kind)
    return {
        "id": row.id,
        "name": row.id,
        "shortDescription": {"text": row.title},
        "fullDescription": {"text": row.meaning},
        "help": {"text": f"{row.advice} `smdwidgets explain {row.id}` says more."},
        "defaultConfiguration": {"level": _SARIF[row.level]},
    }


def _result(run: str, finding: Finding, rule: int) -> dict[str, Any]:
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": _uri(run)}}}
    if finding.subject:
        location["logicalLocations"] = [{"fullyQualifiedName": visible(finding.subject, 400)}]
    return {
        "ruleId": finding.kind,
        "ruleIndex": rule,
        "level": _SARIF[finding.level],
        "message": {"text": _message(finding)},
        "locations": [location],
        "partialFingerprints": {"smdwidgets/id": finding.id},
        "properties": {
            "confidence": finding.confidence,
            "first": finding.first,
            "last": finding.last,
            "rivals": list(finding.rivals),
            "source": finding.source,
        },
    }


def github(results: Sequence[Diagnosis]) -> str:
    """Return a workflow command of GitHub Actions for each finding and note.

    >>> spike = Finding("spike", "warning", "medium", "loss", 3, title="a: b", text="A, b.\\nc")
    >>> print(github([Diagnosis("runs/a", findings=(spike,))]))
    ::warning title=a%3A b::runs/a: A, b. c
    """
    return "\n".join(
        f"::{_GITHUB[finding.level]} title={_property(visible(finding.title, 200))}::"
        f"{_escaped(visible(result.run, 400))}: {_escaped(_message(finding))}"
        for result in results
        for finding in result.listed
    )


def _message(finding: Finding) -> str:
    advice = f" Try: {finding.try_}" if finding.try_ else ""
    return visible(" ".join(f"{finding.text}{advice}".split()), _LONGEST)


def _uri(run: str) -> str:
    """Return a run as a URI: relative to the working directory, if it is below it."""
    if "://" in run:
        return run
    path = Path(run).resolve()
    try:
        return quote(path.relative_to(Path.cwd()).as_posix())
    except ValueError:
        return path.as_uri()


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
