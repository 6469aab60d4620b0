"""What is saved: which collections at a step, and what of a tensor that they hold.

>>> plan = Plan({"all": (), "losses": ("loss",)}, included=["losses"], save_config=SaveConfig(save_interval=2))
>>> plan.prepare()
>>> [plan.begin(ModeKeys.TRAIN, step) for step in range(3)]
[True, False, True]
>>> plan.keep("my_loss")
Keep(raw=True, shape=False, reductions=(), histogram=None, scalar=False)
>>> plan.keep("weight") is None
True
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from smdwidgets._text import misspelling_of, shown
from smdwidgets.config import Collection, CollectionKeys, CollectionManager, ReductionConfig, SaveConfig
from smdwidgets.config.keys import BUILT_IN, NON_HISTOGRAM_COLLECTIONS, NON_REDUCTION_COLLECTIONS
from smdwidgets.hooks.keep import WHOLE, Keep, Patterns, keep
from smdwidgets.modes import ModeKeys

__all__ = ["Collections", "Plan"]

logger = logging.getLogger("smdwidgets.hooks")

#: Steps of these modes have no gradients worth saving, only stale ones.
_NOT_LEARNING = frozenset({ModeKeys.EVAL, ModeKeys.PREDICT})
_LEARNT = frozenset({CollectionKeys.GRADIENTS, CollectionKeys.OPTIMIZER_VARIABLES})


class Collections(CollectionManager):
    """The collections of a hook, all of the framework's own class."""

    def __init__(self, kind: type[Collection]) -> None:
        super().__init__()
        self._kind = kind

    def create_collection(self, name: str, cls: type[Collection] | None = None) -> None:
        """Make an empty collection, of the framework's class unless told otherwise."""
        super().create_collection(name, self._kind if cls is None else cls)


