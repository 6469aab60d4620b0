"""What a step is in training loops of all kinds.

Each script notes the values itself; the run must hold the same bits.
"""

from __future__ import annotations

import numpy as np
import pytest

from frameworks.torch_scripts import trainings
from smdwidgets import modes


@pytest.fixture
def train(tmp_path):
    yield from trainings(tmp_path)


def names(trial, step, pattern):
    return sorted(trial.tensor_names(step=step, regex=pattern))


ACCUMULATION = """
kind, registered, interval = sys.argv[2], sys.argv[3] == "registered", int(sys.argv[4])
model = Net()
fused = {"fused": True} if kind == "fused" else {}
optimizer = torch.optim.Adam(model.parameters(), 0.01, **fused)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=kind != "plain")
hook = smd.Hook(sys.argv[1], save_all=True, save_config=smd.SaveConfig(save_interval=interval))
hook.register_module(model)
criterion = nn.CrossEntropyLoss()
hook.register_loss(criterion)
if registered:
    hook.register_optimizer(optimizer)
for update in range(7):
    saved = update % interval == 0
    if saved:
        note_weights(update, model)
    losses = []
    for micro in range(4):
        x, y = batch()
        if update == 3 and micro == 2:
            x = x / 0  # the scaler must skip this update
        output = model(x)
        loss = criterion(output, y)
        if kind == "plain" and update == 3:
            loss = loss.nan_to_num(1.0)
        scaler.scale(loss).backward()
        losses.append(loss.detach())
        if saved:
            note(update, **{f"CrossEntropyLoss_output_{micro}": loss,
               f"Net_output_{micro}": output, f"Net_input_{micro}": x})
    overflow = update == 3 and kind != "plain"
    if saved and not overflow and kind == "fused":
        note_gradients(update, model, scaler.get_scale())
    elif saved and not overflow:
        scaler.unscale_(optimizer) if kind == "scaler" else None
        note_gradients(update, model)
    if saved and update != 3:
        note(update, CrossEntropyLoss_output_mean=np.float32(np.mean(np.array([l.item() for l in losses]))))
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("registered", ["registered", "seen"])
@pytest.mark.parametrize("kind", ["plain", "scaler", "fused"])
def test_micro_batches_belong_to_one_step(train, kind, registered):
    if kind == "plain":
        script = ACCUMULATION.replace("x = x / 0", "pass")
    else:
        script = ACCUMULATION
    trial, _ = train(script, kind, registered, 1)
    assert trial.steps() == trial.steps(mode=modes.TRAIN) == list(range(7))
    gradients = [len(names(trial, step, "^gradient/")) for step in range(7)]
    assert gradients == ([4] * 7 if kind == "plain" else [4, 4, 4, 0, 4, 4, 4])
    skipped = trial.tensor("optimizer/Adam/skipped").steps() if kind != "plain" else [3]
    assert skipped == [3]
    assert set(trial.tensor_names(collection="losses")) >= {
        *(f"CrossEntropyLoss_output_{i}" for i in range(4)),
        "CrossEntropyLoss_output_mean",
    }


def test_gradients_at_an_interval_with_accumulation(train):
    trial, _ = train(ACCUMULATION.replace("x = x / 0", "pass"), "plain", "registered", 3)
    assert trial.steps() == [0, 3, 6]
    assert len(names(trial, 6, "^gradient/")) == 4


def test_a_gan_is_one_step_a_round(train):
    trial, _ = train("""
class Generator(Net): pass
class Critic(Net): pass
g, d = Generator(), Critic()
g.head = nn.Linear(6, 4)
opt_g, opt_d = torch.optim.SGD(g.parameters(), 0.1), torch.optim.SGD(d.parameters(), 0.1)
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY)
hook.register_module(g)
hook.register_module(d)
hook.register_optimizer(opt_d)
hook.register_optimizer(opt_g)
for step in range(4):
    note_weights(step, g)
    for _ in range(5):
        opt_d.zero_grad()
        loss = hook.loss(d(g(torch.randn(5, 4)).detach()).mean() - d(torch.randn(5, 4)).mean(), "critic")
        loss.backward()
        note_gradients(step, d)
        opt_d.step()
    opt_g.zero_grad()
    loss = -d(g(torch.randn(5, 4))).mean()
    note(step, generator_output_0=hook.loss(loss, name="generator"))
    loss.backward()
    note_gradients(step, g)
    opt_g.step()
    hook.save_scalar("step", step)
    note(step, **{"scalar/step": np.array([step])})
