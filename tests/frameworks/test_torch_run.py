"""`smdwidgets run` with PyTorch: the same results, and what a hook would save."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from python.launch.launching import Place
from smdwidgets import create_trial, diagnose, modes

BEGIN = """
import sys
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 1)
    def forward(self, x):
        return self.head(self.body(x).relu())

def end(*models):
    for model in models:
        print([parameter.detach().double().sum().item().hex() for parameter in model.parameters()])
"""


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def both(place, script, *words):
    """Run a script without and with the launcher; return the second."""
    place.write("train.py", BEGIN + script)
    plain = place.python("-W", "ignore", "train.py")
    done = place.run(*words, sys.executable, "-W", "ignore", "train.py")
    assert plain.code == done.code == 0, done.err
    assert done.out == plain.out
    assert done.out
    return done


def values(trial, name, mode=modes.GLOBAL):
    tensor = trial.tensor(name)
    return [tensor.value(step, mode=mode).item() for step in tensor.steps(mode=mode)]


PLAIN = """
model = Net()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
for step in range(12):
    x = torch.randn(32, 8)
    loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(loss.item().hex())
end(model)
"""


def test_a_functional_loss(place):
    done = both(place, PLAIN)
    assert done.own_err == ""
    assert done.said[0].startswith(
        "recording Net (161 parameters) to runs/train: losses, weights, gradients and activations"
    )
    assert done.said[1].startswith("recorded 12 steps in runs/train. ")
    losses = [float.fromhex(line) for line in done.out.splitlines()[:-1]]
    with create_trial(place.folder / "runs/train") as trial:
        assert trial.steps() == trial.steps(mode=modes.TRAIN) == list(range(12))
        assert values(trial, "loss_output_0") == losses
        assert values(trial, "optimizer/Adam/learning_rate_0") == pytest.approx([0.01] * 5 + [0.001] * 5 + [0.0001] * 2)
        assert len(values(trial, "optimizer/Adam/gradient_norm")) == 12
        for name in ("Net_body.weight", "gradient/Net_body.weight"):
            assert trial.tensor(name).steps() == list(range(12))
        # The forward pass of the first step is over when the training is seen.
        assert trial.tensor("body_output_0").steps() == list(range(1, 12))
        assert str(trial.run_end()) == "completed"


def test_the_first_loss_is_a_part_of_another(place):
    """What a loss was divided by is asked before the backward pass frees it."""
    done = both(
        place,
        """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(5):
    x = torch.randn(4, 8)
    loss = (F.mse_loss(model(x), x.sum(1, keepdim=True)) + model(x).pow(2).mean()) / 2 * torch.tensor(0.5)
    print(loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    )
    assert done.said[1].startswith("recorded 5 steps in runs/train. ")
    with create_trial(place.folder / "runs/train") as trial:
        assert values(trial, "loss_output_0") == pytest.approx([float(line) for line in done.out.split()])


def test_accumulation_evaluation_and_clipping(place):
    both(
        place,
        """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(5):
    model.train()
    optimizer.zero_grad()
    for micro in range(3):
        x = torch.randn(4, 8)
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True)) / 3
        loss.backward()
        print(loss.item().hex())
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    model.eval()
    with torch.no_grad():
        print(F.mse_loss(model(x), x.sum(1, keepdim=True)).item().hex())
end(model)
""",
    )
    with create_trial(place.folder / "runs/train") as trial:
        assert trial.steps(mode=modes.TRAIN) == list(range(5))
        assert trial.steps(mode=modes.EVAL) == list(range(5))
        for micro in range(3):
            assert trial.tensor(f"loss_output_{micro}").steps(mode=modes.TRAIN) == list(range(5))
        norms = values(trial, "optimizer/SGD/gradient_norm", modes.TRAIN)
        assert norms == pytest.approx([0.5] * 5, rel=1e-4)


