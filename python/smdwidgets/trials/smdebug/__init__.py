"""Runs in smdebug's format: index and event files, in a directory or a store."""
