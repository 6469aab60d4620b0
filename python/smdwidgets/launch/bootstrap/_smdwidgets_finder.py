"""Notice when a script imports a framework, and pass it to `smdwidgets.launch`.

Imported at the start of every armed Python process, so it needs the standard library only, and of that almost nothing.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # the module `typing` is not imported
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

#: The frameworks whose trainings are recorded.
FRAMEWORKS = ("torch", "keras", "xgboost", "lightgbm")
#: Modules of libraries that run a loop of PyTorch.
TRAINERS = ("transformers.trainer", "lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")
#: The directory of the run. Processes without this variable are not armed.
OUT = "SMDWIDGETS_HOOK"
#: Identifies all processes of one launch: the id of the first one, and a time.
LAUNCH = "SMDWIDGETS_LAUNCH"
#: Set by `smdwidgets run`, whose user expects a line even if the script imports no framework.
ASKED = "SMDWIDGETS_RUN"

_finder: _Finder | None = None


class _Finder:
    """A meta path finder that acts after the import of a framework."""

    def __init__(self) -> None:
        self.imported: list[str] = []
        #: Trainings that this process has recorded, or said that it does not record.
        self.trainings = 0
        self._pid = os.getpid()
        self._finding: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a framework; None for all other modules."""
        if (name not in FRAMEWORKS and name not in TRAINERS) or name in self._finding:
            return None
        self._finding.add(name)
        try:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = None if finder is self or find is None else find(name, path, target)
                if spec is not None:
                    self._arm_after(spec)
                    return spec
        finally:
            self._finding.discard(name)
        return None

    def _arm_after(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        if loader is None:
            return
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            loader.__dict__.pop("exec_module", None)
            execute(module)
            self.arm(spec.name, module)

        # Python leaves functions of this file out of the traceback of a failed import.
        exec_module.__code__ = exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap_external>")
        try:
            loader.__dict__["exec_module"] = exec_module
        except (AttributeError, TypeError):  # a loader whose attributes cannot be set, as of a frozen module
            say(f"{spec.name} is not recorded: its loader is a {type(loader).__name__}")

    def arm(self, name: str, module: ModuleType) -> None:
        """Have the trainings of a framework recorded. Never raises."""
        if name in self.imported or os.getpid() != self._pid:
            return
        self.imported.append(name)
        try:
            from smdwidgets.launch.frameworks import arm
        except Exception as error:
            self.disarm()
            say(f"nothing is recorded: {sys.executable} cannot import smdwidgets: {type(error).__name__}: {error}")
        else:
            arm(name, module)

    def disarm(self) -> None:
        """Record nothing in this process from now on."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self.trainings += 1

    def at_exit(self) -> None:
        """Say that nothing was recorded, in the first process of a launch."""
        first = os.environ.get(LAUNCH, "").partition("-")[0] == str(self._pid)
        if not first or os.getpid() != self._pid or self.trainings or _other_process_recorded():
            return
        if self.imported:
            say(
                f"nothing was recorded: {', '.join(name for name in self.imported if name in FRAMEWORKS)} was imported, but no training was seen (an optimizer of "
                "torch after backward(), or a call of fit or train)"
            )
        elif os.environ.get(ASKED):
            say(f"nothing was recorded: none of {', '.join(FRAMEWORKS)} was imported")


def _other_process_recorded() -> bool:
    """Whether a child of this process has recorded a training."""
    out, launch = os.environ.get(OUT, ""), os.environ.get(LAUNCH, "")
    folder, name = os.path.split(out)
    try:
        entries = [entry for entry in os.listdir(folder or ".") if entry.startswith(name)]
    except OSError:
        return False
    for entry in entries:
        try:
            with open(os.path.join(folder, entry, "launch.json"), encoding="utf-8") as file:
                if launch in file.read():
                    return True
        except OSError:
            continue
    return False


def say(message: str) -> None:
    """Print a line on standard error, if there is one."""
    try:
        print(f"smdwidgets: {message}", file=sys.stderr, flush=True)
    except Exception:
        pass


def noticed() -> None:
    """Note that a training is recorded, or that a line has said why it is not."""
    if _finder is not None:
        _finder.trainings += 1


def install() -> None:
    """Arm this process, if the environment asks for it. Never raises."""
    global _finder
    out = os.environ.get(OUT)
    if not out or _finder is not None:
        return
    try:
        if "://" not in out:  # children may have another working directory
            os.environ[OUT] = os.path.abspath(os.path.expanduser(out))
        os.environ.setdefault(LAUNCH, f"{os.getpid()}-{time.time_ns()}")
        _finder = _Finder()
        sys.meta_path.insert(0, _finder)
        import atexit

        atexit.register(_finder.at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_finder.disarm)
        for name in FRAMEWORKS + TRAINERS:
            if name in sys.modules:
                _finder.arm(name, sys.modules[name])
    except Exception as error:
        say(f"nothing is recorded: {type(error).__name__}: {error}")
