"""Runs in formats of other programs: tables, stores, checkpoints."""
