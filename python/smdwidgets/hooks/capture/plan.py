"""Decide which collections are saved at a step, and what to save of each tensor.

>>> plan = Plan({"all": (), "losses": ("loss",)}, included=["losses"], save_config=SaveConfig(save_interval=2))
>>> plan.prepare()
>>> [plan.begin(ModeKeys.TRAIN, step) for step in range(3)]
[True, False, True]
>>> plan.spec("my_loss")  # doctest: +NORMALIZE_WHITESPACE
SaveSpec(raw=True, shape=False, reductions=(), histogram=None, scalar=False, statistics=False, planned=False,
kept=False, kind='')
>>> plan.spec("weight") is None
True
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import replace

from smdwidgets._text import misspelling_of, shown
from smdwidgets.config import Collection, CollectionKeys, CollectionManager, ReductionConfig, SaveConfig
from smdwidgets.config.capture_plan import TENSORS
from smdwidgets.config.keys import BUILT_IN, NON_HISTOGRAM_COLLECTIONS, NON_REDUCTION_COLLECTIONS
from smdwidgets.hooks.capture.capture import ACTIVATIONS, Capture
from smdwidgets.hooks.capture.save_spec import WHOLE, Patterns, SaveSpec, save_spec
from smdwidgets.modes import ModeKeys

__all__ = ["Collections", "Plan"]

logger = logging.getLogger("smdwidgets.hooks")

#: Modes in which gradients and optimizer variables are stale and are not saved.
_MODES_WITHOUT_GRADIENTS = frozenset({ModeKeys.EVAL, ModeKeys.PREDICT})
_GRADIENT_COLLECTIONS = frozenset(
    {CollectionKeys.GRADIENTS, CollectionKeys.OPTIMIZER_VARIABLES, CollectionKeys.OPTIMIZER_STATE}
)
#: What every training has, if its framework always saves it. The first of them counts.
_OF_TRAININGS = (CollectionKeys.LOSSES, CollectionKeys.METRICS)
#: What `save_all` saves of every model that trains.
_OF_MODELS = (CollectionKeys.WEIGHTS, CollectionKeys.GRADIENTS)


#: The collections that are saved at a step, the kinds of tensors, what is saved of each tensor, and whether each
#: collection is due.
_Choice = tuple[
    tuple[Collection, ...], frozenset[str], dict[object, tuple[SaveSpec | None, frozenset[str]]], dict[str, bool]
]


class Collections(CollectionManager):
    """The collections of a hook, which are of the framework's collection class."""

    def __init__(self, kind: type[Collection]) -> None:
        super().__init__()
        self._kind = kind

    def create_collection(self, name: str, cls: type[Collection] | None = None) -> None:
        """Create an empty collection, by default of the framework's class."""
        super().create_collection(name, self._kind if cls is None else cls)


