"""Real trainings with PyTorch, on the CPU."""

from __future__ import annotations

import copy
import io
import logging
import os
import pickle
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
import reading

import smdwidgets.pytorch as smd
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError, TrainingStopped
from smdwidgets.stop import request_stop

EVERY = smd.SaveConfig(save_interval=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 8)
        self.relu1 = nn.ReLU()
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc2(self.relu1(self.fc1(x)))


def batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(5, 6, generator=generator), torch.randint(0, 3, (5,), generator=generator)


def names_at(run, step, worker="worker_0"):
    import json

    index = json.loads((run / f"index/{step // 1000:09d}/{step:012d}_{worker}.json").read_text())
    return [entry["tensorname"] for entry in index["tensor_payload"]]


def value(run, name, step, worker="worker_0"):
    return reading.by_us(run)[f"{step}|{worker}|{name}"]


@pytest.fixture
def run(tmp_path):
    torch.manual_seed(0)
    return tmp_path / "run"


def test_a_training_reads_back_equal_in_both_readers(run, tmp_path):
    net, criterion = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    hook = smd.Hook(run, save_all=True, save_config=smd.SaveConfig(save_interval=2), export_tensorboard=True)
    hook.register_module(net)
    hook.register_loss(criterion)
    expected, modes = {}, []
    for step in range(8):
        mode = smd.modes.EVAL if step in (3, 4, 5) else smd.modes.TRAIN
        hook.set_mode(mode)
        mode_step = hook.mode_steps.get(mode, -1) + 1
        x, y = batch(step)
        before = {name: parameter.detach().numpy().copy() for name, parameter in net.named_parameters()}
        optimizer.zero_grad()
        output = net(x)
        loss = criterion(output, y)
        found = {f"Net_{name}": array for name, array in before.items()}
        found |= {"Net_input_0": x, "Net_output_0": output, "CrossEntropyLoss_output_0": loss, "fc1_input_0": x}
        found |= {"relu1_output_0": net.relu1(net.fc1(x)).detach(), "CrossEntropyLoss_input_1": y}
        if mode is smd.modes.TRAIN:
            loss.backward()
            found |= {f"gradient/Net_{name}": parameter.grad for name, parameter in net.named_parameters()}
        if mode_step % 2 == 0:
            modes.append(f"{step} {mode.name} {mode_step}")
            for name, tensor in found.items():
                array = tensor.detach().numpy().copy() if isinstance(tensor, torch.Tensor) else tensor
                expected[f"{step}|worker_0|{name}"] = array
        if mode is smd.modes.TRAIN:
            optimizer.step()
    # Calling parts of the model by hand, as above, counts them a second time within the step.
    hook.close()
    found = reading.check(run, expected, tmp_path)
    assert list(found["modes"]) == modes
    assert (run / "training_job_end.ts").exists()
    scalars, histograms = reading.tensorboard(run / "tensorboard" / "TRAIN")
    assert [step for step, _ in scalars["CrossEntropyLoss_output_0"]] == [0, 2, 7]
    assert scalars["CrossEntropyLoss_output_0"][1][1] == expected["2|worker_0|CrossEntropyLoss_output_0"]
    assert histograms["all/gradient/Net_fc1.weight"] == 3


def test_the_names_are_smdebugs(run):
    net, criterion = Net(), nn.CrossEntropyLoss()
    hook = smd.Hook(run, save_all=True, save_config=EVERY)
    hook.register_module(net)
    hook.register_loss(criterion)
    x, y = batch()
    criterion(net(x), y).backward()
    hook.close()
    parameters = [f"Net_fc{i}.{kind}" for i in (1, 2) for kind in ("weight", "bias")]
    modules = ["fc1", "relu1", "fc2", "Net"]
    assert sorted(names_at(run, 0)) == sorted(
        parameters
        + [f"gradient/{name}" for name in parameters]
        + [f"{module}_{kind}_0" for module in modules for kind in ("input", "output")]
        + ["CrossEntropyLoss_input_0", "CrossEntropyLoss_input_1", "CrossEntropyLoss_output_0"]
    )


