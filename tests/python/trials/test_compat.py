"""Scripts written for smdebug run as they are. Each in a process of its own: it changes what `import` means."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from python.trials import runs


def script(text: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", text, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_notebook_for_smdebug(tmp_path: Path) -> None:
    runs.run(tmp_path, range(3))
    said = script(
        """
import sys
import smdwidgets
smdwidgets.install_as_smdebug()
smdwidgets.install_as_smdebug()
import smdebug
from smdebug.trials import create_trial
from smdebug.trials.local_trial import LocalTrial
from smdebug.trials.utils import create_trial as same
from smdebug.rules import Rule, invoke_rule
from smdebug.exceptions import *
from smdebug.analysis.utils import no_refresh
from smdebug.core.tensor import StepState
from smdebug.core.modes import ModeKeys
from smdebug.core.collection import Collection, CollectionKeys
from smdebug.core.save_config import SaveConfig, SaveConfigMode
from smdebug.core.reduction_config import ReductionConfig
from smdebug.core.logger import get_logger
import smdebug.core.config_constants
trial = create_trial(sys.argv[1])
assert isinstance(trial, LocalTrial) and same is create_trial
assert smdebug is smdwidgets and smdebug.modes is ModeKeys
with no_refresh(trial):
    print(trial.has_passed_step(2) == StepState.AVAILABLE)
try:
    trial.tensor("y")
except TensorUnavailable as error:
    print(type(error).__module__)
try:
    import smdebug.profiler
except ModuleNotFoundError as error:
    print(error.name)
""",
        str(tmp_path),
    )
    assert said.split() == ["True", "smdwidgets.exceptions", "smdebug.profiler"]


def test_the_real_one_is_not_mixed_in(tmp_path: Path) -> None:
    (tmp_path / "smdebug.py").write_text("")
    said = script(
        """
import sys
sys.path.insert(0, sys.argv[1])
import smdebug, smdwidgets
try:
    smdwidgets.install_as_smdebug()
except RuntimeError as error:
    print(error)
""",
        str(tmp_path),
    )
    assert "already imported" in said
    assert "smdebug.py" in said
