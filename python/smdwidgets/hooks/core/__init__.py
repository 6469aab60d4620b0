"""The base class of all hooks and its parts."""
