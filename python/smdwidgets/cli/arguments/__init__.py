"""The arguments of the commands.

Each module has a docstring, whose first line is the help text of the command, and
`arguments(parser)`. It imports little, because shell completion loads all of them.
"""
