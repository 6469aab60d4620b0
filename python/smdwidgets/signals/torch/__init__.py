"""Record signals of a PyTorch training, one module per mechanism.

Nothing here raises into the training, waits for a device, or draws from its random generators.
"""