""")
    assert trial.steps(mode=modes.TRAIN) == trial.steps() == [0, 1, 2, 3]
    assert {"critic_output_0", "critic_output_4", "generator_output_0"} <= set(trial.tensor_names(collection="losses"))


def test_siamese_calls_are_one_step(train):
    trial, _ = train("""
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook = smd.Hook(sys.argv[1], save_all=True, save_config=smd.SaveConfig(save_interval=10))
hook.register_module(model)
for step in range(21):
    optimizer.zero_grad()
    a, b = model(torch.randn(5, 4)), model(torch.randn(5, 4))
    loss = F.mse_loss(a, b)
    loss.backward()
    if step % 10 == 0:
        note(step, Net_output_0=a, Net_output_1=b, loss_output_0=loss)
        note_gradients(step, model)
    optimizer.step()
""")
    assert trial.steps() == [0, 10, 20]


def test_generated_text_between_updates_is_no_training_step(train):
    trial, _ = train("""
model = Net()
optimizer = torch.optim.AdamW(model.parameters())
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY)
hook.register_module(model)
def generate():
    with torch.no_grad():
        for _ in range(10):
            model(torch.randn(1, 4))
for step in range(2):
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    note_gradients(2 * step, model)
    optimizer.step()
    optimizer.zero_grad()
    generate()  # in training mode: no step
    model.eval()
    generate()  # one step
    model.train()
""")
    assert trial.steps() == [0, 1, 2, 3]
    assert trial.steps(mode=modes.TRAIN, show_incomplete_steps=True) == [0, 1]
    assert trial.steps(mode=modes.EVAL) == [0, 1]
    assert not names(trial, 1, "^gradient/")
    assert names(trial, 1, "^Net_output") == ["Net_output_0"]


def test_updates_of_reinforcement_learning(train):
    """One rollout, k updates."""
    trial, _ = train("""
model = Net()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY)
hook.register_module(model)
step = 0
for iteration in range(3):
    with torch.no_grad():
        rollout = [model(torch.randn(5, 4)) for _ in range(8)]
    for _ in range(4):
        note_weights(step, model)
        loss = model(torch.randn(5, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        note_gradients(step, model)
        note(step, loss_output_0=loss)
        optimizer.step()
        step += 1
""")
    assert trial.steps() == trial.steps(mode=modes.TRAIN) == list(range(12))
    assert names(trial, 4, "^Net_output") == ["Net_output_0"]


def test_manual_steps(train):
    trial, _ = train(
        """
model = Net()
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY, step_on=sys.argv[2])
hook.register_module(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    for part in range(3):
        optimizer.zero_grad()
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        note(step, **{f"loss_output_{part}": loss, f"Net_input_{part}": x})
        note_gradients(step, model)
        optimizer.step()
    hook.step()
""",
        "manual",
    )
    assert trial.steps() == [0, 1, 2, 3]


def test_call_of_step_rises_above_the_optimizer(train):
    trial, _ = train("""
model = Net()
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY)
hook.register_module(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    for part in range(2 if step else 1):
        optimizer.zero_grad()
        x, y = batch()
        F.cross_entropy(model(x), y).backward()
        note(step, **{f"Net_input_{part}": x})
        note_gradients(step, model)
        optimizer.step()
    hook.step()
""")
    assert trial.steps() == [0, 1, 2, 3]


def test_optimizer_in_backward(train):
    trial, _ = train("""
model = Net()
optimizers = {p: torch.optim.SGD([p], 0.1) for p in model.parameters()}
def update(p):
    gradients.append(p.grad.detach().clone())
    optimizers[p].step()
    optimizers[p].zero_grad()
for p in model.parameters():
    p.register_post_accumulate_grad_hook(update)
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY)
hook.register_module(model)
for step in range(5):
    gradients = []
    x, y = batch()
    note_weights(step, model)
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    note(step, loss_output_0=loss)
    by_shape = {g.shape: g for g in gradients}
    for name, p in model.named_parameters():
        note(step, **{f"gradient/Net_{name}": by_shape[p.shape]})
""")
    assert trial.steps() == [0, 1, 2, 3, 4]


def test_gradients_of_torch_func(train):
    trial, _ = train("""
model = Net().requires_grad_(True)
model.drop = nn.Identity()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook = smd.Hook(sys.argv[1], include_collections=["weights", "biases", "gradients"], save_config=EVERY)
hook.register_module(model)
def loss_of(parameters, x, y):
    return F.cross_entropy(torch.func.functional_call(model, parameters, (x,)), y)
for step in range(4):
    note_weights(step, model)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    gradients = torch.func.grad(loss_of)(parameters, *batch())
    for name, p in model.named_parameters():
        p.grad = gradients[name]
    note_gradients(step, model)
    optimizer.step()
""")
    assert trial.steps() == [0, 1, 2, 3]


def test_a_training_step_that_never_calls_the_model(train):
    trial, _ = train(
        """
class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 3)
    def training_step(self, x, y):
        return F.cross_entropy(self.head(self.encoder(x)), y)
