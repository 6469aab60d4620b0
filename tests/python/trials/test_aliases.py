"""Tensors with a key have an alias, which is as good as their name."""

from __future__ import annotations

import json

import pytest

from python.trials import runs
from smdwidgets import create_trial
from smdwidgets.cli import main
from smdwidgets.config.collection_manager import COLLECTIONS_PREFIX, CollectionManager
from smdwidgets.exceptions import TensorUnavailable, UnknownTensor

ALIASES = {"Net_output.logits": "Net_output_1", "Net_output.loss": "Net_output_0", "Net_input.mask": "Net_input_1"}


def described(root, aliases):
    """Write a collection file with aliases."""
    manager = CollectionManager(create_default=True)
    manager.add_aliases(aliases)
    manager.export(root, "worker_0_collections.json")


@pytest.fixture
def trial(tmp_path):
    described(tmp_path, ALIASES)
    for step in range(3):
        runs.step(tmp_path, step, {"Net_output_0": [float(step)], "Net_output_1": [step, step + 1.0]})
    with create_trial(runs.end(tmp_path)) as trial:
        yield trial


def test_an_alias_is_the_tensor(trial):
    assert trial.tensor("Net_output.logits") is trial.tensor("Net_output_1")
    assert trial["Net_output.loss"].value(2).tolist() == [2.0]
    assert "Net_output.logits" in trial
    assert trial.has_tensor("Net_output.loss")


def test_only_aliases_of_saved_tensors_are_listed(trial):
    assert trial.aliases() == {"Net_output.logits": "Net_output_1", "Net_output.loss": "Net_output_0"}
    assert trial.tensor_names() == ["Net_output_0", "Net_output_1"]
    assert "Net_input.mask" not in trial
    with pytest.raises(TensorUnavailable, match="mask"):
        trial.tensor("Net_input.mask")


def test_tables_take_aliases(trial):
    name = "Net_output.loss"
    assert trial.values(name)["value"].ravel().tolist() == [0.0, 1.0, 2.0]
    assert trial.values({name: [1], "Net_output_1": [2]})["name"].tolist() == ["Net_output_0", "Net_output_1"]
    assert set(trial.values([name, "Net_output_0"])["name"].tolist()) == {"Net_output_0"}
    assert trial.reductions(name, reductions="max")["max"].tolist() == [0.0, 1.0, 2.0]
    assert trial.scalars(name)["name"].tolist() == ["Net_output_0"] * 3
    assert trial.statistics([name, "Net_output_0"])["name"].tolist() == ["Net_output_0"] * 3
    assert trial.difference((name, 0), (name, 2)).value().tolist() == [-2.0]
    for read in (trial.values, trial.reductions, trial.statistics):
        with pytest.raises(TensorUnavailable, match=r"Did you mean.*Net_output\.logits"):
            read("Net_output.logit")


def test_the_command_takes_an_alias(trial, capsys):
    assert main(["show", trial.path, "Net_output.logits", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tensor"] == "Net_output_1"


def test_patterns_find_aliases(trial):
    assert trial.tensor_names(regex="logits$") == ["Net_output_1"]
    assert trial.tensor_names(regex=["logits", "_0$"]) == ["Net_output_0", "Net_output_1"]


def test_the_repr_of_a_tensor_has_its_alias(trial):
    assert "alias: 'Net_output.logits'" in repr(trial.tensor("Net_output_1"))
    assert "Net_output.logits" in trial.tensor("Net_output_1")._repr_html_()


def test_a_misspelled_alias_is_suggested(trial):
    with pytest.raises(UnknownTensor, match=r"Net_output\.logits"):
        trial["Net_output.logit"]


def test_workers_add_their_aliases(tmp_path):
    manager, other = CollectionManager(), CollectionManager()
    manager.add_aliases({"a": "b"})
    other.add_aliases({"c": "d"})
    manager.merge(other)
    assert manager.aliases == {"a": "b", "c": "d"}


@pytest.mark.parametrize("aliases", [3, [1], {"a": 1}, {"a": None}, None])
def test_aliases_of_another_type_are_left_out(tmp_path, aliases):
    described(tmp_path, {})
    [path] = (tmp_path / COLLECTIONS_PREFIX).iterdir()
    content = json.loads(path.read_text())
    content["_meta"]["aliases"] = aliases
    path.write_text(json.dumps(content))
    runs.step(tmp_path, 0)
    with create_trial(runs.end(tmp_path)) as trial:
        assert trial.aliases() == {}
        assert trial.tensor_names() == ["x"]
