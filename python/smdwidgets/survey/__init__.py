"""Statistics of all tensors over all steps of a run, and what stands out.

`Survey` reads the statistics in the background, `SurveyTable` holds them and merges them into bins, and `findings`
describes what stands out, in sentences.
"""

from smdwidgets.survey.findings import RuleFirings
from smdwidgets.survey.sentence import Clause
from smdwidgets.survey.survey import Reading, Survey

__all__ = ["Clause", "Reading", "RuleFirings", "Survey"]
