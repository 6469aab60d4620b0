"""The parts of a hook, and what a framework says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from smdwidgets.config import Collection, CollectionKeys, SaveConfig
from smdwidgets.config.capture_plan import AUTO
from smdwidgets.hooks.capture.capture import Capture
from smdwidgets.hooks.capture.plan import Plan
from smdwidgets.hooks.capture.save_spec import WHOLE
from smdwidgets.hooks.core.guard import Guard
from smdwidgets.hooks.core.incidents import Incidents
from smdwidgets.hooks.core.options import HookOptions
from smdwidgets.hooks.core.recorder import Recorder
from smdwidgets.hooks.core.steps import Steps
from smdwidgets.hooks.core.stopping import Stopping
from smdwidgets.hooks.core.tensors import TensorCapture
from smdwidgets.hooks.incidents.source_rules import SourceRules
from smdwidgets.naming.tensors import Kinds

__all__ = ["Framework", "Parts", "build_plan"]


class Framework(Protocol):
    """What the class of a framework's hook says; see `Hook`."""

    built_in: ClassVar[Mapping[str, Sequence[str]]]
    always_saved: ClassVar[tuple[str, ...]]
    save_interval: ClassVar[int]
    collection_class: ClassVar[type[Collection]]
    kinds: ClassVar[Mapping[str, str]]
    activations: ClassVar[Sequence[str]]
    meets_tensors: ClassVar[bool]
    capture_class: ClassVar[type[TensorCapture]]


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that a hook holds. Each has one responsibility; none knows the hook.

    Attributes:
        guard: whether the hook may record, and how failures are reported.
        plan: which tensors are saved at which step.
        tensors: copies tensors and queues them.
        recorder: the run's directory and the queue to the writer's thread.
        stopping: the request to stop the training.
        steps: counts, begins and ends steps.
        incidents: the flight recorder.
        kinds: the kinds of the run's tensors.
    """

    guard: Guard
    plan: Plan
    tensors: TensorCapture
    recorder: Recorder
    stopping: Stopping
    steps: Steps
    incidents: Incidents
    kinds: Kinds

    @classmethod
    def of(
        cls,
        framework: type[Framework],
        options: HookOptions,
        worker: tuple[str, int],
        report: Callable[[], object],
    ) -> Self:
        """Assemble the parts of a hook.

        Args:
            framework: class of the hook.
            options: the options of the hook.
            worker: name of this worker, and the number of workers.
            report: reports expected tensors that were never captured.
        """
        guard, plan = Guard(), build_plan(framework, options)
        recorder = Recorder(options, worker, plan, guard)
        guard.out_dir = recorder.run_dir.url
        guard.silent = bool(options.dry_run) or not recorder.is_saving_worker
        tensors = framework.capture_class(plan, recorder.queue, guard)
        stopping = Stopping(recorder.run_dir.path)
        kinds = Kinds(plan.is_member)
        rules = SourceRules(options.rules, str(recorder.run_dir.path), guard.report_failure)
        return cls(
            guard=guard,
            plan=plan,
            tensors=tensors,
            recorder=recorder,
            stopping=stopping,
            steps=Steps(guard, plan, tensors, recorder, stopping, report),
            incidents=Incidents(options, recorder, kinds, rules, plan.capture),
            kinds=kinds,
        )

    def open(self) -> None:
        """Claim the run's directory, and record from now on."""
        resumed = self.recorder.open(self._is_parameter)
        if resumed is not None:
            self.steps.continue_after(resumed.step, resumed.mode_steps)
            self.incidents.start()

    def witness(self) -> None:
        """Have statistics and incidents of a worker that saves nothing."""
        resumed = self.recorder.witness(self.tensors.is_number)
        if resumed is not None:
            self.tensors.is_witness = True
            self.steps.continue_after(resumed.step, resumed.mode_steps)
            self.incidents.start()

    def save_shards(self, workers: int) -> None:
        """Save this worker's shards of sharded tensors.

        A worker that saves nothing else opens the directory now.

        ``workers`` is the number of workers that save shards.
        """
        if self.recorder.save_shards(workers):
            self.tensors.only_shards = True
            self.open()

    def _is_parameter(self, name: str) -> bool:
        """Whether a tensor is a weight or a bias."""
        return self.kinds[name].is_parameter


def build_plan(framework: type[Framework], options: HookOptions) -> Plan:
    """Return the collections of a hook with their configurations."""
    included: list[str] = list(options.include_collections or ())
    plan = Plan(
        framework.built_in,
        [*framework.always_saved, *included],
        options.save_config or SaveConfig(save_interval=framework.save_interval),
        options.reduction_config or WHOLE,
        framework.collection_class,
        framework.meets_tensors,
        bool(options.export_tensorboard) or options.tensorboard_dir is not None,
        included,
        None if options.capture_plan is None else Capture(options.capture_plan, framework.kinds),
        options.checks_only is None,
    )
    if options.capture_plan is not None:
        if framework.activations:
            plan.collections.get(CollectionKeys.ACTIVATIONS).include(list(framework.activations))
        if not options.selects_tensors:
            for name in framework.kinds:
                plan.include(name, chosen=options.capture_plan.tensors != AUTO)
    if options.include_regex is not None:
        plan.include(CollectionKeys.DEFAULT, options.include_regex)
    if options.save_all:
        plan.include(CollectionKeys.ALL, ".*")
    return plan
