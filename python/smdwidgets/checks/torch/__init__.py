"""The checks of a PyTorch training, one module per mechanism.

`session` receives the events of a training and passes them on to the mechanisms. No mechanism draws random numbers,
changes a tensor, or waits for a device.
"""
