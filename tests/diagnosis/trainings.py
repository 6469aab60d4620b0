"""Trainings that save real runs through the NumPy hook.

There are supervised networks, an RNN, a GAN, a bandit and a policy that balances poles.
Every training is deterministic: the same setup and seed save the same run.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from dataclasses import dataclass, field

import numpy as np

from diagnosis.networks import Network, Optimizer, cross_entropy, half_cross_entropy, squared_error
from smdwidgets.numpy import Hook, SaveConfig

INPUTS, CLASSES = 20, 10
STEPS, SAVE_EVERY, VALIDATE_EVERY = 1500, 10, 30


def constant(step, steps):
    """Return the factor of a constant learning rate."""
    return 1.0


@dataclass(frozen=True)
class Setup:
    """The description of a supervised training.

    The defaults are a healthy training; a fault changes them.
    """

    widths: tuple[int, ...] = (64, 64, 64)
    activation: str = "relu"
    batch: int = 32
    optimizer: str = "momentum"
    rate: float = 0.02
    schedule: object = constant
    steps: int = STEPS
    task: str = "classes"
    samples: int = 20_000
    label_noise: float = 0.05
    dropout: float = 0.0
    decay: float = 0.0
    bias: float = 0.0
    pretrained: int = 0
    workers: int = 1
    # Faults
    permuted: bool = False
    majority: float = 0.0
    input_scale: float = 0.0
    frozen: int | None = None
    half: bool = False
    ascend: bool = False
    accumulate: bool = False
    same_batch_from: int | None = None
    burst: int | None = None
    burst_factor: float = 30.0
    apart: bool = False


@dataclass
class Data:
    """Training and validation samples."""

    inputs: np.ndarray
    labels: np.ndarray
    valid_inputs: np.ndarray
    valid_labels: np.ndarray
    targets: int = CLASSES
    loss: object = field(default=cross_entropy)


def make_data(setup, rng):
    """Draw the samples of a setup's task."""
    number, valid = setup.samples, 1000
    x = rng.normal(size=(number + valid, INPUTS)).astype(np.float32)
    targets, loss = CLASSES, half_cross_entropy if setup.half else cross_entropy
    if setup.task == "parity":
        x = np.sign(x)
        y = (x[:, :3].prod(axis=1) > 0).astype(np.intp)
        targets = 2
    else:
        hidden = np.tanh(x @ rng.normal(size=(INPUTS, 64)).astype(np.float32) / np.float32(np.sqrt(INPUTS)))
        scores = hidden @ rng.normal(size=(64, CLASSES)).astype(np.float32) / np.float32(8)
        if setup.task == "regression":
            y = scores[:, :3] + rng.normal(size=(len(x), 3)).astype(np.float32) * np.float32(0.05)
            targets, loss = 3, squared_error
        else:
            y = scores.argmax(axis=1)
            wrong = rng.random(len(y)) < setup.label_noise
            y[wrong] = rng.integers(0, CLASSES, wrong.sum())
    if setup.majority:
        rare = rng.random(len(y)) >= setup.majority
        y = np.where(rare, y, 0)
    if setup.permuted:
        y[:number] = rng.permutation(y[:number])
    if setup.input_scale:
        scales = np.float32(10) ** rng.uniform(0, setup.input_scale, INPUTS).astype(np.float32)
        x = x * scales + scales * rng.normal(size=INPUTS).astype(np.float32)
    return Data(x[:number], y[:number], x[number:], y[number:], targets, loss)


@contextlib.contextmanager
def hooks(directory, workers, save_every):
    """Open one hook for each worker of a run."""
    opened = []
    try:
        for rank in range(workers):
            env = {"RANK": str(rank), "WORLD_SIZE": str(workers)} if workers > 1 else {}
            os.environ.update(env)
            try:
                opened.append(Hook(directory, save_config=SaveConfig(save_interval=save_every), include_workers="all"))
            finally:
                for name in env:
                    del os.environ[name]
        yield opened
    finally:
        for hook in opened:
            hook.close()


def train(directory, setup, seed, save_every=SAVE_EVERY):
    """Train a network and save the run; return the validation losses."""
    rng = np.random.default_rng(seed)
    data = make_data(setup, rng)
    sizes = (INPUTS, *setup.widths, data.targets)
    net_seed = rng.integers(2**32)
    nets = [Network(np.random.default_rng(net_seed), sizes, setup.activation, setup.bias) for _ in range(setup.workers)]
    optimizers = [Optimizer(setup.optimizer) for _ in nets]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        for _ in range(setup.pretrained):
            _fit(nets[0], optimizers[0], setup, data, rng, 0.02)
        with hooks(directory, setup.workers, save_every) as opened:
            return [
                found
                for step in range(setup.steps)
                if (found := _step(opened, nets, optimizers, setup, data, rng, step)) is not None
            ]


