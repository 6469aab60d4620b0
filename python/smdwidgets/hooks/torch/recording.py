"""What is recorded of the registered models at a step.

These are parameters, buffers, gradients, and inputs and outputs of modules.
"""

from __future__ import annotations

import torch
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary

from smdwidgets.config import CollectionKeys
from smdwidgets.hooks.core.parts import Parts
from smdwidgets.hooks.torch.capture import GRADIENTS, WEIGHTS, TorchCapture
from smdwidgets.hooks.torch.collection import Collection
from smdwidgets.hooks.torch.gradients import GradientWatch
from smdwidgets.hooks.torch.module_calls import ModuleCalls
from smdwidgets.hooks.torch.modules import BUFFERS
from smdwidgets.hooks.torch.registered import RegisteredModels
from smdwidgets.hooks.torch.training import TrainingLoop

__all__ = ["ModelRecording"]


class ModelRecording:
    """Listens to the registered models while steps are saved.

    Args:
        parts: the parts of the hook.
        tensors: copies tensors of PyTorch.
        models: the registered models.
        loop: begins and ends the steps.
        saves_all_workers: whether every worker saves whole tensors.
    """

    def __init__(
        self,
        parts: Parts,
        tensors: TorchCapture,
        models: RegisteredModels,
        loop: TrainingLoop,
        saves_all_workers: bool,
    ) -> None:
        self._parts = parts
        self._plan = parts.plan
        self._tensors = tensors
        self._models = models
        self._loop = loop
        self._saves_all_workers = saves_all_workers
        self.modules = ModuleCalls(parts, models, loop)
        self._gradients = GradientWatch(parts, loop)
        self._knows_shards = self._has_fitted = False
        #: The number of changes of the models at which the weights were named.
        self._named_at = 0
        parts.plan.before_prepare = self._select_tensors
        loop.listeners = self

    def model_added(self) -> None:
        """A model was registered: look for its shards and modules at the next step."""
        self._knows_shards = self.modules.is_complete = False

    def begin_recording(self) -> None:
        """Begin a step: save the parameters, and register the callbacks that it needs."""
        if not self._knows_shards:
            self._find_shards()
        if not self._named_at:
            self._look_for_changes()
        self._parts.steps.begin()
        if not self._has_fitted:
            self._fit_budget()
        if self._plan.kinds:  # other steps do not look at the models
            self._look_for_changes()
        if not self.modules.is_complete:
            self.modules.tap_modules()
        self.modules.follow_modules()
        watches = GRADIENTS in self._plan.kinds and self._loop.watches_gradients
        if watches or WEIGHTS in self._plan.kinds:
            with torch.no_grad():
                for name, parameter in self._models.parameters():
                    if not is_lazy(parameter):
                        self._tensors.capture(name, parameter)
                    if watches and parameter.requires_grad:
                        self._gradients.watch(name, parameter)
                for name, buffer in self._models.buffers():
                    if not is_lazy(buffer):
                        self._tensors.capture(name, buffer)
        if not watches:
            self._gradients.stop()

    def _fit_budget(self) -> None:
        """Tell the plan the size of the model, before it chooses the first values."""
        self._has_fitted = True
        if self._plan.capture is not None:
            shards = self._tensors.shards
            whole = [one for name, one in self._models.parameters() if not (is_lazy(one) or shards.has(name, one))]
            self._plan.capture.disk.fit(sum(one.nbytes for one in whole))

    def _look_for_changes(self) -> None:
        """Name parameters and modules that the models have gained."""
        self._models.step_begins()
        if self._named_at != self._models.changes:
            self._named_at = self._models.changes
            self._name_weights()
            if self._models.name_new():
                self.modules.is_complete = False

    def resume_recording(self) -> None:
        """Listen again, because a suspended step continues."""
        self.modules.follow_modules()

    def follow_parts(self) -> None:
        """Listen to calls of submodules, because the script never calls the model itself."""
        self.modules.follow_parts()

    def follow_less(self, outermost: WeakIdKeyDictionary) -> None:
        """Stop listening to submodules that other modules call."""
        self.modules.follow_less(outermost)

    def _find_shards(self) -> None:
        """Find sharded parameters before the first step.

        With ``include_workers="one"``, every worker saves its shards. A worker without shards has statistics and
        incidents.
        """
        self._knows_shards = True
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self._save_shards()
            self._parts.witness()

    def _save_shards(self) -> None:
        names = self._tensors.find_shards(self._models)
        if not names or self._saves_all_workers:
            return
        if not self._plan.prepared:
            self._plan.prepare()
        if self._plan.wants_any(names):
            ranks = self._tensors.shards.writers(self._models.parameters()) | {0}
            if torch.distributed.get_rank() in ranks:
                self._parts.save_shards(len(ranks))

    def _name_weights(self) -> None:
        """Have a capture plan take every parameter for a weight or a bias.

        Without a plan, the collections are those of smdebug, which go by names.
        """
        if self._plan.capture is None:
            return
        known = [self._plan.collections.get(name) for name in (CollectionKeys.WEIGHTS, CollectionKeys.BIASES)]
        for name, _ in self._models.parameters():
            for part in self._tensors.shards.names(name):
                if not any(self._plan.matches(collection, part) for collection in known):
                    known[0].add_tensor_name(part)

    def _select_tensors(self) -> None:
        """Resolve the modules that collections name."""
        models, shards = self._models, self._tensors.shards
        modules = list(models.named_modules())
        parameters = [(part, value) for name, value in models.parameters() for part in shards.names(name)]
        collections = self._plan.collections
        for collection in collections.get_collections().values():
            if isinstance(collection, Collection):
                collection.take_module_names(models.names.get)
                collection.add_selected(modules, parameters)
        buffers = collections.get(BUFFERS)
        for name, _ in models.buffers():
            buffers.add_tensor_name(name)

    def detach(self) -> None:
        """Remove all callbacks, and forget the models."""
        self.modules.detach()
        self._gradients.stop()
        self._models.forget()
        self._tensors.shards.clear()
