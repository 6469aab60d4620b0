"""Every display of a run lists the same findings, with the same texts and steps.

There is one run for every kind of the table of kinds.
"""

import base64
import json
import os
import re
from html import unescape

import numpy as np
import pytest

import smdwidgets
from diagnosis.cases import PLANTED
from python.diagnosis import curves
from python.hooks.flight import Rig
from smdwidgets.checks.file import CheckFile
from smdwidgets.checks.record import CheckRecord
from smdwidgets.cli import main
from smdwidgets.finding import CHECKS, KINDS
from smdwidgets.numpy import Hook
from smdwidgets.pictures.packet import unpack
from smdwidgets.run_table.summary import findings_of
from smdwidgets.signals.file import SignalFile, SignalWriter


def scalars(series):
    """Return a function that writes a run of scalars."""

    def write(directory):
        with Hook(directory) as hook:
            for values in zip(*series.values(), strict=True):
                for name, value in zip(series, values, strict=True):
                    hook.save_scalar(name, float(value))
                hook.step()

    return write


def tensors(make, count=200):
    """Return a function that writes a run of tensors, with a loss that falls."""

    def write(directory):
        rng = np.random.default_rng(0)
        with Hook(directory) as hook:
            for step in range(count):
                for name, (value, collection) in make(step, rng).items():
                    hook.save_tensor(name, np.asarray(value, np.float32), collection)
                hook.save_scalar("loss", 0.3 + 2 * np.exp(-step / 60) * (1 + 0.01 * rng.normal()))
                hook.step()

    return write


def with_incident(directory):
    rig = Rig(directory)
    for step in range(60):
        rig.step(step, net_output_0=np.ones(4), loss=2.0 / (1 + step))
        if step == 50:
            rig.flight.dump("exception RuntimeError: batch 50", step)
    rig.close().close()


def bad_input(step, rng):
    batch = rng.normal(size=(32, 8))
    batch[3, 5] = np.nan if step >= 60 else 1
    return {"x": (batch, "inputs"), "fc.weight": (np.ones((8, 8)) + step / 1e4, "weights")}


def saturated(step, rng):
    return {"fc1.tanh_output": (np.sign(rng.normal(size=(32, 8))) * 0.9999, "activations")}


def beyond_range(directory):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(0)
    with Hook(directory) as hook:
        for step in range(80):
            values = rng.normal(size=(32, 32)) * (100 if step < 40 else 600)
            cast = np.clip(values, -448, 448).astype(ml_dtypes.float8_e4m3fn)
            hook.save_tensor("fc1_output_0", cast, "outputs")
            hook.save_scalar("loss", 0.3 + 2 * np.exp(-step / 60))
            hook.step()


def constant(step, rng):
    return {"net_output": (np.ones((32, 1)), "outputs"), "fc.weight": (np.eye(8) + step / 1e4, "weights")}


def symmetric(step, rng):
    return {"fc.weight": (np.full((8, 8), 0.1 + step / 1e4), "weights")}


def grows(step, rng):
    return {"odd": (rng.normal(size=(32, 8)) * (1000 if 100 <= step < 103 else 1), "other")}


def with_check(id):
    """Return a function that writes a run in which a check has fired."""
    row = next(one for one in CHECKS if one.id == id)
    record = CheckRecord(id, row.level, 3, 9, 4, ("fc1.weight",), {"count": 4}, row.name.capitalize(), "Look.")

    def write(directory):
        scalars({"loss": curves.falling()})(directory)
        CheckFile(directory, "worker_0").append(record.to_line())

    return write


def clipped_too_early(directory):
    count = 60
    norms = {"gradient_norm": np.ones(count), "gradient_norm_before_clipping": np.zeros(count)}
    scalars({"loss": curves.falling(count), **{f"optimizer/SGD/{name}": values for name, values in norms.items()}})(
        directory
    )


def with_signals(rows, names=(), most=None):
    """Return a function that writes a run with a loss and signals.

    ``rows`` are arrays with one row per step, by kind and layer.
    """

    def write(directory):
        scalars({"loss": curves.falling(60)})(directory)
        writer = SignalWriter(SignalFile(directory, "worker_0").append)
        for kind, layer in rows:
            writer.declare(kind, layer, names, most)
        for step in range(min(map(len, rows.values()))):
            writer.write(step, {key: values[step].tolist() for key, values in rows.items()})

    return write


