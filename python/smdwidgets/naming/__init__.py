"""What a scalar series or a tensor is, from its name.

Nothing else in the package interprets names.
"""
