"""Configuration files in SageMaker's format, in which every value may be a string."""

from __future__ import annotations

import json

import numpy as np
import pytest

from smdwidgets.config import ReductionConfig, SaveConfigMode
from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.hooks.core import json_config
from smdwidgets.hooks.core.hook import Hook as BaseHook
from smdwidgets.hooks.loops.numpy import Hook
from smdwidgets.modes import modes


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"

    def write(**content):
        content.setdefault("LocalPath", str(tmp_path / "run"))
        path.write_text(json.dumps(content))
        return path

    return write


FULL = {
    "S3Path": "s3://bucket/prefix",
    "HookParameters": {
        "export_tensorboard": "true",
        "save_all": "False",
        "include_regex": "regex1, regex2",
        "save_interval": "100",
        "eval.save_interval": "7",
        "save_steps": "1,2,3,4",
        "start_step": 1,
        "reductions": "min,max,abs_variance,abs_l2_norm",
        "include_workers": "all",
    },
    "CollectionConfigurations": [
        {"CollectionName": "gradients", "CollectionParameters": {"train.save_interval": "5", "reductions": "l1_norm"}},
        {
            "CollectionName": "mine",
            "CollectionParameters": {"include_regex": "a.*,b", "save_histogram": "false", "end_step": "9"},
        },
        {"CollectionName": "losses", "CollectionParameters": None},
    ],
}


def test_all_settings_are_applied(config, tmp_path):
    hook = Hook.create_from_json_file(config(**FULL))
    assert hook.out_dir == str(tmp_path / "run")
    assert hook.tensorboard_dir == str(tmp_path / "run" / "tensorboard")
    assert hook.include_workers == "all"
    assert not hook.save_all
    assert hook.include_collections == ["gradients", "mine", "losses", "default"]
    assert hook.get_collection("default").include_regex == ["regex1", "regex2"]
    assert hook.reduction_config == ReductionConfig(["min", "max"], ["variance"], [], ["l2"])
    steps = hook.save_config.mode_save_configs
    assert steps[modes.TRAIN] == SaveConfigMode(100, 1, None, [1, 2, 3, 4])
    assert steps[modes.EVAL] == SaveConfigMode(7, 1, None, [1, 2, 3, 4])
    gradients = hook.get_collection("gradients")
    assert gradients.reduction_config == ReductionConfig(norms=["l1"])
    assert gradients.save_config.get_save_config(modes.TRAIN) == SaveConfigMode(5, 1, None, [1, 2, 3, 4])
    assert gradients.save_config.get_save_config(modes.EVAL) == SaveConfigMode(7, 1, None, [1, 2, 3, 4])
    mine = hook.get_collection("mine")
    assert mine.include_regex == ["a.*", "b"]
    assert mine.save_histogram is False
    assert mine.save_config.get_save_config(modes.GLOBAL).end_step == 9
    hook.close()


def test_path_from_environment_variable(config, monkeypatch, written):
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(config()))
    with Hook.create_from_json_file() as hook:
        hook.save_tensor("x", np.ones(1))
    assert written.steps() == [0]


def test_default_path_is_sagemakers(config, monkeypatch, written):
    assert json_config.DEFAULT_CONFIG_FILE == "/opt/ml/input/config/debughookconfig.json"
    assert json_config.DEFAULT_OUT_DIR == "/opt/ml/output/tensors"
    monkeypatch.delenv("SMDEBUG_CONFIG_FILE_PATH", raising=False)
    monkeypatch.setattr(json_config, "DEFAULT_CONFIG_FILE", str(config(LocalPath=None)))
    monkeypatch.setattr(json_config, "DEFAULT_OUT_DIR", str(written.root))
    with Hook.create_from_json_file() as hook:
        hook.save_tensor("x", np.ones(1))
    assert written.steps() == [0]


def test_default_interval_without_save_parameters(config):
    with BaseHook.create_from_json_file(config(HookParameters=None), dry_run=True) as hook:
        assert hook.save_config.get_save_config(modes.TRAIN).save_interval == 500
    with Hook.create_from_json_file(config(HookParameters={"start_step": "3"}), dry_run=True) as hook:
        assert hook.save_config.get_save_config(modes.TRAIN) == SaveConfigMode(1, 3)


def test_tensorboard_directory_from_sagemaker_file(config, monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINING_JOB_NAME", "job")
    other = tmp_path / "tensorboard.json"
    monkeypatch.setenv("TENSORBOARD_CONFIG_FILE_PATH", str(other))
    with Hook.create_from_json_file(config(), dry_run=True) as hook:
        assert hook.tensorboard_dir is None
    other.write_text(json.dumps({"LocalPath": str(tmp_path / "tb")}))
    with Hook.create_from_json_file(config(), dry_run=True) as hook:
        assert hook.tensorboard_dir == str(tmp_path / "tb")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"HookParameters": {"save_interval": "often"}}, "save_interval"),
        ({"HookParameters": {"save_interval": 0}}, "save_interval"),
        ({"HookParameters": {"reductions": "median"}}, "median"),
        ({"HookParameters": {"save_all": "perhaps"}}, "save_all"),
        ({"HookParameters": [1]}, "HookParameters"),
        ({"CollectionConfigurations": [{"CollectionParameters": {}}]}, "CollectionName"),
    ],
)
def test_errors_name_the_file(config, content, message):
    with pytest.raises(SMDebugValueError, match=message) as caught:
        Hook.create_from_json_file(config(**content), dry_run=True)
    assert "config.json" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {"HookParameters": {"save_intervall": 1}},
            "HookParameters: unknown key 'save_intervall' is ignored. Did you mean 'save_interval'",
        ),
        (
            {"CollectionConfigurations": [{"CollectionName": "x", "CollectionParameters": {"regex": "a"}}]},
            "CollectionParameters of 'x': unknown key 'regex' is ignored. Did you mean 'include_regex'?",
        ),
        ({"CollectionConfiguration": []}, "unknown key 'CollectionConfiguration' is ignored. Did you mean"),
        ({"CollectionConfigurations": [{"CollectionName": "x", "Comment": "a"}]}, "unknown key 'Comment' is ignored"),
    ],
)
def test_unknown_keys_log_warnings_with_the_file(config, caplog, content, message):
    with Hook.create_from_json_file(config(**content), dry_run=True):
        [record] = caplog.records
    assert record.levelname == "WARNING"
    assert message in record.getMessage()
    assert "config.json" in record.getMessage()


def test_include_collections_hook_parameter(config):
    parameters = {"include_collections": "weights, scalars"}
    configured = [{"CollectionName": "gradients"}, {"CollectionName": "weights"}]
    path = config(HookParameters=parameters, CollectionConfigurations=configured)
    with Hook.create_from_json_file(path, dry_run=True) as hook:
        assert hook.include_collections == ["gradients", "weights", "scalars"]


def test_unconfigured_collection_is_created(config, written, caplog):
    path = config(CollectionConfigurations=[{"CollectionName": "flatten"}, {"CollectionName": "scalars"}])
    with BaseHook.create_from_json_file(path) as hook:
        hook._begin_step()
        hook._end_step()
    assert {"flatten", "scalars"} <= written.collections().keys()
    assert ["'flatten' has no patterns" in record.getMessage() for record in caplog.records] == [True]


def test_missing_or_invalid_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="SMDEBUG_CONFIG_FILE_PATH"):
        Hook.create_from_json_file(tmp_path / "none.json")
    for content in (b"{", b"[1]", b"\xff\xfe", b"[" * 100_000):
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(SMDebugError, match=r"bad\.json"):
            Hook.create_from_json_file(tmp_path / "bad.json")
