"""Objects that accept any use, for cloud and plotting modules of notebooks."""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

#: Modules that are replaced even if they are installed, because they access AWS or draw.
REPLACED = frozenset(
    [
        "sagemaker",
        "boto3",
        "botocore",
        "smexperiments",
        "matplotlib",
        "mpl_toolkits",
        "seaborn",
        "shap",
        "IPython",
        "ipywidgets",
        "bokeh",
        "plotly",
        "sklearn",
        "transformers",
        "datasets",
        "torchvision",
        "pip",
        "awscli",
        "s3fs",
        "gluonnlp",
        "cv2",
        "umap",
        "tqdm",
        "bertviz",
        "networkx",
    ]
)

#: Called with the name and the arguments of each call of a stub.
Listener = Callable[[str, tuple[Any, ...]], None]


class Anything:
    """Accepts attribute access, calls, iteration, arithmetic and comparison."""

    def __init__(self, name: str, listener: Listener) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_listener", listener)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(f"{self._name}.{name}", self._listener)

    def __setattr__(self, name: str, value: Any) -> None:
        return

    def __call__(self, *args: Any, **named: Any) -> Any:
        self._listener(self._name, args)
        return Anything(f"{self._name}()", self._listener)

    def __iter__(self) -> Iterator[Any]:
        # `line, = axis.plot(...)` unpacks one value, `figure, axis = plt.subplots()` two.
        count = {"plot()": 1, "train_test_split()": 4}.get(self._name.rpartition(".")[2], 2)
        return iter([Anything(f"{self._name}[{i}]", self._listener) for i in range(count)])

    def __getitem__(self, key: Any) -> Any:
        return Anything(f"{self._name}[]", self._listener)

    def __setitem__(self, key: Any, value: Any) -> None:
        return

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def __len__(self) -> int:
        return 2

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        return f"<{self._name}>"

    __repr__ = __str__

    def __add__(self, other: Any) -> Any:
        return self

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __or__ = __and__ = __add__


class StubModule(ModuleType):
    """A module whose every attribute is a stub."""

    def __init__(self, name: str, listener: Listener) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__all__: list[str] = []
        self._listener = listener

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "1.0"
        if name.startswith("__"):
            raise AttributeError(name)
        if name[:1].isupper():
            # A class, which a notebook may derive from.
            return type(
                name, (_Class,), {"_listener": staticmethod(self._listener), "_name": f"{self.__name__}.{name}"}
            )
        return Anything(f"{self.__name__}.{name}", self._listener)


class _Type(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Anything(f"{cls.__name__}.{name}", lambda *_: None)


class _Class(Anything, metaclass=_Type):
    _name = ""

    @staticmethod
    def _listener(name: str, args: tuple[Any, ...]) -> None:
        return

    def __init__(self, *args: Any, **named: Any) -> None:
        return

    @classmethod
    def __class_getitem__(cls, key: Any) -> Any:
        return cls


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds stubs for replaced modules, and for modules that are not installed."""

    def __init__(self, listener: Listener, *, first: bool) -> None:
        self._listener = listener
        self._first = first

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        top = fullname.partition(".")[0]
        if top in ("smdebug", "smdwidgets", "tornasole") or (self._first and top not in REPLACED):
            return None
        if not self._first and not self._asked_by_notebook():
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    @staticmethod
    def _asked_by_notebook() -> bool:
        # Libraries probe for optional modules; only an import in a cell gets a stub.
        frame = sys._getframe(2)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back  # type: ignore[assignment]
        return frame is not None and frame.f_code.co_filename.startswith("<cell ")

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return StubModule(spec.name, self._listener)

    def exec_module(self, module: ModuleType) -> None:
        return


class Names(dict[str, Any]):
    """The global names of a notebook.

    A name that a cell could not define is a stub, or the prepared run.
    """

    def __init__(self, listener: Listener, trial: Callable[[], Any]) -> None:
        super().__init__()
        self._listener, self._trial = listener, trial

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name) or name.startswith("__"):
            raise KeyError(name)
        if name == "tr" or (name.islower() and name.endswith("trial") and not name.startswith("create")):
            self[name] = self._trial()
            return self[name]
        return Anything(name, self._listener)


def install(listener: Listener) -> None:
    """Replace modules from now on."""
    sys.meta_path.insert(0, StubFinder(listener, first=True))
    sys.meta_path.append(StubFinder(listener, first=False))
    for name in list(sys.modules):
        if name.partition(".")[0] in REPLACED & {"matplotlib", "boto3", "sagemaker"}:
            del sys.modules[name]