module = Module()
optimizer = torch.optim.Adam(module.parameters(), 0.01)
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY)
hook.register_module(module)
for step in range(12):
    note_weights(step, module)
    x, y = batch()
    def closure():
        optimizer.zero_grad()
        loss = module.training_step(x, y)
        loss.backward()
        note(step, loss_output_0=loss)
        return loss
    if sys.argv[2] == "closure":
        optimizer.step(closure)
    else:
        closure()
        optimizer.step()
    note_gradients(step, module)
    note(step, encoder_input_0=x)
""",
        "plain",
    )
    assert trial.steps() == list(range(12))
    assert (
        names(trial, 0, "input|output_0")
        == names(trial, 11, "input|output_0")
        == sorted(
            [
                "loss_output_0",
                *(
                    f"{part}_{kind}_0"
                    for kind in ("input", "output")
                    for part in ("encoder", "encoder.0", "encoder.1", "head")
                ),
            ]
        )
    )


def test_parts_of_a_model_with_a_forward(train):
    """The first step has no inputs: its update shows that the script calls parts."""
    trial, _ = train("""
class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 3), nn.Linear(3, 4)
    def forward(self, x):
        return self.decoder(self.encoder(x))
model = Coder()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY)
hook.register_module(model)
for step in range(6):
    note_weights(step, model)
    for call in range(2):
        x, _ = batch()
        loss = F.mse_loss(model.decoder(model.encoder(x)), x)
        loss.backward()
        note(step, **{f"loss_output_{call}": loss})
        if step:
            note(step, **{f"encoder_input_{call}": x})
    note_gradients(step, model)
    optimizer.step()
    optimizer.zero_grad()
""")
    assert trial.steps() == list(range(6))
    assert trial.tensor("encoder_output_1").steps() == [1, 2, 3, 4, 5]
    assert trial.tensor("loss_output_mean").steps() == list(range(6))


@pytest.mark.parametrize("optimizer", ["LBFGS(model.parameters(), max_iter=4)", "Adam(model.parameters())"])
def test_closures(train, optimizer):
    trial, _ = train(
        f"""
model = Net()
model.drop = nn.Identity()
optimizer = torch.optim.{optimizer}
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY)
hook.register_module(model)
"""
        """
for step in range(3):
    note_weights(step, model)
    x, y = batch()
    calls = []
    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        note(step, **{f"loss_output_{len(calls)}": loss})
        calls.append(1)
        return loss
    optimizer.step(closure)
    note_gradients(step, model)
"""
    )
    assert trial.steps() == [0, 1, 2]


def test_mode_of_the_model_where_nobody_sets_it(train):
    trial, _ = train("""