class Plan:
    """The collections of a hook and their configurations, asked step by step.

    Args:
        built_in: the framework's own collections with their patterns.
        included: names of the collections to save.
        save_config: when to save tensors whose collection does not say.
        reduction_config: what to save of tensors whose collection does not say.
        kind: the class of collections.
        meets_tensors: whether tensors come unasked, so that collections must say which of them are wanted.
        tensorboard: whether scalars and histograms are exported.
    """

    def __init__(
        self,
        built_in: Mapping[str, Sequence[str]],
        included: Iterable[str] = (),
        save_config: SaveConfig | None = None,
        reduction_config: ReductionConfig = WHOLE,
        kind: type[Collection] = Collection,
        meets_tensors: bool = True,
        tensorboard: bool = False,
    ) -> None:
        self.collections = Collections(kind)
        for name, patterns in built_in.items():
            self.collections.create_collection(name)
            self.collections.get(name).include(list(patterns))
        self.included = list(dict.fromkeys(included))
        self.save_config = SaveConfig() if save_config is None else save_config
        self.reduction_config = reduction_config
        #: The collections that are saved at the step that is going on.
        self.saving: tuple[Collection, ...] = ()
        self.prepared = False
        self._built_in = built_in
        self._meets_tensors = meets_tensors
        self._tensorboard = tensorboard
        self._at = (ModeKeys.GLOBAL, -1)
        self._patterns = Patterns()
        self._keeps: dict[tuple[str, ...], dict[str, Keep | None]] = {}
        self._now: dict[str, Keep | None] = {}
        self._seen: tuple[int, ...] = ()
        for name in self.included:
            self._warn_if_misspelt(name)

    def _warn_if_misspelt(self, name: str) -> None:
        # Collections of one's own are created after the hook, so that an unknown name alone is no mistake.
        meant = None if name in self._built_in or name in BUILT_IN else misspelling_of(name, self._built_in)
        if meant is not None:
            logger.warning(
                "include_collections names %s, which does not exist. Did you mean %s? To save a collection of your own, give "
                "it patterns before the first step: hook.get_collection(%s).include(regex).",
                shown(name),
                shown(meant),
                shown(name),
            )

    def include(self, name: str, pattern: str | Iterable[str]) -> None:
        """Save a collection, with these patterns besides what it has."""
        self.collections.get(name).include(pattern)
        if name not in self.included:
            self.included.append(name)

    def prepare(self) -> None:
        """Give every collection its final configuration; called when the first step begins, when all are known."""
        self.prepared = True
        for name in self.included:
            self.collections.create_collection(name)
        known = self.collections.get_collections()
        saved = self.saved()
        for name, collection in known.items():
            if self._meets_tensors and name not in self._built_in and name != CollectionKeys.SCALARS:
                if not collection.include_regex and not collection.tensor_names:
                    logger.warning(
                        "collection %s has no patterns and no tensors: nothing is saved for it. Give it patterns with "
                        "hook.get_collection(%s).include(regex).",
                        shown(name),
                        shown(name),
                    )
                elif collection not in saved:
                    logger.warning("Collection %s is not saved: include_collections does not name it.", shown(name))
            # A wrong pattern is an error now, not in mid-training.
            self._patterns.any(name, collection.include_regex, "")
            self.configure(collection)

    def configure(self, collection: Collection) -> None:
        """Fill in what a collection does not say."""
        # A configuration of its own, since filling in missing modes must not change one that several collections share.
        given = self.save_config if collection.save_config is None else collection.save_config
        complete = SaveConfig(given.mode_save_configs)
        complete.merge_default_save_config(self.save_config)
        collection.save_config = complete
        if collection.name in NON_HISTOGRAM_COLLECTIONS:
            collection.save_histogram = False
        if collection.name in NON_REDUCTION_COLLECTIONS:
            collection.reduction_config = WHOLE
        elif collection.reduction_config is None:
            collection.reduction_config = self.reduction_config

    def saved(self) -> list[Collection]:
        """The collections that are saved at any step."""
        known = self.collections.get_collections()
        if not self._meets_tensors or CollectionKeys.ALL in self.included:
            return list(known.values())
        return [known[name] for name in self.included if name in known]

    def at(self, mode: ModeKeys, mode_step: int) -> tuple[Collection, ...]:
        """The collections that are saved at this step of this mode."""
        found = []
        for collection in self.saved():
            if mode in _NOT_LEARNING and collection.name in _LEARNT:
                continue
            if self._saves(collection, mode, mode_step):
                found.append(collection)
        return tuple(found)

    def begin(self, mode: ModeKeys, mode_step: int) -> bool:
        """A step begins; whether any collection is saved at it."""
        self._at = (mode, mode_step)
        self.saving = self.at(mode, mode_step)
        if self.saving:
            # Collections may gain patterns and tensors while the training runs; what was decided for names is then void.
            if (seen := self.state()) != self._seen:
                self._seen = seen
                self._keeps.clear()
            self._now = self._keeps.setdefault(tuple(collection.name for collection in self.saving), {})
        return bool(self.saving)

    def end(self) -> None:
        """The step is over: nothing is saved until the next begins."""
        self.saving = ()

    def state(self) -> tuple[int, ...]:
        """What changes when a collection has gained a pattern or a tensor."""
        collections = self.collections.get_collections().values()
        return tuple(len(one.include_regex) << 32 | len(one.tensor_names) for one in collections)

    def keep(self, name: str) -> Keep | None:
        """What to save of a tensor at this step; None for nothing."""
        try:
            return self._now[name] if self.saving else None
        except KeyError:
            members = [one for one in self.saving if self._patterns.match(one, name)]
            for collection in members:
                collection.add_tensor_name(name)
            found = self._now[name] = keep(members, self._tensorboard) if members else None
            return found

    def asked(self, collections: Iterable[Collection]) -> list[Collection]:
        """Those that are saved at this step, whether included or not: for a tensor that the script hands over."""
        return [one for one in collections if self._saves(one, *self._at)]

    def keep_own(self, name: str, asked: Sequence[Collection]) -> Keep:
        """What to save of a tensor that the script hands over for these collections."""
        matched = [one for one in self.saving if one not in asked and self._patterns.match(one, name)]
        return keep([*asked, *matched], self._tensorboard)

    def matches(self, collection: Collection, name: str) -> bool:
        """Whether a collection holds a tensor of this name."""
        return self._patterns.match(collection, name)

    def wants_any(self, names: Sequence[str]) -> bool:
        """Whether any of these names may be saved at any step."""
        return any(self._patterns.match(one, name) for one in self.saved() for name in names)

    def _saves(self, collection: Collection, mode: ModeKeys, mode_step: int) -> bool:
        config = self.save_config if collection.save_config is None else collection.save_config
        return config.should_save_step(mode, mode_step)
