"""The callback for the Trainer of Transformers, in whole scripts."""

from __future__ import annotations

import json

import pytest

from endings.running import run_script
from frameworks.trainer_scripts import diagnosed, run, run_workers
from smdwidgets import create_trial, modes

SCRIPT = """
import json, os, sys
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(0)
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, i):
        return {"input_ids": torch.arange(i % 7, i % 7 + 5), "labels": i % 3}

def trainer(callbacks, **more):
    model = BertForSequenceClassification(BertConfig(vocab_size=32, hidden_size=8, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=12, num_labels=3))
    arguments = TrainingArguments("checkpoints", **{**dict(per_device_train_batch_size=2, per_device_eval_batch_size=6,
        max_steps=6, gradient_accumulation_steps=2, logging_steps=2, eval_strategy="steps", eval_steps=3,
        save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, learning_rate=0.01), **more})
    return Trainer(model, arguments, train_dataset=Data(), eval_dataset=Data(), callbacks=callbacks)

def logs(one):
    kept = ("loss", "grad_norm", "learning_rate", "eval_loss", "train_loss")
    return [{name: each[name] for name in kept if name in each} for each in one.state.log_history]
"""

TRAIN = """
callbacks = []
if sys.argv[1] != "none":
    from smdwidgets.transformers import Callback
    callbacks.append(Callback(sys.argv[1]))
one = trainer(callbacks)
one.train()
weights = [p.detach().double().sum().item() for p in one.model.parameters()]
print("out:", json.dumps([logs(one), weights]))
if callbacks:  # complete on disk, before the script ends
    from smdwidgets import create_trial
    trial = create_trial(sys.argv[1])
    print("out:", trial.run_end(), len(trial.steps()))
"""


def test_the_run_has_the_logs_at_their_steps_and_the_training_is_the_same(tmp_path):
    here, complete = run(SCRIPT + TRAIN, tmp_path, "run")
    assert complete == "completed 8"
    assert run(SCRIPT + TRAIN, tmp_path, "none") == [here]
    logged, _ = json.loads(here)
    trial = create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN) == list(range(6))
    assert trial.steps(mode=modes.EVAL) == [0, 1]  # an evaluation of four batches is one step
    assert [trial.mode(step) for step in trial.steps()] == [modes.TRAIN] * 3 + [modes.EVAL] + [modes.TRAIN] * 3 + [
        modes.EVAL
    ]

    def saved(name, mode):
        tensor = trial.tensor(name)
        return {step: tensor.value(step, mode=mode).item() for step in tensor.steps(mode=mode)}

    training = [each for each in logged if "loss" in each]
    for name in ("loss", "grad_norm", "learning_rate"):
        assert saved(f"scalar/{name}", modes.TRAIN) == dict(
            zip((1, 3, 5), [one[name] for one in training], strict=True)
        )
    evaluated = [each["eval_loss"] for each in logged if "eval_loss" in each]
    assert saved("scalar/eval_loss", modes.EVAL) == dict(enumerate(evaluated))
    assert saved("scalar/eval_loss", modes.TRAIN) == {}
    # Every step has a loss, a learning rate and a gradient norm; weights and gradients belong to their collections.
    for name in ("loss_output_mean", "optimizer/AdamW/learning_rate_0", "optimizer/AdamW/gradient_norm"):
        assert trial.tensor(name).steps(mode=modes.TRAIN) == list(range(6))
    assert {"scalar/loss", "scalar/eval_loss", "loss_output_mean"} <= set(trial.tensor_names(collection="losses"))
    assert trial.tensor_names(collection="weights")
    assert trial.tensor_names(collection="gradients")
    assert "scalar/train_loss" not in trial.tensor_names()
    assert trial.notes() == []
    kinds = diagnosed(trial)
    assert kinds["scalar/loss", "TRAIN"] == kinds["loss_output_mean", "TRAIN"] == ("loss", "training")
    assert kinds["scalar/eval_loss", "EVAL"] == ("loss", "validation")
    for name in ("scalar/learning_rate", "optimizer/AdamW/learning_rate_0"):
        assert kinds[name, "TRAIN"][0] == "learning rate"
    for name in ("scalar/grad_norm", "optimizer/AdamW/gradient_norm"):
        assert kinds[name, "TRAIN"][0] == "gradient norm"