def test_compiled_model_with_a_scaled_loss(place):
    done = both(
        place,
        """
model = Net()
compiled = torch.compile(model, fullgraph=True)
optimizer = torch.optim.Adam(model.parameters(), 0.01)
scaler = torch.amp.GradScaler("cpu")
for step in range(8):
    x = torch.randn(32, 8)
    loss = F.mse_loss(compiled(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    print(loss.item().hex())
end(model)
print(torch._dynamo.utils.counters["stats"], torch._dynamo.utils.counters["graph_break"])
""",
    )
    with create_trial(place.folder / "runs/train") as trial:
        assert values(trial, "loss_output_0") == [float.fromhex(line) for line in done.out.splitlines()[:8]]
        assert trial.tensor("gradient/Net_body.weight").steps() == list(range(8))


def test_the_models_of_a_gan_share_a_run(place):
    done = both(
        place,
        """
class Generator(Net):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 8)

class Critic(Net):
    pass

generator, critic = Generator(), Critic()
of_generator, of_critic = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
bce = nn.BCEWithLogitsLoss()
for step in range(6):
    fake = generator(torch.randn(4, 8))
    of_critic.zero_grad()
    loss = bce(critic(torch.randn(4, 8)), torch.ones(4, 1)) + bce(critic(fake.detach()), torch.zeros(4, 1))
    loss.backward()
    of_critic.step()
    of_generator.zero_grad()
    bce(critic(fake), torch.ones(4, 1)).backward()
    of_generator.step()
    print(loss.item().hex())
end(generator, critic)
""",
    )
    assert len(done.said) == 2
    with create_trial(place.folder / "runs/train") as trial:
        assert trial.steps() == list(range(6))
        for name in ("Generator_head.weight", "gradient/Generator_head.weight", "gradient/Critic_head.weight"):
            assert trial.tensor(name).steps() == list(range(6))
        assert trial.tensor("optimizer/Adam_1/learning_rate_0").steps() == list(range(6))


def test_an_optimizer_with_a_closure(place):
    both(
        place,
        """
model = Net()
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
x = torch.randn(32, 8)
def closure():
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
    loss.backward()
    print(loss.item().hex())
    return loss
for step in range(4):
    optimizer.step(closure)
end(model)
""",
    )
    with create_trial(place.folder / "runs/train") as trial:
        assert trial.steps() == list(range(4))
        assert trial.tensor("gradient/Net_body.weight").steps() == list(range(4))


def test_optimizers_that_step_inside_backward(place):
    both(
        place,
        """
model = Net()
optimizers = {p: torch.optim.SGD([p], 0.01) for p in model.parameters()}
def update(p):
    optimizers[p].step()
    optimizers[p].zero_grad()
for p in model.parameters():
    p.register_post_accumulate_grad_hook(update)
for step in range(6):
    x = torch.randn(32, 8)
    loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
    loss.backward()
    print(loss.item().hex())
end(model)
""",
    )
    with create_trial(place.folder / "runs/train") as trial:
        assert len(trial.steps()) == 5  # the first update is over when the training is seen
        assert trial.tensor("gradient/Net_body.weight").steps() == trial.steps()


SEVERAL = """
def train(steps):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    for step in range(steps):
        loss = model(torch.randn(4, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    end(model)
    return model
kept = [train(steps) for steps in (2, 3, 4)]
optimizer = torch.optim.SGD(kept[-1].parameters(), 0.01)  # of the same model
kept[-1](torch.randn(4, 8)).pow(2).mean().backward()
optimizer.step()
end(kept[-1])
"""


def test_gradients_of_torch_func(place):
    """No backward pass is seen, and the training is recorded from its third update on."""
    script = """
from torch.func import functional_call, grad

model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)

def error(weights, x):
    return F.mse_loss(functional_call(model, weights, (x,)), x.sum(1, keepdim=True))

for step in range(6):
    weights = {name: one.detach() for name, one in model.named_parameters()}
    gradients = grad(error)(weights, torch.randn(16, 8))
    for name, one in model.named_parameters():
        one.grad = gradients[name]
    optimizer.step()
end(model)
"""
    both(place, script, "--out", "run")
    trial = create_trial(place.folder / "run")
    assert len(trial.steps()) == 4
    assert trial.checks().updates == 4
    assert len(trial.tensor("Net_head.weight").steps()) == 4


