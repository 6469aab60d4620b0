"""The writing side: hooks that save tensors of a training into a run.

Use the hook of your framework: ``smdwidgets.pytorch``, ``smdwidgets.keras``, ``smdwidgets.tensorflow``,
``smdwidgets.xgboost``, ``smdwidgets.mxnet``, or ``smdwidgets.numpy`` for a loop of your own. No framework is imported
before its module is.
"""
