"""What runs take on disk, and deleting values of old runs.

:func:`disk_use` says which runs and tensors take the space. :func:`plan` chooses the values to delete; nothing is
deleted before :meth:`Plan.apply`.
"""

from smdwidgets.retention.plans import Plan, RunPlan, plan
from smdwidgets.retention.usage import RunUse, disk_use

__all__ = ["Plan", "RunPlan", "RunUse", "disk_use", "plan"]
