"""Sharded trainings in several processes.

Usage: `python sharded_training.py WORLD FOLDER STACK:WORKERS ...`. Each training runs twice, without and with a hook,
and leaves in a separate folder: the run; `rank_<n>.json` with losses and collectives of both; `reference.npz`, the
whole weights and gradients of each step, gathered by PyTorch. WORKERS is the hook's `include_workers`, or `raising`:
all workers save, and the hook of rank 1 fails at every tensor.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

STEPS = 3
#: The first has parameters of several meshes, which PyTorch does not clip together; gradients of the second are scaled.
UNCLIPPED = ("fsdp2_tensor_parallel", "fsdp2_fused")


class Net(nn.Module):
    """Rows that no number of workers divides, and a parameter of one element."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 10), nn.Linear(10, 3)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.head(self.body(x).relu()) * self.scale


def tensor_parallel(model, mesh):
    return parallelize_module(model, mesh, {"body": ColwiseParallel(), "head": RowwiseParallel()})


def shard(stack, model, world):
    cpu = torch.device("cpu")
    if stack == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if stack in ("fsdp1", "fsdp1_flat"):
        original = stack == "fsdp1"
        model.body = FSDP(model.body, device_id=cpu, use_orig_params=original)
        return FSDP(model, device_id=cpu, use_orig_params=original)
    if stack == "fsdp1_hybrid":
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
        strategy = ShardingStrategy.HYBRID_SHARD
        return FSDP(model, device_id=cpu, use_orig_params=True, device_mesh=mesh, sharding_strategy=strategy)
    if stack in ("fsdp2", "fsdp2_later", "fsdp2_fused"):
        mesh = init_device_mesh("cpu", (world,))
        fully_shard(model.body, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    if stack == "hybrid":
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
        return fully_shard(model, mesh=mesh)
    if stack == "tensor_parallel":
        return tensor_parallel(model, init_device_mesh("cpu", (world,), mesh_dim_names=("tp",)))
    if stack == "fsdp2_tensor_parallel":
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
        return fully_shard(tensor_parallel(model, mesh["tp"]), mesh=mesh["dp"])
    assert stack == "plain"
    return model


def plain_name(name):
    wrappers = ("module", "_fsdp_wrapped_module")
    return "Net_" + ".".join(part for part in name.split(".") if part not in wrappers)


def whole(value):
    # Cloned, because FSDP1 cannot free memory that NumPy refers to.
    return (value.full_tensor() if hasattr(value, "full_tensor") else value).detach().clone().numpy()


def gathered(stack, model, gradients=False, scale=1.0):
    """The whole parameters or gradients by name. Starts collectives."""
    if gradients:
        return {name: value / np.float32(scale) for name, value in _gathered(stack, model, True).items()}
    return _gathered(stack, model, False)


def _gathered(stack, model, gradients):
    if stack == "fsdp1_flat" and gradients:
        return flat_gradients(model)
    if stack.startswith("fsdp1"):
        with FSDP.summon_full_params(model, writeback=False, with_grads=gradients):
            return {plain_name(name): whole(p.grad if gradients else p) for name, p in model.named_parameters()}
    return {plain_name(name): whole(p.grad if gradients else p) for name, p in model.named_parameters()}


def flat_gradients(model):
    """Gather the gradients of flat parameters.

    `summon_full_params` does not offer them.
    """
    found = {}
    for path, flat in model.named_parameters():
        shards = [torch.empty_like(flat.grad) for _ in range(dist.get_world_size())]
        dist.all_gather(shards, flat.grad)
        sizes = [shape.numel() for shape in flat._shapes]
        pieces = torch.cat(shards)[: sum(sizes)].split(sizes)
        for name, shape, piece in zip(flat._fqns, flat._shapes, pieces, strict=True):
            found[plain_name(path.removesuffix("_flat_param") + name)] = piece.reshape(shape).clone().numpy()
    return found


def clip(stack, model):
    if stack.startswith("fsdp1"):
        model.clip_grad_norm_(0.5)
    elif stack not in UNCLIPPED:
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)


def norm_of(gradients):
    return np.sqrt(sum(np.sum(np.square(value, dtype="f8")) for value in gradients.values())).astype("f4")


def collectives(profiler):
    return Counter(event.name for event in profiler.events() if event.name.startswith("c10d::"))


def train(stack, rank, world, make_hook):
    """Train; return losses, collectives and the gathered tensors."""
    torch.manual_seed(0)
    model = Net()
    hook = make_hook()
    if hook is not None and stack == "fsdp2_later":
        hook.register_module(model)
    model = shard(stack, model, world)
    if hook is not None and stack != "fsdp2_later":
        hook.register_module(model)
    fused = stack == "fsdp2_fused"
    if fused:  # of fused optimizers, DTensors support Adam
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, enabled=fused)
    if hook is not None:
        hook.register_optimizer(optimizer)
    # The ranks of a tensor-parallel group work on the same batch.
    group = {"tensor_parallel": 0, "fsdp2_tensor_parallel": rank // (world // 2)}.get(stack, rank)
    losses, reference, counts = [], {}, Counter()
    for step in range(STEPS):
        reference |= {f"{step}/{name}": value for name, value in gathered(stack, model).items()}
        with torch.profiler.profile() as profiler:
            loss = (model(torch.full((2, 4), float(step + group))) ** 2).mean()
            scaler.scale(loss).backward()
        counts += collectives(profiler)
        before = gathered(stack, model, gradients=True, scale=scaler.get_scale())
        with torch.profiler.profile() as profiler:
            clip(stack, model)
        counts += collectives(profiler)
        after = gathered(stack, model, gradients=True, scale=scaler.get_scale())
        reference |= {f"{step}/gradient/{name}": value for name, value in after.items()}
        for name, gradients in {"": after, "_before_clipping": before}.items():
            if not (name and stack in UNCLIPPED):
                reference[f"{step}/optimizer/{type(optimizer).__name__}/gradient_norm{name}"] = norm_of(gradients)
        with torch.profiler.profile() as profiler:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        counts += collectives(profiler)
        losses.append(loss.item())
    if hook is not None:
        hook.close()
    return losses, counts, reference


def hook_of(folder, workers, rank):
    import smdwidgets.pytorch as smd
    from smdwidgets.hooks.torch.capture import TorchCapture

    class FailingCapture(TorchCapture):
        def copy(self, name, value):
            raise ZeroDivisionError(name)

    class Failing(smd.Hook):
        capture_class = FailingCapture

    failing = workers == "raising"
    hook = (Failing if failing and rank == 1 else smd.Hook)(
        folder / "run",
        include_workers="all" if failing else workers,
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=["weights", "biases", "gradients", "scales"],
        save_all=workers == "all",
    )
    hook.get_collection("scales").include("scale")
    return hook


def main(rank, world, folder, trainings):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    dist.init_process_group("gloo", init_method=Path(folder, "store").as_uri(), rank=rank, world_size=world)
    for training in trainings:
        stack, workers = training.split(":")
        out = Path(folder, training.replace(":", "_"))
        out.mkdir(exist_ok=True)
        bare = train(stack, rank, world, lambda: None)
        hooked = train(stack, rank, world, functools.partial(hook_of, out, workers, rank))
        Path(out, f"rank_{rank}.json").write_text(json.dumps([bare[:2], hooked[:2]]))
        if rank == 0:
            np.savez(out / "reference.npz", **hooked[2])
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[1])
    mp.spawn(main, (count, sys.argv[2], sys.argv[3:]), nprocs=count)
