"""Results as JUnit XML, which CI servers show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple
from xml.etree import ElementTree

Outcome = Literal["passed", "failure", "error", "skipped"]


class Case(NamedTuple):
    """A test case: what was judged, and the outcome."""

    group: str
    name: str
    outcome: Outcome = "passed"
    message: str = ""
    details: str = ""
    type: str = ""


def junit(name: str, cases: Sequence[Case], notes: Sequence[str] = ()) -> str:
    """Return a test suite as JUnit XML.

    >>> print(junit("check", [Case("rules", "LossSpike", "failure", "fired at step 3")]))
    <?xml version="1.0" encoding="utf-8"?>
    <testsuite name="check" tests="1" failures="1" errors="0" skipped="0">
      <testcase classname="rules" name="LossSpike">
        <failure message="fired at step 3" />
      </testcase>
    </testsuite>
    <BLANKLINE>
    """
    outcomes = [case.outcome for case in cases]
    suite = ElementTree.Element(
        "testsuite",
        name=_xml(name),
        tests=str(len(cases)),
        failures=str(outcomes.count("failure")),
        errors=str(outcomes.count("error")),
        skipped=str(outcomes.count("skipped")),
    )
    for case in cases:
        element = ElementTree.SubElement(suite, "testcase", classname=case.group, name=_xml(case.name))
        if case.outcome != "passed":
            attributes = {"message": _xml(case.message)} | ({"type": case.type} if case.type else {})
            ElementTree.SubElement(element, case.outcome, attributes).text = _xml(case.details) or None
    if notes:
        ElementTree.SubElement(suite, "system-out").text = _xml("\n".join(notes))
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    """Replace the characters that XML does not allow."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in text)
