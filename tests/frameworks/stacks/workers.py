"""Trainings of PyTorch in two processes, which exchange tensors with gloo."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from frameworks import sharded_training
from frameworks.stacks.fitting import STEPS, Decoder, Net, classify, fit, next_token, points, sentences
from frameworks.stacks.table import Trained, stack


def own_batches(batches=points, steps=STEPS):
    """Yield the batches of this rank."""
    torch.manual_seed(dist.get_rank())
    return batches(steps)


@stack(workers=2)
def distributed_data_parallel(record):
    model = DistributedDataParallel(Net())
    return fit(record, model, batches=own_batches(), before=lambda: nn.utils.clip_grad_norm_(model.parameters(), 0.5))


@stack(workers=2)
def distributed_data_parallel_with_accumulation(record):
    """Gradients are exchanged in the last pass of an update only."""
    model = DistributedDataParallel(Net(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    record(model)
    losses = []
    for first, second in zip(own_batches(), points(), strict=True):
        with model.no_sync():
            early = classify(model, first)
            (early / 2).backward()
        late = classify(model, second)
        (late / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append((early.item() + late.item()) / 2)
    return Trained({"loss_output_mean": losses}, [model])


@stack(workers=2)
def sharded_optimizer(record):
    model = DistributedDataParallel(Net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    return fit(record, model, optimizer, batches=own_batches())


@stack(workers=2)
def compiled_and_distributed(record):
    inner = Decoder(layers=1)
    model = torch.compile(DistributedDataParallel(inner), backend="aot_eager")
    trained = fit(record, model, torch.optim.Adam(inner.parameters(), 0.01), next_token, own_batches(sentences))
    return Trained(trained.losses, [inner])


# -------------------------------------------------------------------------------------------------------------- sharded


def fit_shards(record, kind):
    """Train the model of the tests of shards; its whole tensors are gathered."""
    model = sharded_training.shard(kind, sharded_training.Net(), dist.get_world_size())
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    record(model, start=sharded_training.gathered(kind, model))
    losses = []
    for x, y in own_batches(lambda steps: points(steps, columns=4)):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        sharded_training.clip(kind, model)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return Trained(losses, weights=sharded_training.gathered(kind, model))


@stack(workers=2)
def fsdp1(record):
    return fit_shards(record, "fsdp1")


@stack(workers=2)
def fsdp1_with_flat_parameters(record):
    return fit_shards(record, "fsdp1_flat")


@stack(workers=2)
def fsdp2(record):
    return fit_shards(record, "fsdp2")


@stack(workers=2)
def tensor_parallel(record):
    return fit_shards(record, "tensor_parallel")


class Checkpointed(nn.Module):
    """Computes the activations of a block again."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


@stack(workers=2)
def fsdp2_with_compiled_blocks_and_checkpointing(record):
    """As in torchtitan: each block is checkpointed, compiled and sharded.

    What is exchanged is bfloat16.
    """
    model = Decoder(tied=False)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for number, layer in enumerate(model.layers):
        block = Checkpointed(layer)
        block.compile(backend="aot_eager", fullgraph=True)
        model.layers[number] = fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, foreach=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 3))
    return fit(
        record,
        model,
        optimizer,
        next_token,
        own_batches(sentences),
        before=lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
        after=schedule.step,
    )


@stack(workers=2)
def tensor_parallel_with_parallel_loss(record):
    """Tensor parallelism within a block of which the rest is sharded."""
    model = Net(8, 16, 4)
    parallelize_module(model, init_device_mesh("cpu", (2,)), {"body": ColwiseParallel(), "head": RowwiseParallel()})
    return fit(record, model, torch.optim.SGD(model.parameters(), 0.1), batches=points())


# ------------------------------------------------------------------------------------------------------------- pipeline


@stack(workers=2)
def pipeline(record):
    """The first rank sends activations, the second one sends gradients back."""
    rank = dist.get_rank()
    whole = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    part = whole[:2] if rank == 0 else whole[2:]
    optimizer = torch.optim.Adam(part.parameters(), 0.01)
    hook = record(part)
    losses = []
    for x, y in points():
        total = 0.0
        for inputs, targets in zip(x.chunk(2), y.chunk(2), strict=True):
            if rank == 0:
                made = part(inputs)
                dist.send(made.detach(), 1)
                gradient = torch.empty_like(made)
                dist.recv(gradient, 1)
                made.backward(gradient)
            else:
                given = torch.empty(8, 16)
                dist.recv(given, 0)
                loss = F.cross_entropy(part(given.requires_grad_()), targets) / 2
                loss.backward()
                dist.send(given.grad, 0)
                total += loss.item()
        shared = torch.tensor(total)
        dist.broadcast(shared, 1)
        if hook is not None:
            hook.save_scalar("loss", shared.item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(shared.item())
    return Trained({"scalar/loss": losses}, [part])


@stack(workers=2)
def averaged_between_rounds(record):
    """Each rank trains alone; weights are averaged every fourth update."""
    model = Net()
    rounds = iter(range(STEPS))

    def average():
        if next(rounds) % 4 == 3:
            with torch.no_grad():
                for one in model.parameters():
                    dist.all_reduce(one)
                    one /= dist.get_world_size()

    return fit(record, model, batches=own_batches(), after=average)
