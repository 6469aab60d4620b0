"""Statistics of tensors over steps: recorded, computed, cached."""
