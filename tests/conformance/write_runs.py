"""Write runs with smdebug's writer and hook: `python write_runs.py FOLDER`.

Runs in the peers' environment, without a framework: a loop over numpy arrays calls smdebug's hook.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from smdebug import ReductionConfig, SaveConfig, SaveConfigMode, modes
from smdebug.core.access_layer.utils import training_has_ended
from smdebug.core.collection import Collection
from smdebug.core.collection_manager import CollectionManager
from smdebug.core.hook import BaseHook
from smdebug.core.reductions import get_numpy_reduction, get_reduction_tensor_name
from smdebug.core.utils import FRAMEWORK
from smdebug.core.writer import FileWriter
from smdebug.profiler.profiler_config_parser import get_profiler_config_parser

ALL_REDUCTIONS = ["min", "max", "mean", "std", "variance", "sum", "prod"]


class LoopHook(BaseHook):
    """smdebug's hook, called by a plain loop."""

    def __init__(self, out_dir: Path, **options: object) -> None:
        manager = CollectionManager()
        for name in ("default", "all", "weights", "losses"):
            manager.add(name)
        manager.get("weights").include("weight$")
        manager.get("losses").include("[Ll]oss_(?!input).*output")
        super().__init__(
            manager, ["losses"], get_profiler_config_parser(FRAMEWORK.PYTORCH), out_dir=str(out_dir), **options
        )
        self.worker = self._get_worker_name()

    def _get_worker_name(self) -> str:
        return "worker_0"

    def _get_num_workers(self) -> int:
        return 1

    def _is_not_supported(self) -> bool:
        return False

    def _get_default_collections(self) -> set[str]:
        return {"default", "all", "weights", "losses"}

    @staticmethod
    def _get_reduction_of_data(
        reduction_name: str, tensor_value: np.ndarray, tensor_name: str, abs: bool
    ) -> np.ndarray:
        return get_numpy_reduction(reduction_name, tensor_value, abs)

    @staticmethod
    def _make_numpy_array(tensor_value: object) -> np.ndarray:
        return np.asarray(tensor_value)

    def at(self, mode: modes, tensors: dict[str, np.ndarray]) -> None:
        """Save one step of the loop."""
        self.set_mode(mode)
        if not self.prepared_collections:
            self._prepare_collections()
        if self._get_collections_to_save_for_step():
            self._initialize_writers()
            for name, value in tensors.items():
                self._save_for_tensor(name, value)
            self._save_custom_tensors_post_step()
        self._close_writers()
        if self.step == 0:
            self.export_collections()
        self._increment_step()

    def end(self) -> None:
        """End the loop; by now the collections contain the names of all tensors."""
        self.export_collections()
        self.close()


def loop(hook: LoopHook, steps: int) -> None:
    """Write a run: TRAIN, with an EVAL every fourth step and a PREDICT at the end."""
    random = np.random.default_rng(7)
    for step in range(steps):
        mode = modes.PREDICT if step > steps - 3 else modes.EVAL if step % 4 == 3 else modes.TRAIN
        tensors = {
            "fc1.weight": random.normal(size=(4, 3)).astype(np.float32),
            "fc1.bias": random.normal(size=4),
            "gradient/fc1.weight": random.normal(size=(4, 3)),
            "conv:0": random.normal(size=(2, 2, 3)),
            "CrossEntropyLoss_output_0": np.float32(random.random()),
            "Loss_input_output": np.arange(3),
        }
        if step == 5:
            hook.save_scalar("accuracy", 0.5)
            hook.save_tensor("extra", np.arange(5))
        hook.at(mode, tensors)
    hook.end()


def core(root: Path, workers: int, written: list[int] | None = None, given: tuple[Collection, ...] = ()) -> Path:
    """Write the collection files of a run of the bare writer."""
    manager = CollectionManager()
    for collection in (Collection("default"), *given):
        manager.add(collection)
    manager.set_num_workers(workers)
    for rank in range(workers) if written is None else written:
        manager.export(str(root), f"worker_{rank}_collections.json")
    return root