def test_without_a_plan_losses_alone_every_500_steps(run):
    net, criterion = Net(), nn.CrossEntropyLoss()
    hook = smd.Hook(run, plan=False)
    hook.register_module(net)
    hook.register_loss(criterion)
    for step in range(502):
        x, y = batch(step)
        criterion(net(x), y)
    assert not net.fc1._forward_hooks  # nobody wants what goes through here
    hook.close()
    assert names_at(run, 500) == ["CrossEntropyLoss_output_0"]
    assert sorted(path.name[:12] for path in run.glob("index/*/*")) == ["000000000000", "000000000500"]


def test_shared_frozen_and_thawed_weights(run):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(7, 4)
            self.out = nn.Linear(4, 7, bias=False)
            self.out.weight = self.embed.weight
            self.frozen = nn.Linear(4, 4)

        def forward(self, x):
            return self.out(self.frozen(self.embed(x)))

    net = Tied()
    net.frozen.requires_grad_(False)
    hook = smd.Hook(run, include_collections=["weights", "gradients", "biases"], save_config=EVERY)
    hook.register_module(net)
    for step in range(2):
        net.zero_grad()
        net(torch.arange(7)).sum().backward()
        if step == 0:
            tied = net.embed.weight.grad.clone()
            net.frozen.requires_grad_(True)
    hook.close()
    assert names_at(run, 0) == [
        "Tied_embed.weight",
        "Tied_frozen.weight",
        "Tied_frozen.bias",
        "gradient/Tied_embed.weight",
        "loss_output_0",
    ]
    assert set(names_at(run, 1)) - set(names_at(run, 0)) == {"gradient/Tied_frozen.weight", "gradient/Tied_frozen.bias"}
    assert (value(run, "gradient/Tied_embed.weight", 0) == tied.numpy()).all()


def test_a_module_called_twice_is_counted_on(run):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.Linear(6, 6)

        def forward(self, x):
            return {"last": self.cell(self.cell(x)), "all": [x, (x,)]}

    net = Twice()
    hook = smd.Hook(run, save_all=True, save_config=EVERY)
    hook.register_module(net)
    x, _ = batch()
    first = net.cell(x)  # outside of a step: not the training's
    net(x)
    hook.close()
    outputs = [name for name in names_at(run, 0) if "output" in name]
    assert outputs == ["cell_output_0", "cell_output_1", *(f"Twice_output_{i}" for i in range(3))]
    assert (value(run, "cell_output_0", 0) == first.detach().numpy()).all()


def test_accumulated_gradients_are_those_in_grad(run):
    net, criterion = Net(), nn.CrossEntropyLoss()
    hook = smd.Hook(run, include_collections=["gradients"], save_config=EVERY)
    hook.register_module(net)
    seen = []
    for step in range(3):
        x, y = batch(step)
        criterion(net(x), y).backward()
        seen.append(net.fc1.weight.grad.clone().numpy())
    hook.close()
    for step, gradient in enumerate(seen):
        assert (value(run, "gradient/Net_fc1.weight", step) == gradient).all()


def test_gradients_are_listened_to_at_saved_steps_alone(run):
    net, criterion = Net(), nn.CrossEntropyLoss()
    hook = smd.Hook(run, include_collections=["gradients"], save_config=smd.SaveConfig(save_steps=[0, 1, 3]))
    hook.register_module(net)
    seen, listened = [], []
    for step in range(5):
        if step == 1:  # one that did not exist at the step before
            net.fc2.weight = nn.Parameter(torch.ones(3, 8))
        net.zero_grad()
        x, y = batch(step)
        loss = criterion(net(x), y)
        listened.append(bool(net.fc1.weight._post_accumulate_grad_hooks))
        loss.backward()
        seen.append(net.fc2.weight.grad.clone().numpy())
    hook.close()
    assert listened == [True, True, False, True, False]
    for step in (0, 1, 3):
        assert len([name for name in names_at(run, step) if name.startswith("gradient/")]) == 4
        assert (value(run, "gradient/Net_fc2.weight", step) == seen[step]).all()


def test_with_the_optimizer_gradients_are_those_that_it_uses(run):
    net, criterion = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    hook = smd.Hook(run, include_collections=["gradients"], save_config=EVERY)
    hook.register_module(net)
    hook.register_optimizer(optimizer)
    seen = []
    for step in range(4):
        x, y = batch(step)
        scaler.scale(criterion(net(x), y)).backward()
        if step % 2:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 0.01)
            seen.append(net.fc1.weight.grad.clone().numpy())
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    hook.close()
    assert len(list(run.glob("index/*/*"))) == 2  # an update is a step
    for step, gradient in enumerate(seen):
        assert (value(run, "gradient/Net_fc1.weight", step) == gradient).all()


