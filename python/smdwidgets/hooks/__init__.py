"""Hooks, which save the tensors of a training to a run.

Use the hook for your framework: ``smdwidgets.pytorch``, ``smdwidgets.keras``, ``smdwidgets.tensorflow``,
``smdwidgets.xgboost``, ``smdwidgets.mxnet``, or ``smdwidgets.numpy`` for a custom loop. A framework is imported only
when its module is used.
"""
