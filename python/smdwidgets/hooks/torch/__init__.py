"""The hook for PyTorch, and the callbacks of trainers that use it."""
