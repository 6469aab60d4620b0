"""Execute recorded steps in a new process, by running the script again.

``python -m smdwidgets.replay.torch.rerun [--operators STEP | --explain STEP] RUN FOLDER RESULT train.py …`` runs the
script. Its data loaders give recorded batches. At the first training pass of the model whose parameters are those of
the recording, the recorded state is loaded; after the last step the script is ended. Nothing is taken from the run but
tensors and plain values.
"""

from __future__ import annotations

import contextlib
import gc
import json
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import Optimizer

from smdwidgets._suspend import hooks_suspended
from smdwidgets._text import json_number
from smdwidgets.exceptions import CannotReplay
from smdwidgets.replay.files import Recording
from smdwidgets.replay.fingerprints import Fingerprints
from smdwidgets.replay.incident_replay import IncidentReplay
from smdwidgets.replay.protocol import StepObserver, StepResult, sentence
from smdwidgets.replay.torch.execution import Keyframe, Replayed, ReplayFinished
from smdwidgets.replay.torch.loop import user_frames
from smdwidgets.replay.torch.state import World
from smdwidgets.replay.torch.taps import muted, tapped
from smdwidgets.storage import LocalStorage

__all__ = ["Rerun", "StartedAgain", "run_again"]


class Rerun(Replayed):
    """Follows a training that begins again.

    Args:
        keyframe: the state and the recording.
        observers: what sees the steps.
        last: the last step.
        models: receives the models of the training when they are found.
    """

    def __init__(
        self, keyframe: Keyframe, observers: Sequence[StepObserver], last: int, models: list[nn.Module] | None = None
    ) -> None:
        super().__init__(keyframe, None, observers, last)
        self._found_models = models
        self._shapes: dict[str, dict[str, tuple[int, ...]]] = {}
        for name, tensor in keyframe.tensors.items():
            model, kind, key = (*name.split("/", 2), "", "")[:3]
            if kind == "p":
                self._shapes.setdefault(model, {})[key] = tuple(tensor.shape)
        self._first = self._next
        #: Modules that are no part of the recorded model, by identity; held, so that no other has it.
        self._strangers: dict[int, nn.Module] = {}

    @property
    def gives(self) -> bool:
        """Whether a data loader gives recorded batches.

        It does not to an evaluation before the training.
        """
        return self.world is not None or torch.is_grad_enabled()

    def before(self, module: nn.Module, inputs: Any) -> None:
        """A module is called."""
        if self.world is None:
            model = self._model_of(module)
            if model is None:
                return
            if not torch.is_grad_enabled() or not (module.training or self.trains_in_eval):
                self._next, self._is_open = self._first, False  # an evaluation has taken batches
                return
            self._find(model)
        if any(module is one for one in self._models):
            self.enters(module)

    def after(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        """A module has returned."""
        if self.world is not None and any(module is one for one in self._models):
            self.leaves()

    def _model_of(self, module: nn.Module) -> nn.Module | None:
        """Return the recorded model that a called module is, or is a part of.

        Lightning calls only parts of its module: those that ``training_step`` uses.
        """
        if self._is_model(module, "m0"):
            return module
        if id(module) in self._strangers:
            return None
        shapes = set(self._shapes.get("m0", {}).values())
        own = [tuple(one.shape) for one in module.parameters()]
        if own and shapes.issuperset(own):
            models = (one for one in gc.get_objects() if issubclass(type(one), nn.Module) and self._is_model(one, "m0"))
            for one in models:
                if any(part is module for part in one.modules()):
                    return one
        self._strangers[id(module)] = module
        return None

    _models: Sequence[nn.Module] = ()

    def _is_model(self, module: nn.Module, name: str) -> bool:
        shapes = self._shapes.get(name, {})
        parameters = dict(module.named_parameters())
        return len(parameters) == len(shapes) and all(
            key in shapes and tuple(one.shape) == shapes[key] for key, one in parameters.items()
        )

    def _find(self, model: nn.Module) -> None:
        """Find the objects of the training, and load the state."""
        world, light = World([model]), self._keyframe.light
        taken = {id(model)}
        for name in sorted(self._shapes):
            if name[0] == "m" and name != "m0":
                other = next(
                    (
                        one
                        for one in gc.get_objects()
                        if issubclass(type(one), nn.Module) and id(one) not in taken and self._is_model(one, name)
                    ),
                    None,
                )
                if other is None:
                    raise CannotReplay("the script has fewer models than the recording")
                taken.add(id(other))
                world.add_model(other)
        frames = user_frames()
        world.discover(frames)
        world.order_optimizers(light.get("owners", {}))
        gradients = self._keyframe.gradients
        tensors = self._keyframe.tensors
        world.load(
            tensors,
            light,
            None if gradients is None else {name: tensors[name] for name in gradients if name in tensors},
        )
        self.world, self._models = world, world.registered
        if self._found_models is not None:
            self._found_models += world.modules.values()


@contextlib.contextmanager
def _following(rerun: Rerun) -> Iterator[None]:
    before = register_module_forward_pre_hook(rerun.before)
    after = register_module_forward_hook(rerun.after, always_call=True)
    try:
        with contextlib.ExitStack() as stack:
            for observer in rerun.observers:
                stack.enter_context(observer.context())
            stack.enter_context(tapped(rerun))
            yield
    finally:
        before.remove()
        after.remove()


def run_again(
    recording: Recording,
    train: Callable[[], object],
    observers: Sequence[StepObserver] = (),
    *,
    last: int | None = None,
    models: list[nn.Module] | None = None,
) -> list[StepResult]:
    """Execute recorded steps by starting the training again; return them.

    Nothing is put back: the training is a new one.

    Args:
        recording: what was recorded.
        train: starts the training, such as ``trainer.fit``, with new objects.
        observers: what sees the steps.
        last: the last step; None: the last that was recorded.
        models: receives the models of the training when they are found.

    Raises:
        CannotReplay: the training is not that of the recording.
    """
    keyframe = Keyframe(recording)
    steps = recording.steps
    rerun = Rerun(keyframe, observers, steps[-1] if last is None else last, models)
    threads = recording.about.get("threads")
    if type(threads) is int and 0 < threads <= 1024:
        torch.set_num_threads(threads)
    with hooks_suspended(), _following(rerun), contextlib.suppress(ReplayFinished):
        train()
    if rerun.world is None:
        raise CannotReplay("no model with the parameters of the recording was trained")
    if not rerun.results:
        raise CannotReplay(f"the training ended before step {steps[0]} did")
    return rerun.results


class StartedAgain:
    """The steps of an incident in a training that starts again; see `Execution`.

    They can be executed once.

    Args:
        recording: what was recorded.
        train: starts the training.
    """

    def __init__(self, recording: Recording, train: Callable[[], object]) -> None:
        self._recording, self._train = recording, train
        self.steps = recording.steps
        #: The models of the training, once they are found.
        self.modules: list[nn.Module] = []
        self.optimizers: list[Optimizer] = []
        #: The steps that were executed.
        self.results: list[StepResult] = []

    def run(self, observers: Sequence[StepObserver] = (), *, last: int | None = None) -> list[StepResult]:
        """Start the training, and end it after the last step."""
        self.results = run_again(self._recording, self._train, observers, last=last, models=self.modules)
        return self.results


def main(argv: Sequence[str]) -> int:
    """Run a script again, and write what came of it as JSON."""
    question, step = "", None
    if argv[0].startswith("--"):
        question, step, argv = argv[0], int(argv[1]), argv[2:]
    run, folder, result, *script = argv
    prints = None if step is None or question != "--operators" else Fingerprints(step)
    recording = Recording.open(LocalStorage(run), folder)
    content: dict[str, Any]
    try:
        if recording is None:
            raise CannotReplay("there is no recording")
        execution, explanation = StartedAgain(recording, lambda: _run_script(script)), None
        if step is not None and prints is None:
            explanation = IncidentReplay(recording, folder).executed_by(execution).explain(step)
        else:
            execution.run([] if prints is None else [prints], last=step)
        results = execution.results
        content = {
            "steps": [
                {
                    "step": one.step,
                    "losses": list(map(json_number, one.losses)),
                    "equal": one.equal,
                    "detail": one.detail,
                }
                for one in results
            ],
            "expected": recording.expected,
        }
        if prints is not None and (executed := prints.executed(sentence(results, len(results)))) is not None:
            content["operators"] = executed.to_json()
        if explanation is not None:
            content["explanation"] = explanation.to_json()
    except CannotReplay as error:
        content = {"error": str(error)}
    except SystemExit as error:
        content = {"error": f"the script ended with exit code {error.code} before the recorded steps were executed"}
    except Exception as error:
        traceback.print_exc()
        content = {"error": f"the script failed: {type(error).__name__}: {error}"[:2000]}
    Path(result).write_text(json.dumps(content), encoding="utf-8")
    return 0


def _run_script(script: Sequence[str]) -> None:
    """Run a Python file, or a module after ``-m``, as Python does."""
    with muted():
        if script[0] == "-m":
            sys.argv = list(script[1:])
            sys.path[0] = str(Path.cwd())
            runpy.run_module(script[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(script)
            sys.path[0] = str(Path(script[0]).resolve().parent)
            runpy.run_path(script[0], run_name="__main__")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
