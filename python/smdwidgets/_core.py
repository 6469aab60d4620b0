"""Placeholder for the compiled extension of the same name.

Python prefers ``_core.abi3.so`` over this file, so this code runs only where the extension is missing. The file also
gives import-linter a module to which it can attribute imports of the extension.
"""

raise ImportError(
    "the compiled extension smdwidgets._core is missing; reinstall smdwidgets, or run `make setup` in a source checkout"
)
