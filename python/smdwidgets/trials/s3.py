"""Runs on S3: other names of :mod:`smdwidgets.trials.remote`."""

from smdwidgets.trials.remote import RemoteRun as S3Run
from smdwidgets.trials.remote import RemoteTrial as S3Trial

__all__ = ["S3Run", "S3Trial"]
