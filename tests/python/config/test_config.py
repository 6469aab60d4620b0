"""Collections and configurations, and their JSON."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smdwidgets import Collection, ReductionConfig, SaveConfig, SaveConfigMode, modes
from smdwidgets.config import CollectionKeys, CollectionManager
from smdwidgets.config.keys import BUILT_IN
from smdwidgets.config.reduction_config import ALLOWED_NORMS, ALLOWED_REDUCTIONS
from smdwidgets.exceptions import (
    CollectionFileError,
    SMDebugError,
    SMDebugTypeError,
    SMDebugValueError,
    UnknownCollection,
)


def files(golden_runs: Path) -> list[Path]:
    return sorted(golden_runs.glob("*/*/collections/*/*_collections.json"))


def test_files_of_smdebug_are_written_back_byte_for_byte(golden_runs: Path) -> None:
    assert len(files(golden_runs)) > 25
    for file in files(golden_runs):
        assert CollectionManager.load(file).to_json() == file.read_text()


def test_exporting(tmp_path: Path) -> None:
    manager = CollectionManager(create_default=True)
    manager.set_num_workers(3)
    manager.get("relu").include(["relu", "gelu"])
    manager.export(tmp_path, "worker_0_collections.json")
    [file] = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert file == tmp_path / "collections/000000000/worker_0_collections.json"
    again = CollectionManager.load(file)
    assert again == manager
    assert again.get_num_workers() == 3
    assert again.get("relu", create=False).include_regex == ["relu", "gelu"]
    with pytest.raises(UnknownCollection, match="Did you mean 'relu'"):
        again.get("rulu", create=False)


reductions = st.builds(
    ReductionConfig,
    *(
        st.lists(st.sampled_from(names), unique=True)
        for names in (ALLOWED_REDUCTIONS, ALLOWED_REDUCTIONS, ALLOWED_NORMS, ALLOWED_NORMS)
    ),
    st.booleans(),
    st.booleans(),
)
save_modes = st.builds(
    SaveConfigMode,
    st.integers(1, 10**6),
    st.integers(0, 10**6),
    st.none() | st.integers(0, 10**6),
    st.lists(st.integers(0, 10**6), max_size=3),
)
save_configs = st.dictionaries(st.sampled_from(modes), st.none() | save_modes).map(SaveConfig)
collections = st.builds(
    Collection, st.text(max_size=9), st.lists(st.text()), st.sets(st.text()), st.none() | reductions,
    st.none() | save_configs, st.booleans(),
)  # fmt: skip


@given(st.lists(collections, max_size=3), st.integers(0, 99))
@settings(max_examples=40)
def test_what_is_written_is_read_back(given_collections: list[Collection], workers: int) -> None:
    manager = CollectionManager()
    for collection in given_collections:
        manager.add(collection)
    manager.set_num_workers(workers)
    again = CollectionManager.load_from_string(manager.to_json())
    assert again == manager
    assert again.to_json() == manager.to_json()
    assert again.get_num_workers() == workers


@given(save_modes, st.integers(0, 2 * 10**6))
def test_when_a_step_is_saved(config: SaveConfigMode, step: int) -> None:
    within = step >= config.start_step and (config.end_step is None or step < config.end_step)
    assert config.should_save_step(step) == (step in config.save_steps or (within and step % config.save_interval == 0))


def test_strings_as_sagemaker_writes_them() -> None:
    config = SaveConfigMode.from_dict(
        {"save_interval": "10", "start_step": "5", "end_step": "100", "save_steps": "1, 2"}
    )
    assert config == SaveConfigMode(10, 5, 100, [1, 2])
    reduction = ReductionConfig.from_dict(
        {"reductions": "min, abs_mean,l2_norm,abs_l1_norm", "save_raw_tensor": "True", "save_shape": "false"}
    )
    assert reduction is not None
    assert reduction.pairs() == [("min", False), ("l2", False), ("mean", True), ("l1", True)]
    assert (reduction.save_raw_tensor, reduction.save_shape) == (True, False)


def test_save_config_parse_accepts_all_forms() -> None:
    two = SaveConfigMode(save_interval=2)
    for given_form in (
        {modes.TRAIN: two},
        {"TRAIN": two},
        {"train": {"save_interval": 2}},
        {modes.TRAIN: {"save_interval": "2"}, "EVAL": None},
    ):
        config = SaveConfig.parse(given_form)
        assert config.should_save_step(modes.TRAIN, 4)
        assert config.mode_save_configs[modes.EVAL] is None
        with pytest.raises(SMDebugValueError, match="EVAL"):
            config.should_save_step(modes.EVAL, 4)
        config.merge_default_save_config(SaveConfig(save_interval=3))
        assert config.should_save_step(modes.EVAL, 3)
    assert SaveConfig.parse(two).should_save_step(modes.PREDICT, 2)
    assert SaveConfig.parse(None).should_save_step(modes.GLOBAL, 500)
    assert Collection("c", save_config={modes.TRAIN: two}).save_config == SaveConfig({modes.TRAIN: two})
    assert SaveConfigMode().save_steps is not SaveConfigMode().save_steps


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SaveConfig(save_interval=0), "save_interval must be >= 1, got 0"),
        (lambda: SaveConfig(save_interval="ten"), "save_interval must be an integer, got 'ten'"),
        (lambda: SaveConfig(save_interval=True), "must be an integer"),
        (lambda: SaveConfig(save_interval=1.5), "must be an integer"),
        (lambda: SaveConfig(save_steps=["x"]), "each item of save_steps"),
        (lambda: SaveConfig(save_steps=3), "save_steps must be a list"),
        (lambda: SaveConfig({"TRAIN": 3}), "must map ModeKeys to SaveConfigMode"),
        (lambda: SaveConfig({}, save_interval=3), "mutually exclusive"),
        (lambda: SaveConfig.parse({"TRIAN": None}), r"Did you mean modes\.TRAIN"),
        (lambda: SaveConfig.parse(3), "int"),
        (lambda: ReductionConfig(reductions=["meen"]), "Did you mean 'mean'"),
        (lambda: ReductionConfig(norms=["l3"]), "norms"),
        (lambda: ReductionConfig(save_raw_tensor="yes"), "true or false"),
        (lambda: Collection("c", tensor_names="x"), "list of strings"),
        (lambda: Collection("c", reduction_config={}), "dict"),
        (lambda: Collection("c").include([3]), "must be a string"),
        (lambda: CollectionManager().add(3), "int"),
        (lambda: CollectionManager().set_num_workers(-1), "num_workers"),
    ],
)
def test_invalid_arguments_raise_with_a_message(make: Any, message: str) -> None:
    with pytest.raises((SMDebugValueError, SMDebugTypeError), match=message):
        make()


KEYS = ["collections", "_meta", "name", "a", "save_config", "TRAIN", "reduction_config", "num_workers", "include_regex"]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(anything)
@settings(max_examples=60)
def test_arbitrary_json_raises_only_collection_file_error(content: Any) -> None:
    with contextlib.suppress(CollectionFileError):
        CollectionManager.load_from_string(json.dumps(content))


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b'{"x": 1}', b"{"])
def test_invalid_files_raise_with_their_source(content: bytes) -> None:
    with pytest.raises(CollectionFileError, match="that file"):
        CollectionManager.load_from_string(content, source="that file")


def test_files_of_several_workers_are_merged() -> None:
    one, two = CollectionManager(), CollectionManager()
    one.add(Collection("a", ["x"], ["t1"]))
    two.add(Collection("a", ["x", "y"], ["t2"]))
    two.add("b")
    two.set_num_workers(4)
    one.merge(two)
    assert one.get("a").include_regex == ["x", "y"]
    assert one.get("a").tensor_names == {"t1", "t2"}
    assert set(one.collections) == {"a", "b"}
    assert one.get_num_workers() == 4


def test_built_in_names() -> None:
    assert CollectionKeys.LOSSES == "losses"
    assert {"all", "default", "gradients", "full_shap"} <= BUILT_IN
    assert issubclass(UnknownCollection, SMDebugError)