BY_HAND = """
model = Net()
for step in range(40):
    x = torch.randn(32, 8)
    loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.05 * parameter.grad
    print(loss.item().hex())
end(model)
"""


def test_updates_by_hand(place):
    done = both(place, BY_HAND)
    assert done.said[0].startswith("recording Net (161 parameters) to runs/train: ")
    losses = [float.fromhex(line) for line in done.out.splitlines()[:-1]]
    with create_trial(place.folder / "runs/train") as trial:
        # The training is seen at its third backward pass.
        assert values(trial, "loss_output_0") == pytest.approx(losses[2:], rel=1e-6)
        assert trial.tensor("gradient/Net_body.weight").steps() == trial.steps()[1:]
        assert diagnose(trial).findings == ()
    place.write("train.py", BEGIN + BY_HAND.replace("    model.zero_grad()\n", ""))
    assert "Gradients are not reset between two updates of the script" in place.run(sys.executable, "train.py").err


#: Tensors that belong to no module, and how they are updated.
RAW = """
w, b = torch.zeros(8, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
optimizer = {optimizer}
for step in range(40):
    x = torch.randn(32, 8)
    loss = ((x @ w + b - x.sum(1, keepdim=True)) ** 2).mean()
    loss.backward()
    {update}
    print(loss.item().hex(), w.sum().item().hex())
"""


@pytest.mark.parametrize(
    ("optimizer", "update", "first"),
    [
        ("torch.optim.Adam([w, b], 0.05)", "optimizer.step(); optimizer.zero_grad()", 0),
        ("None", "w.data -= 0.05 * w.grad; b.data -= 0.05 * b.grad; w.grad.data.zero_(); b.grad.data.zero_()", 2),
    ],
    ids=["optimizer", "by hand"],
)
def test_tensors_without_a_module(place, optimizer, update, first):
    done = both(place, RAW.format(optimizer=optimizer, update=update))
    assert done.said[0].startswith("recording Tensors (9 parameters) to runs/train: ")
    losses = [float.fromhex(line.split()[0]) for line in done.out.splitlines()]
    with create_trial(place.folder / "runs/train") as trial:
        assert values(trial, "loss_output_0") == pytest.approx(losses[first:], rel=1e-6)
        assert {"Tensors_w", "Tensors_b", "gradient/Tensors_w"} <= set(trial.tensor_names())
        assert diagnose(trial).findings == ()


STAGES = """
model = Net()
for stage in range(2):
    model.body.requires_grad_(stage == 1)
    optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], 0.01)
    for step in range(12):
        x = torch.randn(32, 8)
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item().hex())
    model.eval()
    with torch.no_grad():
        model(x)
    model.train()
end(model)
"""


def test_stages_with_an_optimizer_each_have_one_loss(place):
    done = both(place, STAGES)
    losses = [float.fromhex(line) for line in done.out.splitlines()[:-1]]
    with create_trial(place.folder / "runs/train") as trial:
        assert trial.tensor_names(regex="loss") == ["loss_output_0"]
        assert values(trial, "loss_output_0", modes.TRAIN) == pytest.approx(losses, rel=1e-6)


PRETRAINED = """
encoder, decoder, head = nn.Linear(8, 4), nn.Linear(4, 8), nn.Linear(4, 1)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 0.01)
for step in range(12):
    x = torch.randn(32, 8)
    loss = F.mse_loss(decoder(encoder(x)), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{name} = torch.optim.Adam([*encoder.parameters(), *head.parameters()], 0.01)
for step in range(40):
    x = torch.randn(32, 8)
    loss = F.binary_cross_entropy_with_logits(head(encoder(x)), (x.sum(1, keepdim=True) > 0).float())
    {name}.zero_grad()
    loss.backward()
    {name}.step()
end(encoder, decoder, head)
"""


def test_a_stage_with_another_model_has_a_run(place):
    done = both(place, PRETRAINED.format(name="optimizer"))
    assert "recording Linear, Linear (76 parameters) to runs/train: " in done.said[0]
    assert any("recording Linear, Linear (41 parameters) to runs/train-2: " in line for line in done.said)
    with create_trial(place.folder / "runs/train") as trial:
        assert trial.tensor("loss_output_0").steps() == [*range(12)]
    with create_trial(place.folder / "runs/train-2") as trial:
        assert trial.tensor("loss_output_0").steps() == [*range(40)]
    assert not any("not_in_optimizer" in line for line in done.said)


