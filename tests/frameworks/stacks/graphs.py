"""Trainings of PyTorch whose graph or modules are not the usual ones.

They are compiled, functional, checkpointed or rewritten.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.checkpoint import checkpoint

from frameworks.stacks.fitting import STEPS, Decoder, Net, classify, fit, next_token, points, sentences
from frameworks.stacks.table import Trained, stack

# ------------------------------------------------------------------------------------------------------- checkpointing


class Checkpointed(Decoder):
    """Computes the activations of its blocks again in the backward pass."""

    reentrant = False

    def forward(self, tokens):
        x = self.words(tokens) + self.places[:, : tokens.shape[1]]
        for layer in self.layers:
            x = F.dropout(checkpoint(layer, x, use_reentrant=self.reentrant), 0.1)
        return self.head(self.norm(x))


@stack
def checkpointing(record):
    return fit(record, Checkpointed(), None, next_token, sentences())


@stack
def checkpointing_in_a_second_graph(record):
    model = Checkpointed()
    model.reentrant = True
    return fit(record, model, None, next_token, sentences())


@stack
def activations_that_are_packed(record):
    """The script keeps what the backward pass needs in another type."""

    def loss_of(model, batch):
        with torch.autograd.graph.saved_tensors_hooks(lambda one: one.double(), lambda one: one.float()):
            return F.mse_loss(model(batch[0]), batch[0][:, :3])

    return fit(record, Net(), None, loss_of)


# ------------------------------------------------------------------------------------------------------------ compiled


def compiled(record, model, later=False, **options):
    whole = torch.compile(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    record(model if later else whole)
    losses = []
    for tokens in sentences():
        optimizer.zero_grad()
        loss = next_token(whole, tokens)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return Trained(losses, [model])


@stack
def compiled_model(record):
    return compiled(record, Decoder(layers=1), fullgraph=True)


@stack
def compiled_after_the_hook(record):
    return compiled(record, Decoder(layers=1), later=True, backend="aot_eager")


@stack
def compiled_with_checkpointing(record):
    return compiled(record, Checkpointed(layers=1), backend="aot_eager", fullgraph=True)


@stack
def compiled_blocks(record):
    model = Decoder(layers=2)
    for layer in model.layers:
        layer.compile(backend="aot_eager", fullgraph=True)
    return fit(record, model, None, next_token, sentences())


@stack
def compiled_update(record):
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), torch.tensor(0.01))
    record(model)
    update = torch.compile(optimizer.step, backend="aot_eager")
    losses = []
    for batch in points():
        optimizer.zero_grad()
        loss = classify(model, batch)
        loss.backward()
        update()
        losses.append(loss.item())
    return Trained(losses, [model])


@stack
def compiled_step(record):
    """Forward pass, backward pass and update in one compiled function."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    record(model)

    @torch.compile(backend="eager")
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return Trained([step(*batch).item() for batch in points()], [model])


# ---------------------------------------------------------------------------------------------------------- functional


@stack
def gradients_of_a_function(record):
    """`torch.func.grad_and_value` of a model; the script names the loss."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    hook = record(model)
    losses = []

    def loss_of(weights, x, y):
        return F.cross_entropy(torch.func.functional_call(model, weights, (x,)), y)

    for x, y in points():
        weights = {name: one.detach() for name, one in model.named_parameters()}
        gradients, loss = torch.func.grad_and_value(loss_of)(weights, x, y)
        if hook is not None:
            hook.loss(loss)
        for name, one in model.named_parameters():
            one.grad = gradients[name]
        optimizer.step()
        losses.append(loss.item())
    return Trained(losses, [model])


@stack
def gradients_of_each_row(record):
    """`vmap` of `grad`, clipped and with noise, as in private training."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    hook = record(model)

    def loss_of(weights, x, y):
        return F.cross_entropy(torch.func.functional_call(model, weights, (x[None],)), y[None])

    rows = torch.func.vmap(torch.func.grad_and_value(loss_of), in_dims=(None, 0, 0))
    losses = []
    for x, y in points():
        gradients, loss = rows({name: one.detach() for name, one in model.named_parameters()}, x, y)
        loss = loss.mean()
        if hook is not None:
            hook.loss(loss)
        for name, one in model.named_parameters():
            norm = gradients[name].flatten(1).norm(dim=1).clamp(min=1).view(-1, *[1] * one.ndim)
            one.grad = (gradients[name] / norm).mean(0) + 0.01 * torch.randn_like(one)
        optimizer.step()
        losses.append(loss.item())
    return Trained(losses, [model])


@stack
def functional_call(record):
    """The model is called with weights that are computed from its parameters."""

    def loss_of(model, batch):
        weights = {name: 0.9 * one for name, one in model.named_parameters()}
        return F.cross_entropy(torch.func.functional_call(model, weights, (batch[0],)), batch[1])

    return fit(record, Net(), None, loss_of)


