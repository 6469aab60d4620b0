"""The hooks for loops that end their steps themselves: NumPy and JAX."""
