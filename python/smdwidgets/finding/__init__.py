"""`Finding`, the type of every result that somebody acts on, and its kinds.

Rules, triggers, diagnosis and survey report findings. The table of kinds has their sentences.
"""

from smdwidgets.finding.checks import CHECKS
from smdwidgets.finding.finding import SOURCES, Curve, Evidence, Finding, Source, about, labelled, ordered, plain_number
from smdwidgets.finding.kind import CONFIDENCES, LEVELS, PAGE, Confidence, Kind, Level
from smdwidgets.finding.kinds import KINDS, kind_of

__all__ = [
    "CHECKS",
    "CONFIDENCES",
    "KINDS",
    "LEVELS",
    "PAGE",
    "SOURCES",
    "Confidence",
    "Curve",
    "Evidence",
    "Finding",
    "Kind",
    "Level",
    "Source",
    "about",
    "kind_of",
    "labelled",
    "ordered",
    "plain_number",
]