def _fit(net, optimizer, setup, data, rng, rate):
    rows = rng.integers(0, len(data.inputs), setup.batch)
    outputs = net.forward(data.inputs[rows])
    net.backward(outputs, data.loss(outputs[-1], data.labels[rows])[1])
    optimizer.step(net.parameters, net.gradient, rate)


def _step(opened, nets, optimizers, setup, data, rng, step):
    rate = setup.rate * setup.schedule(step, setup.steps)
    losses, outputs, gradients = [], [], []
    for net in nets:
        rows = rng.integers(0, len(data.inputs), setup.batch)
        if setup.same_batch_from is not None and step >= setup.same_batch_from:
            rows = np.arange(setup.batch)
        x = data.inputs[rows]
        if setup.burst is not None and setup.burst <= step < setup.burst + 3:
            x = x * np.float32(setup.burst_factor)
        before = net.gradient.copy() if setup.accumulate else None
        found = net.forward(x, setup.dropout, rng)
        loss, slope = data.loss(found[-1], data.labels[rows])
        net.backward(found, slope)
        if before is not None:
            net.gradient += before
        losses.append(loss)
        outputs.append(found)
        gradients.append(net.gradient)
    valid = None
    if step % VALIDATE_EVERY == 0:
        valid, _ = data.loss(nets[0].forward(data.valid_inputs)[-1], data.valid_labels)
    if setup.workers > 1 and not setup.apart:
        mean = np.mean(gradients, axis=0)
        for net in nets:
            net.gradient[:] = mean
    for hook, net, found, loss in zip(opened, nets, outputs, losses, strict=True):
        if hook.should_save_step():
            save(hook, net, setup.activation, found)
            hook.save_tensor("train/loss", np.float32(loss), "losses")
            hook.save_tensor("learning_rate", np.float32(rate), "metrics")
            if valid is not None:
                hook.save_tensor("val/loss", np.float32(valid), "losses")
        hook.step()
    for net, optimizer in zip(nets, optimizers, strict=True):
        gradient = net.gradient + np.float32(setup.decay) * net.parameters if setup.decay else net.gradient
        if setup.ascend:
            gradient = -gradient
        kept = None
        if setup.frozen is not None:
            kept = net.weights[setup.frozen].copy(), net.biases[setup.frozen].copy()
        optimizer.step(net.parameters, gradient, rate)
        if kept is not None:
            net.weights[setup.frozen][:], net.biases[setup.frozen][:] = kept
    return valid


def save(hook, net, activation, outputs, prefix=""):
    """Save what users save, in forward order.

    That is the input, parameters, outputs of layers and gradients.
    """
    last = len(net.weights) - 1
    if not prefix:
        hook.save_tensor("input", outputs[0], "inputs")
    for at, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
        hook.save_tensor(f"{prefix}fc{at + 1}.weight", weight, "weights")
        hook.save_tensor(f"{prefix}fc{at + 1}.bias", bias, "biases")
        if at < last:
            hook.save_tensor(f"{prefix}fc{at + 1}.{activation}_output", outputs[at + 1], "activations")
    hook.save_tensor(f"{prefix}output", outputs[-1], "outputs")
    for at, (weight, bias) in enumerate(zip(net.weight_gradients, net.bias_gradients, strict=True)):
        hook.save_tensor(f"gradient/{prefix}fc{at + 1}.weight", weight, "gradients")
        hook.save_tensor(f"gradient/{prefix}fc{at + 1}.bias", bias, "gradients")


# ------------------------------------------------------------------------------------------------------ other trainings