model = nn.Sequential(nn.Linear(4, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY)
hook.register_module(model)
hook.register_loss(criterion)
step = 0
for epoch in range(2):
    model.train()
    for _ in range(3):
        x, y = batch()
        loss = criterion(model(x), y)
        optimizer.zero_grad(); loss.backward()
        note(step, CrossEntropyLoss_output_0=loss)
        note_gradients(step, model)
        optimizer.step()
        step += 1
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            x, y = batch()
            note(step, CrossEntropyLoss_output_0=criterion(model(x), y))
            step += 1
""")
    assert trial.steps() == list(range(10))
    assert [trial.mode(step) for step in range(5)] == [modes.TRAIN] * 3 + [modes.EVAL] * 2
    assert trial.steps(mode=modes.TRAIN) == list(range(6))
    assert not names(trial, 3, "^gradient/")
    assert names(trial, 3, "^Sequential_output")
    assert not names(trial, 4, "^Sequential_output")  # whole tensors of the first evaluation pass only


@pytest.mark.parametrize("chosen_by", ["set_mode", "model"])
def test_evaluation_between_micro_batches(train, chosen_by):
    """The training step is set aside, and continued."""
    trial, _ = train(
        """
mode_is_set = sys.argv[2] == "set_mode"
model = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY)
hook.register_module(model)
hook.register_loss(criterion)
hook.register_optimizer(optimizer)
for update in range(4):
    step = 2 * update
    if mode_is_set: hook.set_mode(smd.modes.TRAIN)
    optimizer.zero_grad()
    note_weights(step, model)
    for micro in range(4):
        x, y = batch()
        loss = criterion(model(x), y)
        loss.backward()
        note(step, **{f"CrossEntropyLoss_output_{micro}": loss, f"body_input_{micro}": x})
        if micro == 1:
            model.eval()
            if mode_is_set: hook.set_mode(smd.modes.EVAL)
            with torch.no_grad():
                x, y = batch()
                note(step + 1, CrossEntropyLoss_output_0=criterion(model(x), y), Net_input_0=x)
            model.train()
            if mode_is_set: hook.set_mode(smd.modes.TRAIN)
    note_gradients(step, model)
    optimizer.step()
""",
        chosen_by,
    )
    assert trial.steps() == list(range(8))
    assert trial.steps(mode=modes.TRAIN) == trial.steps(mode=modes.EVAL) == list(range(4))
    assert names(trial, 1, "loss|Loss|Net_(in|out)put") == [
        "CrossEntropyLoss_input_0", "CrossEntropyLoss_input_1", "CrossEntropyLoss_output_0", "Net_input_0", "Net_output_0"
    ]  # fmt: skip


def test_training_in_evaluation_mode(train):
    trial, done = train("""
model = Net().eval()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY)
hook.register_module(model)
for update in range(4):
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    step = update + 1
    note(step, loss_output_0=loss)
    note_gradients(step, model)
    optimizer.step()
""")
    assert trial.steps() == list(range(5))  # the first pass was taken for an evaluation
    assert trial.steps(mode=modes.TRAIN) == list(range(4))
    assert done.stderr.count("trained in evaluation mode") == 1


def test_checkpointed_blocks_are_recorded_once(train):
    train("""
from torch.utils.checkpoint import checkpoint
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 3)
    def forward(self, x):
        for reentrant in (True, False):
            x = checkpoint(self.one, x, use_reentrant=reentrant)
        outputs.append(x)
        return self.two(x)
model = Deep()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY)
hook.register_module(model)
for step in range(3):
    outputs = []
    x, y = batch()
    loss = F.cross_entropy(model(x.requires_grad_()), y)
    optimizer.zero_grad()
    loss.backward()
    note(step, one_output_1=outputs[0], one_input_0=x)
    note_gradients(step, model)
    optimizer.step()
print(sorted(name for name in smd.create_trial(sys.argv[1]).tensor_names() if "one_output" in name))
""")


def test_several_registered_models_and_two_optimizers_of_one(train):
    """Of Muon and AdamW for one model, neither registered: one step an update of both."""
    trial, _ = train("""
model = Net()
matrices = torch.optim.SGD([p for p in model.parameters() if p.ndim == 2], 0.1, momentum=0.9)
others = torch.optim.AdamW([p for p in model.parameters() if p.ndim < 2], 0.01)
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY)
hook.register_module(model)
for step in range(5):
    note_weights(step, model)
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    note(step, loss_output_0=loss)
    note_gradients(step, model)
    matrices.step(); others.step()
    matrices.zero_grad(); others.zero_grad()
""")
    assert trial.steps() == [0, 1, 2, 3, 4]


def test_the_optimizer_of_a_temperature_is_not_waited_for(train):
    """One of the registered optimizers holds a number outside of the model."""
    trial, _ = train("""