def test_mixed_precision_is_saved_as_what_it_is(run):
    net = Net()
    hook = smd.Hook(run, save_all=True, save_config=EVERY)
    hook.register_module(net)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = net(batch()[0])
    output.float().sum().backward()
    hook.close()
    from smdwidgets import create_trial

    trial = create_trial(str(run))
    assert trial.tensor("Net_fc1.weight").dtype == np.float32
    assert trial.tensor("Net_output_0").dtype.name == "bfloat16"
    assert trial.tensor("Net_output_0").shape(0) == (5, 3)
    raw = b"".join(path.read_bytes() for path in run.glob("events/*/*"))
    assert output.detach().view(torch.int16).numpy().tobytes() in raw


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.filterwarnings("ignore")
def test_compiled_models(run, backend, outside):
    net, criterion = Net(), nn.CrossEntropyLoss()
    reference = copy.deepcopy(net)
    compiled = torch.compile(net, backend=backend)
    hook = smd.Hook(run, save_all=True, save_config=EVERY)
    hook.register_module(compiled if outside else net)
    hook.register_loss(criterion)
    for step in range(3):
        compiled.zero_grad()
        x, y = batch(step)
        criterion(compiled(x), y).backward()
    hook.close()
    plain = reference(batch(2)[0])
    nn.functional.cross_entropy(plain, batch(2)[1]).backward()
    assert sorted(path.name[:12] for path in run.glob("index/*/*")) == [f"{step:012d}" for step in range(3)]
    assert set(names_at(run, 0)) >= {"Net_fc1.weight", "gradient/Net_fc1.weight", "fc1_output_0", "Net_output_0"}
    np.testing.assert_allclose(value(run, "Net_output_0", 2), plain.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(
        value(run, "gradient/Net_fc1.weight", 2), reference.fc1.weight.grad.numpy(), rtol=1e-5, atol=1e-7
    )


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_model_stays_one_graph_where_no_inner_module_is_listened_to(run):
    net, criterion = Net(), nn.CrossEntropyLoss()
    compiled = torch.compile(net, backend="inductor", fullgraph=True)  # which raises at a break
    hook = smd.Hook(run, include_collections=["weights", "gradients"], save_config=EVERY)
    hook.register_module(compiled)
    hook.register_loss(criterion)
    seen = []
    for step in range(2):
        compiled.zero_grad()
        x, y = batch(step)
        criterion(compiled(x), y).backward()
        seen.append((net.fc1.weight.detach().clone().numpy(), net.fc1.weight.grad.clone().numpy()))
    hook.close()
    for step, (weight, gradient) in enumerate(seen):
        assert (value(run, "Net_fc1.weight", step) == weight).all()
        assert (value(run, "gradient/Net_fc1.weight", step) == gradient).all()
    assert not any("fc1_output" in name for name in names_at(run, 0))


def test_no_callback_stays_on_the_model_after_close(run):
    net, criterion = Net(), nn.CrossEntropyLoss()
    hook = smd.Hook(run, save_all=True, save_config=EVERY)
    hook.register_module(net)
    hook.register_loss(criterion)
    criterion(net(batch()[0]), batch()[1]).backward()
    assert net.fc1._forward_hooks
    hook.close()
    for module in [*net.modules(), criterion]:
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    for parameter in net.parameters():
        assert not parameter._post_accumulate_grad_hooks
    net(batch()[0]).sum().backward()
    assert len(list(run.glob("index/*/*"))) == 1


def test_copies_and_pickles_of_the_model_are_not_the_training(run):
    net = Net()
    hook = smd.Hook(run, save_all=True, save_config=EVERY)
    hook.register_module(net)
    net(batch()[0]).sum().backward()
    average = copy.deepcopy(net)
    loaded = pickle.loads(pickle.dumps(net))
    file = io.BytesIO()
    torch.save(net, file)
    for model in (average, loaded):
        model(batch()[0]).sum().backward()
    hook.close()
    assert len(list(run.glob("index/*/*"))) == 1


def test_module_tensors_of_a_collection(run):
    net = Net()
    hook = smd.Hook(run, include_collections=["relu", "last"], save_config=EVERY)
    hook.register_module(net)
    hook.get_collection("relu").add_module_tensors(net.relu1, inputs=True)
    hook.get_collection("last").add_module_tensors(net, inputs=False, outputs=True)
    net(batch()[0])
    hook.close()
    assert names_at(run, 0) == ["relu1_input_0", "relu1_output_0", "Net_output_0"]


def test_functional_losses_and_values_of_ones_own(run):
    net = Net()
    hook = smd.Hook(run, save_config=EVERY)
    hook.register_module(net)
    for step in range(2):
        loss = nn.functional.cross_entropy(net(batch(step)[0]), batch(step)[1])
        hook.record_tensor_value("my_loss", loss)
        hook.save_scalar("twice", loss * 2)
        hook.save_tensor("mine", torch.eye(2, dtype=torch.int8).T, "own")
    hook.close()
    assert names_at(run, 1) == ["my_loss_output_0", "scalar/twice", "mine"]
    assert value(run, "my_loss_output_0", 1) == loss.detach().numpy()
    assert value(run, "mine", 0).dtype == np.int8


def test_what_a_run_can_not_hold_never_breaks_the_training(run, caplog):
    class Odd(nn.Module):
        def forward(self, x):
            return x.half().view(torch.bits16), torch.empty(0), x.to_sparse(), x.to("meta")

    hook = smd.Hook(run, save_all=True, save_config=EVERY)
    net = Odd()
    hook.register_module(net)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            net(torch.eye(2))
    hook.close()
    assert caplog.text.count("bits16") == 1
    assert caplog.text.count("Odd_output_3") == 1  # which has no bytes
    assert names_at(run, 2) == ["Odd_input_0", "Odd_output_1", "Odd_output_2"]
    assert (value(run, "Odd_output_2", 2) == np.eye(2)).all()


EIGHT_BITS = [name for name in dir(torch) if name.startswith("float8_e") and getattr(torch, name).itemsize == 1]


@pytest.mark.parametrize("name", EIGHT_BITS)
def test_floats_of_eight_bits_keep_every_value(run, name):
    class Eight(nn.Module):
        def __init__(self):
            super().__init__()
            every = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(getattr(torch, name))
            self.register_buffer("every", every)

        def forward(self, x):
            return x.float() * 2

    net = Eight()
    with smd.Hook(run) as hook:
        hook.register_module(net)
        net(torch.ones(3).to(net.every.dtype))
    saved = value(run, "Eight_every", 0)
    assert saved.dtype.name == name
    assert saved.tobytes() == bytes(range(256))
    torch.testing.assert_close(torch.from_numpy(saved.astype("f4")), net.every.float(), rtol=0, atol=0, equal_nan=True)
    assert value(run, "Eight_input_0", 0).dtype.name == name
    assert value(run, "Eight_input_0", 0).astype("f4").tolist() == [1.0, 1.0, 1.0]


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="a newer PyTorch has it")
@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
def test_floats_of_four_bits_are_unpacked(run, shape):
    codes = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with smd.Hook(run, save_config=EVERY) as hook:
        hook.save_tensor("packed", codes.view(torch.float4_e2m1fn_x2))
        hook.step()
    pairs = codes.numpy().reshape(-1)
    expected = np.stack([pairs & 15, pairs >> 4], -1).reshape(*shape[:-1], -1)
    saved = value(run, "packed", 0)
    assert (saved.dtype.name, saved.shape) == ("float4_e2m1fn", expected.shape)
    assert (saved.view(np.uint8) == expected).all()