def test_a_stage_with_another_model_ends_a_training_whose_optimizer_lives(place):
    done = both(place, PRETRAINED.format(name="other").replace("range(12)", "range(80)"))
    assert any("recording Linear, Linear (41 parameters) to runs/train-2: " in line for line in done.said)
    with create_trial(place.folder / "runs/train-2") as trial:
        assert trial.tensor("loss_output_0").steps() == [*range(40)]


def test_a_model_joins_a_training_whose_optimizer_lives(place):
    done = both(place, PRETRAINED.format(name="other"))
    assert not any("not_in_optimizer" in line for line in done.said)
    with create_trial(place.folder / "runs/train") as trial:
        assert len(trial.steps()) == 52
        assert trial.tensor_names(regex="loss") == ["loss_output_0"]
        assert {"Linear_weight", "Linear_1_weight", "Linear_2_weight"} <= set(trial.tensor_names())
    assert not (place.folder / "runs/train-2").exists()


ATTACK = """
model, x = Net(), torch.randn(32, 8)
delta = torch.zeros_like(x, requires_grad=True)
for step in range(30):
    loss = -model(x + delta).mean()
    loss.backward()
    delta.data = (delta - 0.01 * delta.grad.sign()).clamp(-0.1, 0.1)
    delta.grad.zero_()
print(loss.item().hex())
"""


def test_an_input_that_is_changed_by_hand_is_no_training(place):
    assert "nothing was recorded" in both(place, ATTACK).said[0]


def test_trainings_after_one_another_have_a_run_each(place):
    done = both(place, SEVERAL)
    assert [line.split(" ")[0] for line in done.said] == ["recording", "recorded"] * 3
    for name, steps in (("train", 2), ("train-2", 3), ("train-3", 5)):
        with create_trial(place.folder / "runs" / name) as trial:
            assert trial.steps() == list(range(steps))


ADAPT = """
import copy
model = Net()
outer = torch.optim.Adam(model.parameters(), 0.01)

def adapted(x):
    copied = copy.deepcopy(model)
    inner = torch.optim.SGD(copied.parameters(), 0.01)
    for _ in range(3):
        inner.zero_grad()
        F.mse_loss(copied(x), x.sum(1, keepdim=True)).backward()
        inner.step()
    return copied, inner
"""

INNER = (
    ADAPT
    + """
for step in range(24):
    x = torch.randn(16, 8)
    copied, inner = adapted(x)
    outer.zero_grad()
    loss = F.mse_loss(model(x), copied(x).detach())
    loss.backward()
    outer.step()
    print(loss.item().hex())
end(model)
"""
)


def test_copies_of_an_inner_loop_have_few_runs(place):
    done = both(place, INNER)
    runs = sorted(one.name for one in (place.folder / "runs").iterdir() if one.is_dir())
    assert len(runs) <= 8, runs
    assert any("further copies of a model" in line for line in done.said)


TASKS = (
    ADAPT
    + """
for step in range(12):
    outer.zero_grad()
    for task in range(3):
        x = torch.randn(16, 8)
        copied, inner = adapted(x)
        loss = F.mse_loss(copied(x), x.sum(1, keepdim=True))
        for one, gradient in zip(model.parameters(), torch.autograd.grad(loss, copied.parameters())):
            one.grad = gradient if one.grad is None else one.grad + gradient
    outer.step()
    print(loss.item().hex())
import os, time
begun, after = time.monotonic(), 0
count = sum(os.path.isdir(f"runs/{one}") for one in os.listdir("runs")) if os.path.exists("runs") else 0
while count and after < 20 and time.monotonic() - begun < 300:
    inner.zero_grad()
    F.mse_loss(copied(x), x.sum(1, keepdim=True)).backward()
    inner.step()
    after += os.path.exists(f"runs/train-{count + 1}")
end(model)
"""
)