RESUMED = """
from smdwidgets.transformers import Callback
more = dict(save_strategy="steps", save_steps=2, eval_steps=2)
if sys.argv[2] == "first":
    trainer([Callback(sys.argv[1], resume=True)], **more).train()
else:
    one = trainer([Callback(sys.argv[1], resume=True)], **more)
    one.train(resume_from_checkpoint="checkpoints/checkpoint-2")
    print("out:", json.dumps(logs(one)))
"""


def test_a_training_from_a_checkpoint_continues_the_run_at_its_step(tmp_path):
    run(SCRIPT + RESUMED, tmp_path, "run", "first")
    with create_trial(tmp_path / "run") as trial:
        before = {step: trial.tensor("loss_output_0").value(step, mode=modes.TRAIN).item() for step in range(6)}
        created = trial.steps()
    (printed,) = run(SCRIPT + RESUMED, tmp_path, "run", "again")
    trial = create_trial(tmp_path / "run")
    assert trial.steps() == created == list(range(9))
    assert trial.steps(mode=modes.TRAIN) == list(range(6))
    assert trial.steps(mode=modes.EVAL) == list(range(3))
    after = {step: trial.tensor("loss_output_0").value(step, mode=modes.TRAIN).item() for step in range(6)}
    assert after == before  # each step once, with the same batch as before
    logged = [each["loss"] for each in json.loads(printed) if "loss" in each]
    tensor = trial.tensor("scalar/loss")
    assert [tensor.value(step, mode=modes.TRAIN).item() for step in (1, 3, 5)] == logged


DISTRIBUTED = """
from smdwidgets.transformers import Callback
trainer([Callback(sys.argv[1], include_workers=sys.argv[2])], ddp_backend="gloo").train()
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("workers", ["one", "all"])
def test_workers_of_a_distributed_training(tmp_path, workers):
    run_workers(SCRIPT + DISTRIBUTED, tmp_path, 2, "run", workers)
    trial = create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN) == list(range(6))
    assert trial.steps(mode=modes.EVAL) == [0, 1]
    names = ["worker_0", "worker_1"] if workers == "all" else ["worker_0"]
    assert trial.workers() == names
    assert trial.loaded_all_steps
    gradient = next(name for name in trial.tensor_names(collection="gradients") if "classifier.weight" in name)
    values = [trial.tensor(gradient).value(0, worker=worker) for worker in names]
    assert all((value == values[0]).all() for value in values)  # averaged over the workers
    assert trial.tensor("scalar/loss").steps(mode=modes.TRAIN) == [1, 3, 5]


FAULTS = """
import logging
import time
import smdwidgets.pytorch as smd
from smdwidgets.stop import request_stop
from smdwidgets.transformers import Callback
from transformers import TrainerCallback

class Stop(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 3:
            request_stop("run", by="a test")
            time.sleep(0.2)  # a request is looked for ten times a second

def broken(*args, **kwargs):
    raise ValueError("broken on purpose")

one = trainer([Callback("run"), Stop()])
one.train()
print("out:", one.state.global_step)
smd.Hook.save_scalar = smd.Hook.register_module = broken
two = trainer([Callback("broken")])
two.train()
print("out:", two.state.global_step)
try:
    Callback("run")
except Exception as error:
    print("out:", type(error).__name__)
"""


def test_a_requested_stop_ends_the_loop_and_a_failure_does_not(tmp_path):
    done = run_script(SCRIPT + FAULTS, tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("out:")]
    assert said == ["out: 4", "out: 6", "out: SMDebugRuntimeError"]
    assert done.stderr.count("broken on purpose") == 2  # once a kind of failure
    assert create_trial(tmp_path / "run").steps(mode=modes.TRAIN) == list(range(4))