def test_other_small_types_keep_every_value(run):
    codes = torch.arange(16, dtype=torch.uint8)
    wave = torch.view_as_complex(torch.randn(4, 2).half().float()).to(torch.complex32)
    with smd.Hook(run, save_config=EVERY) as hook:
        hook.save_tensor("unsigned", codes.view(torch.uint4))
        hook.save_tensor("signed", (codes.view(torch.int8) - 8).view(torch.int4))
        hook.save_tensor("wave", wave)
        hook.step()
    assert value(run, "unsigned", 0).tolist() == list(range(16))
    assert value(run, "signed", 0).tolist() == list(range(-8, 8))
    assert value(run, "wave", 0).tobytes() == wave.to(torch.complex64).numpy().tobytes()


def test_wrong_arguments(run, caplog):
    with smd.Hook(run, dry_run=True) as hook:
        net = Net()
        hook.register_module(net)
        for wrong in (net, net.fc1):
            with pytest.raises(SMDebugValueError, match="registered"):
                hook.register_module(wrong)
        for call in (hook.register_module, hook.register_loss, hook.register_optimizer):
            with pytest.raises(SMDebugTypeError):
                call(nn.functional.mse_loss)
        with pytest.raises(SMDebugTypeError):
            hook.record_tensor_value("loss", 1.0)
        with pytest.raises(SMDebugTypeError, match="'mine'"):
            hook.save_tensor("mine", net)
        hook.get_collection("other").add_module_tensors(nn.ReLU())
        net(batch()[0])  # training goes on
        assert "not part of a registered" in caplog.text


