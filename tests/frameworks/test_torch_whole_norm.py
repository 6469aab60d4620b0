"""The norm of the gradients of all parameters, where no optimizer alone has them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from frameworks.torch_scripts import trainings

WHOLE = "optimizer/all/gradient_norm"

NORM = """
norms = {}

def note_norm(step, model):
    norms[step] = sum(float(p.grad.double().square().sum()) for p in model.parameters()) ** 0.5
"""
PRINT = """
import json
hook.close()
print(json.dumps(norms))
"""

OWN = (
    NORM
    + """
class Own:
    def __init__(self, parameters, rate):
        self.parameters, self.rate = list(parameters), rate
    def zero_grad(self):
        for p in self.parameters:
            p.grad = None
    def step(self):
        with torch.no_grad():
            for p in self.parameters:
                p -= self.rate * p.grad

micro_batches = int(sys.argv[2])
model = Net()
optimizer = Own(model.parameters(), 0.01)
hook = smd.record(model, sys.argv[1], step_on="auto" if micro_batches == 1 else "manual")
for step in range(30):
    for micro in range(micro_batches):
        loss = F.cross_entropy(model(torch.randn(5, 4)), torch.randint(0, 3, (5,)))
        loss.backward()
        note(step, **{f"loss_output_{micro}": loss})
    note_norm(step, model)
    optimizer.step()
    optimizer.zero_grad()
    if micro_batches > 1:
        hook.step()
"""
    + PRINT
)


@pytest.fixture
def train(tmp_path):
    yield from trainings(tmp_path)


def norms_of(trial, name=WHOLE):
    tensor = trial.tensor(name)
    return {step: float(np.ravel(tensor.value(step))[0]) for step in tensor.steps()}


def noted(done):
    """Return the norms that the script has computed."""
    [line] = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return {int(step): pytest.approx(norm, rel=1e-6) for step, norm in json.loads(line).items()}


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_an_optimizer_that_is_none_of_torch(train, micro_batches):
    trial, done = train(OWN, micro_batches)
    assert trial.steps() == list(range(30))
    assert norms_of(trial) == noted(done)
    [(_, note)] = trial.notes()
    assert note.startswith("no optimizer of PyTorch updated a registered model in 30 steps: learning rates are missing")
    assert "save_scalar" in note
    assert done.stderr.count("no optimizer of PyTorch") == 1
    assert trial.tensor_names(regex="learning_rate") == []


TWO = (
    NORM
    + """
model = Net()
matrices = torch.optim.SGD([p for p in model.parameters() if p.ndim == 2], 0.1, momentum=0.9)
others = torch.optim.AdamW([p for p in model.parameters() if p.ndim < 2], 0.01)
hook = smd.record(model, sys.argv[1])
for step in range(60):
    loss = F.cross_entropy(model(torch.randn(5, 4)), torch.randint(0, 3, (5,)))
    loss.backward()
    note(step, loss_output_0=loss)
    note_norm(step, model)
    matrices.step(); others.step()
    matrices.zero_grad(); others.zero_grad()
"""
    + PRINT
)


def test_two_optimizers_of_one_loss(train):
    trial, done = train(TWO)
    own = noted(done)
    del own[0]  # at which the second optimizer is not known when the first one steps
    assert norms_of(trial) == own
    of_one, of_other = norms_of(trial, "optimizer/SGD/gradient_norm"), norms_of(trial, "optimizer/AdamW/gradient_norm")
    assert math.hypot(of_one[7], of_other[7]) == own[7]
    assert trial.notes() == []


def test_optimizers_of_different_losses_have_no_common_norm(train):
    trial, _ = train(
        """
g, d = Net(), nn.Linear(3, 1)
optimizers = torch.optim.SGD(g.parameters(), 0.1), torch.optim.SGD(d.parameters(), 0.1)
hook = smd.Hook(sys.argv[1])
for one in (g, d):
    hook.register_module(one)
for step in range(12):
    for optimizer, sign in zip(optimizers, (1, -1)):
        (sign * d(g(torch.randn(5, 4))).mean()).backward()
        optimizer.step()
    g.zero_grad(); d.zero_grad()
""",
        values=False,
    )
    assert trial.tensor_names(regex="gradient_norm$") == [
        "optimizer/SGD/gradient_norm",
        "optimizer/SGD_1/gradient_norm",
    ]


def test_norm_of_one_optimizer_is_not_repeated(train):
    trial, _ = train(
        """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hook = smd.record(model, sys.argv[1])
for step in range(12):
    for _ in range(2):
        F.cross_entropy(model(torch.randn(5, 4)), torch.randint(0, 3, (5,))).backward()
    optimizer.step()
    optimizer.zero_grad()
""",
        values=False,
    )
    assert trial.tensor_names(regex="gradient_norm$") == ["optimizer/SGD/gradient_norm"]
    assert trial.notes() == []
