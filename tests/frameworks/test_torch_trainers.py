"""Scripts that leave the loop to Transformers, Lightning or Accelerate.

Each script notes the values itself; the run must hold the same bits.
"""

from __future__ import annotations

import pytest

from frameworks.torch_scripts import trainings
from smdwidgets import modes


@pytest.fixture
def train(tmp_path):
    yield from trainings(tmp_path)


TRANSFORMERS = """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
from smdwidgets.transformers import Callback

class Notes(TrainerCallback):
    losses = []
    def at(self, state):  # an evaluation follows every second update
        return state.global_step + state.global_step // 2
    def on_step_begin(self, args, state, control, model=None, **kwargs):
        self.losses.clear()
        note_weights(self.at(state), model)
    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        at = self.at(state)
        note_gradients(at, model)
        for i, loss in enumerate(self.losses):
            note(at, **{f"loss_output_{i}": loss / 3})
    def on_log(self, args, state, control, logs=None, **kwargs):
        kind = "eval_loss" if "eval_loss" in logs else "loss" if "loss" in logs else None
        if kind:
            at = state.global_step - 1 + (state.global_step - 1) // 2 + (kind == "eval_loss")
            note(at, **{f"scalar/{kind}": np.float64(logs[kind])})
        if kind == "loss":
            note(at, **{"optimizer/AdamW/gradient_norm_before_clipping": np.float32(logs["grad_norm"]),
                        "optimizer/AdamW/learning_rate_0": np.float64(logs["learning_rate"])})

class Model(BertForSequenceClassification):
    accepts_loss_kwargs = False  # the Trainer divides by the number of micro-batches
    def forward(self, **kwargs):
        output = super().forward(**kwargs)
        if self.training and torch.is_grad_enabled():
            Notes.losses.append(output.loss.detach())
        return output

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 18
    def __getitem__(self, i):
        return {"input_ids": torch.arange(i, i + 5), "attention_mask": torch.ones(5, dtype=torch.int64), "labels": i % 3}

model = Model(BertConfig(vocab_size=32, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
                         num_labels=3, attn_implementation="eager"))
arguments = TrainingArguments("checkpoints", per_device_train_batch_size=1, per_device_eval_batch_size=6, max_steps=6,
    gradient_accumulation_steps=3, gradient_checkpointing=sys.argv[2] == "checkpointing", logging_steps=1, eval_steps=2,
    eval_strategy="steps", save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, learning_rate=0.1,
    max_grad_norm=0.5, remove_unused_columns=False,
    label_names=["labels"])
Trainer(model, arguments, train_dataset=Data(), eval_dataset=Data(), callbacks=[Callback(sys.argv[1], save_all=True, save_config=EVERY), Notes()]).train()
"""


@pytest.mark.parametrize("kind", ["plain", "checkpointing"])
def test_transformers(train, kind):
    trial, _ = train(TRANSFORMERS, kind)
    assert trial.steps() == list(range(9))
    assert trial.steps(mode=modes.TRAIN) == list(range(6))
    assert [trial.global_step(modes.EVAL, step) for step in range(3)] == [2, 5, 8]
    # What is logged after the update belongs to the step of this update.
    assert trial.tensor("scalar/loss").steps(mode=modes.TRAIN) == list(range(6))
    assert trial.tensor("scalar/loss").steps() == trial.tensor("loss_output_2").steps() == [0, 1, 3, 4, 6, 7]
    assert trial.tensor("scalar/eval_loss").steps() == [2, 5, 8]
    for step in trial.steps(mode=modes.TRAIN):
        logged = trial.tensor("scalar/loss").value(step, mode=modes.TRAIN)
        micro_batches = [trial.tensor(f"loss_output_{i}").value(step, mode=modes.TRAIN) for i in range(3)]
        assert sum(map(float, micro_batches)) == pytest.approx(float(logged), rel=1e-6)
        calls = [name for name in trial.tensor_names(step, modes.TRAIN) if name.startswith("bert.pooler.dense_output_")]
        assert calls == [f"bert.pooler.dense_output_{i}" for i in range(3)]
    assert len(trial.tensor_names(0, regex="^gradient/")) == len(
        trial.tensor_names(0, regex="^Model_(bert|class).*(weight|bias)$")
    )
    assert trial.notes() == []


