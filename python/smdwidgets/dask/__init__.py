"""Runs as arrays and tables of Dask and xarray.

They are read by many threads, processes or machines. ``pip install 'smdwidgets[dask]'``. Usually called as methods:
``tensor.to_dask()``, ``trial.to_xarray()`` and ``trial.to_dask_dataframe()``. Nothing is read before a result is
computed. Every task carries what it needs to open the run in another process: the path, and the part of the catalog
that the caller's trial has read. It carries no credentials.
"""

from smdwidgets.dask.arrays import to_dask
from smdwidgets.dask.dataset import to_xarray
from smdwidgets.dask.tables import to_dask_dataframe
from smdwidgets.trials.shipping import Shipment, pack, use_storage_options

__all__ = ["Shipment", "pack", "to_dask", "to_dask_dataframe", "to_xarray", "use_storage_options"]