def loads(**experts):
    """Return the loads of 8 experts; those of the named ones change at step 20."""
    values = np.ones((120, 8))
    for expert, load in experts.items():
        values[20:, int(expert[1:])] = load
    return values


#: What trainers of language models log when all is well.
HEALTHY_POLICY = {
    "reward": np.linspace(0.2, 0.8, 60),
    "entropy": np.linspace(0.6, 0.5, 60),
    "kl": np.linspace(0.01, 0.02, 60),
    "frac_reward_zero_std": np.full(60, 0.2),
    "completions/mean_length": np.linspace(300, 310, 60),
    "completions/clipped_ratio": np.full(60, 0.05),
    "sampling/sampling_logp_difference/mean": np.full(60, 0.02),
}


def policy(**changes):
    """Return a function that writes a log in which some series change at step 20."""
    at = np.arange(60) < 20
    series = {name: np.where(at, values, changes.get(name, values)) for name, values in HEALTHY_POLICY.items()}
    return scalars(series)


GROWING = np.exp(np.arange(60)[:, None] / 8) * np.ones(4)
LASTING = np.where(np.arange(400) < 200, curves.falling(), curves.falling() + 3)
#: What writes a run in which a kind is listed, by kind.
RUNS = {
    "input_not_finite": tensors(bad_input),
    "spike": scalars({"loss": LASTING}),
    "saturated": tensors(saturated),
    "beyond_range": beyond_range,
    "diverged": scalars({"loss": curves.rising_after(0.6, height=3)}),
    "collapsed": scalars({"episode_reward": np.where(np.arange(400) < 200, curves.reward(), 20.0)}),
    "not_learning": scalars({"loss": np.log(10) * (1 + 1e-3 * np.random.default_rng(0).normal(size=400))}),
    "constant": scalars({"loss": np.full(100, 0.5)}),
    "incident": with_incident,
    "rule": scalars({"loss": LASTING}),
    "stands_out": tensors(grows),
    "output_constant": tensors(constant),
    "symmetric_units": tensors(symmetric),
    "clip_before_backward": clipped_too_early,
}
MATRICES = {("sigma_max", "AdamW"): GROWING, ("update_ratio", "AdamW"): np.full((60, 4), 0.07)}
LAGGING = np.where(np.arange(60)[:, None] < 30, 1.0, 4.0) * np.ones(4)
RUNS |= {
    "attention_logits_grow": with_signals({("attention_max", "blocks.0.attention"): GROWING}),
    "weights_blow_up": with_signals(MATRICES, [f"blocks.{index}.weight" for index in range(4)]),
    "second_moments_lag": with_signals({("stale", "AdamW"): LAGGING}),
    "experts_collapsed": with_signals({("router_load", "blocks.1.moe"): loads(e0=4, e1=3.9)}, most=4.0),
    "dead_experts": with_signals({("router_load", "blocks.1.moe"): loads(e6=0)}, most=4.0),
    "sampler_mismatch": policy(**{"sampling/sampling_logp_difference/mean": 0.4}),
    "zero_advantage": policy(frac_reward_zero_std=0.95),
    "entropy_collapse": policy(entropy=0.001, reward=np.linspace(0.3, 0.1, 60)),
    "entropy_explosion": policy(entropy=3.0, reward=0.2),
    "kl_without_gain": policy(kl=0.5, reward=0.2),
    "kl_unbounded": scalars(
        {
            "objective/kl": np.minimum(125.0, 6.0 * np.arange(60)),
            "objective/rlhf_reward": 4.3 - 4.5 * np.exp(-np.arange(60) / 9),
            "objective/non_score_reward": -0.003 * np.minimum(20.0, np.arange(60)),
            "objective/entropy": 11 + 26 * np.exp(-np.arange(60) / 15),
        }
    ),
    "length_explosion": policy(**{"completions/mean_length": 900, "completions/clipped_ratio": 0.6}),
}
#: A training whose loss falls, and series of its evaluations by kind.
LEARNS = 2.3 * np.exp(-np.arange(30) / 6) + 0.05
CALM = 1 + 0.02 * np.random.default_rng(5).standard_normal(30)
EVALUATIONS = {
    "evaluation_differs": {"train_loss": LEARNS, "eval_loss": 2.4 + 0.1 * np.arange(30), "eval_accuracy": 0.12 * CALM},
    "metric_stuck": {"loss": LEARNS, "eval_loss": 1.1 * LEARNS, "eval_wer": np.ones(30)},
    "evaluation_too_good": {
        "train_loss": 0.3 + LEARNS,
        "eval_loss": 0.004 + 0.02 * LEARNS,
        "eval_accuracy": np.minimum(1, 0.5 + np.arange(30) / 20),
    },
    "strong_smoothing": {
        "loss": 2.3026 * (0.985 + 0.01 * np.exp(-np.arange(30) / 3)),
        "val_loss": 2.3026 * (0.985 + 0.008 * np.exp(-np.arange(30) / 3)),
        "val_accuracy": 0.97 - 0.8 * np.exp(-np.arange(30) / 3),
    },
    "no_targets": {
        "train/box_loss": np.zeros(30),
        "train/cls_loss": LEARNS,
        "val/box_loss": 1.02 * CALM,
        "val/cls_loss": 1.1 * LEARNS,
    },
    "as_baseline": {"train_mse": LEARNS, "test_mae": 0.27 * CALM, "test_naive_mae": np.full(30, 0.27)},
    "gradient_huge": {"loss": 2.1 * CALM, "grad_norm": 4e7 * CALM},
    "preferences_by_chance": {
        "loss": 2.8 * np.resize(CALM, 120),
        "rewards/accuracies": 0.55 * np.resize(CALM, 120),
        "rewards/margins": 1.1 * np.resize(CALM, 120),
    },
    "gradient_zero": {"loss": 3.8 * CALM, "grad_norm": np.zeros(30), "learning_rate": np.full(30, 1e-3)},
    "losses_on_two_scales": {"train_loss": 64 * LEARNS, "val_loss": LEARNS * CALM},
    "sum_not_reset": {"loss": np.tile(np.arange(1.0, 7.0), 5) * np.repeat(0.9 ** np.arange(5), 6)},
    "policy_steps_large": {
        "rollout/ep_rew_mean": np.linspace(30, 220, 30),
        "train/approx_kl": 0.01 + 0.015 * np.arange(30),
        "train/clip_fraction": np.minimum(0.6, 0.08 + 0.03 * np.arange(30)),
    },
    "policy_stuck": {
        "rollout/ep_rew_mean": 20 * CALM,
        "train/approx_kl": 1e-5 * CALM,
        "train/clip_fraction": np.zeros(30),
    },
    "posterior_collapse": {"val/kl": 3e-4 * CALM, "val/recon": 82 * CALM},
    "features_collapse": {
        "train/loss": -1 + LEARNS / 10,
        "train/feature_std": 0.1 * np.exp(-np.arange(30) / 2) + 0.002,
    },
    "unshuffled": {
        "loss": np.tile(np.repeat([3.0, 1.0, 2.5, 0.6], 4), 3)[:48],
        "epoch": np.arange(1, 49) / 16,
    },
    "peak_rate_too_high": {
        "loss": np.interp(np.arange(60), [0, 6, 11, 16], [4.6, 2.7, 3.3, 3.3]),
        "learning_rate": 0.03 * np.minimum(1, np.arange(1, 61) / 12),
    },
    "discriminator_wins": {
        "Loss_D": np.where(np.arange(60) < 4, 1.3, 0.001),
        "Loss_G": np.where(np.arange(60) < 4, 0.7, 9.0),
    },
    "swings": {"train/loss": np.tile([0.3, 0.6, 0.4], 10) * CALM, "val/mse": np.tile([0.15, 0.5, 0.24, 0.7], 8)[:30]},
    "forgetting": {
        "loss": 2 * LEARNS,
        "eval_old_loss": 0.4 + 0.05 * np.arange(30),
        "eval_old_accuracy": 0.85 - 0.01 * np.arange(30),
        "eval_new_loss": 1.1 * LEARNS,
        "eval_new_accuracy": 0.5 + 0.01 * np.arange(30),
    },
    "slows_down": {"loss": np.resize(LEARNS, 60), "tokens_per_second": 9000 - 110 * np.arange(60)},
    "waits_for_data": {"loss": LEARNS, "time": 0.4 * CALM, "data_time": 0.3 * CALM},
    "metric_falls": {"train_loss": LEARNS - 1, "val_top1": 0.7 - 0.013 * np.arange(30)},
}


