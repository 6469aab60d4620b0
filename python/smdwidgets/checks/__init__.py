"""Checks of a training: what is wrong with it by arithmetic, found while it runs.

`finding.CHECKS` is the table of checks. `record` is their file in a run, `log` writes it, and `torch` has the
mechanisms for PyTorch, one module each.
"""