model, temperature = Net(), torch.ones((), requires_grad=True)
optimizers = [torch.optim.Adam(model.parameters(), 0.01), torch.optim.Adam([temperature], 0.01)]
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY)
hook.register_module(model)
for optimizer in optimizers:
    hook.register_optimizer(optimizer)
for step in range(5):
    note_weights(step, model)
    x, y = batch()
    output = model(x)
    loss = F.cross_entropy(output * temperature.detach(), y)
    loss.backward()
    note(step, loss_output_0=loss)
    note_gradients(step, model)
    optimizers[0].step()
    optimizers[0].zero_grad()
    (temperature * (output.detach().std() - 1)).backward()
    optimizers[1].step()
    optimizers[1].zero_grad()
""")
    assert trial.steps() == [0, 1, 2, 3, 4]


def test_many_passes_without_an_update_fall_back_to_passes(train):
    trial, done = train("""
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)  # which never steps
hook = smd.Hook(sys.argv[1], include_collections=["gradients"], save_config=EVERY)
hook.register_module(model)
for step in range(70):
    x, y = batch()
    F.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
    if step >= 64:
        note_gradients(step - 63, model)
    model.zero_grad()
""")
    assert trial.steps() == list(range(7))
    assert done.stderr.count("from now on a step is a forward pass") == 1


def test_fixed_step_on_forward_counts_as_smdebug(train):
    trial, _ = train(
        """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook = smd.Hook(sys.argv[1], save_all=True, save_config=EVERY, step_on="forward")
hook.register_module(model)
hook.register_optimizer(optimizer)
for step in range(8):
    x, y = batch()
    F.cross_entropy(model(x), y).backward()
    if step % 4 == 3:
        note_gradients(step, model)
        optimizer.step()
        optimizer.zero_grad()
    else:
        note_gradients(step, model)
""",
        values=False,
    )
    assert trial.steps() == list(range(8))


def test_learning_rates_gradient_norms_and_state(train):
    trial, _ = train("""
from torch.nn.utils import clip_grad_norm_  # by name, before the hook exists
model = Net()
optimizer = torch.optim.AdamW([{"params": model.body.parameters()}, {"params": model.head.parameters(), "lr": 0.5}], lr=0.1)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
hook = smd.Hook(sys.argv[1], include_collections=["optimizer_state", "gradients"], save_config=EVERY)
hook.register_module(model)
for step in range(3):
    x, y = batch()
    F.cross_entropy(model(x), y).backward()
    before = clip_grad_norm_(model.parameters(), 0.01)
    note_gradients(step, model)
    names = {p: n for n, p in model.named_parameters()}
    used = torch.linalg.vector_norm(torch.cat([p.grad.flatten().double() for p in model.parameters()])).float()
    rates = np.array([group["lr"] for group in optimizer.param_groups])
    optimizer.step()
    optimizer.zero_grad()
    schedule.step()
    note(step, **{"optimizer/AdamW/gradient_norm_before_clipping": before, "optimizer/AdamW/gradient_norm": used,
                  "optimizer/AdamW/learning_rate_0": rates[:1], "optimizer/AdamW/learning_rate_1": rates[1:]})
    for p, state in optimizer.state.items():
        note(step, **{f"optimizer/AdamW/Net_{names[p]}/{key}": value for key, value in state.items()})
""")
    assert set(trial.tensor_names(collection="updates")) == {
        f"optimizer/AdamW/{name}"
        for name in ("learning_rate_0", "learning_rate_1", "gradient_norm", "gradient_norm_before_clipping")
    }
    state = [name for name in trial.tensor_names(collection="optimizer_state") if name.count("/") == 3]
    assert len(state) == 12
    assert not trial.tensor_names(collection="weights")


@pytest.mark.parametrize("every", [1, 4])
def test_norms_of_steps_at_which_no_gradient_is_captured(train, every):
    trial, _ = train(
        f"""
