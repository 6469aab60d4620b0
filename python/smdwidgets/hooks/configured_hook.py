"""The configuration layer of a hook: arguments, directory and collections."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from smdwidgets._text import shown
from smdwidgets.config import CapturePlan, Collection, CollectionKeys, CollectionManager, ReductionConfig, SaveConfig
from smdwidgets.config._parse import texts
from smdwidgets.config.capture_plan import AUTO
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.hooks.capture import Capture
from smdwidgets.hooks.guarded_hook import GuardedHook
from smdwidgets.hooks.json_config import HookFile
from smdwidgets.hooks.plan import Plan
from smdwidgets.hooks.run_dir import RunDirectory
from smdwidgets.hooks.save_spec import WHOLE

__all__ = ["ConfiguredHook"]


class ConfiguredHook(GuardedHook):
    """What a hook saves, when and where.

    The arguments are those of :class:`~smdwidgets.hooks.base.Hook`.
    """

    #: The framework's collections and their patterns.
    built_in: ClassVar[Mapping[str, Sequence[str]]] = {CollectionKeys.ALL: (), CollectionKeys.DEFAULT: ()}
    #: Collections that are always saved.
    always_saved: ClassVar[tuple[str, ...]] = ()
    #: Default save interval.
    save_interval: ClassVar[int] = 500
    collection_class: ClassVar[type[Collection]] = Collection
    #: The kind of tensors in each collection that a capture plan saves, and the patterns of activations.
    kinds: ClassVar[Mapping[str, str]] = {}
    activations: ClassVar[Sequence[str]] = ()
    #: Whether the framework reports all tensors and collections select from them. Otherwise the script passes what to save.
    meets_tensors: ClassVar[bool] = True

    def __init__(
        self,
        out_dir: str | os.PathLike[str] | None,
        export_tensorboard: bool,
        tensorboard_dir: str | os.PathLike[str] | None,
        dry_run: bool,
        reduction_config: ReductionConfig | None,
        save_config: object,
        include_regex: str | Iterable[str] | None,
        include_collections: str | Iterable[str] | None,
        save_all: bool,
        include_workers: str,
        plan: object,
    ) -> None:
        super().__init__()
        if out_dir is None:
            raise SMDebugTypeError("out_dir is required: pass the directory of the run")
        if include_workers not in ("one", "all"):
            raise SMDebugValueError(f'invalid include_workers {shown(include_workers)}; choose "one" or "all"')
        if not (reduction_config is None or isinstance(reduction_config, ReductionConfig)):
            raise SMDebugTypeError(f"reduction_config takes a ReductionConfig, not {type(reduction_config).__name__}.")
        self.dry_run = bool(dry_run)
        self.save_all = bool(save_all)
        self.include_workers = include_workers
        chosen = (reduction_config, save_config, include_regex, include_collections, save_all or None)
        capture_plan = _capture_plan(plan, chosen)
        named = [include_collections] if isinstance(include_collections, str) else include_collections or ()
        self._plan = Plan(
            self.built_in,
            [*self.always_saved, *texts(named, "include_collections")],
            SaveConfig(save_interval=self.save_interval) if save_config is None else SaveConfig.parse(save_config),
            WHOLE if reduction_config is None else reduction_config,
            self.collection_class,
            self.meets_tensors,
            bool(export_tensorboard) or tensorboard_dir is not None,
            texts(named, "include_collections"),
            None if capture_plan is None else Capture(capture_plan, self.kinds),
        )
        if capture_plan is not None and self.activations:
            self.get_collection(CollectionKeys.ACTIVATIONS).include(list(self.activations))
        if capture_plan is not None and all(one is None for one in chosen[2:]):
            for name in self.kinds:
                self._plan.include(name, chosen=capture_plan.tensors != AUTO)
        if include_regex is not None:
            self._plan.include(CollectionKeys.DEFAULT, include_regex)
        if self.save_all:
            self._plan.include(CollectionKeys.ALL, ".*")
        self.worker, self.num_workers = self._worker()
        self._saving_workers = self.num_workers if include_workers == "all" else 1
        #: Whether this worker saves shards of sharded tensors, and nothing else.
        self._only_shards = False
        self.run_dir = RunDirectory(out_dir, self.worker, self._saving_workers)
        self.out_dir = self.run_dir.url
        self.tensorboard_dir = self._tensorboard_dir(export_tensorboard, tensorboard_dir)

    @property
    def plan(self) -> CapturePlan | None:
        """The capture plan, or None if save configurations alone decide."""
        return None if self._plan.capture is None else self._plan.capture.plan

    @classmethod
    def create_from_json_file(cls, json_file_path: str | os.PathLike[str] | None = None, **options: Any) -> Self:
        """Create a hook from a JSON file in smdebug's format.

        Args:
            json_file_path: the file; default: the environment variable SMDEBUG_CONFIG_FILE_PATH, else SageMaker's path.
            **options: further arguments of the hook, such as ``overwrite=True``.
        """
        file = HookFile(json_file_path, cls.save_interval)
        # Files in smdebug's format keep smdebug's meaning: without a configuration, losses at every save_interval.
        hook = cls(**{"plan": False, **file.arguments, **options})
        file.configure(hook.get_collection)
        return hook

    @classmethod
    def _worker(cls) -> tuple[str, int]:
        """Return the name of this worker and the number of workers."""
        for rank, size in (
            ("RANK", "WORLD_SIZE"),
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ):  # torchrun, mpirun
            number, count = os.environ.get(rank, ""), os.environ.get(size, "")
            if number.isdecimal() and count.isdecimal() and int(count) > 1:
                return f"worker_{int(number)}", int(count)
        return "worker_0", 1

    def _tensorboard_dir(self, export: bool, directory: str | os.PathLike[str] | None) -> str | None:
        if directory is not None:
            return str(Path(directory).expanduser().absolute())
        return str(self.run_dir.path / "tensorboard") if export else None

    @property
    def collection_manager(self) -> CollectionManager:
        """All collections. Scripts may replace them before the first step, as in smdebug."""
        return self._plan.collections

    @collection_manager.setter
    def collection_manager(self, manager: CollectionManager) -> None:
        if not isinstance(manager, CollectionManager):
            raise SMDebugTypeError(f"collection_manager must be a CollectionManager, got {type(manager).__name__}")
        self._plan.replace_collections(manager)

    @property
    def include_collections(self) -> list[str]:
        """The names of the collections that are saved."""
        return self._plan.included

    @property
    def save_config(self) -> SaveConfig:
        """When to save a tensor whose collection has no configuration."""
        return self._plan.save_config

    @property
    def reduction_config(self) -> ReductionConfig:
        """What to save of a tensor whose collection has no configuration."""
        return self._plan.reduction_config

    def get_collection(self, name: str, create: bool = True) -> Collection:
        """Return the collection of this name; create it if it does not exist."""
        return self.collection_manager.get(name, create=create)

    def get_collections(self) -> dict[str, Collection]:
        """Return all collections by name."""
        return self.collection_manager.get_collections()

    def add_collection(self, collection: Collection) -> None:
        """Add a collection. It is saved if ``include_collections`` contains its name."""
        if not isinstance(collection, Collection):
            raise SMDebugTypeError(f"collection must be a Collection, got {type(collection).__name__}")
        self.collection_manager.add(collection)

    def _prepare(self) -> None:
        """Complete the configuration when the first step begins."""
        self._plan.prepare()

    @property
    def _saving(self) -> tuple[Collection, ...]:
        """The collections that are saved at the current step."""
        return self._plan.saving


def _capture_plan(plan: object, chosen: Sequence[object]) -> CapturePlan | None:
    """Return the capture plan of a hook.

    It is the default if the script chooses nothing to save.
    """
    if plan is None:
        return CapturePlan() if all(one is None for one in chosen) else None
    if plan is False:
        return None
    found = CapturePlan.parse(plan)
    reduction_config, save_config, *_ = chosen
    if not (reduction_config is None and save_config is None):
        raise SMDebugValueError(
            "plan and save_config (or reduction_config) exclude each other; set save_config of a collection to except it "
            "from the plan"
        )
    return found
