"""One part of a report."""

from __future__ import annotations

from dataclasses import dataclass

from smdwidgets._text import markup
from smdwidgets.rules.report.charts import STYLE

__all__ = ["Section"]


@dataclass(frozen=True)
class Section:
    """One part of the report: HTML made of charts and tables, and remarks in words."""

    title: str
    html: str
    remarks: tuple[str, ...] = ()

    def remarks_html(self) -> str:
        """The remarks, a paragraph each."""
        return "".join(f"<p>{markup(each)}</p>" for each in self.remarks)

    def _repr_html_(self) -> str:
        return f'<style>{STYLE}</style><div class="smdw-report">{self.html}{self.remarks_html()}</div>'
