"""Analysis helpers, see :mod:`smdwidgets.analysis.utils`."""
