"""Helpers for analysis: see :mod:`smdwidgets.analysis.utils`."""
