"""Recording and execution of the steps of a PyTorch training.

`state` is what a step reads, `recording` keeps the last steps, `loop` finds the training loop, `execution` executes
recorded steps. No module draws random numbers or changes a state of the training while it records.
"""