LIGHTNING = """
import lightning
from smdwidgets.lightning import Callback

class Module(lightning.LightningModule):
    def __init__(self, calls_itself):
        super().__init__()
        self.calls_itself = calls_itself
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
    def forward(self, x):
        return self.head(self.body(x).relu())
    def loss(self, x, y):
        return F.cross_entropy(self(x) if self.calls_itself else self.head(self.body(x).relu()), y)
    def training_step(self, batch, number):
        x, y = batch
        at, call = at_of(self.trainer.global_step), number % MICRO
        if call == 0:
            note_weights(at, self)
        loss = self.loss(x, y)
        note(at, **{f"body_input_{call}": x, f"loss_output_{call}": loss / MICRO})
        self.log("train_loss", loss)
        return loss
    def validation_step(self, batch, number):
        self.log("val_loss", self.loss(*batch))
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)
    def configure_gradient_clipping(self, optimizer, *args, **kwargs):
        super().configure_gradient_clipping(optimizer, *args, **kwargs)
        note_gradients(at_of(self.trainer.global_step), self)

class Notes(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        if number % MICRO == MICRO - 1:
            note(at_of(trainer.global_step - 1), **{"scalar/train_loss": trainer.callback_metrics["train_loss"]})

MICRO = int(sys.argv[3])
UPDATES = 6 // MICRO  # of an epoch; an evaluation follows
def at_of(update):
    return update + update // UPDATES
x, y = torch.randn(24, 4), torch.randint(0, 3, (24,))
batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
whole = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=24)
lightning.Trainer(max_epochs=3, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, num_sanity_val_steps=0,
    enable_progress_bar=False, enable_model_summary=False, callbacks=[Callback(sys.argv[1], save_all=True, save_config=EVERY), Notes()], gradient_clip_val=0.1,
    accumulate_grad_batches=MICRO).fit(Module(sys.argv[2] == "itself"), batches, whole)
"""


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("calls", ["itself", "parts"])
def test_lightning(train, calls, micro_batches):
    trial, _ = train(LIGHTNING, calls, micro_batches)
    updates = 6 // micro_batches
    assert trial.steps(mode=modes.TRAIN) == list(range(3 * updates))
    assert [trial.global_step(modes.EVAL, step) for step in range(3)] == [updates, 2 * updates + 1, 3 * updates + 2]
    # The first step is complete, too.
    names = [trial.tensor_names(step, modes.TRAIN) for step in range(3 * updates)]
    assert names == [names[0]] * (3 * updates)
    assert ("loss_output_mean" in names[0]) == (micro_batches > 1)
    assert ("Module_output_0" in names[0]) == (calls == "itself")
    assert "body_output_0" in trial.tensor_names(0, modes.EVAL)
    assert trial.notes() == []


ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True, mixed_precision=sys.argv[3], gradient_accumulation_steps=3)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
batches = torch.utils.data.DataLoader([batch() for _ in range(12)], batch_size=None)
model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
schedule = accelerator.prepare(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
optimizers = [optimizer] if sys.argv[2] == "passed" else []
hook = smd.record(model, sys.argv[1], *optimizers, save_all=True, save_config=EVERY)
for number, (x, y) in enumerate(batches):
    update, call = divmod(number, 3)
    with accelerator.accumulate(model):
        if call == 0:
            note_weights(update, model)
        output = model(x)
        loss = F.cross_entropy(output, y)
        note(update, **{f"Net_input_{call}": x, f"Net_output_{call}": output, f"loss_output_{call}": loss / 3})
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            norm = accelerator.clip_grad_norm_(model.parameters(), 0.1)
            note(update, **{"optimizer/AdamW/gradient_norm_before_clipping": norm,
                            "optimizer/AdamW/learning_rate_0": np.float64(optimizer.param_groups[0]["lr"])})
            note_gradients(update, model)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        hook.save_scalar("train/loss", loss.item())
        note(update, **{"scalar/train/loss": np.float64(loss.item())})
"""


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("optimizer", ["passed", "seen"])
def test_accelerate(train, optimizer, precision):
    trial, _ = train(ACCELERATE, optimizer, precision)
    assert trial.steps() == trial.steps(mode=modes.TRAIN) == [0, 1, 2, 3]
    assert all(len(trial.tensor_names(step, regex="^gradient/")) == 4 for step in range(4))
    assert trial.tensor("loss_output_mean").steps() == [0, 1, 2, 3]
    assert trial.notes() == []
