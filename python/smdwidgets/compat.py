"""Run scripts written for smdebug as they are: ``import smdebug`` gives this package.

>>> import smdwidgets
>>> smdwidgets.install_as_smdebug()                  # doctest: +SKIP
>>> from smdebug.trials import create_trial          # doctest: +SKIP
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

from smdwidgets.exceptions import SMDebugRuntimeError

_THEIRS: Final = "smdebug"
_OURS: Final = "smdwidgets"

#: Modules of smdebug whose content is elsewhere here. All others have the same name.
_ELSEWHERE: Final = {
    "core.reader": "core.tensor",
    "rules.rule": "rules",
    "rules.rule_invoker": "rules",
    "rules.req_tensors": "rules",
    "rules.action": "rules",
    "rules.action.action": "rules.actions",
    "rules.action.message_action": "rules.actions",
    "rules.action.stop_training_action": "rules.actions",
    "trials.local_trial": "trials.local",
    "trials.s3_trial": "trials.s3",
    **{f"{framework}.{part}": framework for framework in ("pytorch", "tensorflow", "xgboost", "mxnet") for part in
       ("hook", "collection", "keras", "session", "singleton_utils")},
}  # fmt: skip


def install_as_smdebug() -> None:
    """From now on ``import smdebug`` and the modules below it mean this package. Calling it again changes nothing.

    Raises :class:`SMDebugRuntimeError` where the real smdebug was imported before: what holds its classes would not go
    together with ours.
    """
    real = sys.modules.get(_THEIRS)
    if real is not None and real is not sys.modules[_OURS]:
        where = getattr(real, "__file__", None) or "?"
        raise SMDebugRuntimeError(
            f"The real smdebug is already imported (from {where}). Call smdwidgets.install_as_smdebug() before the first "
            "import of smdebug, in a fresh process or after restarting the notebook's kernel."
        )
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder, Loader):
    """Answers for ``smdebug`` and everything below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _THEIRS and not fullname.startswith(_THEIRS + "."):
            return None
        name = self._ours(fullname)
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise ModuleNotFoundError(f"{fullname} has no counterpart in smdwidgets ({name}).", name=fullname)
        return ModuleSpec(fullname, self, is_package=found.submodule_search_locations is not None)

    def exec_module(self, module: ModuleType) -> None:
        # The import system hands out what stands in sys.modules after this: our own module, under a second name.
        sys.modules[module.__name__] = importlib.import_module(self._ours(module.__name__))

    @staticmethod
    def _ours(fullname: str) -> str:
        tail = fullname[len(_THEIRS) + 1 :]
        tail = _ELSEWHERE.get(tail, tail)
        return f"{_OURS}.{tail}" if tail else _OURS
