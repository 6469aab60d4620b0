"""The lines with numbers that trainers print.

A row finds the head of a line, which has the step, and says how the numbers after it are written. The head may also
begin a block, whose lines belong to it. To add a trainer, add its rows to `TRAINERS`, with a line that it printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from smdwidgets.sources.log_pairs import Pairs


class Block(Enum):
    """What follows a line."""

    NONE = "none"
    #: Lines whose numbers belong to its step.
    LINES = "lines"
    #: The rows of a box that is drawn with bars and dashes.
    BOX = "box"
    #: Lines whose numbers are not read.
    IGNORED = "ignored"


@dataclass(frozen=True)
class LogLine:
    """A kind of line.

    Attributes:
        mark: a text that each such line contains. It is looked for first, which is fast.
        head: finds the line; numbers are read after its end. Groups: ``step``, ``epoch``, ``batch`` and ``of`` (of an
            epoch), ``role`` (a key of `ROLES`), ``model`` (what is trained, which names begin with).
        pairs: how the numbers are written; None if the line has none.
        prefix: what names begin with.
        suffix: what names end with that the trainer leaves out.
        names: other names of numbers, which the trainer gives them in its other lines.
        step_name: the number that is the step. A box without it has the step of a table with the same names.
        block: what the lines after it are.
        body: finds a line of a block; numbers are read after its end.
        multiples: whether 1.2K is 1,200.
        mean: whether the number in parentheses counts: the mean so far.
        counts: whether the line is the next step, because the trainer prints none.
    """

    mark: str
    head: re.Pattern[str]
    pairs: Pairs | None = Pairs.NAMED
    prefix: str = ""
    suffix: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    step_name: str = ""
    block: Block = Block.NONE
    body: re.Pattern[str] | None = None
    multiples: bool = False
    mean: bool = False
    counts: bool = False


class Trainer(NamedTuple):
    """The lines of one trainer, and an example of the most frequent one."""

    name: str
    example: str
    lines: tuple[LogLine, ...]


ROLES: Final[Mapping[str, str]] = {"train": "", "val": "val/", "valid": "val/", "validate": "val/", "test": "test/"}
"""Prefixes of names by the word for the data."""


def _line(mark: str, head: str, pairs: Pairs | None = Pairs.NAMED, **options: object) -> LogLine:
    return LogLine(mark, re.compile(head), pairs, **options)  # type: ignore[arg-type]


TRAINERS: Final = (
    Trainer(
        "Megatron-LM",
        " [2024-05-01 12:00:00] iteration       10/  500000 | consumed samples:         2560 | elapsed time per iteration (ms): "
        "1234.5 | learning rate: 1.500000E-06 | global batch size:   256 | lm loss: 1.086742E+01 | loss scale: 1.0 | "
        "grad norm: 12.345 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        (
            _line("iteration", r"\biteration\s+(?P<step>\d+)/\s*\d+\s*\|"),
            _line(
                "validation loss at ",
                r"\bvalidation loss at (?:iteration (?P<step>\d+)|the end of training)[^|]*\|",
                prefix="val/",
            ),
        ),
    ),
    Trainer(
        "nanotron",
        "05/01/2024 12:00:00 [INFO|DP=0|PP=0|TP=0|node-1]: iteration: 10 / 100 | consumed_tokens: 1.31M | "
        "elapsed_time_per_iteration_ms: 1.2K | tokens_per_sec: 8.91K | global_batch_size: 1.02K | lm_loss: 10.5 | lr: 0.0003 | "
        "model_tflops_per_gpu: 12.3 | grad_norm: 1.25",
        (_line("iteration: ", r"\biteration: (?P<step>\d+) / \d+ \|", multiples=True),),
    ),
    Trainer(
        "torchtitan",
        "[rank0]:[titan] 2024-05-01 12:00:00,123 - root - INFO - step: 10  loss:  8.1234  grad_norm:  1.2345  memory: "
        "20.10GiB(25.00%)  tps: 1,234  tflops: 12.34  mfu: 4.50%",
        (
            _line("validate", r"\bvalidate\s+step:\s*(?P<step>\d+)\s+", prefix="val/"),
            _line("step:", r"\bstep:\s*(?P<step>\d+)\s+(?=loss:)"),
        ),
    ),
    Trainer(
        "fairseq",
        "2021-01-01 00:00:00 | INFO | train_inner | epoch 001:    100 / 1234 loss=12.345, nll_loss=12.01, ppl=4123.5, wps=1234.5, "
        "ups=1.2, wpb=3584, bsz=128, num_updates=100, lr=1.25e-05, gnorm=2.345, train_wall=80, wall=90",
        (
            _line(
                "| epoch ",
                r"\| epoch (?P<epoch>\d+):\s+(?P<batch>\d+) / (?P<of>\d+)\s+(?=\w+=)",
                step_name="num_updates",
            ),
            _line(
                "valid on '",
                r"\| epoch (?P<epoch>\d+) \| valid on '[^']*' subset \|",
                Pairs.SPACED,
                prefix="val/",
                step_name="num_updates",
            ),
            _line(
                "| epoch ",
                r"\| epoch (?P<epoch>\d+) \| (?=loss .*\bnum_updates )",  # others print "step 3 | epoch 0 | loss 0.5"
                Pairs.SPACED,
                prefix="train/",
                step_name="num_updates",
            ),
            _line("| INFO | ", r"\| INFO \| (?:train_inner|train|valid\w*) \| (?=\{)", step_name="num_updates"),
            _line("gradient overflow", r"gradient overflow detected, ignoring gradient, setting (?=loss scale to: )"),
        ),
    ),
    Trainer(
        "DeepSpeed",
        "[2024-05-01 12:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[0.0001], mom=[(0.9, 0.999)]",
        (
            _line("[Rank 0] step=", r"\[Rank 0\] step=(?P<step>\d+), "),
            _line("steps: ", r"\bsteps: (?P<step>\d+) (?=loss:)"),
            _line("OVERFLOW!", r"OVERFLOW! Rank \d+ Skipping step\. (?=Attempted loss scale: )"),
        ),
    ),
    Trainer(
        "Coqui TTS",
        "   --> TIME: 2024-05-01 12:00:00 -- STEP: 24/89 -- GLOBAL_STEP: 125\n     | > loss: 1.23456  (1.34567)\n"
        "     | > grad_norm: 0.51234  (0.62345)\n     | > current_lr: 0.00025",
        (
            _line(
                "GLOBAL_STEP: ",
                r"--> TIME: .{1,40}-- STEP: \d+/\d+ -- GLOBAL_STEP: (?P<step>\d+)",
                None,
                block=Block.LINES,
                body=re.compile(r"^\s*\|?\s*\| > "),
            ),
            _line(
                "--> EVAL PERFORMANCE",
                r"--> EVAL PERFORMANCE",
                None,
                prefix="val/",
                block=Block.LINES,
                body=re.compile(r"^\s*\|?\s*\| > "),
            ),
            _line("--> ", r"--> (?:STEP: \d+|EPOCH)", None, block=Block.IGNORED),
        ),
    ),
    Trainer(
        "RecBole",
        "Wed 02 Jul 2025 22:41:13 INFO  epoch 0 training [time: 2.68s, train loss: 17.8021]",
        (
            _line(" training [", r"\bepoch (?P<epoch>\d+) training \["),
            _line(" evaluating [", r"\bepoch (?P<epoch>\d+) evaluating \["),
            *(
                _line(
                    f"{data} result: ",
                    rf"\b{data} result: \s*$",
                    None,
                    prefix=prefix,
                    block=Block.LINES,
                    body=re.compile(r"^(?=[A-Za-z]+@?\d* : )"),
                )
                for data, prefix in (("valid", "val/"), ("test", "test/"))
            ),
        ),
    ),
    Trainer(
        "TransReID",
        "2025-09-03 14:02:13,116 transreid.train INFO: Epoch[1] Iteration[20/100] Loss: 6.512, Acc: 0.012, Base Lr: 3.50e-04",
        (
            _line("Iteration[", r"\bEpoch\[(?P<epoch>\d+)\] Iteration\[(?P<batch>\d+)/(?P<of>\d+)\] "),
            _line(
                "Validation Results",
                r"\bValidation Results\b",
                None,
                prefix="val/",
                block=Block.LINES,
                body=re.compile(r"^.{0,80}?(?:CMC curve, |(?=mAP: ))"),
            ),
        ),
    ),
    Trainer(
        "Composer",
        "[epoch=1][batch=10/1000]:\n\t Train time/batch: 9\n\t Train loss/train/total: 2.3456",
        (
            _line(
                "[batch=",
                r"\[batch=(?P<step>\d+)/\d+\]:\s*$",
                None,
                block=Block.LINES,
                body=re.compile(r"^\s+(?:Train|Eval) "),
            ),
        ),
    ),
    Trainer(
        "Keras",
        "Epoch 1/10\n1875/1875 ━━━━━━━━━━━━━━━━━━━━ 5s 3ms/step - accuracy: 0.8012 - loss: 0.5678 - val_accuracy: 0.9012 - val_loss: 0.3456",
        (
            _line("Epoch ", r"^\s*Epoch (?P<epoch>\d+)/\d+\s*$", None),
            _line("- ", r"^\s*(?P<batch>\d+)/(?P=batch) .{0,200}?- (?=[A-Za-z]\w*: )"),
            # The bar of an epoch that is not complete, or without a number of batches.
            _line("- ", r"^\s*\d+/(?:\d+|Unknown) .{0,200}?- (?=[A-Za-z]\w*: )", None),
        ),
    ),
    Trainer(
        "Transformers",
        "{'loss': 1.2345, 'grad_norm': 2.3456, 'learning_rate': 4.5e-05, 'epoch': 0.25}",
        (
            _line("{'loss': ", r"\{(?='loss': )", counts=True),
            _line("{'", r"\{(?='(?:eval|train|test)_\w+': )"),
        ),
    ),
    Trainer(
        "nanoGPT",
        "iter 100: loss 2.1234, time 123.45ms, mfu 12.34%",
        (
            _line("iter ", r"^iter (?P<step>\d+): (?=loss )", Pairs.SPACED),
            _line("loss ", r"^step (?P<step>\d+): (?=(?:train|val) loss )", Pairs.SPACED),
        ),
    ),
    Trainer(
        "llm.c",
        "step   10/19560 | loss 7.123456 (+1.23z)| norm 1.2345 (-0.12z)| lr 3.00e-04 | 100.12 ms | 45.1% bf16 MFU | 524288 tok/s",
        (
            _line("loss ", r"^step\s+(?P<step>\d+)/\d+ \| (?=(?:train )?loss )", Pairs.SPACED),
            _line("val loss ", r"^(?=val loss )", Pairs.SPACED),
            _line(" ", r"^(?P<step>\d+) (?=(?:train|val) [\d.]+$)", Pairs.SPACED, suffix=" loss"),
        ),
    ),
    Trainer(
        "modded-nanogpt",
        "step:10/1480 train_loss:7.1234 train_time:1234ms step_avg:123.40ms",
        (_line("_loss:", r"^step:(?P<step>\d+)/\d+ (?=(?:train|val)_loss:)"),),
    ),
    Trainer(
        "MaxText",
        "completed step: 10, seconds: 1.234, TFLOP/s/device: 123.456, Tokens/s/device: 2345.678, total_weights: 8192, loss: 10.871",
        (
            _line("completed step: ", r"\bcompleted step: (?P<step>\d+), "),
            _line("eval metrics after step: ", r"\beval metrics after step: (?P<step>\d+), ", prefix="val/"),
        ),
    ),
    Trainer(
        "torchtune",
        "Step 10 | loss:1.2345 lr:2e-05 tokens_per_second_per_gpu:1234.5 peak_memory_active:12.3",
        (_line("Step ", r"^Step (?P<step>\d+) \| (?=\w+:)"),),
    ),
    Trainer(
        "PyTorch example mnist",
        "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.345678",
        (
            _line("Train Epoch: ", r"^Train Epoch: (?P<epoch>\d+) \[(?P<batch>\d+)/(?P<of>\d+) \([^)]*\)\]\s*"),
            _line("Test set: ", r"^Test set: ", prefix="test/"),
        ),
    ),
    Trainer(
        "timm",
        "Train: 0 [  50/1251 (  4%)]  Loss: 6.951 (6.96)  Time: 0.512s, 1234.56/s  LR: 1.000e-05  Data: 0.012 (0.123)",
        (
            _line("Train: ", r"\bTrain: (?P<epoch>\d+) \[\s*(?P<batch>\d+)/(?P<of>\d+) [^\]]*\]\s*"),
            _line("Test", r"\bTest(?: \(EMA\))?: \[\s*(?P<last>\d+)/(?P=last)\]\s*", prefix="val/", mean=True),
            _line("Test", r"\bTest(?: \(EMA\))?: \[\s*\d+/\d+\]", None),
        ),
    ),
    Trainer(
        "torchvision references, DETR, MAE",
        "Epoch: [0]  [  20/5005]  eta: 0:30:01  lr: 0.1  img/s: 512.1 (500.2)  loss: 6.9512 (7.0123)  acc1: 0.39 (0.21)",
        (
            _line("Epoch: [", r"^Epoch: \[(?P<epoch>\d+)\]\s*\[\s*(?P<batch>\d+)/(?P<of>\d+)\]\s+(?=eta: )"),
            # The last batch of an evaluation has the mean of all in parentheses.
            _line("Test:", r"^Test:[\w ]*\[\s*\d+/\d+\]\s+(?=eta: )", prefix="val/", mean=True),
            _line("Test:", r"^Test:[\w ]*(?=Acc@1 )", Pairs.SPACED, prefix="val/"),
            _line("Averaged stats: ", r"^Averaged stats: ", None),
        ),
    ),
    Trainer(
        "PyTorch example imagenet",
        "Epoch: [0][  10/5005]\tTime  0.512 ( 0.612)\tData  0.012 ( 0.123)\tLoss 6.9512e+00 (7.0123e+00)\tAcc@1   0.39 (  0.21)",
        (
            _line("Epoch: [", r"^Epoch: \[(?P<epoch>\d+)\]\s*\[\s*(?P<batch>\d+)/(?P<of>\d+)\]\s*", Pairs.SPACED),
            _line("Acc@1 ", r"^ \* +(?=Acc@1 )", Pairs.SPACED, prefix="val/"),
            _line("Test: [", r"^Test: \[\s*\d+/\d+\]", None),
        ),
    ),
    Trainer(
        "Detectron2",
        "[05/01 12:00:00 d2.utils.events]:  eta: 1:00:00  iter: 19  total_loss: 5.123  loss_cls: 4.567  loss_box_reg: 0.123  "
        "time: 0.2345  data_time: 0.0123  lr: 0.00039962  max_mem: 2345M",
        (_line("d2.utils.events]:", r"d2\.utils\.events\]:.{0,80}?\biter: (?P<step>\d+)\s+"),),
    ),
    Trainer(
        "OpenMMLab",
        "2024/05/01 12:00:00 - mmengine - INFO - Epoch(train)  [1][  50/7330]  base_lr: 1.0e-02 lr: 9.8e-04  eta: 1 day, 2:03:04  "
        "time: 0.5123  data_time: 0.0123  memory: 5012  loss: 1.5123  loss_cls: 0.5123",
        (
            _line(
                "Epoch(",
                r"\bEpoch\((?P<role>train|val|test)\)\s+\[(?P<epoch>\d+)\]\[\s*(?P<batch>\d+)/(?P<of>\d+)\]\s*",
            ),
            _line("Iter(", r"\bIter\((?P<role>train)\)\s+\[\s*(?P<step>\d+)/\d+\]\s*"),
            _line("Epoch [", r"\bEpoch \[(?P<epoch>\d+)\]\[\s*(?P<batch>\d+)/(?P<of>\d+)\]\s*"),
        ),
    ),
    Trainer(
        "Lightning",
        "Epoch 0:  10%|█         | 10/100 [00:05<00:45,  2.01it/s, v_num=0, train_loss=2.345]",
        (
            _line(
                "it/s, ",
                r"Epoch (?P<epoch>\d+):\s+\d+%\|[^|]{0,200}\| (?P<batch>\d+)/(?P<of>\d+) \[[^\]]{0,60}?it/s, ",
                step_name="global_step",
            ),
        ),
    ),
    Trainer(
        "Stable-Baselines3",
        "------------------------------------\n| rollout/            |            |\n|    ep_rew_mean      | 20.5       |\n"
        "| time/               |            |\n|    total_timesteps  | 2048       |\n------------------------------------",
        (_line("-----", r"^-{10,}\s*$", None, step_name="total_timesteps", block=Block.BOX),),
    ),
    Trainer(
        "XGBoost",
        "[10]\ttrain-rmse:0.51234\teval-rmse:0.61234",
        (_line("-", r"^\[(?P<step>\d+)\]\s+(?=\S+-\S+:)"),),
    ),
    Trainer(
        "LightGBM",
        "[10]\ttraining's l2: 0.512345\tvalid_1's l2: 0.612345",
        (_line("'s ", r"^\[(?P<step>\d+)\]\s+(?=\S+'s )"),),
    ),
    Trainer(
        "CatBoost",
        "10:\tlearn: 0.5123456\ttest: 0.6123456\tbest: 0.6123456 (10)\ttotal: 123ms\tremaining: 1.23s",
        (_line("learn: ", r"^(?P<step>\d+):\s+(?=learn: )"),),
    ),
    Trainer(
        "Paddle",
        "[2024-05-01 12:00:00,123] [    INFO] - global step 10, epoch: 1, batch: 10, loss: 0.51234, speed: 2.34 step/s",
        (_line("global step ", r"\bglobal step (?P<step>\d+), "),),
    ),
    Trainer(
        "OpenNMT-py",
        "[2024-05-01 12:00:00,123 INFO] Step 50/100000; acc: 10.1; ppl: 8123.4; xent: 9.0; lr: 0.00001; sents:   12345; bsz: 1234/1234/64",
        (
            _line("Step ", r"\bStep (?P<step>\d+)/\s*\d+; "),
            _line(
                "Validation ",
                r"\bValidation (?=(?:perplexity|accuracy): )",
                prefix="val/",
                names={"perplexity": "ppl", "accuracy": "acc"},
            ),
            _line("Model is improving ", r"\bModel is improving ", None),
        ),
    ),
    Trainer(
        "ML-Agents",
        "[INFO] 3DBall. Step: 12000. Time Elapsed: 27.1 s. Mean Reward: 1.15. Std of Reward: 0.7. Training.",
        (
            _line(
                "Step: ",
                r"(?P<model>[\w?=\-]{1,80})[.:] Step: (?P<step>\d+)\. (?=Time Elapsed: |Mean Reward: |No episode )",
                # Older versions print no full stop after the unit of a time.
                names={"s Mean Reward": "Mean Reward"},
            ),
        ),
    ),
    Trainer(
        "CycleGAN and pix2pix",
        "(epoch: 1, iters: 100, time: 0.198, data: 0.278) D_A: 0.255 G_A: 0.322 cycle_A: 6.358 idt_A: 1.683",
        (
            _line(
                "(epoch: ",
                r"\(epoch: (?P<epoch>\d+), iters: (?P<batch>\d+), time: [\d.]+(?:, data: [\d.]+)?\)[ ,]*",
                suffix=" loss",
            ),
            _line("= Training Loss (", r"^=+ Training Loss \(", None),
        ),
    ),
    Trainer(
        "Marian",
        "[2024-05-01 12:00:00] Ep. 1 : Up. 1000 : Sen. 123,456 : Cost 7.51234567 * 123,456 : Time 100.12s : 5123.45 words/s",
        (
            _line("[valid] Ep. ", r"\[valid\] Ep\. \d+ : Up\. (?P<step>\d+) : ", prefix="val/"),
            _line("Ep. ", r"\bEp\. \d+ : Up\. (?P<step>\d+) : (?:Sen\. [\d,]+ : )?(?=Cost )", Pairs.SPACED),
        ),
    ),
    Trainer(
        "MXNet",
        "Epoch[0] Batch [20]\tSpeed: 36.22 samples/sec\tTrain-accuracy=0.774131",
        (
            _line("] Batch [", r"\bEpoch\[(?P<epoch>\d+)\] Batch \[(?:\d+-)?(?P<batch>\d+)\]\s*(?=Speed: )"),
            # They follow the batches of their epoch.
            _line("Epoch[", r"\bEpoch\[\d+\] (?=(?:Train|Validation)-\S+=|Time cost=)"),
            _line(
                "Change learning rate",
                r"\bUpdate\[\d+\]: Change (?=learning rate to )",
                Pairs.SPACED,
                names={"learning rate to": "learning rate"},
            ),
        ),
    ),
    Trainer(
        "ST-GCN and other programs of torchlight",
        "[05.01.24|12:00:00] Training epoch: 3\n[05.01.24|12:00:00] \tIter 300 Done. | loss: 4.5821 | lr: 0.100000\n"
        "[05.01.24|12:00:00] \tmean_loss: 4.6125",
        tuple(
            _line(
                f"{data} epoch: ",
                rf"\b{data} epoch: (?P<epoch>\d+)\s*$",
                None,
                prefix=prefix,
                block=Block.LINES,
                body=re.compile(r"^(?:\[[\d.|:]+\] )?\t(?:Iter \d+ Done\. \| )?(?=\w+: )"),
            )
            for data, prefix in (("Training", ""), ("Eval", "val/"))
        ),
    ),
)
"""The known trainers. A log is read by the rows of the one of which it has the most lines."""
