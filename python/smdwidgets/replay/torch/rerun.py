"""Execute recorded steps in a new process, by running the script again.

``python -m smdwidgets.replay.torch.rerun --plan FILE RANK train.py …`` runs the script of a worker. Its data loaders
give recorded batches. At the first training pass of the model whose parameters are those of the recording, the recorded
state is loaded; after the last step the script is ended. Nothing is taken from the run but tensors and plain values.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import json
import os
import runpy
import sys
import traceback
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from smdwidgets._atomic import replace_file
from smdwidgets._suspend import hooks_suspended
from smdwidgets._text import json_number
from smdwidgets.exceptions import CannotReplay
from smdwidgets.replay.files import Recording
from smdwidgets.replay.fingerprints import Fingerprints
from smdwidgets.replay.incident_replay import IncidentReplay
from smdwidgets.replay.outcomes import WhatIf
from smdwidgets.replay.protocol import StepObserver, StepResult, sentence
from smdwidgets.replay.task import Task
from smdwidgets.replay.torch.execution import Keyframe, Replayed, ReplayFinished
from smdwidgets.replay.torch.loop import user_frames
from smdwidgets.replay.torch.state import World, is_user_code, names_of
from smdwidgets.replay.torch.taps import muted, tapped
from smdwidgets.storage import LocalStorage

__all__ = ["Rerun", "StartedAgain", "run_again"]

_MADE_OF_TENSORS: Final = (torch.Tensor, list, tuple, dict, collections.deque)


class Rerun(Replayed):
    """Follows a training that begins again.

    Args:
        keyframe: the state and the recording.
        observers: what sees the steps.
        last: the last step.
        models: receives the models of the training when they are found.
        optimizers: receives its optimizers.
        earlier: models of other trainings of this process.
    """

    def __init__(
        self,
        keyframe: Keyframe,
        observers: Sequence[StepObserver],
        last: int,
        models: list[nn.Module] | None = None,
        optimizers: list[Optimizer] | None = None,
        earlier: Collection[nn.Module] = (),
    ) -> None:
        super().__init__(keyframe, None, observers, last)
        self._found_models, self._found_optimizers, self._earlier = models, optimizers, earlier
        self._shapes: dict[str, dict[str, tuple[int, ...]]] = {}
        for name, tensor in keyframe.tensors.items():
            model, kind, key = (*name.split("/", 2), "", "")[:3]
            if kind == "p":
                self._shapes.setdefault(model, {})[key] = tuple(tensor.shape)
        self._first = self._next
        #: What the names of the script referred to when the last batch was delivered, by identity.
        self._named: dict[int, Any] | None = None
        #: Modules that are no part of the recorded model, by identity; held, so that no other has it.
        self._strangers: dict[int, nn.Module] = {}

    @property
    def gives(self) -> bool:
        """Whether a data loader gives recorded batches.

        It does not to an evaluation before the training.
        """
        return self.world is not None or torch.is_grad_enabled()

    def deliver(self) -> Any:
        """Return the next batch."""
        if self.world is None:
            self._named = {
                id(value): value
                for frame in user_frames()
                if is_user_code(frame.f_code.co_filename)
                for value in (*frame.f_globals.values(), *names_of(frame).values())
                if not isinstance(value, ModuleType | type)
            }
        return super().deliver()

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
        if isinstance(module, DistributedDataParallel) and self._is_model(module.module, "m0"):
            return module.module  # before buffers are copied from the first worker
        if id(module) in self._strangers:
            return None
        shapes = set(self._shapes.get("m0", {}).values())
        own = [tuple(one.shape) for one in module.parameters()]
        if own and shapes.issuperset(own):
            for one in self._models_like("m0"):
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

    def _models_like(self, name: str) -> Iterator[nn.Module]:
        """Yield the models of the process with the parameters of a recorded one."""
        for one in gc.get_objects():
            if issubclass(type(one), nn.Module) and one not in self._earlier and self._is_model(one, name):
                yield one

    def _find(self, model: nn.Module) -> None:
        """Find the objects of the training, and load the state."""
        world, light = World([model]), self._keyframe.light
        taken = {id(model)}
        for name in sorted(self._shapes):
            if name[0] == "m" and name != "m0":
                other = next((one for one in self._models_like(name) if id(one) not in taken), None)
                if other is None:
                    raise CannotReplay("the script has fewer models than the recording")
                taken.add(id(other))
                world.add_model(other)
        frames = user_frames()
        world.discover(frames)
        if self._named is not None:
            # Tensors that the loop has assigned since are made of the batch of this step. The recorded ones of the same
            # names are those of the step before.
            world.objects = {
                name: keep
                for name, keep in world.objects.items()
                if "." in name or id(keep()) in self._named or not isinstance(keep(), _MADE_OF_TENSORS)
            }
            self._named = None
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
        if self._found_optimizers is not None:
            self._found_optimizers += world.optimizers.values()


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
    optimizers: list[Optimizer] | None = None,
    earlier: Collection[nn.Module] = (),
) -> list[StepResult]:
    """Execute recorded steps by starting the training again; return them.

    Nothing is put back: the training is a new one.

    Args:
        recording: what was recorded.
        train: starts the training, such as ``trainer.fit``, with new objects.
        observers: what sees the steps.
        last: the last step; None: the last that was recorded.
        models: receives the models of the training when they are found.
        optimizers: receives its optimizers.
        earlier: models of other trainings of this process, with the same parameters.

    Raises:
        CannotReplay: the training is not that of the recording.
    """
    keyframe = Keyframe(recording)
    steps = recording.steps
    rerun = Rerun(keyframe, observers, steps[-1] if last is None else last, models, optimizers, earlier)
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

    Each execution starts it from the beginning, in this process.

    Args:
        recording: what was recorded.
        train: starts the training.
        last: the last step that may be executed; None: the last that was recorded.
    """

    def __init__(self, recording: Recording, train: Callable[[], object], last: int | None = None) -> None:
        self._recording, self._train = recording, train
        first, end = recording.steps[0], recording.steps[-1]
        self.steps = range(first, (end if last is None else min(last, end)) + 1)
        #: The models of the training, once they are found.
        self.modules: list[nn.Module] = []
        self.optimizers: list[Optimizer] = []
        #: The steps that were executed last.
        self.results: list[StepResult] = []
        #: The models of the executions before, as far as they still exist.
        self._earlier: weakref.WeakSet[nn.Module] = weakref.WeakSet()

    def run(self, observers: Sequence[StepObserver] = (), *, last: int | None = None) -> list[StepResult]:
        """Start the training, and end it after the last step."""
        self._earlier.update(self.modules)
        self.modules.clear()
        self.optimizers.clear()
        gc.collect()
        self.results = run_again(
            self._recording,
            self._train,
            observers,
            last=self.steps[-1] if last is None else last,
            models=self.modules,
            optimizers=self.optimizers,
            earlier=self._earlier,
        )
        return self.results


