"""The report on an XGBoost training that `CreateXgboostReport` writes."""

from __future__ import annotations

from smdwidgets.rules.report.section import Section
from smdwidgets.rules.report.xgboost import XgboostReport

__all__ = ["Section", "XgboostReport"]