def test_several_copies_for_an_update_of_the_outer_loop_have_few_runs(place):
    """The last copy is trained for long in the end, so it has a run."""
    done = both(place, TASKS)
    runs = {one.name: one for one in (place.folder / "runs").iterdir() if one.is_dir()}
    assert len(runs) <= 9, runs
    assert any("further copies of a model" in line for line in done.said)
    with create_trial(runs[f"train-{len(runs)}"]) as trial:
        assert 19 <= len(trial.steps()) <= 21


SEARCH = """
import os, time
begun = time.monotonic()
for width in range(1, 25):
    model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    step = 0
    while step < 4 or (width == 24 and after < 20 and time.monotonic() - begun < 300):
        x = torch.randn(16, 8)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        step += 1
        after = after + 1 if os.path.exists("runs/train-11") else 0
print(step)
"""


def test_of_many_trainings_the_first_are_recorded_and_long_ones(place):
    """A long one is recorded once it has lasted for some seconds."""
    place.write("train.py", BEGIN + SEARCH)
    done = place.run(sys.executable, "-W", "ignore", "train.py")
    assert done.code == 0, done.err
    runs = [one for one in (place.folder / "runs").iterdir() if one.is_dir()]
    assert len(runs) == 11, runs
    assert sum("further ones are not recorded" in line for line in done.said) == 1
    with create_trial(place.folder / "runs/train-11") as trial:
        assert 19 <= len(trial.steps()) <= 21 < int(done.out)
        assert trial.tensor("loss_output_0").steps()[0] == 0


FOLDS = """
kept = None
for fold in range(8):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(4):
        x = torch.randn(16, 8)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
    print(loss.item().hex())
    kept = kept or (model, optimizer)
end(model)
"""


def test_short_trainings_of_a_cross_validation_have_a_run_each(place):
    """The model of one fold is kept. Nothing updates it between the others."""
    done = both(place, FOLDS)
    runs = [one for one in (place.folder / "runs").iterdir() if one.is_dir()]
    assert len(runs) == 8, runs
    assert not any("further copies of a model" in line for line in done.said)


def test_a_script_with_a_hook_is_not_recorded_twice(place):
    script = PLAIN.replace(
        "model = Net()",
        "model = Net()\nimport smdwidgets.pytorch as smd\nhook = smd.Hook('own')\nhook.register_module(model)",
    )
    script += "import shutil; hook.close(); shutil.rmtree('own')\n"
    done = both(place, script)
    assert done.said == ["nothing is recorded twice: the script has its own hook, which saves to own"]
    assert not (place.folder / "runs").exists()


def test_an_evaluation_alone_is_no_training(place):
    done = both(
        place,
        "model = Net()\nx = torch.randn(2, 8, requires_grad=True)\nmodel(x).sum().backward()\nend(model)\nprint(x.grad)\n",
    )
    assert len(done.said) == 1
    assert done.said[0].startswith("nothing was recorded: torch was imported, but no training was seen")
    assert not (place.folder / "runs").exists()


def test_spawned_workers_of_a_loader_leave_no_runs(place):
    script = """
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = TensorDataset(torch.arange(64.0).reshape(8, 8))
    for x, in DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context="spawn"):
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item().hex())
"""
    done = both(place, script)
    assert [line.split(" ")[0] for line in done.said] == ["recording", "recorded"]
    assert [path.name for path in (place.folder / "runs").iterdir()] == ["train"]


def test_torchrun(place):
    place.write(
        "train.py",
        BEGIN
        + """
import torch.distributed as dist
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), 0.01)
torch.manual_seed(dist.get_rank())
for step in range(4):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    end(model)
dist.destroy_process_group()
""",
    )
    torchrun = Path(sys.executable).with_name("torchrun")
    words = (torchrun, "--nproc-per-node=2", "--master-port=0", "--standalone", "train.py")
    plain = place.command(*words)
    done = place.run(*words)
    assert plain.code == done.code == 0, done.err
    assert done.out == plain.out
    assert [line.split(" ")[0] for line in done.said] == ["recording", "recorded"]
    assert [path.name for path in (place.folder / "runs").iterdir()] == ["train"]
    with create_trial(place.folder / "runs/train") as trial:
        assert trial.steps() == list(range(4))
        assert trial.tensor("gradient/Net_body.weight").steps() == list(range(4))