def main(argv: Sequence[str]) -> int:
    """Run a script again, and write what came of it as JSON."""
    plan, rank, *script = argv[1:]
    task = Task.read(Path(plan))
    try:
        content = _executed(task, rank, script)
    except CannotReplay as error:
        content = {"error": str(error)}
    except SystemExit as error:
        content = {"error": f"the script ended with exit code {error.code} before the recorded steps were executed"}
    except Exception as error:
        traceback.print_exc()
        content = {"error": f"the script failed: {type(error).__name__}: {error}"[:2000]}
    replace_file(task.result(int(rank)), json.dumps(content))
    # The launcher of several workers ends the others, which may wait for this one.
    return int("error" in content and len(task.folders) > 1)


def _executed(task: Task, rank: str, script: Sequence[str]) -> dict[str, Any]:
    workers = int(os.environ.get("WORLD_SIZE", "1")) if len(task.folders) > 1 else 1
    if workers != len(task.folders):
        raise CannotReplay(f"the training had {len(task.folders)} workers, and {workers} were started")
    folder = task.folders[int(rank)]
    recording = Recording.open(LocalStorage(task.run), folder)
    if recording is None:
        raise CannotReplay("there is no recording")
    execution = StartedAgain(recording, lambda: _run_script(script), task.last)
    replay = IncidentReplay(recording, folder).executed_by(execution)
    content: dict[str, Any] = {}
    if task.kind == "operators":
        assert task.step is not None
        prints = Fingerprints(task.step)
        execution.run([prints], last=task.step)
        operators = prints.executed(sentence(execution.results, len(execution.results)))
        content["operators"] = None if operators is None else operators.to_json()
    elif task.kind == "explain":
        assert task.step is not None
        content["explanation"] = replay.explain(task.step).to_json()
    elif task.kind == "try":
        assert task.step is not None
        content.update(_tried(replay, task, task.step))
    else:
        execution.run()
    content["steps"] = [
        {"step": one.step, "losses": list(map(json_number, one.losses)), "equal": one.equal, "detail": one.detail}
        for one in execution.results
    ]
    return content


def _tried(replay: IncidentReplay, task: Task, step: int) -> dict[str, Any]:
    """Execute the steps with each change, and with each row alone."""
    content: dict[str, Any] = {}
    try:
        if task.changes:
            outcomes: list[WhatIf] = []
            for change in task.changes:
                before = outcomes[0].recorded if outcomes else None
                outcomes += replay.try_all(step) if change == {} else [replay.what_if(step, before, **change)]
            content["what_if"] = [one.to_json() for one in outcomes]
        if task.rows:
            ranking = replay.rank_rows(step)
            content["ranking"] = {**ranking.to_json(), "text": str(ranking)}
    except ValueError as error:  # as the calls of a notebook say it
        raise CannotReplay(str(error)) from None
    return content


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