def train_rnn(directory, radius, clip, seed, save_every=SAVE_EVERY, steps=STEPS, length=40, rate=0.02):
    """Train a linear recurrent network to remember a leaky sum of its inputs."""
    rng = np.random.default_rng(seed)
    size, batch = 24, 32
    recurrent = rng.normal(size=(size, size))
    recurrent = (recurrent * radius / np.abs(np.linalg.eigvals(recurrent)).max()).astype(np.float32)
    inner = (rng.normal(size=(3, size)) / np.sqrt(3)).astype(np.float32)
    outer = (rng.normal(size=(size, 2)) / np.sqrt(size)).astype(np.float32)
    truth = rng.normal(size=(3, 2)).astype(np.float32)
    leak = np.float32(0.8) ** np.arange(length - 1, -1, -1, dtype=np.float32)
    parameters = {"rnn.recurrent": recurrent, "rnn.inner": inner, "rnn.outer": outer}

    def batch_of(number):
        x = rng.normal(size=(number, length, 3)).astype(np.float32)
        noise = rng.normal(0, 0.2, (number, 2)).astype(np.float32)
        return x, np.einsum("btj,t->bj", x, leak) @ truth * np.float32(0.5) + noise

    def states_of(x):
        states = [np.zeros((len(x), size), np.float32)]
        for at in range(length):
            states.append(states[-1] @ recurrent + x[:, at] @ inner)
        return states

    valid = []
    with np.errstate(all="ignore"), hooks(directory, 1, save_every) as (hook,):
        for step in range(steps):
            x, y = batch_of(batch)
            states = states_of(x)
            output = states[-1] @ outer
            loss, slope = squared_error(output, y)
            gradients = {"rnn.outer": states[-1].T @ slope}
            back = slope @ outer.T
            of_recurrent, of_inner = np.zeros_like(recurrent), np.zeros_like(inner)
            for at in range(length - 1, -1, -1):
                of_recurrent += states[at].T @ back
                of_inner += x[:, at].T @ back
                back = back @ recurrent.T
            gradients |= {"rnn.recurrent": of_recurrent, "rnn.inner": of_inner}
            norm = np.sqrt(sum(float((one.astype(np.float64) ** 2).sum()) for one in gradients.values()))
            factor = np.float32(clip / max(norm, clip)) if clip else np.float32(1)
            if step % VALIDATE_EVERY == 0:
                test_x, test_y = batch_of(64)
                valid.append(squared_error(states_of(test_x)[-1] @ outer, test_y)[0])
            if hook.should_save_step():
                hook.save_tensor("input", x, "inputs")
                for name, value in parameters.items():
                    hook.save_tensor(name, value, "weights")
                hook.save_tensor("rnn.state", states[-1], "activations")
                hook.save_tensor("output", output, "outputs")
                for name, value in gradients.items():
                    hook.save_tensor(f"gradient/{name}", value, "gradients")
                hook.save_tensor("train/loss", np.float32(loss), "losses")
                if step % VALIDATE_EVERY == 0:
                    hook.save_tensor("val/loss", np.float32(valid[-1]), "losses")
            hook.step()
            for name, value in parameters.items():
                value -= np.float32(rate) * factor * gradients[name]
    return valid


def train_gan(directory, seed, save_every=SAVE_EVERY, steps=STEPS):
    """Train a generator against a discriminator on a ring of points.

    Their losses do not fall.
    """
    rng = np.random.default_rng(seed)
    generator, discriminator = Network(rng, (4, 32, 32, 2)), Network(rng, (2, 32, 32, 2))
    optimizers = Optimizer("adam"), Optimizer("adam")
    batch = 32
    real, fake = np.ones(batch, np.intp), np.zeros(batch, np.intp)
    with hooks(directory, 1, save_every) as (hook,):
        for _ in range(steps):
            angle = rng.uniform(0, 2 * np.pi, batch)
            points = np.stack([np.cos(angle), np.sin(angle)], 1) + rng.normal(0, 0.05, (batch, 2))
            made = generator.forward(rng.normal(size=(batch, 4)).astype(np.float32))
            judged = discriminator.forward(np.concatenate([points.astype(np.float32), made[-1]]))
            loss_d, slope = cross_entropy(judged[-1], np.concatenate([real, fake]))
            discriminator.backward(judged, slope)
            if hook.should_save_step():
                save(hook, discriminator, "relu", judged, "discriminator.")
            optimizers[0].step(discriminator.parameters, discriminator.gradient, 0.001)
            judged = discriminator.forward(made[-1])
            loss_g, slope = cross_entropy(judged[-1], real)
            generator.backward(made, discriminator.backward(judged, slope))
            if hook.should_save_step():
                save(hook, generator, "relu", made, "generator.")
                hook.save_tensor("discriminator_loss", np.float32(loss_d), "losses")
                hook.save_tensor("generator_loss", np.float32(loss_g), "losses")
            hook.step()
            optimizers[1].step(generator.parameters, generator.gradient, 0.001)
    return []