def with_warm_up(directory):
    """Write the state of a training whose learning rate rises to its end."""
    directory.mkdir(parents=True)
    rows = [{"step": 10 * n, "loss": 2 - 0.01 * n, "learning_rate": 1e-6 * n} for n in range(1, 31)]
    state = {"global_step": 300, "max_steps": 300, "log_history": rows}
    file = directory / "trainer_state.json"
    file.write_text(json.dumps(state))
    os.utime(file, (0, 0))  # a training that has ended


RUNS |= {kind: scalars(series) for kind, series in EVALUATIONS.items()}
RUNS["warm_up_too_long"] = with_warm_up
RUNS |= {one.id: with_check(one.id) for one in CHECKS if KINDS[one.id] is one}
for case in PLANTED:
    RUNS.setdefault(case.expected[0], lambda directory, case=case: case.train(directory, 0))


#: A kind of each place that findings come from; `make test` tries these, and `make test-all` tries all kinds.
QUICK = {"rate_rise", "frozen", "not_finite", "incident", "rule", "stands_out", "unshuffled", "heads_mixed"}
#: Kinds that need another run to compare with, which only `diagnose` takes.
WITH_REFERENCE = {"differs_from_reference"}


def identity(finding):
    return finding["id"], finding["title"], finding["first"]


