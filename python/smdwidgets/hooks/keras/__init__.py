"""The hooks for Keras 3 and for TensorFlow's ``GradientTape``."""
