"""Sections of a report."""

from __future__ import annotations

from dataclasses import dataclass

from smdwidgets._text import markup
from smdwidgets.rules.report.charts import STYLE

__all__ = ["Section"]


@dataclass(frozen=True)
class Section:
    """One section of a report: HTML with charts and tables, and text remarks."""

    title: str
    html: str
    remarks: tuple[str, ...] = ()

    def remarks_html(self) -> str:
        """Return the remarks as HTML, one paragraph each."""
        return "".join(f"<p>{markup(each)}</p>" for each in self.remarks)

    def _repr_html_(self) -> str:
        return f'<style>{STYLE}</style><div class="smdw-report">{self.html}{self.remarks_html()}</div>'
