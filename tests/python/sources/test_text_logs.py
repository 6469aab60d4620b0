"""Text logs: known trainers, other lines, growth, what is left out."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import smdwidgets
from smdwidgets.naming.scalars import Kind, describe
from smdwidgets.sources.growing_lines import parts_of
from smdwidgets.sources.log_columns import ColumnReader
from smdwidgets.sources.log_lines import Reader
from smdwidgets.sources.log_pairs import LONGEST_LINE, Pairs, has_numbers, pairs_in
from smdwidgets.sources.log_trainers import TRAINERS
from smdwidgets.sources.text_logs import trainer_of

#: What the example of each trainer says: the step, and some of its numbers.
EXAMPLES = {
    "Megatron-LM": (10, {"lm loss": 10.86742, "learning rate": 1.5e-6, "grad norm": 12.345, "loss scale": 1.0}),
    "nanotron": (10, {"lm_loss": 10.5, "tokens_per_sec": 8910.0, "lr": 0.0003}),
    "torchtitan": (10, {"loss": 8.1234, "grad_norm": 1.2345, "tps": 1234.0}),
    "fairseq": (100, {"loss": 12.345, "lr": 1.25e-5, "gnorm": 2.345}),
    "DeepSpeed": (10, {"lr": 0.0001, "skipped": 0.0}),
    "Coqui TTS": (125, {"loss": 1.23456, "grad_norm": 0.51234, "current_lr": 0.00025}),
    "RecBole": (0, {"train loss": 17.8021}),
    "TransReID": (20, {"Loss": 6.512, "Acc": 0.012, "Base Lr": 3.5e-4}),
    "Composer": (10, {"loss/train/total": 2.3456}),
    "Keras": (1, {"accuracy": 0.8012, "loss": 0.5678, "val_accuracy": 0.9012, "val_loss": 0.3456}),
    "Transformers": (1, {"loss": 1.2345, "grad_norm": 2.3456, "learning_rate": 4.5e-5, "epoch": 0.25}),
    "nanoGPT": (100, {"loss": 2.1234}),
    "llm.c": (10, {"loss": 7.123456, "norm": 1.2345, "lr": 3e-4}),
    "modded-nanogpt": (10, {"train_loss": 7.1234}),
    "MaxText": (10, {"loss": 10.871, "TFLOP/s/device": 123.456}),
    "torchtune": (10, {"loss": 1.2345, "lr": 2e-5}),
    "PyTorch example mnist": (640, {"Loss": 2.345678}),
    "timm": (50, {"Loss": 6.951, "LR": 1e-5}),
    "torchvision references, DETR, MAE": (20, {"lr": 0.1, "img/s": 512.1, "loss": 6.9512, "acc1": 0.39}),
    "PyTorch example imagenet": (10, {"Loss": 6.9512, "Acc@1": 0.39}),
    "Detectron2": (19, {"total_loss": 5.123, "lr": 0.00039962}),
    "OpenMMLab": (50, {"loss": 1.5123, "lr": 9.8e-4}),
    "Lightning": (10, {"train_loss": 2.345}),
    "Stable-Baselines3": (2048, {"rollout/ep_rew_mean": 20.5}),
    "XGBoost": (10, {"train-rmse": 0.51234, "eval-rmse": 0.61234}),
    "LightGBM": (10, {"training's l2": 0.512345, "valid_1's l2": 0.612345}),
    "CatBoost": (10, {"learn": 0.5123456, "test": 0.6123456}),
    "Paddle": (10, {"loss": 0.51234}),
    "OpenNMT-py": (50, {"ppl": 8123.4, "xent": 9.0, "lr": 1e-5}),
    "ML-Agents": (12000, {"3DBall/Mean Reward": 1.15, "3DBall/Std of Reward": 0.7, "3DBall/Time Elapsed": 27.1}),
    "CycleGAN and pix2pix": (100, {"D_A loss": 0.255, "G_A loss": 0.322, "cycle_A loss": 6.358, "idt_A loss": 1.683}),
    "Marian": (1000, {"Cost": 7.51234567}),
    "MXNet": (20, {"Speed": 36.22, "Train-accuracy": 0.774131}),
    "ST-GCN and other programs of torchlight": (3, {"loss": 4.5821, "lr": 0.1, "mean_loss": 4.6125}),
}


def opened(folder, text, name="train.log"):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return smdwidgets.create_trial(folder / name)


def values(trial, name):
    return {step: value.item() for step, value in trial.tensor(name).values().items()}


def rows_of(reader, text):
    return [(row.step, row.values) for line in text.split("\n") if (row := reader.read(line))]


def named(name):
    return next(trainer for trainer in TRAINERS if trainer.name == name)


def test_at_least_fifteen_trainers_are_known():
    assert len(TRAINERS) == len(EXAMPLES) >= 15


@pytest.mark.parametrize("trainer", TRAINERS, ids=lambda trainer: trainer.name)
def test_example_of_a_trainer_is_read_by_its_rows(trainer):
    step, expected = EXAMPLES[trainer.name]
    rows = rows_of(Reader(trainer), trainer.example)
    assert {row[0] for row in rows} == {step}
    read = {name: value for _, numbers in rows for name, value in numbers.items()}
    assert expected.items() <= read.items()


@pytest.mark.parametrize("trainer", TRAINERS, ids=lambda trainer: trainer.name)
def test_lines_of_a_trainer_are_recognized(trainer):
    lines = ["starting", *(line for _ in range(3) for line in trainer.example.split("\n")), "done"]
    recognized = trainer_of(lines)
    assert recognized
    assert recognized.name == trainer.name


# ---------------------------------------------------------------------------------------------------- whole logs


def test_results_of_two_data_sets_are_apart(tmp_path):
    lines = "".join(
        f"Wed 02 Jul 2025 22:41:13 INFO  epoch {epoch} training [time: 2.68s, train loss: {9 - epoch}]\n"
        f"Wed 02 Jul 2025 22:41:13 INFO  epoch {epoch} evaluating [time: 0.18s, valid_score: 0.{epoch}]\n"
        f"Wed 02 Jul 2025 22:41:13 INFO  valid result: \nrecall@10 : 0.{epoch}1    mrr@10 : 0.5\n"
        f"Wed 02 Jul 2025 22:41:13 INFO  test result: \nrecall@10 : 0.{epoch}    mrr@10 : 0.25\n"
        for epoch in range(1, 6)
    )
    trial = opened(tmp_path, lines)
    assert values(trial, "val/recall@10") == {epoch: pytest.approx(epoch / 10 + 0.01) for epoch in range(1, 6)}
    assert values(trial, "test/recall@10") == {epoch: pytest.approx(epoch / 10) for epoch in range(1, 6)}


def test_metrics_belong_to_the_data_of_their_line(tmp_path):
    lines = "".join(
        f"Epoch {epoch}/5\n----------\ntrain Loss: 0.7{epoch} Acc: 0.5{epoch}\nval Loss: 0.8{epoch} Acc: 0.4{epoch}\n\n"
        for epoch in range(6)
    )
    trial = opened(tmp_path, lines)
    assert trial.tensor_names() == ["Acc", "train Loss", "val Loss", "val/Acc"]
    assert trial.steps() == [*range(6)]


@pytest.mark.parametrize(
    ("heading", "row", "expected"),
    [
        (
            "epoch     train_loss  valid_loss  accuracy  time",
            "{0}         0.5         0.75        0.9       00:31",
            {"accuracy": 0.9},
        ),
        (
            "E    #       LOSS NER  ENTS_F  SCORE\n---  ------  --------  ------  ------",
            "  7     {0}      16.25    58.82    0.59",
            {"SCORE": 0.59},
        ),
        (",loss,f1,val_loss,val_f1", "{0},1.5,0.25,0.75,0.5", {"loss": 1.5, "val_f1": 0.5}),
        ("Epoch, Train loss, Val loss", "{0}, 1.5, ", {"Train loss": 1.5}),
        (
            "model: small, 38282 parameters\n epoch |   lr   | train_loss | test_acc |  time",
            "{0:6} | 2e-02  |     0.5    |  0.9     | 0.1s",
            {"lr": 0.02, "train_loss": 0.5, "test_acc": 0.9},
        ),
        ("| step | loss | eval |\n|------|------|------|", "| {0} | 0.25 |  |", {"loss": 0.25}),
    ],
)
def test_tables_with_names_above(tmp_path, heading, row, expected):
    lines = "\n".join([f"Total time: 05:44\n{heading}", *(row.format(100 * at) for at in range(5)), "done"])
    trial = opened(tmp_path, lines)
    assert trial.steps() == [0, 100, 200, 300, 400]
    assert {name: trial.tensor(name).value(200).item() for name in expected} == expected


def test_cells_with_commas_below_other_text_are_no_table(tmp_path):
    lines = [",loss,f1", "0,1.5,0.25,7", "1,two,0.5", "2,0.5", "epoch, size: 5, f1"]
    (tmp_path / "train.log").write_text("Results\n" + "\n".join(lines * 3) + "\n")
    with pytest.raises(smdwidgets.exceptions.RunNotFound):
        smdwidgets.create_trial(tmp_path)


def test_megatron_with_settings_first_and_validation(tmp_path):
    settings = "".join(f"  argument_{number} ........ {number}\n" for number in range(20_000))
    lines = "".join(
        f" iteration {step:8d}/   1000 | consumed samples: {step * 8:12d} | learning rate: 1.0E-04 | lm loss: {8 - step / 10:.6E} |\n"
        for step in range(1, 31)
    )
    validation = " validation loss at iteration 30 | lm loss value: 5.5E+00 | lm loss PPL: 2.4E+02 | \n"
    trial = opened(tmp_path, settings + lines + validation)
    assert values(trial, "lm loss")[30] == pytest.approx(5.0)
    assert values(trial, "val/lm loss") == {30: 5.5}


def test_fairseq_with_a_first_line_that_looks_like_columns(tmp_path):
    head = "2023-11-14 22:13:20 | INFO |"
    lines = [f"{head} fairseq.trainer | begin training epoch 1"]
    for epoch in (1, 2, 3):
        lines += [
            f"{head} train_inner | epoch 00{epoch}:     25 / 50 loss=5.5, ppl=45, num_updates={50 * epoch - 25}, lr=0.0006",
            f"{head} valid | epoch 00{epoch} | valid on 'valid' subset | loss 4.{epoch} | ppl 21.9 | num_updates {50 * epoch}",
        ]
    with opened(tmp_path, "\n".join([*lines, ""])) as trial:
        assert values(trial, "loss") == {25: 5.5, 75: 5.5, 125: 5.5}
        assert values(trial, "val/loss") == {50: 4.1, 100: 4.2, 150: 4.3}


def test_lines_with_a_step_and_an_epoch_are_not_those_of_fairseq(tmp_path):
    lines = [f"step {step} | epoch {step // 40} | loss 1.{step} | lr 0.01" for step in (20, 30, 40, 50, 60)]
    with opened(tmp_path, "\n".join([*lines, ""])) as trial:
        assert list(values(trial, "loss")) == [20, 30, 40, 50, 60]


def test_numbers_that_spaces_align_are_no_names_of_columns(tmp_path):
    lines = [f"Epoch {epoch:4}/30: train MSE=3{epoch:02}.5  val MSE=4{epoch:02}.5" for epoch in (8, 9, 10)]
    with opened(tmp_path, "\n".join([*lines, ""])) as trial:
        assert values(trial, "train MSE") == {8: 308.5, 9: 309.5, 10: 310.5}
        assert values(trial, "val MSE") == {8: 408.5, 9: 409.5, 10: 410.5}


def test_losses_without_a_word_are_those_of_their_data(tmp_path):
    text = "".join(
        f"{step} val 4.{step}\nstep {step:5}/700 | train loss 3.{step} | lr 8.00e-05\n" for step in (0, 1, 2)
    )
    with opened(tmp_path, text) as trial:
        assert values(trial, "val loss") == {0: 4.0, 1: 4.1, 2: 4.2}
        assert values(trial, "train loss") == {0: 3.0, 1: 3.1, 2: 3.2}


def test_evaluations_on_another_line_belong_to_the_step_before(tmp_path):
    text = "".join(
        f"step {step}/70 | loss 3.{step} | lr 8.0e-05\n  val loss 4.{step} | val acc 0.{step}\n"
        for step in (10, 20, 30)
    )
    with opened(tmp_path, text) as trial:
        assert values(trial, "loss") == {10: 3.1, 20: 3.2, 30: 3.3}
        assert values(trial, "val loss") == {10: 4.1, 20: 4.2, 30: 4.3}
        assert values(trial, "val acc") == {10: 0.1, 20: 0.2, 30: 0.3}


def test_steps_of_an_epoch_are_numbered_on_without_a_total(tmp_path):
    lines = [f"[epoch {epoch}, step {step:5}] loss: {epoch}.{step}" for epoch in (1, 2, 3) for step in (100, 200)]
    with opened(tmp_path, "\n".join([*lines, ""])) as trial:
        assert list(values(trial, "loss")) == [100, 200, 300, 400, 500, 600]


def test_an_epoch_before_a_dash_is_no_part_of_a_name(tmp_path):
    lines = [f"Epoch {epoch}/30 - train_mse: 0.5{epoch} - val_mse: 0.6{epoch}" for epoch in (1, 2, 3)]
    with opened(tmp_path, "\n".join([*lines, ""])) as trial:
        assert values(trial, "train_mse") == {1: 0.51, 2: 0.52, 3: 0.53}
        assert values(trial, "val_mse") == {1: 0.61, 2: 0.62, 3: 0.63}


def test_keras_bars_count_once_an_epoch(tmp_path):
    text = ""
    for epoch in (1, 2, 3):
        bars = "".join(f"\r{n}/10 ━━━━ 0s 3ms/step - loss: {9 - n / 10}" for n in range(1, 10))
        text += f"Epoch {epoch}/3\n{bars}\r10/10 ━━━━━━━ 1s 3ms/step - loss: {1 / epoch} - val_loss: {2 / epoch}\n"
    trial = opened(tmp_path, text)
    assert values(trial, "loss") == {1: 1.0, 2: 0.5, 3: 1 / 3}
    assert values(trial, "val_loss") == {1: 2.0, 2: 1.0, 3: 2 / 3}


def test_batches_of_epochs_are_numbered_on(tmp_path):
    text = "".join(
        f"Train Epoch: {epoch} [{batch}/640 ({batch // 7}%)]\tLoss: {epoch}\n" for epoch in (1, 2) for batch in (0, 320)
    )
    text += "\nTest set: Average loss: 0.5000, Accuracy: 9500/10000 (95%)\n"
    trial = opened(tmp_path, text)
    assert values(trial, "Loss") == {0: 1, 320: 1, 640: 2, 960: 2}
    assert values(trial, "test/Accuracy") == {960: 0.95}


def test_iterations_that_begin_again_in_epochs_of_unknown_length(tmp_path):
    line = "(epoch: {}, iters: {}, time: 0.198, data: 0.278) {}D_A: 0.{} G_A: 0.5 idt_A: nan \n"
    head = "================ Training Loss (Sat Jun  6 16:47:21 2020) ================\n"
    first = [(1, 100), (1, 200), (2, 50), (2, 150), (3, 100)]
    text = head + "".join(line.format(*at, "", 3) for at in first)
    trial = opened(tmp_path, text, "loss_log.txt")
    assert trial.tensor_names() == ["D_A loss", "G_A loss", "idt_A loss"]
    assert list(values(trial, "D_A loss")) == [100, 200, 250, 350, 450]
    assert describe("D_A loss").kind is Kind.LOSS
    assert trial.problems() == []
    # A training that goes on from an epoch, with a newer version.
    with (tmp_path / "loss_log.txt").open("a") as more:
        more.write(head + "".join(line.format(*at, ", ", 4) for at in [(2, 100), (2, 160), (3, 20)]) + "(epoch: 3, it")
    assert list(values(trial, "D_A loss").items())[-3:] == [(300, 0.4), (360, 0.4), (380, 0.4)]
    assert trial.orphans("D_A loss")["step"].tolist() == [350, 450]


def test_summaries_of_behaviors(tmp_path):
    lines = "".join(
        f"[INFO] {name}. Step: {step}. Time Elapsed: {step / 100} s. {numbers}. Training.\n"
        for step in (1000, 2000, 3000)
        for name, numbers in (
            ("Striker", f"Mean Reward: {step / 1000}. Std of Reward: 0.75"),
            ("Goalie", "No episode was completed since last summary"),
        )
    )
    older = (
        "INFO:mlagents.trainers: run-0: Ball: Step: 4000. Time Elapsed: 9 s Mean Reward: -1.5. Std of Reward: 0.5.\n"
    )
    trial = opened(tmp_path, lines + older)
    assert values(trial, "Striker/Mean Reward") == {1000: 1, 2000: 2, 3000: 3}
    assert values(trial, "Ball/Mean Reward") == {4000: -1.5}
    assert describe("Striker/Mean Reward").kind is Kind.REWARD
    assert values(trial, "Striker/Std of Reward")[1000] == 0.75


def test_a_validation_has_the_names_of_its_training(tmp_path):
    lines = "".join(
        f"[2024-05-01 12:00:00,123 INFO] Step {step}/900; acc: 10.5; ppl: 8.5; xent: 9.0; lr: 0.00001; 12/14 tok/s;  5 sec\n"
        f"[2024-05-01 12:00:00,123 INFO] Validation perplexity: {step / 100}\n"
        "[2024-05-01 12:00:00,123 INFO] Validation accuracy: 45.6\n"
        "[2024-05-01 12:00:00,123 INFO] Model is improving ppl: inf --> 5.45281.\n"
        for step in (100, 200, 300)
    )
    trial = opened(tmp_path, lines)
    assert trial.tensor_names() == ["acc", "lr", "ppl", "val/acc", "val/ppl", "xent"]
    assert values(trial, "val/ppl") == {100: 1, 200: 2, 300: 3}


def test_coqui_blocks_in_colour_with_evaluation(tmp_path):
    text = ""
    for step in (25, 50, 75):
        text += f"\x1b[1m   --> TIME: 2024-05-01 12:00:00 -- STEP: {step}/89 -- GLOBAL_STEP: {step}\x1b[0m\n"
        text += f"     | > loss: {step / 100}  (0.9)\n     | > current_lr: 0.001 \n\n"
    text += "   --> STEP: 0\n     | > loss: 77.0  (77.0)\n"
    text += "\x1b[1m --> EVAL PERFORMANCE\x1b[0m\n     | > avg_loss:\x1b[92m 0.4 \x1b[0m(-0.1)\n"
    trial = opened(tmp_path, text)
    assert values(trial, "loss") == {25: 0.25, 50: 0.5, 75: 0.75}
    assert values(trial, "val/avg_loss") == {75: 0.4}


def test_boxes_of_stable_baselines(tmp_path):
    box = "{0}\n| rollout/ | |\n|    ep_rew_mean | {1} |\n| time/ | |\n|    fps | 100 |\n|    total_timesteps | {2} |\n{0}\n"
    trial = opened(tmp_path, "".join(box.format("-" * 36, 10 * n, 2048 * n) for n in (1, 2, 3)))
    assert values(trial, "rollout/ep_rew_mean") == {2048: 10, 4096: 20, 6144: 30}


@pytest.mark.parametrize(
    ("name", "cells", "steps"),
    [
        ("frame", ("512", "1.02e+03", "1.02e+03", "2.05e+03"), [512, 1020, 1021, 2050]),
        ("Epoch", ("0", "1", "2", "3"), [0, 1, 2, 3]),
        ("num episodes", ("4", "31", "57", "80"), [4, 31, 57, 80]),
        ("TimestepsSoFar", ("100", "200", "300", "400"), [100, 200, 300, 400]),
        ("steps", ("100", "200", "150", "250"), [100, 150, 250]),
    ],
)
def test_boxes_with_other_names_of_steps(tmp_path, name, cells, steps):
    box = "{0}\n| Episode Reward | {1} |\n| {2} | {3} |\n| value | -1.5 |\n{0}\n"
    text = "".join(box.format("-" * 29, at, name, cell) for at, cell in enumerate(cells))
    trial = opened(tmp_path, f"Logging to out\n{text}", "log.txt")
    assert trial.tensor_names() == ["Episode Reward", "value"]
    assert list(values(trial, "Episode Reward")) == steps


def test_boxes_of_other_programs_are_not_read(tmp_path):
    (tmp_path / "out.txt").write_text(f"{'-' * 20}\n| cpu | 1 |\n| frame | 2 |\n{'-' * 20}\n" * 5)
    with pytest.raises(smdwidgets.exceptions.RunNotFound):
        smdwidgets.create_trial(tmp_path)


def test_a_box_without_the_step_of_the_others_is_left_out(tmp_path):
    box = "{0}\n| time/ | |\n| iterations | {1} |\n| total_timesteps | {2} |\n| train/ | |\n| loss | 0.5 |\n{0}\n"
    text = "".join(box.format("-" * 36, at, 2048 * at) for at in (1, 2, 3))
    text += f"{'-' * 36}\n| time/ | |\n| iterations | 9 |\n| train/ | |\n| loss | 7 |\n{'-' * 36}\n"
    assert values(opened(tmp_path, text), "train/loss") == {2048: 0.5, 4096: 0.5, 6144: 0.5}


def test_transformers_rows_are_counted(tmp_path):
    text = "".join(f"{{'loss': {3 - n}, 'learning_rate': 1e-05, 'epoch': {n / 4}}}\n" for n in range(3))
    text += "{'eval_loss': 1.5, 'eval_runtime': 2.0, 'epoch': 0.75}\n"
    trial = opened(tmp_path, text)
    assert values(trial, "loss") == {1: 3, 2: 2, 3: 1}
    assert values(trial, "eval_loss") == {3: 1.5}


def test_lines_of_an_epoch_after_its_batches(tmp_path):
    text = "".join(
        f"INFO:root:Epoch[{epoch}] Batch [{batch}]\tSpeed: 36.5 samples/sec\tTrain-SmoothL1={value}\n"
        for epoch in (5, 6)
        for batch, value in ((20, 1 / epoch), (40, "nan"))
    )
    text = text.replace("Batch [40]", "Batch [20-40]")
    text += "INFO:root:Epoch[6] Time cost=9.5\nINFO:root:Epoch[6] Validation-accuracy=0.75\n"
    text += "INFO:root:Update[81]: Change learning rate to 1.00000e-04\n"
    trial = opened(tmp_path, text)
    losses = values(trial, "Train-SmoothL1")
    assert [*losses] == [20, 40, 60, 80]
    assert [losses[20], losses[60], losses[40] != losses[40]] == [1 / 5, 1 / 6, True]
    assert values(trial, "Validation-accuracy") == {80: 0.75}
    assert values(trial, "learning rate") == {80: 1e-4}


def test_numbers_of_an_epoch_that_is_named_before(tmp_path):
    """Those of an evaluation are apart, and NaN is a value."""
    head = "[05.01.24|12:00:00]"

    def run(*losses):
        lines = [f"{head} Parameters:", "{'work_dir': 'out', 'base_lr': 0.5, 'batch_size': 64}", ""]
        for epoch, loss in enumerate(losses):
            lines += [f"{head} Training epoch: {epoch}", f"{head} \tmean_loss: {loss}", f"{head} Time consumption:"]
        lines += [f"{head} Eval epoch: 1", f"{head} \tmean_loss: 6.5", f"{head} \tTop1: 12.50%", f"{head} Done.", ""]
        return "\n".join(lines)

    trial = opened(tmp_path, run("nan", "nan", "nan") + run("nan", "4.5", "nan"))
    assert trial.tensor_names() == ["mean_loss", "val/Top1", "val/mean_loss"]
    losses = values(trial, "mean_loss")
    assert [[*losses], [value == value for value in losses.values()]] == [[0, 1, 2], [False, True, False]]
    assert values(trial, "val/mean_loss") == {1: 6.5}
    assert values(trial, "val/Top1") == {1: 12.5}
    assert "not_finite" in [finding.kind for finding in smdwidgets.diagnose(trial).findings]


def test_restart_supersedes(tmp_path):
    lines = [f"iter {step}: loss {loss}, time 1.0ms\n" for step, loss in ((0, 3), (10, 2), (20, 9), (10, 2.5), (20, 1))]
    assert values(opened(tmp_path, "".join(lines)), "loss") == {0: 3, 10: 2.5, 20: 1}


def test_nan_is_a_value(tmp_path):
    text = "".join(
        f"step: {step}  loss:  {loss}  grad_norm:  1.0\n" for step, loss in ((1, "2.0"), (2, "nan"), (3, "nan"))
    )
    trial = opened(tmp_path, text)
    assert [finding.kind for finding in smdwidgets.diagnose(trial).findings][:1] == ["not_finite"]


# ------------------------------------------------------------------------------------------------- other programs


@pytest.mark.parametrize(
    "line",
    [
        "epoch {0}: train loss = {1}, lr = 0.001",
        "[{0}/10] loss after epoch {0}: {1}",
        "2024-05-01 12:00:{0:02d},123 INFO my.trainer step={0} loss={1} acc=0.5",
        "Epoch {0} | loss {1} | val acc 0.5",
        "Iteration #{0} - Loss: {1} (took 0.1s)",
        '{{"level": "info", "iter": {0}, "loss": {1}}} trailing',
    ],
)
def test_names_and_numbers_that_repeat(tmp_path, line):
    text = "loading 5 files\n" + "".join(line.format(n, 1 / (n + 1)) + "\n" for n in range(1, 8)) + "done in 5 s\n"
    trial = opened(tmp_path, text, "out.txt")
    [name] = [name for name in trial.tensor_names() if "loss" in name.lower()]
    assert values(trial, name) == {n: 1 / (n + 1) for n in range(1, 8)}


@pytest.mark.parametrize(("batches", "steps"), [("1 2", [1, 2, 3, 4, 5, 6]), ("1 2 3 4 5 6", [1, 2, 3, 4, 5, 6])])
def test_batches_of_an_unknown_trainer_are_numbered_on(batches, steps):
    """They begin again with each epoch, or not."""
    numbers = [int(one) for one in batches.split()]
    numbers, total = (numbers * 3, 2) if len(numbers) == 2 else (numbers, 6)
    reader, read, validated = ColumnReader(), [], []
    for index, batch in enumerate(numbers):
        row = reader.read(f"Epoch [{index // 2 + 1}/3], Step [{batch}/{total}], Loss: 0.5")
        read.append(row.step)
        if index % 2:
            validated.append(reader.read(f"Epoch [{index // 2 + 1}/3] Val Loss: 0.75").step)
    assert read == steps
    assert validated == [2, 4, 6]


@pytest.mark.parametrize(
    ("line", "names", "steps"),
    [
        ("Epoch {0}, Step {1}: Img={2}, KL={2}, Sum={2}", ["Img", "KL", "Sum"], [20, 40, 60, 80]),
        ("[epoch: {0}/9, iter: {1}/50] sum: {2} ", ["sum"], [20, 40, 70, 90]),
        ("Epoch {0} [{1}/50] loss_gen: {2} loss_critic: {2}", ["loss_critic", "loss_gen"], [20, 40, 70, 90]),
        ("Epoch: {0}/9 [{1}/50 (40%)] loss: {2}", ["loss"], [20, 40, 70, 90]),
        ("epoch={0} i={1}/50 total loss={2}", ["total loss"], [20, 40, 70, 90]),
        ("epoch={0} i={1}/30 total loss={2}", ["total loss"], [20, 40, 60, 80]),
    ],
)
def test_batches_of_epochs_with_any_names(tmp_path, line, names, steps):
    """A restart begins again at the step of its epoch."""
    places = [(epoch, batch) for epoch in (1, 2) for batch in (20, 40)]
    text = "".join(line.format(*place, 1 / sum(place)) + "\n" for place in places)
    trial = opened(tmp_path, text)
    assert trial.tensor_names() == names
    assert list(values(trial, names[0])) == steps
    with (tmp_path / "train.log").open("a") as more:
        more.write(line.format(1, 20, 0.75) + "\n")
    trial.refresh_data()
    assert values(trial, names[0]) == {20: 0.75}
    assert trial.orphans(names[0])["step"].tolist() == steps


def test_numbers_with_and_without_a_colon_in_one_line(tmp_path):
    line = "Eval step {0:4} | train loss {1} | val loss 0.75 | BLEU: 0.1\n"
    trial = opened(tmp_path, "".join(line.format(at, 1 / at) for at in (1, 2, 4)))
    assert trial.tensor_names() == ["BLEU", "train loss", "val loss"]
    assert values(trial, "train loss") == {1: 1, 2: 0.5, 4: 0.25}


def test_steps_in_brackets_are_numbered_on(tmp_path):
    text = "".join(f"[{at:06}/001000] VIMEO  | loss 0.{at} | 3.1 it/s\n" for at in (0, 500, 900, 500, 900))
    assert list(values(opened(tmp_path, text), "loss")) == [0, 500, 900, 1500, 1900]


def test_batches_without_a_number_between_numbered_epochs(tmp_path):
    epoch = "loss: {0}\nTrain Epoch:{1}\tPercent:[0/60 (0%)]\tLoss:{0}\nloss: 0.5\nloss: 0.25\n"
    trial = opened(tmp_path, "".join(epoch.format(9 - at, at) for at in range(1, 6)))
    assert len(values(trial, "loss")) == 15
    assert list(values(trial, "Loss").values()) == [8, 7, 6, 5, 4]
    assert trial.orphans("loss")["step"].tolist() == []


def test_epochs_and_batches_in_brackets(tmp_path):
    places = [(epoch, batch) for epoch in (0, 1, 2) for batch in (0, 25)]
    text = "".join(f"[{epoch}/3][{batch}/50]\tLoss_D: 0.{epoch + batch}\n" for epoch, batch in places)
    assert list(values(opened(tmp_path, text), "Loss_D")) == [0, 25, 50, 75, 100, 125]


def test_lines_of_one_step_in_brackets_are_counted_on(tmp_path):
    text = "".join(f"[{epoch}/3] loss: 0.{at}\n" for epoch in (1, 2, 3) for at in (3, 2, 1))
    assert list(values(opened(tmp_path, text), "loss")) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_levels_of_a_logger_are_no_names(tmp_path):
    line = "2020-11-08 17:50:{0:02},609 - INFO - {2} Epoch: {0}, accuracy: 0.{1}, F1: 0.0 .\n"
    text = "".join(line.format(at, 90 + at, role) for at in range(1, 6) for role in ("Validating", "Testing"))
    trial = opened(tmp_path, text)
    assert trial.tensor_names() == ["test/F1", "test/accuracy", "val/F1", "val/accuracy"]
    assert list(values(trial, "val/accuracy")) == [1, 2, 3, 4, 5]


def test_times_beside_a_place_are_no_numbers_of_a_training(tmp_path):
    (tmp_path / "train.log").write_text("".join(f"epoch 1, step {at}: time: {at}.5\n" for at in range(9)))
    with pytest.raises(smdwidgets.exceptions.RunNotFound):
        smdwidgets.create_trial(tmp_path)


def test_a_line_without_a_step_has_that_of_the_line_before(tmp_path):
    text = "".join(
        f"[epoch: {epoch}/3, iter: {at}/50] sum: 1.5\n"
        + "Validation accuracy: 0.25\nlearning rate = 0.01\n" * (at == 40)
        for epoch in (1, 2, 3)
        for at in (0, 20, 40)
    )
    trial = opened(tmp_path, text)
    assert list(values(trial, "sum")) == [0, 20, 40, 50, 70, 90, 100, 120, 140]
    assert list(values(trial, "Validation accuracy")) == list(values(trial, "learning rate")) == [40, 90, 140]


def test_lines_of_a_trainer_without_its_steps_are_those_of_another_program(tmp_path):
    trial = opened(tmp_path, "".join(f"Validation accuracy: 0.{at}\nSaved.\n" for at in range(1, 6)))
    assert values(trial, "Validation accuracy") == {at: (at + 1) / 10 for at in range(5)}


def test_lines_without_a_step_are_counted(tmp_path):
    text = "".join(f"train_loss: {n}\nval_loss: {n + 1}\n" for n in range(5))
    trial = opened(tmp_path, text)
    assert values(trial, "train_loss") == {n: n for n in range(5)}
    assert values(trial, "val_loss") == {n: n + 1 for n in range(5)}


@pytest.mark.parametrize(
    "text",
    [
        "numpy==2.1\npandas>=2.0\n" * 20,
        "# Title\n\nThe loss is a number. See figure 3.\n" * 20,
        "server=1 port=80 retries=3\n" * 20,
        "GET /loss 200 12ms\n" * 20,
        "",
        "\n" * 100,
        "loss: 0.5\n",
    ],
)
def test_other_text_is_no_log(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(smdwidgets.exceptions.RunNotFound):
        smdwidgets.create_trial(tmp_path)


def test_what_is_left_out_is_said_with_the_first_line(tmp_path):
    text = "".join(f"iter {step}: loss {step}.5, time 1.0ms\n" for step in range(5)) + "settings: learning_rate: 0.5\n"
    trial = opened(tmp_path, text)
    assert values(trial, "loss")[4] == 4.5
    log = tmp_path / "train.log"
    source = smdwidgets.sources.open_source("text log", smdwidgets.sources.Tree(log), "", ["train.log"])
    source.refresh()
    [(key, note)] = source.unsupported()
    assert key == "train.log"
    assert "lines of nanoGPT" in note
    assert "the first is line 6" in note


# ---------------------------------------------------------------------------------------- growth and other formats


def test_log_that_grows_and_is_rewritten(tmp_path):
    path = tmp_path / "train.log"
    trial = opened(tmp_path, "".join(f"step: {step}  loss:  {step}.0\n" for step in range(1, 5)))
    with path.open("a") as file:
        file.write("step: 5  loss:  5.0\nstep: 6  loss:  6")
    trial.refresh_data()
    assert list(values(trial, "loss")) == [1, 2, 3, 4, 5]
    with path.open("a") as file:
        file.write(".25\n")
    trial.refresh_data()
    assert values(trial, "loss")[6] == 6.25
    path.write_text("".join(f"step: {step}  loss:  7.0\n" for step in range(1, 4)))
    trial.refresh_data()
    assert values(trial, "loss") == {1: 7, 2: 7, 3: 7}


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_log_in_utf_16_that_grows_and_is_rewritten(tmp_path, encoding):
    file = tmp_path / "train.log"
    # The second half of the first sign and the first half of the next one look like the end of a line.
    lines = "".join(f"epoch {epoch}: loss {4 - epoch}.5 \u0a0a\u000a" for epoch in range(4))
    text = ("\ufeff" + lines).encode(encoding)
    trial = opened(tmp_path, text)
    assert values(trial, "loss") == {0: 4.5, 1: 3.5, 2: 2.5, 3: 1.5}
    line = "epoch 4: loss 0.5\r\n".encode(encoding)
    with file.open("ab") as more:
        more.write(line[:-7])
    assert len(values(trial, "loss")) == 4
    with file.open("ab") as more:
        more.write(line[-7:])
    assert values(trial, "loss")[4] == 0.5
    file.write_text("".join(f"epoch {epoch}: loss 9\n" for epoch in range(3)))
    assert values(trial, "loss") == {0: 9, 1: 9, 2: 9}
    assert trial.problems() == []


def test_last_line_without_an_end_counts_once_the_file_is_old(tmp_path):
    path = tmp_path / "train.log"
    path.write_text("".join(f"step: {step}  loss:  1.0\n" for step in range(1, 4)) + "step: 4  loss:  0.5")
    os.utime(path, (time.time() - 60,) * 2)
    assert values(smdwidgets.create_trial(path), "loss")[4] == 0.5


CARD = """---
license: mit
---