@stack
def ensemble(record):
    """Parameters of several models are stacked and trained at once."""

    class Ensemble(nn.Module):
        def __init__(self):
            super().__init__()
            stacked, _ = torch.func.stack_module_state([Net() for _ in range(3)])
            self.names = list(stacked)
            self.members = nn.ParameterList(nn.Parameter(one.detach()) for one in stacked.values())
            self.base = [copy.deepcopy(Net()).to("meta")]

        def forward(self, x):
            weights = dict(zip(self.names, self.members, strict=True))
            return torch.func.vmap(lambda one: torch.func.functional_call(self.base[0], one, (x,)))(weights)

    def loss_of(model, batch):
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].repeat(3))

    return fit(record, Ensemble(), None, loss_of)


@stack
def own_function(record):
    """The backward pass is written by hand."""

    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sign()

        @staticmethod
        def backward(ctx, gradient):
            return gradient.clamp(-1, 1)

    class Binary(Net):
        def forward(self, x):
            return self.head(Straight.apply(self.body(x))) * self.scale

    return fit(record, Binary())


@stack
def anomaly_detection(record):
    with torch.autograd.detect_anomaly(check_nan=True):
        return fit(record, Net())


# -------------------------------------------------------------------------------------------------------------- modules


@stack
def parametrized_weights(record):
    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    parametrize.register_parametrization(model[0], "weight", Symmetric())
    parametrizations.orthogonal(model[2])
    parametrizations.weight_norm(model[4])
    return fit(record, model)


@stack
def spectral_norm(record):
    model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(8, 16)), nn.ReLU(), nn.Linear(16, 3))
    return fit(record, model)


@stack
def pruned_weights(record):
    model = Net()
    prune.l1_unstructured(model.body, "weight", 0.4)
    return fit(record, model)


@stack(first=1)
def lazy_modules(record):
    model = nn.Sequential(nn.LazyLinear(16), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3))
    return fit(record, model, torch.optim.SGD(model.parameters(), 0.1))


@stack
def shared_modules(record):
    """One layer at two places, called twice."""

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 8)
            self.second, self.head = self.first, nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.second(self.first(x).relu()).relu())

    return fit(record, Shared())


@stack
def modules_that_come_later(record):
    """A layer is added during the training, with a separate optimizer."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    record(model)
    losses = []
    for number, batch in enumerate(points()):
        if number == 3:
            model.append(nn.Linear(3, 3))
            optimizer.add_param_group({"params": model[3].parameters(), "lr": 0.02})
        optimizer.zero_grad()
        loss = classify(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return Trained(losses, [model])


@stack
def quantization_aware(record):
    class Quantized(Net):
        def forward(self, x):
            step = self.body.weight.detach().abs().max() / 127
            weight = torch.fake_quantize_per_tensor_affine(
                self.body.weight, step, torch.zeros((), dtype=torch.int32), -128, 127
            )
            return self.head(self.act(F.linear(x, weight, self.body.bias))) * self.scale

    return fit(record, Quantized())


@stack
def activations_in_place(record):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 3), nn.Dropout(0.2, inplace=True))
    return fit(record, model)


@stack
def complex_numbers(record):
    class Waves(nn.Module):
        def __init__(self):
            super().__init__()
            self.filters, self.head = nn.Parameter(torch.randn(5, dtype=torch.complex64)), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(torch.fft.irfft(torch.fft.rfft(x) * self.filters, n=8))

    return fit(record, Waves())


@stack
def buffers_of_eight_bits(record):
    class Eight(Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.randn(8, 8).to(torch.float8_e4m3fn))

        def forward(self, x):
            return super().forward(x @ self.kept.float())

    return fit(record, Eight())


@stack(notes=("scripted modules have no callbacks",))
def scripted_part(record):
    model = nn.Sequential(
        nn.Linear(8, 16), torch.jit.script(nn.Sequential(nn.Linear(16, 16), nn.Tanh())), nn.Linear(16, 3)
    )
    return fit(record, model)


@stack
def data_parallel(record):
    """Without GPUs, the wrapper calls the model itself."""
    model = Net()
    return fit(
        record, model, loss_of=lambda _, batch: classify(wrapped, batch), recorded=(wrapped := nn.DataParallel(model))
    )


@stack
def deep_network(record):
    """A hundred layers with residual connections."""

    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.head = nn.ModuleList(nn.Linear(8, 8) for _ in range(100)), nn.Linear(8, 3)

        def forward(self, x):
            for layer in self.layers:
                x = x + 0.1 * layer(x).tanh()
            return self.head(x)

    return fit(record, Deep(), batches=points(STEPS))