class Plan:
    """The collections of a hook, their configurations, and the current step.

    Args:
        built_in: the framework's built-in collections with their patterns.
        included: names of the collections to save.
        save_config: default save configuration of collections.
        reduction_config: default reduction configuration of collections.
        kind: the class of collections.
        meets_tensors: whether the hook captures tensors itself, so that collections must select the tensors to save.
        tensorboard: whether scalars and histograms are exported.
        asked: names of the collections that the script has included itself.
        capture: decides by steps for collections that the script has not configured.
        saves: whether anything is saved at all.
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
        asked: Iterable[str] = (),
        capture: Capture | None = None,
        saves: bool = True,
    ) -> None:
        self._saves_any = saves
        self.collections: CollectionManager = Collections(kind)
        for name, patterns in built_in.items():
            self.collections.create_collection(name)
            self.collections.get(name).include(list(patterns))
        self.included = list(dict.fromkeys(included))
        #: The collections that the script has included.
        self.asked = tuple(asked)
        #: The collections of tensors that the script has passed, which are saved without being included.
        self.given: set[str] = set()
        #: The collections that are saved because the script chose nothing.
        self._by_default: set[str] = set()
        self.save_config = SaveConfig() if save_config is None else save_config
        self.reduction_config = reduction_config
        #: The collections that are saved at the current step.
        self.saving: tuple[Collection, ...] = ()
        #: The kinds of tensors of models that may be saved at the current step. Most steps save none.
        self.kinds: frozenset[str] = frozenset()
        #: Whether inputs or outputs of modules may be saved at the current step.
        self.saves_activations = False
        self.prepared = False
        #: Called before the first step, to add tensors to collections.
        self.before_prepare: Callable[[], object] | None = None
        self.capture = capture
        #: The configurations that :meth:`configure` has set, by collection.
        self._defaults: dict[str, SaveConfig | None] = {}
        self._built_in = built_in
        self._meets_tensors = meets_tensors
        self._tensorboard = tensorboard
        self._at = (ModeKeys.GLOBAL, -1)
        self._patterns = Patterns()
        self._specs: dict[object, dict[object, tuple[SaveSpec | None, frozenset[str]]]] = {}
        #: What to save of each tensor at this step, and the names of its collections. A tensor of the script has a key
        #: of its name and those of the collections that it names.
        self._now: dict[object, tuple[SaveSpec | None, frozenset[str]]] = {}
        self._is_due: dict[str, bool] = {}
        self._seen: list[object] = []
        #: The collections, what they contain, how much of each, and how often any were changed otherwise.
        self._known: dict[str, Collection] = {}
        self._contents: list[Sized] = []
        self._sizes: list[int] = []
        self._changes = -1
        #: How often collections were found changed.
        self.revision = 0
        #: Whether the capture plan alone decides, so that its decisions are those of every step that it treats alike.
        self._is_adaptive = False
        self._choices: dict[object, _Choice] = {}
        #: Collections of which a tensor was saved, and of which one was due, by name.
        self._came: set[str] = set()
        self._due: set[str] = set()
        for name in self.included:
            self._warn_if_misspelt(name)

    def _warn_if_misspelt(self, name: str) -> None:
        # Custom collections are created after the hook, so an unknown name alone is not an error.
        meant = None if name in self._built_in or name in BUILT_IN else misspelling_of(name, self._built_in)
        if meant is not None:
            logger.warning(
                "include_collections contains the unknown collection %s. Did you mean %s? To save a custom collection, add "
                "patterns before the first step: hook.get_collection(%s).include(regex)",
                shown(name),
                shown(meant),
                shown(name),
            )

    def replace_collections(self, manager: CollectionManager) -> None:
        """Use other collections from the next step on.

        Those of the framework that are missing are created.
        """
        for name, patterns in self._built_in.items():
            if name not in manager.get_collections():
                manager.create_collection(name)
                manager.get(name).include(list(patterns))
        self.collections = manager
        self.prepared = False

    def include(self, name: str, pattern: str | Iterable[str] = (), chosen: bool = True) -> None:
        """Add patterns to a collection, and save it.

        ``chosen`` is False where the script chose nothing.
        """
        (self._by_default.discard if chosen else self._by_default.add)(name)
        self.collections.get(name).include(pattern)
        if name not in self.included:
            self.included.append(name)

    def prepare(self) -> None:
        """Complete the configuration of every collection.

        Called when the first step begins.
        """
        if self.before_prepare is not None:
            self.before_prepare()
        self.prepared = True
        for name in self.included:
            self.collections.create_collection(name)
        known = self.collections.get_collections()
        saved = self.saved()
        for name, collection in known.items():
            if self._meets_tensors and name not in self._built_in and name != CollectionKeys.SCALARS:
                if not collection.include_regex and not collection.tensor_names:
                    logger.warning(
                        "collection %s has no patterns and no tensors, so nothing is saved for it; add patterns with "
                        "hook.get_collection(%s).include(regex)",
                        shown(name),
                        shown(name),
                    )
                elif (
                    self._saves_any and collection not in saved and (collection.include_regex or name not in self.given)
                ):
                    logger.warning(
                        "collection %s is not saved; add it to include_collections to save it",
                        shown(name),
                    )
            # Compile the patterns now, so that an invalid one raises before the training rather than during it.
            self._patterns.any(name, collection.include_regex, "")
            self.configure(collection)

    def configure(self, collection: Collection) -> None:
        """Set the defaults of a collection's configurations."""
        # Copy the configuration: several collections may share it, and filling in missing modes must not change theirs.
        is_default = self._has_default_steps(collection)
        given = self.save_config if collection.save_config is None else collection.save_config
        complete = SaveConfig(given.mode_save_configs)
        complete.merge_default_save_config(self.save_config)
        collection.save_config = complete
        if is_default:
            self._defaults[collection.name] = collection.save_config
        if collection.name in NON_HISTOGRAM_COLLECTIONS:
            collection.save_histogram = False
        if collection.name in NON_REDUCTION_COLLECTIONS:
            collection.reduction_config = WHOLE
        elif collection.reduction_config is None:
            collection.reduction_config = self.reduction_config

    def saved(self) -> list[Collection]:
        """Return the collections that are saved at any step."""
        if not self._saves_any:
            return []
        known = self.collections.get_collections()
        if not self._meets_tensors or CollectionKeys.ALL in self.included:
            return list(known.values())
        return [known[name] for name in self.included if name in known]

    def at(self, mode: ModeKeys, mode_step: int) -> tuple[Collection, ...]:
        """Return the collections that are saved at this step of this mode."""
        found = []
        for collection in self.saved():
            if mode in _MODES_WITHOUT_GRADIENTS and collection.name in _GRADIENT_COLLECTIONS:
                continue
            if self._saves(collection, mode, mode_step):
                found.append(collection)
        return tuple(found)

    def begin(self, mode: ModeKeys, mode_step: int) -> bool:
        """Begin a step; return whether any collection is saved at it."""
        self._at = (mode, mode_step)
        self.look_for_changes()
        if self._is_adaptive and self.capture is not None:
            key = mode, self.capture.state
            choice = self._choices.get(key)
            if choice is None:
                choice = self._choices[key] = self._choose(mode, mode_step)
        else:
            choice = self._choose(mode, mode_step)
        self.saving, self.kinds, self._now, self._is_due = choice
        self.saves_activations = ACTIVATIONS in self.kinds
        return bool(self.saving)

    def look_for_changes(self) -> None:
        """Forget decisions if a script has changed collections."""
        collections = self.collections.get_collections().values()
        seen: list[object] = [one.state() for one in collections]
        seen.append(len(self.included))
        if self.has_changed():
            self._note_contents()
        if seen != self._seen:
            self._seen = seen
            self.revision += 1
            self._specs.clear()
            self._choices.clear()
            self._is_adaptive = self.capture is not None and not any(map(self.is_configured, collections))

    @property
    def is_adaptive(self) -> bool:
        """Whether the capture plan alone decides by steps."""
        return self._is_adaptive

    def has_changed(self) -> bool:
        """Whether a script may have changed collections since a step began."""
        return (
            self.was_set
            or [*map(len, self._contents)] != self._sizes
            or self.collections.get_collections() != self._known
        )

    @property
    def was_set(self) -> bool:
        """Whether a script may have set an attribute of a collection since a step began.

        It takes five times as long to find out whether it has changed a list or a set inside.
        """
        return Collection.changes != self._changes or not self.prepared

    def _note_contents(self) -> None:
        self._known = dict(self.collections.get_collections())
        self._contents = [self.included]
        for one in self._known.values():
            self._contents += [one.include_regex, one.tensor_names]
        self._sizes = [*map(len, self._contents)]
        self._changes = Collection.changes

    def _choose(self, mode: ModeKeys, mode_step: int) -> _Choice:
        saving = self.at(mode, mode_step)
        if not saving:
            return saving, frozenset(), {}, {}
        capture = self.capture
        self._due.update(collection.name for collection in saving)
        names = tuple(collection.name for collection in saving)
        kinds = frozenset(TENSORS) if capture is None else capture.kinds_of(saving)
        return saving, kinds, self._specs.setdefault((names, () if capture is None else capture.state), {}), {}

    def end(self) -> None:
        """End the step: nothing is saved until the next step begins."""
        self.saving = ()
        self.kinds = frozenset()
        self.saves_activations = False

    def spec(self, name: str) -> SaveSpec | None:
        """Return what to save of a tensor at this step, or None."""
        try:
            return self._now[name][0] if self.saving else None
        except KeyError:
            members = [one for one in self.saving if self._patterns.match(one, name)]
            for collection in members:
                collection.add_tensor_name(name)
            spec = self._spec_of(name, members) if members else None
            self._now[name] = spec, frozenset(collection.name for collection in members)
            return spec

    def mark_captured(self, name: str) -> None:
        """Note that a tensor was captured at this step, for which :meth:`spec` was called."""
        self._came |= self._now[name][1]

    def due(self, collections: Iterable[Collection]) -> list[Collection]:
        """Return those of the collections that are saved at this step, included or not.

        This applies to a tensor that the script passes explicitly.
        """
        return [one for one in collections if self._collection_is_due(one)]

    def _collection_is_due(self, collection: Collection) -> bool:
        is_due = self._is_due.get(collection.name)
        if is_due is None:
            is_due = self._is_due[collection.name] = self._saves(collection, *self._at)
        return is_due

    def spec_of_script_tensor(self, name: str, due: Sequence[Collection]) -> SaveSpec | None:
        """Return what to save of a tensor that the script passes explicitly, or None."""
        key = name, tuple(one.name for one in due)
        if not self.saving:
            self._came.update(one.name for one in due)
            return self._spec_of(name, due)
        if key not in self._now:
            matched = [one for one in self.saving if one not in due and self._patterns.match(one, name)]
            names = frozenset(collection.name for collection in (*due, *matched))
            self._now[key] = self._spec_of(name, [*due, *matched]), names
        spec, names = self._now[key]
        self._came |= names
        return spec

    def spec_of_scalar(self, spec: SaveSpec) -> SaveSpec:
        """Return what to save of a number that the script passes explicitly."""
        return spec if self.capture is None else replace(spec, statistics=bool(self.capture.plan.statistics))

    def _spec_of(self, name: str, members: Sequence[Collection]) -> SaveSpec | None:
        spec = save_spec(members, self._tensorboard)
        if self.capture is None:
            return spec
        if any(self.is_configured(one) for one in members):
            return replace(spec, kept=True)
        return self.capture.spec(spec, members, self._kind_of(name))

    def _kind_of(self, name: str) -> str:
        """Return the kind of a tensor in the capture plan, or an empty string."""
        assert self.capture is not None
        known = self.collections.get_collections()
        for collection, kind in self.capture.kinds.items():
            if collection in known and self._patterns.match(known[collection], name):
                return kind
        return ""

    def missing(self) -> dict[str, bool]:
        """Return the included collections without a tensor.

        The second value is whether any of their steps was reached.

        Among those that are always saved only losses count, or metrics where there are no losses, and with ``save_all``
        weights and gradients too: not every model has the rest.
        """
        expected = [*self.asked]
        expected += [name for name in _OF_TRAININGS if name in self.included][:1]
        if CollectionKeys.ALL in self.included:
            expected += [name for name in _OF_MODELS if self._built_in.get(name)]
        missing = dict.fromkeys(name for name in expected if name not in self._came)
        return {name: name in self._due for name in missing}

    def is_empty(self, name: str) -> bool:
        """Whether a collection can never contain a captured tensor."""
        collection = self.collections.get(name)
        return self._meets_tensors and not (collection.include_regex or collection.tensor_names)

    def is_member(self, collection: str, name: str) -> bool:
        """Whether a tensor belongs to a collection, which may not exist."""
        known = self.collections.get_collections().get(collection)
        return known is not None and (name in known.tensor_names or self._patterns.match(known, name))

    def configured(self, name: str) -> Collection:
        """Return the collection of this name; create and configure it if necessary."""
        collection = self.collections.get(name, create=True)
        if collection.reduction_config is None or collection.save_config is None:
            self.configure(collection)
        return collection

    def add_saved(self, collection: str, name: str) -> None:
        """Make a tensor that the script saves a member of a collection."""
        self.configured(collection).add_tensor_name(name)
        self._came.add(collection)

    def matches(self, collection: Collection, name: str) -> bool:
        """Whether a collection contains a tensor of this name."""
        return self._patterns.match(collection, name)

    def wants_any(self, names: Sequence[str]) -> bool:
        """Whether any of these names may be saved at any step."""
        return any(self._patterns.match(one, name) for one in self.saved() for name in names)

    def wants_numbered(self, prefix: str, chosen: bool = False) -> bool:
        """Whether a tensor named by the prefix and a number may ever be saved.

        With ``chosen``, only collections count that the script has chosen, or that are always saved.
        """
        return any(
            self._patterns.match_numbered(one, prefix)
            for one in self.saved()
            if not (chosen and one.name in self._by_default)
        )

    def is_chosen(self, name: str) -> bool:
        """Whether the script has included a collection, rather than the defaults."""
        return name in self.included and name not in self._by_default

    def is_configured(self, collection: Collection) -> bool:
        """Whether the script has set what to save of a collection, or when.

        The capture plan then leaves it alone.
        """
        return not self._has_default_steps(collection) or collection.reduction_config not in (None, WHOLE)

    def _has_default_steps(self, collection: Collection) -> bool:
        config = collection.save_config
        return config is None or config is self._defaults.get(collection.name)

    def _saves(self, collection: Collection, mode: ModeKeys, mode_step: int) -> bool:
        if self.capture is not None and not self.is_configured(collection):
            return self.capture.wants(collection.name)
        config = self.save_config if collection.save_config is None else collection.save_config
        return config.should_save_step(mode, mode_step)
