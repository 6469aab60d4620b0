"""Checks of a training: what is wrong with it by arithmetic, found while it runs.

`finding.CHECKS` is the table of checks. `record` is their file in a run, `log` writes it, and `mechanisms` runs what
looks for faults: `torch` for PyTorch, one module each, `keras` for Keras, `boosting` for XGBoost and LightGBM. `tables`
and `networks` judge data and networks of any framework.
"""
