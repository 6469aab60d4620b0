"""Public queries of a run's tensor names and collections."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from smdwidgets._text import misspelling_of, shown
from smdwidgets.config.collection import Collection
from smdwidgets.config.keys import BUILT_IN
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.trials.patterns import Patterns
from smdwidgets.trials.step_queries import StepQueries


class NameQueries(StepQueries):
    """Names of tensors, collections and modules of a run."""

    def _empty_caches(self) -> None:
        super()._empty_caches()
        self._patterns = Patterns()
        #: Collections created by `collection` because the run does not have them.
        self._created: dict[str, Collection] = {}

    def tensor_names(
        self,
        step: int | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        regex: str | Iterable[str] | None = None,
        collection: Collection | str | None = None,
        *,
        show_prefixed_tensors: bool = False,
    ) -> list[str]:
        """Return sorted names of tensors: all, or those that satisfy every condition.

        Args:
            step: only tensors saved at this step of ``mode``.
            mode: only tensors saved in this mode.
            regex: only names in which this pattern, or any of these patterns, is found (``re.search``).
            collection: only tensors of this collection. Mutually exclusive with ``regex``.
            show_prefixed_tensors: accepted for compatibility.
        """
        if isinstance(step, bool):  # smdebug's first argument was show_prefixed_tensors
            step = None
        self.maybe_refresh()
        if regex is not None and collection is not None:
            raise ValueError("regex= and collection= are mutually exclusive; got both")
        names = self._names(step, as_mode(mode))
        if collection is not None:
            return self._in_collection(self._resolve_collection(collection), names)
        if regex is not None:
            return self._matching([regex] if isinstance(regex, str) else list(regex), names)
        return list(names)

    def tensors(self, *args: Any, **kwargs: Any) -> list[str]:
        """Alias of :meth:`tensor_names`, for older scripts."""
        return self.tensor_names(*args, **kwargs)

    def _matching(self, patterns: list[str], names: list[str]) -> list[str]:
        found = self._patterns.matching(patterns, names)
        return [name for name in names if name in found]

    def _in_collection(self, collection: Collection, names: list[str]) -> list[str]:
        listed_in = collection.tensor_names
        try:
            found = self._patterns.matching(collection.include_regex, names)
        except re.error as error:
            raise SMDebugValueError(
                f"invalid regular expression in collection {shown(collection.name)}: {error}"
            ) from None
        return [name for name in names if name in listed_in or name in found]

    def _resolve_collection(self, collection: Collection | str) -> Collection:
        if isinstance(collection, Collection):
            return collection
        if isinstance(collection, str):
            return self.collection(collection)
        raise TypeError(f"collection must be a string or Collection, got {type(collection).__name__}")

    # ------------------------------------------------------------------------------------------------- collections

    def collections(self) -> dict[str, Collection]:
        """Return the collections by name, with those created by :meth:`collection`.

        The tensors of a collection were not necessarily saved.
        """
        self.maybe_refresh()
        filled = {name: one for name, one in self._created.items() if _is_filled(one)}
        return {**self._created, **self.collection_manager.collections, **filled}

    def modules(self) -> dict[str, list[str]]:
        """Return the class names of the model's modules, by the module's name.

        The most derived class is first. The names are those in tensor names.

        PyTorch hooks record the modules whose inputs or outputs they save. Other runs have none.

        >>> trial.modules()["fc1"]                                 # doctest: +SKIP
        ['Linear']
        """
        self.maybe_refresh()
        return self.collection_manager.modules

    def collection(self, coll_name: str) -> Collection:
        """Return a collection. If the run has none of this name, create an empty one.

        Add patterns with ``include`` and names with ``add_tensor_name`` to query its tensors. A created collection exists
        only in this object and is not written to the run. A warning names the nearest collection if the name looks like a misspelling.

        >>> trial.collection("relu").include("relu")               # doctest: +SKIP
        >>> trial.tensor_names(collection="relu")                  # doctest: +SKIP
        ['relu1_output_0', 'relu2_output_0']
        """
        if not isinstance(coll_name, str):
            raise SMDebugTypeError(f"coll_name must be a string, got {type(coll_name).__name__}")
        found = self._known_collection(coll_name)
        if found is None:
            self.maybe_refresh()
            found = self._known_collection(coll_name)
        if found is not None:
            return found
        if coll_name not in self._created and coll_name not in BUILT_IN:
            meant = misspelling_of(coll_name, [*BUILT_IN, *self.collection_manager.collections])
            if meant is not None:
                self.logger.warning(
                    "%s has no collection %s. Did you mean %s? An empty collection was created.",
                    shown(self.name),
                    shown(coll_name),
                    shown(meant),
                )
        return self._created.setdefault(coll_name, Collection(coll_name))

    def _known_collection(self, name: str) -> Collection | None:
        created = self._created.get(name)
        if created is not None and _is_filled(created):
            return created
        return self.collection_manager.collections.get(name)


def _is_filled(collection: Collection) -> bool:
    return bool(collection.include_regex or collection.tensor_names)