def train_bandit(directory, seed, save_every=SAVE_EVERY, steps=STEPS):
    """Train a policy on a contextual bandit.

    Its reward shows progress; its loss does not.
    """
    rng = np.random.default_rng(seed)
    net, optimizer = Network(rng, (INPUTS, 64, CLASSES)), Optimizer("adam")
    truth = rng.normal(size=(INPUTS, CLASSES)).astype(np.float32) / np.float32(np.sqrt(INPUTS))
    batch, baseline = 32, 0.0
    with hooks(directory, 1, save_every) as (hook,):
        for _ in range(steps):
            x = rng.normal(size=(batch, INPUTS)).astype(np.float32)
            outputs = net.forward(x)
            chances = np.exp(outputs[-1] - outputs[-1].max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            actions = (rng.random((batch, 1)) < chances.cumsum(axis=1)).argmax(axis=1)
            reward = (x @ truth)[np.arange(batch), actions] + rng.normal(0, 0.5, batch)
            advantage = (reward - baseline).astype(np.float32)
            baseline += 0.05 * (reward.mean() - baseline)
            slope = chances.copy()
            slope[np.arange(batch), actions] -= 1
            slope *= advantage[:, None] / np.float32(batch)
            net.backward(outputs, slope)
            if hook.should_save_step():
                save(hook, net, "relu", outputs)
                log = np.log(np.maximum(chances, 1e-9))
                policy_loss = -(log[np.arange(batch), actions] * advantage).mean()
                hook.save_tensor("policy_loss", np.float32(policy_loss), "losses")
                hook.save_tensor("entropy", np.float32(-(chances * log).sum(axis=1).mean()), "metrics")
                hook.save_tensor("reward", np.float32(reward.mean()), "metrics")
            hook.step()
            optimizer.step(net.parameters, net.gradient, 0.002)
    return []


@dataclass(frozen=True)
class Poles:
    """The description of a policy that learns to balance poles on carts."""

    rate: float = 0.004
    optimizer: str = "adam"
    width: int = 32
    activation: str = "tanh"
    carts: int = 16
    ticks: int = 32
    discount: float = 0.97
    updates: int = 400


def train_poles(directory, setup, seed, save_every=SAVE_EVERY):
    """Train a policy by its gradient to balance poles on carts.

    The mean length of the episodes that ended is the reward, as the classic task counts it.
    """
    rng = np.random.default_rng(seed)
    net = Network(rng, (4, setup.width, setup.width, 2), setup.activation)
    net.weights[-1] *= np.float32(0.1)
    optimizer = Optimizer(setup.optimizer)
    state = rng.uniform(-0.05, 0.05, (setup.carts, 4)).astype(np.float32)
    alive, lengths = np.zeros(setup.carts), [10.0]
    with warnings.catch_warnings(), np.errstate(all="ignore"), hooks(directory, 1, save_every) as (hook,):
        for _ in range(setup.updates):
            seen, acted, ended = [], [], []
            for _ in range(setup.ticks):
                chance = _chances(net.forward(state)[-1])[:, 1]
                action = (rng.random(setup.carts) < chance).astype(np.intp)
                seen.append(state)
                acted.append(action)
                state = _tick(state, action)
                alive += 1
                fallen = (np.abs(state[:, 0]) > 2.4) | (np.abs(state[:, 2]) > 0.2095) | (alive >= 200)
                ended.append(fallen)
                lengths += alive[fallen].tolist()
                state[fallen] = rng.uniform(-0.05, 0.05, (int(fallen.sum()), 4)).astype(np.float32)
                alive[fallen] = 0
            returns, later = np.zeros((setup.ticks, setup.carts)), np.zeros(setup.carts)
            for at in range(setup.ticks - 1, -1, -1):
                later = 1 + setup.discount * later * ~ended[at]
                returns[at] = later
            advantage = ((returns - returns.mean()) / (returns.std() + 1e-6)).ravel().astype(np.float32)
            actions = np.concatenate(acted)
            outputs = net.forward(np.concatenate(seen))
            chances = _chances(outputs[-1])
            slope = chances.copy()
            slope[np.arange(len(actions)), actions] -= 1
            slope *= advantage[:, None] / np.float32(len(actions))
            net.backward(outputs, slope)
            if hook.should_save_step():
                save(hook, net, setup.activation, outputs)
                log = np.log(np.maximum(chances, 1e-9))
                loss = -(log[np.arange(len(actions)), actions] * advantage).mean()
                hook.save_tensor("policy_loss", np.float32(loss), "losses")
                hook.save_tensor("entropy", np.float32(-(chances * log).sum(axis=1).mean()), "metrics")
                hook.save_tensor("reward", np.float32(np.mean(lengths[-40:])), "metrics")
            hook.step()
            optimizer.step(net.parameters, net.gradient, setup.rate)
    return []


def _chances(logits):
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    return chances / chances.sum(axis=1, keepdims=True)


def _tick(state, action):
    """Move the carts for a fiftieth of a second."""
    position, speed, angle, turn = state.T
    force = np.where(action == 1, 10.0, -10.0)
    sine, cosine = np.sin(angle), np.cos(angle)
    pushed = (force + 0.05 * turn**2 * sine) / 1.1
    turning = (9.8 * sine - cosine * pushed) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    moving = pushed - 0.05 * turning * cosine / 1.1
    step = [position + 0.02 * speed, speed + 0.02 * moving, angle + 0.02 * turn, turn + 0.02 * turning]
    return np.stack(step, axis=1).astype(np.float32)
