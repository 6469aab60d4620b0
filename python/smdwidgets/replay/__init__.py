"""Execute the steps around an incident of a PyTorch training again.

`protocol` is what an execution offers, and what observes it. Modules that read recordings need no PyTorch.
"""

from __future__ import annotations

from smdwidgets.replay.incident_replay import IncidentReplay
from smdwidgets.replay.protocol import Execution, StepObserver, StepResult

__all__ = ["Execution", "IncidentReplay", "StepObserver", "StepResult"]