def save(
    root: Path, step: int, tensors: dict, worker: str = "worker_0", mode: modes = modes.GLOBAL, at: int | None = None
) -> None:
    """Write one step of one worker with the bare writer."""
    with FileWriter(trial_dir=str(root), step=step, worker=worker) as writer:
        for name, value in tensors.items():
            writer.write_tensor(tdata=value, tname=name, mode=mode, mode_step=step if at is None else at)


def main(folder: Path) -> None:
    loop(LoopHook(folder / "hook_everything", save_all=True, save_config=SaveConfig(save_interval=1)), 16)
    by_mode = {
        modes.TRAIN: SaveConfigMode(save_interval=3),
        modes.EVAL: SaveConfigMode(save_steps=[1], save_interval=100),
    }
    by_mode |= {modes.PREDICT: SaveConfigMode(save_interval=1), modes.GLOBAL: SaveConfigMode()}
    loop(LoopHook(folder / "hook_modes", save_config=SaveConfig(by_mode), include_collections=["weights"]), 16)
    reductions = ReductionConfig(ALL_REDUCTIONS, ALL_REDUCTIONS, ["l1", "l2"], ["l1", "l2"])
    every = SaveConfig(save_interval=2)
    loop(LoopHook(folder / "hook_reductions", save_all=True, reduction_config=reductions, save_config=every), 12)
    shapes = ReductionConfig(save_shape=True)
    loop(
        LoopHook(folder / "hook_shapes", include_collections=["weights"], reduction_config=shapes, save_config=every),
        12,
    )

    root = core(folder / "dtypes_and_ranks", 1, given=(Collection("floats", ["float"], ["a/bool"]),))
    values = {
        f"a/{np.dtype(t).name}": np.arange(6).reshape(1, 2, 3).astype(t)
        for t in ("f2", "f4", "f8", "i4", "i8", "u1", "c16")
    }
    values |= {
        "a/bool": np.array([True, False]),
        "a/0d": np.array(1.5),
        "a/one": np.ones(1),
        "a/4d": np.arange(16.0).reshape(2, 2, 2, 2),
    }
    values |= {
        "strings": np.array(["a", "", "ü"]),
        "names/with blanks: and 'quotes'": np.ones(2),
        "ü/名": np.ones(3),
        "x" * 300: np.ones(1),
    }
    values |= {"special": np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 1e38], np.float32)}
    for step in (0, 999, 1000, 12345):
        save(root, step, values)
    training_has_ended(str(root))

    for name, ended in (("workers_ended", True), ("workers_running", False)):
        root = core(folder / name, 12)
        for step in range(6):
            for rank in range(12):
                if step < 4 or rank % 3:
                    save(
                        root,
                        step * 5,
                        {"x": np.full(2, 100 * step + rank), f"only_{rank}": np.ones(1)},
                        f"worker_{rank}",
                    )
        if ended:
            training_has_ended(str(root))

    random = np.random.default_rng(11)
    for number in range(4):
        root = core(folder / f"random_{number}", workers := int(random.integers(1, 4)))
        counts = dict.fromkeys(modes, 0)
        for step in sorted(random.choice(60, size=20, replace=False)):
            mode = list(modes)[random.integers(4)]
            at = int(step) if mode == modes.GLOBAL else counts[mode]
            counts[mode] += 1
            for rank in range(workers):
                names = [name for name in ("a", "b", "c/d:1") if random.random() < 0.6]
                if random.random() < 0.8 and names:
                    tensors = {name: random.normal(size=(2, 2)) for name in names}
                    tensors[get_reduction_tensor_name("a", "mean", True, remove_colon_index=True)] = random.random()
                    save(root, int(step), tensors, f"worker_{rank}", mode, at)
        if number % 2:
            training_has_ended(str(root))

    core(folder / "no_steps", 1)
    training_has_ended(str(folder / "no_steps"))
    training_has_ended(str(core(folder / "collections_missing", 3, written=[0, 2])))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
