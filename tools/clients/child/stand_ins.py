"""Replacements for data sets and data packages, so that scripts run offline."""

from __future__ import annotations

import bz2
import importlib.abc
import importlib.machinery
import importlib.util
import io
import sys
import urllib.request
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

TRAIN, TEST = 128, 64  # examples in each generated data set
SEED = 7


def images(count: int, *shape: int, seed: int = SEED) -> tuple[Any, Any]:
    """Images of bytes with labels of ten classes.

    Each class is brighter in a different band.

    """
    import numpy as np

    random = np.random.RandomState(seed)
    labels = random.randint(0, 10, count)
    pixels = random.randint(0, 120, (count, *shape))
    for pixel, label in zip(pixels, labels, strict=True):
        rows = shape[0] // 10
        pixel[label * rows : (label + 1) * rows] += 120
    return pixels.astype(np.uint8), labels.astype(np.int64)


def libsvm(*, classes: int) -> str:
    """Return labelled rows in libsvm's format: 8 features with targets, or 20 classes."""
    import numpy as np

    random = np.random.RandomState(SEED)
    features = 20 if classes else 8
    rows = random.rand(300, features)
    labels = (rows[:, :2].sum(1) / 2 * classes).astype(int) if classes else rows @ np.arange(features)
    return "".join(
        f"{label:g} " + " ".join(f"{i + 1}:{value:.4f}" for i, value in enumerate(row)) + "\n"
        for label, row in zip(labels, rows, strict=True)
    )


class AfterImport(importlib.abc.MetaPathFinder):
    """Changes modules right after they are imported, by the ending of their name."""

    def __init__(self, changes: dict[str, Callable[[ModuleType], None]]) -> None:
        self._changes = changes
        self._finding: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        change = next(
            (do for end, do in self._changes.items() if fullname == end or (end[0] == "." and fullname.endswith(end))),
            None,
        )
        if change is None or fullname in self._finding:
            return None
        self._finding.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._finding.discard(fullname)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _seed_torch(torch: ModuleType) -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # sums in one order


def _seed_tensorflow(tensorflow: ModuleType) -> None:
    tensorflow.random.set_seed(SEED)


def _seed_mxnet(mxnet: ModuleType) -> None:
    mxnet.random.seed(SEED)


def _keras_images(*shape: int, columns: bool = False) -> Callable[[ModuleType], None]:
    def change(module: ModuleType) -> None:
        def load_data(*args: object, **named: object) -> Any:
            (x, y), (u, v) = images(TRAIN, *shape), images(TEST, *shape, seed=SEED + 1)
            return ((x, y[:, None]), (u, v[:, None])) if columns else ((x, y), (u, v))

        if hasattr(module, "load_data"):
            module.load_data = load_data  # type: ignore[attr-defined]

    return change


def _keras_metric(module: ModuleType) -> None:
    """Keras 2's name of `Metric.reset_state`, which Keras 3 removed."""
    metric = getattr(module, "Metric", None)
    if metric is not None and not hasattr(metric, "reset_states"):
        metric.reset_states = metric.reset_state


def _mxnet_datasets(module: ModuleType) -> None:
    def filled(*shape: int) -> Callable[[Any], None]:
        def get_data(self: Any) -> None:
            import mxnet

            data, labels = images(TRAIN if self._train else TEST, *shape, seed=SEED + (not self._train))
            self._data, self._label = mxnet.nd.array(data, dtype="uint8"), labels.astype("int32")

        return get_data

    module.MNIST._get_data = filled(28, 28, 1)
    module.CIFAR10._get_data = filled(32, 32, 3)


def _xgboost_text(module: ModuleType) -> None:
    """XGBoost 2 and newer need the format of a text file in its name.

    Older ones took libsvm.
    """
    matrix: Any = module.DMatrix
    init = matrix.__init__

    def with_format(self: Any, data: Any, *args: Any, **named: Any) -> None:
        if isinstance(data, str) and "?" not in data:
            data += "?format=libsvm"
        init(self, data, *args, **named)

    matrix.__init__ = with_format


def _downloads() -> None:
    def urlopen(url: Any, *args: object, **named: object) -> io.BytesIO:
        address = url if isinstance(url, str) else url.full_url
        text = libsvm(classes=10 if "mnist" in address else 0).encode()
        return io.BytesIO(bz2.compress(text) if address.endswith(".bz2") else text)

    def urlretrieve(url: str, filename: str | None = None, *args: object, **named: object) -> tuple[str, None]:
        target = filename or Path(url).name
        Path(target).write_bytes(urlopen(url).read())
        return target, None

    urllib.request.urlopen = urlopen
    urllib.request.urlretrieve = urlretrieve  # type: ignore[assignment]


def _distribution_named_xgboost(scratch: Path) -> None:
    """Make `xgboost-cpu` known to pkg_resources as `xgboost`, which smdebug looks up."""
    try:
        number = version("xgboost-cpu")
    except PackageNotFoundError:
        return
    info = scratch / f"xgboost-{number}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: xgboost\nVersion: {number}\n")
    sys.path.append(str(scratch))


@cache
def _torchvision() -> Any:
    """Return the neighbouring module, which requires torch."""
    file = Path(__file__).with_name("torchvision_stand_in.py")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Torchvision(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A small torchvision: generated data sets, transforms of scripts, small models."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        import importlib

        name = module.__name__
        if name == "torchvision":
            module.__version__ = "0.9.1"  # type: ignore[attr-defined]
            for part in ("datasets", "transforms", "models"):
                setattr(module, part, importlib.import_module(f"torchvision.{part}"))
        else:
            vars(module).update(_torchvision().PARTS[name.rpartition(".")[2]])


def install(scratch: Path) -> None:
    """Provide all stand-ins, and seed each framework when it is imported."""
    import random

    random.seed(SEED)
    try:
        import numpy as np
    except ImportError:
        pass
    else:
        np.random.seed(SEED)
    sys.meta_path.insert(0, Torchvision())
    sys.meta_path.insert(
        0,
        AfterImport(
            {
                "torch": _seed_torch,
                "tensorflow": _seed_tensorflow,
                "mxnet": _seed_mxnet,
                "mxnet.gluon.data.vision.datasets": _mxnet_datasets,
                "xgboost": _xgboost_text,
                "keras.src.metrics.metric": _keras_metric,
                ".datasets.mnist": _keras_images(28, 28),
                ".datasets.fashion_mnist": _keras_images(28, 28),
                ".datasets.cifar10": _keras_images(32, 32, 3, columns=True),
            }
        ),
    )
    _downloads()
    _distribution_named_xgboost(scratch / "distributions")
