"""`get_hook`, `set_hook` and `del_hook` of the framework modules."""

from __future__ import annotations

import json

import pytest

import smdwidgets.numpy as smd
import smdwidgets.pytorch
import smdwidgets.tensorflow
from smdwidgets.exceptions import SMDebugNotImplementedError, SMDebugTypeError, SMDebugValueError
from smdwidgets.hooks.core.hook import Hook as BaseHook


@pytest.fixture(autouse=True)
def no_current_hook(monkeypatch):
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", "no such file")
    smd.del_hook()
    yield
    smd.del_hook()


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"LocalPath": str(tmp_path / "run"), "HookParameters": {"save_interval": "7"}}))
    return path


def test_last_created_hook_is_current(tmp_path):
    assert smd.get_hook() is None
    first = smd.Hook(tmp_path / "a", dry_run=True)
    second = smd.Hook(tmp_path / "b", dry_run=True)
    assert smd.get_hook() is second
    smd.set_hook(first)
    assert smd.get_hook() is first
    smd.del_hook()
    assert smd.get_hook() is None


def test_set_hook_rejects_other_types():
    with pytest.raises(SMDebugTypeError, match="custom_hook must be a Hook, got str"):
        smd.set_hook("hook")


def test_hook_of_another_framework_is_not_returned(tmp_path):
    hook = BaseHook(tmp_path, dry_run=True)
    assert smd.get_hook() is None
    assert smdwidgets.pytorch.get_hook() is None
    smd.set_hook(hook)
    assert smdwidgets.tensorflow.get_hook("keras") is None


def test_create_if_not_exists_reads_the_file(config):
    assert smd.get_hook(str(config)) is None
    hook = smd.get_hook(json_config_path=str(config), create_if_not_exists=True)
    assert hook.save_config.get_save_config(smd.modes.TRAIN).save_interval == 7
    assert smd.get_hook(json_config_path="ignored", create_if_not_exists=True) is hook
    hook.close()


def test_create_if_not_exists_without_file_returns_none(config, monkeypatch):
    assert smd.get_hook(create_if_not_exists=True) is None
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(config))
    hook = smd.get_hook(create_if_not_exists=True)
    assert hook is smd.get_hook()
    hook.close()


def test_tensorflow_hook_types():
    assert smdwidgets.tensorflow.get_hook() is None
    assert smdwidgets.tensorflow.get_hook("keras", None, False) is None
    with pytest.raises(SMDebugNotImplementedError, match="'session' is not available"):
        smdwidgets.tensorflow.get_hook(hook_type="session", create_if_not_exists=True)
    with pytest.raises(SMDebugValueError, match="invalid hook_type 'kears'"):
        smdwidgets.tensorflow.get_hook("kears")


def test_cleanup_closes_the_hook(written):
    hook = smd.Hook(written.root)
    hook.save_tensor("x", 1.0)
    hook._cleanup()
    assert written.ended
    assert "closed" in repr(hook)