def test_the_stop_file_ends_the_training(run):
    net = Net()
    with smd.Hook(run, save_config=EVERY) as hook:
        hook.register_module(net)
        net(batch()[0])
        request_stop(run, by="LossNotDecreasing")
        with pytest.raises(TrainingStopped, match="LossNotDecreasing"):
            net(batch()[0])


class Numbers(torch.utils.data.Dataset):
    def __init__(self, hook):
        self.hook = hook

    def __len__(self):
        return 8

    def __getitem__(self, index):
        self.hook.save_scalar("from_worker", index)  # in a fork: goes nowhere
        return torch.full((6,), float(index))


@pytest.mark.filterwarnings("ignore")
def test_workers_of_a_data_loader_write_nothing(run):
    net = Net()
    hook = smd.Hook(run, save_all=True, save_config=EVERY)
    hook.register_module(net)
    loader = torch.utils.data.DataLoader(Numbers(hook), batch_size=2, num_workers=2, multiprocessing_context="fork")
    for x in loader:
        net(x)
    hook.close()
    assert len(list(run.glob("index/*/*"))) == 4
    assert not any("from_worker" in name for step in range(4) for name in names_at(run, step))


def worker(rank, port, run, include):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(Net())
    criterion = nn.CrossEntropyLoss()
    hook = smd.Hook(run, save_all=True, save_config=EVERY, include_workers=include)
    hook.register_module(net)
    hook.register_loss(criterion)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    hook.register_optimizer(optimizer)
    for step in range(3):
        optimizer.zero_grad()
        x, y = batch(10 * step + rank)
        criterion(net(x), y).backward()
        optimizer.step()
    hook.close()
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("include", ["one", "all"])
def test_distributed_data_parallel(run, tmp_path, include):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(worker, (port, run, include), nprocs=2)
    workers = ["worker_0", "worker_1"] if include == "all" else ["worker_0"]
    found = reading.check(run, {}, tmp_path)
    for step in range(3):
        for rank, name in enumerate(workers):
            assert (found[f"{step}|{name}|Net_input_0"] == batch(10 * step + rank)[0].numpy()).all()
            # As the optimizer uses it: averaged over the workers.
            assert (
                found[f"{step}|{name}|gradient/Net_fc1.weight"] == found[f"{step}|worker_0|gradient/Net_fc1.weight"]
            ).all()
    assert {path.name.split("_", 1)[1] for path in run.glob("index/*/*")} == {f"{name}.json" for name in workers}
    assert (run / "training_job_end.ts").exists()
    assert not list(run.glob("claim*"))


