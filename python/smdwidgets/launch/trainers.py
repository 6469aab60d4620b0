"""Record trainings of Transformers and Lightning through callbacks.

A callback sees what no optimizer shows: the numbers that the Trainer logs, evaluations, and where its training ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from smdwidgets.launch.recording import Recording

if TYPE_CHECKING:
    from smdwidgets.hooks.torch.hook import Hook

__all__ = ["arm"]


def arm(recording: Recording, framework: ModuleType) -> None:
    """Record the trainings of a module's ``Trainer``."""
    trainer = framework.Trainer
    if framework.__name__.startswith("transformers"):
        trainer.train = _recorded(recording, trainer.train, _join_transformers)
    else:
        trainer.fit = _recorded(recording, trainer.fit, _join_lightning)


#: Adds a callback to a trainer. Returns a function that removes it and ends the run.
_Join = Callable[[Recording, Any], Callable[[BaseException | None], None] | None]


def _recorded(recording: Recording, train: Callable[..., Any], join: _Join) -> Callable[..., Any]:
    @functools.wraps(train)
    def recorded(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        leave = recording.guarded(join)(recording, trainer)
        error: BaseException | None = None
        try:
            return train(trainer, *args, **kwargs)
        except BaseException as raised:
            error = raised
            raise
        finally:
            if leave is not None:
                recording.guarded(leave)(error)
            del error

    return recorded


def _join_transformers(recording: Recording, trainer: Any) -> Callable[[BaseException | None], None] | None:
    from smdwidgets.hooks.torch.hook import Hook
    from smdwidgets.hooks.torch.transformers import Callback
    from smdwidgets.launch.torch_models import described

    hook = recording.begin(Hook, "a model" if trainer.model is None else described([trainer.model]))
    if hook is None:
        return None
    callback = Callback(hook)
    trainer.add_callback(callback)

    def leave(error: BaseException | None) -> None:
        trainer.remove_callback(callback)
        recording.end(hook, error)

    return leave


def _join_lightning(recording: Recording, trainer: Any) -> Callable[[BaseException | None], None] | None:
    from smdwidgets.hooks.torch.hook import Hook
    from smdwidgets.hooks.torch.lightning import Callback
    from smdwidgets.launch.torch_models import described

    if any(isinstance(one, Callback) for one in trainer.callbacks):
        return None  # it opens its hook later

    class Launched(Callback):
        """Opens the hook when the processes of a distributed training know each other."""

        opened: Hook | None = None

        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            if self.opened is None:
                self.opened = recording.guarded(recording.begin)(Hook, described([pl_module]))
                self._trainer_hook.use(self.opened or Hook("not recorded", dry_run=True))
            super().setup(trainer, pl_module, stage)

    callback = Launched("")
    trainer.callbacks.insert(0, callback)

    def leave(error: BaseException | None) -> None:
        trainer.callbacks.remove(callback)
        if callback.hook is not None:
            recording.end(callback.hook, error)

    return leave