model = Net()
optimizer = torch.optim.AdamW(model.body.parameters(), lr=0.1)
hook = smd.Hook(sys.argv[1], plan={{"statistics": {every}, "every": {every}}})
hook.register_module(model)
for step in range(12):
    if step == 2:
        optimizer.add_param_group({{"params": list(model.head.parameters())}})
    if step == 5:
        model.head = nn.Linear(*reversed(model.head.weight.shape))
    if step == 7:  # the optimizer forgets the head that is no more
        optimizer.param_groups[1]["params"] = list(model.head.parameters())
    for parameter in model.body.parameters():
        parameter.requires_grad_(step < 9)
    optimizer.zero_grad()
    x, y = batch()
    F.cross_entropy(model(x), y).backward()
    used = [p.grad.flatten().double() for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    note(step, **{{"optimizer/AdamW/gradient_norm": torch.linalg.vector_norm(torch.cat(used)).float()}})
    optimizer.step()
""",
        values=False,
    )
    assert trial.tensor("optimizer/AdamW/gradient_norm").steps() == list(range(12))
    assert trial.tensor("loss_output_0").steps() == list(range(12))


def test_gradients_before_clipping(train):
    train("""
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
hook = smd.Hook(sys.argv[1], include_collections=["gradients"], save_config=EVERY, clipped_gradients=False)
hook.register_module(model)
for step in range(3):
    x, y = batch()
    scaler.scale(F.cross_entropy(model(x), y)).backward()
    scaler.unscale_(optimizer)
    note_gradients(step, model)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
""")


def test_losses_whatever_their_name(train):
    trial, _ = train("""
class Focal(nn.Module):
    def forward(self, x, y):
        return F.cross_entropy(x, y) * 2
model, focal = Net(), Focal()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook = smd.Hook(sys.argv[1], save_config=EVERY)
hook.register_module(model)
hook.register_loss(focal)
for step in range(3):
    x, y = batch()
    output = model(x)
    one, two = focal(output, y), hook.loss(F.cross_entropy(output, y), "second")
    assert two is hook.loss(two, "third")
    hook.record_tensor_value("cross_entropy", two)
    (one + two).backward()
    note(step, Focal_output_0=one, second_output_0=two, cross_entropy_output_0=two, third_output_0=two)
    optimizer.step()
    optimizer.zero_grad()
    hook.save_scalar("train/loss", one.item())
    hook.save_scalar("loss_scale", 3)
""")
    assert trial.tensor_names(collection="losses") == [
        "Focal_output_0", "cross_entropy_output_0", "scalar/train/loss", "second_output_0", "third_output_0"
    ]  # fmt: skip
    assert trial.tensor_names(collection="scalars") == ["scalar/loss_scale", "scalar/train/loss"]


def test_loss_that_nobody_names(train):
    trial, _ = train("""
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
hook = smd.Hook(sys.argv[1], save_config=smd.SaveConfig(save_interval=3))
hook.register_module(model)
for step in range(7):
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    if step % 3 == 0:
        note(step, loss_output_0=loss)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
""")
    assert trial.tensor_names(collection="losses") == ["loss_output_0"]
    assert trial.tensor("loss_output_0").steps() == [0, 3, 6]


def test_scalar_after_the_update_belongs_to_its_step(train):
    """It does not end the curve of the loss that nobody names."""
    trial, _ = train("""
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook = smd.Hook(sys.argv[1], include_regex="accuracy", save_config=EVERY)
hook.register_module(model)
for step in range(6):
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    note(step + (step > 3), loss_output_0=loss)
    if step % 2 == 0:
        hook.save_scalar("loss", loss.item())
        hook.record_tensor_value("accuracy", torch.tensor([step, step]))
        note(step + (step > 3), **{"scalar/loss": np.float64(loss.item()), "accuracy_output_0": np.array([step, step])})
    if step == 3:
        model.eval()
        with torch.no_grad():
            model(x)
        model.train()
""")
    assert trial.tensor("scalar/loss").steps(mode=modes.TRAIN) == [0, 2, 4]
    assert trial.tensor("loss_output_0").steps(mode=modes.TRAIN) == list(range(6))


def test_validation_loss_that_comes_first_leaves_the_training_its_loss(train):
    trial, _ = train("""
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook = smd.Hook(sys.argv[1], save_config=EVERY)
hook.register_module(model)
hook.register_optimizer(optimizer)
for epoch in range(2):
    model.eval()
    with torch.no_grad():
        losses = [F.cross_entropy(model(x), y).item() for x, y in [batch(), batch(), batch()]]
    hook.save_scalar("val_loss", np.mean(losses))
    note(3 * epoch, **{"scalar/val_loss": np.mean(losses)})
    model.train()
    for step in (1, 2):
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        note(3 * epoch + step, loss_output_0=loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
""")
    assert trial.steps() == list(range(6))
    assert trial.tensor("scalar/val_loss").steps() == [0, 3]
    assert trial.tensor("loss_output_0").steps(mode=modes.TRAIN) == list(range(4))


def test_modules_that_are_added_later(train):
    trial, _ = train("""
model = nn.Sequential(nn.Linear(4, 4))
hook = smd.Hook(sys.argv[1], save_all=True, save_config=smd.SaveConfig(save_interval=2))
hook.register_module(model)
for step in range(5):
    if step == 3:
        model.append(nn.Linear(4, 3))
    x, _ = batch()
    output = model(x)
    model.zero_grad()
    output.sum().backward()
    if step == 4:
        note(step, **{"1_output_0": output, "1_input_0": model[0](x)})
        note_gradients(step, model)
""")
    assert trial.tensor("1_output_0").steps() == [4]


def test_calls_above_the_thirty_second(train):
    trial, _ = train("""
class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        for i in range(60):
            x = self.cell(x)
            if i in (40, 57):
                note(0, **{f"cell_output_{i}": x})
        return self.other(x)
model = Loop()
hook = smd.Hook(sys.argv[1], include_regex=["cell_output_4[0-3]$", "cell_output_57$"], save_config=EVERY)
hook.register_module(model)
model(torch.ones(2, 4))
assert not model.other._forward_hooks
""")
    assert trial.tensor_names() == [*(f"cell_output_{i}" for i in (40, 41, 42, 43)), "cell_output_57"]


def test_close_removes_all_callbacks(train):
    train("""
functions = [lambda: torch.autograd.backward, lambda: torch.amp.GradScaler.step, lambda: torch.amp.GradScaler.scale,
             lambda: torch.nn.utils.clip_grad._clip_grads_with_norm_, lambda: torch.nn.utils.clip_grad_value_]
before = [each() for each in functions]
from torch.optim.optimizer import _global_optimizer_pre_hooks, _global_optimizer_post_hooks
model = Net()
for _ in range(2):
    with smd.Hook(sys.argv[1], save_config=EVERY, overwrite=True) as hook:
        hook.register_module(model)
        assert [each() for each in functions] != before
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        note(0, loss_output_0=loss)
    assert [each() for each in functions] == before
    assert not _global_optimizer_pre_hooks and not _global_optimizer_post_hooks
assert not any(m._forward_hooks or m._forward_pre_hooks or m._forward_hooks_always_called for m in model.modules())
""")


INDICES = """
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
hook = smd.Hook(sys.argv[1])
hook.register_module(model)
criterion = nn.CrossEntropyLoss()
for step in range(30):
    hook.save_tensor("batch/index", torch.arange(step, step + 4), "batch")
    hook.save_scalar("batch/number", step)
    x, y = batch()
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hook.save_scalar("done", step)
    if step % 10 == 9:
        model.eval()
        with torch.no_grad():
            for number in range(3):
                hook.save_tensor("batch/index", torch.arange(100 + number, 104 + number), "batch")
                model(batch()[0])
        hook.save_scalar("val_done", step)
        model.train()
    if len(sys.argv) > 2 and step == 24:
        hook.save_tensor("batch/index", torch.arange(25, 29), "batch")
        try:
            raise RuntimeError("out of memory")
        except RuntimeError:
            hook.close()
            break
"""


def test_values_before_a_forward_pass_belong_to_its_step(train):
    trial, done = train(INDICES, values=False)
    index, number, last = (trial.tensor(name) for name in ("batch/index", "scalar/batch/number", "scalar/done"))
    assert trial.steps(mode=modes.TRAIN) == list(range(30))
    for step in range(30):
        assert index.value(step, mode=modes.TRAIN)[0] == step
        assert number.value(step, mode=modes.TRAIN) == last.value(step, mode=modes.TRAIN) == step
    assert [int(index.value(step, mode=modes.EVAL)[0]) for step in index.steps(mode=modes.EVAL)] == [100] * 3
    assert "include_collections" not in done.stderr


def test_batch_of_the_step_that_failed_is_saved(train):
    trial, _ = train(INDICES, "fail", values=False)
    assert trial.steps(mode=modes.TRAIN)[-1] == 25
    assert trial.tensor("batch/index").value(25, mode=modes.TRAIN)[0] == 25


DIVIDED = """
kind, divides = sys.argv[2], int(sys.argv[3])
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook = smd.Hook(sys.argv[1])
hook.register_module(model)
for update in range(6):
    own = []
    micro_batches = divides if update < 5 else 2  # the last batches of an epoch
    for _ in range(micro_batches):
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        own.append(loss.detach())
        (loss / divides if kind == "divided" else loss * (1 / divides) if kind == "multiplied" else loss).backward()
    note(update, loss_output_mean=np.float32(np.mean([float(each) for each in own])))
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("divides", ["3", "4"])
@pytest.mark.parametrize("kind", ["divided", "multiplied", "not"])
def test_loss_of_an_update_does_not_depend_on_the_number_of_micro_batches(train, tmp_path, kind, divides):
    trial, _ = train(DIVIDED, kind, divides, values=False)
    with np.load(tmp_path / "seen.npz") as file:
        noted = [float(file[str(index)]) for index in range(6)]
    mean = trial.tensor("loss_output_mean")
    assert [float(mean.value(step)) for step in mean.steps()] == pytest.approx(noted, rel=1e-6)
    assert "loss_output_mean" in trial.tensor_names(collection="losses")


TWO_LOSSES = """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook = smd.Hook(sys.argv[1])
hook.register_module(model)
for update in range(4):
    x, y = batch()
    output = model(x)
    first, second = F.cross_entropy(output, y), output.square().mean()
    first.backward(retain_graph=True)
    second.backward()
    note(update, loss_output_0=first, loss_output_1=second)
    optimizer.step()
    optimizer.zero_grad()
"""


def test_losses_of_several_kinds_have_no_mean(train):
    trial, _ = train(TWO_LOSSES)
    assert trial.tensor_names(collection="losses") == ["loss_output_0", "loss_output_1"]
    assert "loss_output_mean" not in trial.collection("losses").tensor_names


def test_loss_of_an_evaluation_is_the_mean_of_its_batches(train):
    """Another function than that of the training does not count.

    The last evaluation computes its losses where gradients are enabled, of outputs that have none.
    """
    trial, _ = train("""
model, criterion = Net(), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook = smd.Hook(sys.argv[1], save_config=EVERY)
hook.register_module(model)
for epoch in range(5):
    for step in range(2):
        x, y = batch()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        note(3 * epoch + step, loss_output_0=loss)
    model.eval()
    losses, outputs = [], []
    with torch.no_grad() if epoch else torch.inference_mode():
        for x, y in [batch(), batch(), batch()]:
            output = model(x)
            if epoch == 1:
                F.mse_loss(output, output)
            if epoch == 2:
                losses.append(F.cross_entropy(output, y, reduction="sum") / len(y))
            elif epoch == 3:
                losses.append(F.nll_loss(F.log_softmax(output, 1), y, reduction="none").mean())
            elif epoch == 4:
                outputs.append((output, y))
            else:
                losses.append(criterion(output, y))
    losses += [criterion(output, y) for output, y in outputs]
    with torch.inference_mode():
        note(3 * epoch + 2, loss_output_0=(losses[0] + losses[1] + losses[2]) / 3)
    model.train()
""")
    losses = trial.tensor("loss_output_0")
    assert losses.steps(mode=modes.TRAIN) == list(range(10))
    assert losses.steps(mode=modes.EVAL) == list(range(5))


def test_losses_of_an_evaluation_that_several_functions_may_be(train):
    """It has no loss, and the results of scripted functions do not change."""
    trial, _ = train("""
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook = smd.Hook(sys.argv[1], save_config=EVERY)
hook.register_module(model)
scripted = torch.jit.script(nn.CrossEntropyLoss())
for epoch in range(2):
    x, y = batch()
    loss = scripted(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    note(2 * epoch, loss_output_0=loss)
    model.eval()
    with torch.no_grad():
        output = model(x)
        F.mse_loss(output, output), F.l1_loss(output, output)
    model.train()
""")
    assert trial.tensor("loss_output_0").steps(mode=modes.TRAIN) == [0, 1]
    assert trial.tensor("loss_output_0").steps(mode=modes.EVAL) == []