def test_keras_on_the_torch_backend(tmp_path):
    """Run in a separate process, because Keras chooses its backend once."""
    import subprocess

    code = "import os; os.environ['KERAS_BACKEND'] = 'torch'; import pytest, sys; sys.exit(pytest.main(sys.argv[1:]))"
    trainings = str(Path(__file__).with_name("keras_trainings.py"))
    command = [sys.executable, "-c", code, "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'k'}", trainings]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout, done.stdout


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:FutureWarning")  # how SummaryWriter makes its graph
def test_a_log_of_summary_writer_is_a_trial(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    from smdwidgets import create_trial

    with SummaryWriter(str(tmp_path)) as log:
        for step in range(5):
            log.add_scalar("loss", 1 / (step + 1), step)
            log.add_scalar("precise", step / 3, step, new_style=True, double_precision=True)
            log.add_histogram("weights", torch.arange(10.0) * step, step)
            log.add_image("picture", torch.full((3, 4, 6), step / 5), step)
            log.add_text("notes", f"step {step}", step)
        log.add_graph(Net(), torch.zeros(1, 6))
    with SummaryWriter(str(tmp_path), purge_step=3, filename_suffix=".later") as log:
        log.add_scalar("loss", 9.0, 3)
    scalars, histograms = reading.tensorboard(tmp_path)
    with create_trial(tmp_path) as trial:
        assert trial.problems() == []
        assert [*trial.scalars("loss")["value"]] == [value for _, value in scalars["loss"]]
        assert trial.tensor("loss").steps() == [step for step, _ in scalars["loss"]] == [0, 1, 2, 3]
        assert trial.tensor("precise").value(2).item() == 2 / 3
        assert len(trial.tensor("weights").steps()) == histograms["weights"] == 3
        assert trial.tensor("weights").value(2)[:, 2].sum() == 10
        assert trial.tensor("picture").value(2).shape == (4, 6, 3)
        assert trial.tensor("notes/text_summary").value(1).item() == "step 1"
        assert trial.orphans("loss")["step"].tolist() == [3, 4]


@pytest.mark.parametrize("size", [1, 64, 25_000, 1 << 18, 1 << 21])
@pytest.mark.parametrize("dtype", [np.float32, np.bool_])
def test_writing_to_a_tensor_made_of_a_value_does_not_change_the_trial(tmp_path, size, dtype):
    """`torch.from_numpy` shares the array's memory, whatever its flags.

    It warns of read-only arrays.
    """
    from smdwidgets import create_trial, explore
    from smdwidgets.numpy import Hook

    with Hook(tmp_path / "run") as hook:
        for _ in range(2):
            hook.save_tensor("w", np.ones(size, dtype))
            hook.step()
    explorer = explore(tmp_path / "run", tensor="w")
    trial = create_trial(tmp_path / "run")
    weight = trial.tensor("w")
    asks = [
        lambda: weight.value(1),
        lambda: weight.value(1, copy=True),
        lambda: weight.values()[1],
        lambda: trial.values("w")["value"],
        explorer.value,
    ]
    for ask in asks * 2:
        value = ask()
        assert value.all()
        torch.from_numpy(value).zero_()
        assert not value.any()
    assert all(ask().all() for ask in asks)
    explorer.close()


def test_every_kind_of_memory_is_copied_bit_for_bit(tmp_path):
    from smdwidgets import create_trial

    torch.manual_seed(0)
    large, wave = torch.randn(300, 400), torch.randn(200, 300, dtype=torch.complex64)
    values = {
        "large": large,
        "parameter": torch.nn.Parameter(large.clone()),
        "transposed": large.T,
        "strided": large[:, ::3],
        "offset": large[17:],
        "broadcast": large[:1].expand(300, 400),
        "bfloat16": large.bfloat16(),
        "bfloat16_transposed": large.bfloat16().T,
        "half": large.half(),
        "float8": large.to(torch.float8_e4m3fn),
        "float8_transposed": large.to(torch.float8_e5m2).T,
        "float8_strided": large.to(torch.float8_e8m0fnu)[:, ::3],
        "mask": large > 0,
        "conjugate": wave.conj(),
        "negative": wave.conj().imag,
        "number": torch.tensor(2.5),
        "empty": torch.empty(0, 5),
    }
    with smd.Hook(tmp_path / "run", save_config=EVERY) as hook:
        for name, tensor in values.items():
            hook.save_tensor(name, tensor)
        hook.step()
    run = create_trial(str(tmp_path / "run"))
    for name, tensor in values.items():
        expected = tensor.detach().resolve_conj().resolve_neg().contiguous()
        stored = run.tensor(name).value(0)
        if tensor.dtype is torch.bfloat16:
            stored, expected = stored.astype("f4"), expected.float()
        if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1:
            expected = expected.view(torch.uint8)
        assert np.ascontiguousarray(stored).tobytes() == expected.numpy().tobytes(), name
