"""Scripts written for smdebug run unchanged.

Each runs in a separate process, because it changes what `import` resolves to.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from python.trials import runs
from smdwidgets.profiler.utils import str2bool


def script(text: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", text, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_notebook_for_smdebug(tmp_path: Path) -> None:
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
    import smdebug.profiler.analysis
except ModuleNotFoundError as error:
    print(error.name)
""",
        str(tmp_path),
    )
    assert said.split() == ["True", "smdwidgets.exceptions", "smdebug.profiler.analysis"]


def test_real_smdebug_is_not_mixed_in(tmp_path: Path) -> None:
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


WITHOUT_FRAMEWORKS = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "keras", "tensorflow", "xgboost", "mxnet", "boto3"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import smdwidgets
smdwidgets.install_as_smdebug()
"""


def test_every_mapped_name_exists_without_frameworks() -> None:
    said = script(
        WITHOUT_FRAMEWORKS
        + """
import importlib
from smdwidgets.compat import MODULES
count = 0
for path, mapped in MODULES.items():
    module = importlib.import_module("smdebug." + path if path else "smdebug")
    for name in mapped.names:
        try:
            getattr(module, name)
        except ModuleNotFoundError as error:
            assert f"pip install {error.name}" in str(error), error
            print(path, name)
        count += 1
assert count > 150, count
"""
    )
    assert set(said.splitlines()) == {
        "mxnet Hook",
        "mxnet.hook Hook",
        "pytorch Collection",
        "pytorch Hook",
        "pytorch.collection Collection",
        "pytorch.hook Hook",
        "tensorflow Collection",
        "tensorflow KerasHook",
        "tensorflow.collection Collection",
        "tensorflow.keras KerasHook",
        "xgboost Hook",
        "xgboost.hook Hook",
    }


def test_names_without_framework_are_those_of_the_package() -> None:
    script(
        WITHOUT_FRAMEWORKS
        + """
import smdebug.mxnet as smd
from smdebug.pytorch.singleton_utils import get_hook, del_hook
assert smd.modes is smdwidgets.modes and smd.SaveConfig is smdwidgets.SaveConfig
assert smd.create_trial is smdwidgets.create_trial
assert get_hook() is None
assert "Hook" in dir(smd)
for module in ("pytorch", "keras", "tensorflow", "xgboost", "mxnet"):
    names = {}
    exec(f"from smdwidgets.{module} import modes, SaveConfig, Collection" if module in ("xgboost", "mxnet")
         else f"from smdwidgets.{module} import modes, SaveConfig", names)
    try:
        exec(f"from smdwidgets.{module} import Hook", names)
    except ImportError as error:
        assert "not installed; run: pip install" in str(error), error
    else:
        raise AssertionError(module)
"""
    )


@pytest.mark.parametrize(
    ("statement", "reasons"),
    [
        ("from smdebug.profiler import TraceEventParser", ["smdebug.profiler.TraceEventParser", "torch.profiler"]),
        ("import smdebug.profiler.analysis.notebook_utils.training_job", ["smdebug.profiler.analysis", "no profiler"]),
        ("from smdebug.profiler.utils import TimeUnits", ["smdebug.profiler.utils.TimeUnits", "no profiler"]),
        ("from smdebug.tensorflow import SessionHook", ["SessionHook", "TensorFlow 1", "KerasHook"]),
        ("from smdebug.tensorflow.session import EstimatorHook", ["EstimatorHook", "TensorFlow 1"]),
        ("import smdebug.core.collections", ["smdebug.core.collections", "Did you mean 'core.collection'"]),
        ("from smdebug.pytorch.hook import Hock", ["Hock"]),
    ],
)
def test_import_of_missing_name_explains_why(statement: str, reasons: list[str]) -> None:
    said = script(
        WITHOUT_FRAMEWORKS
        + f"""
try:
    {statement}
except ImportError as error:
    print(error)
"""
    )
    for reason in reasons:
        assert reason in said


def test_importing_a_submodule_keeps_the_modules_of_the_package() -> None:
    script(
        """
import smdwidgets
smdwidgets.install_as_smdebug()
from smdebug.rules.rule import Rule
from smdebug.rules.action.message_action import MessageAction
import smdwidgets.rules.rule as rule, smdwidgets.rules.actions as actions
assert rule.Rule is Rule and rule.__name__ == "smdwidgets.rules.rule"
assert actions.__name__ == "smdwidgets.rules.actions"
"""
    )


def test_str2bool() -> None:
    assert str2bool("True")
    assert str2bool(" on ")
    assert not str2bool("0")
    assert not str2bool(False)
    with pytest.raises(ValueError, match="'maybe'"):
        str2bool("maybe")
