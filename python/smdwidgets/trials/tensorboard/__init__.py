"""Runs in TensorBoard's format: growing event files."""