def packets_of(page):
    return [unpack(base64.b64decode(part))[0] for part in re.findall(r'class="smdw-packet">([^<]*)<', page)]


def joined(text):
    return " ".join(text.split())


def test_every_kind_has_a_run():
    assert set(RUNS) == set(KINDS) - WITH_REFERENCE
    assert set(RUNS) >= QUICK


@pytest.mark.parametrize(
    "kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in RUNS]
)
def test_every_display_has_the_same_list(kind, tmp_path, capsys):
    run, page = tmp_path / "run", tmp_path / "page.html"
    RUNS[kind](run)
    rules = ["--rules", "LossSpike"] if kind == "rule" else ["--no-rules"]
    trial = smdwidgets.create_trial(run)
    explorer = smdwidgets.explore(trial, rules=rules[1:] if kind == "rule" else None)
    explorer.rule_controller.evaluate_saved_steps()
    shown = explorer.live_diagnosis.completed(0)
    diagnosis = shown if kind == "rule" else smdwidgets.diagnose(trial)
    assert kind in {one.kind for one in diagnosis.listed}
    ids = [one.id for one in diagnosis.listed]
    assert len(set(ids)) == len(ids)
    expected = [(one.id, one.title, one.first) for one in diagnosis.listed]

    # The explorer, its packet, and the story.
    assert [(one.id, one.title, one.first) for one in shown.listed] == expected
    parts = [f"finding {n}" for n in range(1, 1 + len(diagnosis.findings))]
    parts += [f"note {n}" for n in range(1, 1 + len(diagnosis.notes))]
    assert [part.title for part in explorer.story(parts).parts] == [title for _, title, _ in expected]
    explorer.close()

    # The report: the list above the widget, and the packet of the widget's bar.
    assert main(["report", str(run), "-o", str(page), *rules]) == 0
    text = page.read_text(encoding="utf-8")
    [head] = [head for head in packets_of(text) if head["kind"] == "diagnosis"]
    assert [identity(one) for one in (*head["findings"], *head["notes"])] == expected
    sections = re.findall(r'<section class="\w+" data-id="([^"]*)"', text)
    assert [unescape(section) for section in sections] == ids[: len(diagnosis.findings)]
    capsys.readouterr()

    # The run table counts the same findings.
    if kind != "rule":
        of_run = [(one["id"], one["title"], one["first"]) for one in findings_of(trial)]
        assert of_run == [(one.id, one.title, one.first) for one in diagnosis.findings]

        # The terminal and its JSON.
        main(["diagnose", str(run), "--json"])
        [content] = json.loads(capsys.readouterr().out)
        assert [identity(one) for one in (*content["findings"], *content["notes"])] == expected
        main(["diagnose", str(run), "--notes"])
        out = joined(capsys.readouterr().out)
        places = [out.index(joined(f"{n}. {one.title}")) for n, one in enumerate(diagnosis.findings, 1)]
        places += [out.index(joined(f"Note: {one.title}")) for one in diagnosis.notes]
        assert places == sorted(places)
        count = len(diagnosis.findings)
        assert not count or out.startswith(f"{count} finding{'s' if count > 1 else ''} in ")