TRANSFORMERS = """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 18
    def __getitem__(self, i):
        return {"input_ids": torch.arange(i, i + 5), "attention_mask": torch.ones(5, dtype=torch.int64), "labels": i % 3}

model = BertForSequenceClassification(BertConfig(vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                                                 intermediate_size=12, num_labels=3))
arguments = TrainingArguments("checkpoints", per_device_train_batch_size=1, max_steps=6, gradient_accumulation_steps=3,
    logging_steps=1, eval_steps=2, eval_strategy="steps", save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True)
trainer = Trainer(model, arguments, train_dataset=Data(), eval_dataset=Data())
standard_output, sys.stdout = sys.stdout, sys.stderr  # the Trainer prints its speed
trainer.train()
sys.stdout = standard_output
print([log["loss"].hex() for log in trainer.state.log_history if "loss" in log], trainer.callback_handler.callback_list)
end(model)
"""


def test_transformers(place):
    done = both(place, TRANSFORMERS)
    assert done.said[0].startswith("recording BertForSequenceClassification (")
    with create_trial(place.folder / "runs/train") as trial:
        assert trial.steps(mode=modes.TRAIN) == list(range(6))
        for name in ("scalar/loss", "scalar/learning_rate", "bert.pooler.dense_output_0"):
            assert trial.tensor(name).steps(mode=modes.TRAIN) == list(range(6))
        assert len(trial.tensor("scalar/eval_loss").steps(mode=modes.EVAL)) == 3


LIGHTNING = """
import lightning

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
    def loss(self, x, y):
        return F.cross_entropy(self.head(self.body(x).relu()), y)
    def training_step(self, batch, number):
        loss = self.loss(*batch)
        self.log("train_loss", loss)
        return loss
    def validation_step(self, batch, number):
        self.log("val_loss", self.loss(*batch))
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)

lightning.seed_everything(0)
data = torch.utils.data.TensorDataset(torch.randn(24, 4), torch.randint(0, 3, (24,)))
loader = torch.utils.data.DataLoader(data, batch_size=8)
trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
module = Module()
trainer.fit(module, loader, loader)
print(trainer.callback_metrics["val_loss"].item().hex(), len(trainer.callbacks))
end(module)
"""


def test_lightning(place):
    done = both(place, LIGHTNING)
    assert done.said[0].startswith("recording Module (51 parameters)")
    with create_trial(place.folder / "runs/train") as trial:
        assert trial.steps(mode=modes.TRAIN) == list(range(9))
        assert trial.tensor("scalar/train_loss").steps(mode=modes.TRAIN) == list(range(9))
        assert trial.tensor("gradient/Module_body.weight").steps(mode=modes.TRAIN) == list(range(9))
        assert trial.tensor("head_output_0").steps(mode=modes.TRAIN)
        assert len(trial.tensor("scalar/val_loss").steps(mode=modes.EVAL)) >= 3


def test_a_callback_of_the_script_is_enough(place):
    script = LIGHTNING.replace(
        "enable_model_summary=False", "enable_model_summary=False, callbacks=[Callback('own', overwrite=True)]"
    )
    script = "from smdwidgets.lightning import Callback\n" + script
    done = both(place, script)
    assert done.said == ["nothing is recorded twice: the script has its own hook, which saves to own"]
    assert not (place.folder / "runs").exists()


def test_keras_on_torch(place):
    """Both frameworks are armed, and the training is recorded once."""
    done = both(
        place,
        """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
x = np.random.rand(64, 4).astype("float32")
print([value.hex() for value in model.fit(x, x.sum(1, keepdims=True), epochs=3, verbose=0).history["loss"]])
end(model)
""",
    )
    assert [line.split(" ")[0] for line in done.said] == ["recording", "recorded"]
    with create_trial(place.folder / "runs/train") as trial:
        assert trial.tensor("gradients/dense/kernelGrad").steps() == list(range(6))