# A fine-tuned model

- Loss: 0.4512
- Accuracy: 0.9

| Model | Accuracy |
|-------|----------|
| ours  | 0.9      |

- learning_rate: 2e-05

| Training Loss | Epoch | Step | Validation Loss | Accuracy |
|:-------------:|:-----:|:----:|:---------------:|:--------:|
| No log        | 1.0   | 100  | 0.6             | 0.8      |
| 0.5           | 2.0   | 200  | nan             | 0.85     |
| 0.3           | 3.0   | 300  | nan             | 0.9      |

### Framework versions | Datasets 2.0 | 1
"""


@pytest.mark.parametrize("name", ["README.md", "card.markdown"])
def test_results_in_the_card_of_a_model(tmp_path, name):
    (tmp_path / name).write_text(CARD, encoding="utf-8")
    for place in (tmp_path / name, tmp_path):
        trial = smdwidgets.create_trial(place)
        assert trial.tensor_names() == ["Accuracy", "Training Loss", "Validation Loss"]
        assert trial.tensor("Training Loss").steps() == [200, 300]
        assert [float(trial.tensor("Accuracy").value(step)) for step in trial.steps()] == [0.8, 0.85, 0.9]
        assert [one.kind for one in smdwidgets.diagnose(trial).findings] == ["not_finite"]


def test_markdown_without_a_table_of_a_training_is_refused(tmp_path):
    (tmp_path / "README.md").write_text(CARD.replace("Epoch", "Size").replace("Step", "Rank"), encoding="utf-8")
    with pytest.raises(smdwidgets.exceptions.RunNotFound, match="no table of 3 rows or more has a column of steps"):
        smdwidgets.create_trial(tmp_path / "README.md")


def test_text_beside_a_better_format_is_not_read(tmp_path):
    (tmp_path / "train.log").write_text("".join(f"step: {step}  loss:  1.0\n" for step in range(5)))
    (tmp_path / "metrics.csv").write_text("step,loss\n0,2\n1,3\n")
    trial = smdwidgets.create_trial(tmp_path)
    assert trial.sources() == ["metrics.csv"]
    assert values(trial, "loss") == {0: 2, 1: 3}


def test_log_named_by_its_path_needs_no_ending(tmp_path):
    trial = opened(tmp_path, "".join(f"step: {step}  loss:  1.0\n" for step in range(5)), "slurm-123")
    assert trial.tensor_names() == ["loss"]


# ------------------------------------------------------------------------------------------------------ bad input


@given(st.text(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_without_an_error(text):
    for reader in (*map(Reader, TRAINERS), ColumnReader()):
        for part in parts_of(text.encode("utf-8", "surrogatepass")):
            reader.read(part)


@given(st.lists(st.sampled_from(["loss", ": ", "=", "1", ",", ".5", "e", "nan", " ", "(", ")", "/", "|", "step", "-"])))
@settings(max_examples=300, deadline=None)
def test_numbers_are_never_invented(parts):
    text = "".join(parts)
    for pairs in Pairs:
        for name, number in pairs_in(text, pairs):
            assert name in text + " value"
            assert number == number or "nan" in text


def test_lines_longer_than_any_of_numbers_are_left_out(tmp_path):
    lines = [f"step: {step}  loss:  1.0" for step in range(5)]
    trial = opened(tmp_path, "\n".join([*lines, "loss: 1 " * LONGEST_LINE, "step: 5  loss:  2.0", ""]))
    assert values(trial, "loss")[5] == 2


def test_many_names_are_bounded(tmp_path):
    text = "".join(
        f"step: {step}  loss: 1.0  " + "  ".join(f"a{step}x{n}: 1" for n in range(900)) + "\n" for step in range(15)
    )
    trial = opened(tmp_path, text)
    assert len(trial.tensor_names()) <= 10_000


def test_time_and_date_are_no_numbers_of_a_training():
    assert not has_numbers("2024-05-01 12:30:45 loss: 12:30:45")


def test_a_loss_of_catboost_is_better_when_it_is_lower(tmp_path):
    lines = [
        f"{at}:\tlearn: 0.{79 - at}\ttest: 0.{69 - at}\tbest: 0.{69 - at} ({at})\ttotal: 1s\tremaining: 1s"
        for at in range(9)
    ]
    trial = opened(tmp_path, "\n".join(lines))
    assert values(trial, "train/loss")[7] == 0.72
    assert {"validation/loss", "best"} <= {*trial.tensor_names()}


def test_a_metric_of_catboost_is_better_when_it_is_higher(tmp_path):
    lines = [
        f"{at}:\tlearn: 0.{70 + at}\ttest: 0.{60 + at}\tbest: 0.{60 + at} ({at})\ttotal: 1s\tremaining: 1s"
        for at in range(9)
    ]
    trial = opened(tmp_path, "\n".join(lines))
    assert {"train/score", "validation/score"} <= {*trial.tensor_names()}
