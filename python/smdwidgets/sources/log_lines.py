"""A table of the lines with numbers that trainers print.

A row finds the head of a line, which has the step, and says how the numbers after it are written. The head may also
begin a block, whose lines belong to it. To add a trainer, add its rows to `TRAINERS`, with a line that it printed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from smdwidgets.naming.scalars import ROLE_WORDS, Kind, Role, describe, words_of
from smdwidgets.sources.layout import split, step_column

#: Longest line that is read; a longer one is no line of numbers.
LONGEST_LINE: Final = 20_000

_NUMBER: Final = r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?:nan|NaN|NAN|inf|Inf|INF|Infinity)(?![A-Za-z]))"
#: A part of a name. Words of a name are separated by one space.
_WORD: Final = r"(?<![\w/.])[A-Za-z_@][\w@./()%+\-]{0,80}(?:'s(?=[ ]))?"
#: A number ends before what is no unit, and is no part of a time such as 1:30:00. It may end a sentence.
_END: Final = r"(?P<unit>%|[A-Za-z]{0,4}(?:/[A-Za-z]+)?)(?:/(?P<of>\d+))?(?![\w:/\-]|\.(?!\s|$))"
_NAMED: Final = re.compile(
    rf"""["']?(?P<name>{_WORD}(?:[ ][\w@./()%+\-]{{1,80}}){{0,6}}?)["']?\s*[:=]\s*["'\[(]*"""
    rf"""(?P<value>{_NUMBER}){_END}(?:["'\]),]*\s*\(\s*(?P<mean>{_NUMBER})\s*\))?"""
)
_SPACED: Final = re.compile(
    rf"(?P<name>{_WORD}(?:[ ][A-Za-z_][\w@./\-]{{0,80}}){{0,3}}?)\s+"
    rf"(?P<value>{_NUMBER}){_END}(?:\s*\(\s*(?P<mean>{_NUMBER})\s*\))?"
)
#: Names and numbers that stand in parentheses, and one of them.
_PARTS: Final = re.compile(r"\(([^()=:]{3,200})\)")
_PART: Final = re.compile(r"\s*(?P<name>[A-Za-z_][\w./\-]{0,80}) (?P<value>[-+]?\d*\.\d+(?:[eE][-+]?\d+)?|nan|inf)\s*")
#: A name and a number between two bars.
_CELL: Final = re.compile(r"\s*(?P<name>[A-Za-z_][\w./\-]{0,80}) +(?P<value>[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?)\s*")
#: The unit of the number before a name, at the end of a sentence.
_UNIT_BEFORE: Final = re.compile(r"(?:m?s|sec|min|h)\. ")
#: What a line with a number contains.
_DIGIT: Final = re.compile(r"\d|(?i:nan|inf)")
_MULTIPLES: Final = {"K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
#: Words of a name that tell the step: "loss after epoch 3: 0.5".
_STEP_IN_NAME: Final = re.compile(
    r"(?i)[ ]*(?:\b(?:after|at|of|for|in)[ ])?\b(?P<word>epoch|step|iter(?:ation)?)[ ]+(?P<step>\d+)\b"
    r"(?:[ ]?/[ ]?\d+\b)?(?:[ ]+-+(?=[ ]))?"
)
#: Characters at the beginning of a line that may name its data.
_LONGEST_HEAD: Final = 40
#: Numbers of steps in a line of no known trainer, the best first.
_STEPS: Final = tuple(
    re.compile(rf"(?i)(?<![\w/]){words}(?![a-z])[ \t:=#(\[\x22\x27]{{1,8}}(?P<step>\d+)(?:(?P<unit>[KM])\b)?(?![\d.])")
    for words in ("(?:global[_ ]?step|num_updates)", "(?:step|iter(?:ation)?|update)s?", "epoch")
)
#: The place in an epoch: "Step [20/500]", "batch 20/500".
_BATCH: Final = re.compile(
    r"(?i)(?<![\w/])(?:step|iter(?:ation)?|batch)[ \t:=#(\[\x22\x27]{1,8}(?P<batch>\d+)\s*/\s*(?P<of>\d+)(?![\d.])"
)
#: The same behind the number of the epoch: "Epoch 1 [20/500]", "Epoch 1/9 [20/500 (4%)]", "epoch 1 | 20/ 500 batches".
_BATCH_OF_EPOCH: Final = re.compile(
    r"(?i)(?<![\w/])epoch[ \t:=#(\[]{1,8}\d+(?:/\d+)?[\])]?[ \t:,]*(?:\|(?=[\s\d/]+batches\b)|\[)\s*"
    r"(?P<batch>\d+)\s*/\s*(?P<of>\d+)(?:\s*\([\d. ]+%\))?\s*(?:\]|batches)"
)
#: Kinds of which one makes lines of unknown origin those of a training.
_TELLING: Final = frozenset({Kind.LOSS, Kind.METRIC, Kind.REWARD, Kind.LEARNING_RATE, Kind.GRADIENT_NORM})
#: Kinds that are no measure of a training beside an epoch and a batch, where any other name is one.
_BESIDES: Final = frozenset({Kind.TIME, Kind.COUNT, Kind.RESOURCE, Kind.SETTING})
_POSITIONS: Final = frozenset({"epoch", "step", "iter", "iteration", "batch", "global_step", "global step", "eta"})


class Pairs(Enum):
    """How names and numbers are written."""

    #: ``name: number`` or ``name=number``.
    NAMED = _NAMED
    #: ``name number``.
    SPACED = _SPACED


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
                r"\| epoch (?P<epoch>\d+) \| (?=loss )",
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


def pairs_in(text: str, pairs: Pairs, *, multiples: bool = False, mean: bool = False) -> Iterator[tuple[str, float]]:
    """Yield the names and numbers in a text.

    >>> list(pairs_in("loss: 1.5  (1.6) | Accuracy: 9800/10000 | eta: 1:20:00", Pairs.NAMED))
    [('loss', 1.5), ('Accuracy', 0.98)]
    >>> list(pairs_in("tokens_per_sec: 8.9K", Pairs.NAMED, multiples=True))
    [('tokens_per_sec', 8900.0)]
    >>> list(pairs_in("loss: 37.8 (recon 37.5, kl 0.25)", Pairs.NAMED))
    [('loss', 37.8), ('recon', 37.5), ('kl', 0.25)]
    """
    for match in pairs.value.finditer(text):
        number = float(((match["mean"] if mean else None) or match["value"]).replace(",", ""))
        if match["of"] and int(match["of"]):
            number /= int(match["of"])
        if multiples:
            number *= _MULTIPLES.get(match["unit"], 1.0)
        name = match["name"].strip().removesuffix(" value")
        name = name[unit.end() :] if (unit := _UNIT_BEFORE.match(name)) else name
        if match["unit"] == "%" and name.lower() in ROLE_WORDS:
            name = f"{name} accuracy"
        yield name, number
    if pairs is Pairs.NAMED:
        for inside in _PARTS.findall(text):
            parts = [_PART.fullmatch(part) for part in inside.split(",")]
            yield from [
                (part["name"], float(part["value"])) for part in parts if part is not None and None not in parts
            ]


@dataclass
class Row:
    """The numbers of one step."""

    step: int
    values: dict[str, float] = field(default_factory=dict)


class Reader:
    """Reads the lines of a trainer in order. Remembers step, epoch and block.

    >>> [mnist] = [trainer for trainer in TRAINERS if trainer.name == "PyTorch example mnist"]
    >>> reader = Reader(mnist)
    >>> lines = "Train Epoch: 1 [0/640 (0%)]\\tLoss: 2.5", "Test set: Average loss: 2.25"
    >>> rows = [reader.read(line) for line in lines]
    >>> [(row.step, row.values) for row in rows]
    [(0, {'Loss': 2.5}), (0, {'test/Average loss': 2.25})]
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._step = 0
        self._epoch: int | None = None
        self._first_epoch: int | None = None
        #: The last batch of an epoch of unknown length, and the batches before each epoch.
        self._batch = 0
        self._before: dict[int, int] = {}
        self._block: LogLine | None = None
        self._box = Row(0)
        self._group = ""
        #: The numbers of the box that have few digits; the name of the step in boxes, and its last number.
        self._rounded: set[str] = set()
        self._step_of_boxes = ""
        self._box_number = math.nan
        #: Whether the last line is one of this trainer, with numbers or without.
        self.recognized = False
        #: Whether a line had a step. Other lines may look like those of another program.
        self.has_step = False
        #: The names of all numbers that the trainer has printed.
        self._names: set[str] = set()

    def read(self, line: str) -> Row | None:
        """Return the numbers of a line; None if it has none that belong to a step."""
        self.recognized = True
        for kind in self._trainer.lines:
            head = kind.head.search(line) if kind.mark in line else None
            if head is None:
                continue
            if kind.block is Block.BOX:
                return self._end_box(kind)
            self._block = kind if kind.block is not Block.NONE else None
            return self._read_line(kind, head, line)
        self.recognized = self._block is not None
        if self._block is None:
            return None
        if self._block.block is Block.BOX:
            self._read_box(line)
            self.recognized = self._block is not None
            return None
        body = self._block.body.match(line) if self._block.body else None
        if body is None:
            return None
        return self._row(self._block, self._block.prefix, pairs_in(line[body.end() :], Pairs.NAMED))

    def beside(self, line: str) -> Row | None:
        """Return the numbers of a line that the script prints beside those of its trainer.

        They belong to the last step. Lines before the first step are settings; names of the trainer are its own.

        >>> [mnist] = [trainer for trainer in TRAINERS if trainer.name == "PyTorch example mnist"]
        >>> reader = Reader(mnist)
        >>> row = reader.read("Train Epoch: 1 [0/640 (0%)]\\tLoss: 2.5")
        >>> reader.beside("====> Test set loss: 2.25 (recon: 2.0, kl: 0.25)").values
        {'Test set loss': 2.25, 'test/recon': 2.0, 'test/kl': 0.25}
        """
        if not self._names:
            return None
        words = words_of(line[:_LONGEST_HEAD])
        role = next((ROLE_WORDS[word] for word in words[:3] if word in ROLE_WORDS), Role.TRAINING)
        values: dict[str, float] = {}
        pairs = list(pairs_in(line, Pairs.NAMED))
        if not _tells(dict(pairs)) and any(step.search(line) for step in _STEPS):
            pairs = [pair for pair in pairs_in(line, Pairs.SPACED) if _tells(pair[:1])]
        for name, number in pairs:
            said = describe(name)
            if said.role is Role.NONE and role.is_held_out:
                name = _of_role(name, role)
            if name.lower() not in _POSITIONS and said.kind is not Kind.LEARNING_RATE and name not in self._names:
                values.setdefault(name, number)
        return Row(self._step, values) if _tells(values) else None

    def _read_line(self, kind: LogLine, head: re.Match[str], line: str) -> Row | None:
        groups = head.groupdict()
        role = groups.get("role")
        if kind.counts:
            self._step += 1
            self.has_step = True
        self._find_step(groups, holds_out=ROLES.get(role or "", kind.prefix) not in ("", "train/"))
        if kind.pairs is None:
            return None
        pairs = pairs_in(line[head.end() :], kind.pairs, multiples=kind.multiples, mean=kind.mean)
        model = groups.get("model")
        return self._row(kind, (f"{model}/" if model else "") + (kind.prefix or ROLES.get(role or "", "")), pairs)

    def _find_step(self, groups: Mapping[str, str | None], *, holds_out: bool) -> None:
        step, epoch, batch, of = (groups.get(name) for name in ("step", "epoch", "batch", "of"))
        previous = self._epoch
        self.has_step |= step is not None or epoch is not None
        if epoch is not None:
            self._epoch = int(epoch)
            self._first_epoch = self._epoch if self._first_epoch is None else self._first_epoch
        if step is not None:
            self._step = int(step)
        elif self._epoch is not None and of is not None and batch is not None:
            if not holds_out:  # batches of an evaluation do not count
                self._step = max(0, self._epoch - (self._first_epoch or 0)) * int(of) + int(batch)
        elif self._epoch is not None and epoch is not None and batch is not None:
            self._step = self._numbered_on(self._epoch, previous, int(batch))
        elif self._epoch is not None and epoch is not None:
            self._step = self._epoch

    def _numbered_on(self, epoch: int, previous: int | None, batch: int) -> int:
        """Return the step of a batch in an epoch whose length is not printed.

        The last batch of an epoch that was printed counts as its length. An epoch that comes again is a restart.
        """
        if previous is None or previous not in self._before:
            self._before = {epoch: 0}
        elif epoch < previous:
            self._before = {one: before for one, before in self._before.items() if one <= epoch}
            self._before.setdefault(epoch, 0)
        elif epoch > previous:
            self._before[epoch] = self._before[previous] + self._batch
        self._batch = batch
        return self._before[epoch] + batch

    def _row(self, kind: LogLine, prefix: str, pairs: Iterator[tuple[str, float]]) -> Row | None:
        values: dict[str, float] = {}
        for name, number in pairs:
            if kind.step_name and name.endswith(kind.step_name) and number == math.floor(number):
                self._step, self.has_step = int(number), True
            elif name.lower() not in _POSITIONS or not number.is_integer():
                values.setdefault(prefix + kind.names.get(name, name) + kind.suffix, number)
        self._names |= values.keys()
        return Row(self._step, values) if values else None

    # A box: each group has its name in a row without a number.

    def _read_box(self, line: str) -> None:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 2 or not line.lstrip().startswith("|"):
            self._block = None
            return
        name, value = cells
        if not value:
            self._group = name
            return
        number = number_of(value)
        if number is not None:
            name = self._group + name if self._group.endswith("/") else name
            self._box.values[name] = number
            if "e" in value:
                self._rounded.add(name)

    def _end_box(self, kind: LogLine) -> Row | None:
        box, self._box, self._group = self._box, Row(0), ""
        self._block = kind
        own = next((name for name in box.values if name.endswith(kind.step_name)), None)
        if own is None and self._step_of_boxes in ("", *box.values):
            own = self._step_of_boxes or step_column(box.values)
        number = math.nan if own is None else box.values.pop(own)
        rounded, self._rounded = self._rounded, set()
        if own is None or not math.isfinite(number):
            return None
        # Steps that are rounded alike are numbered on.
        box.step = max(int(number), self._step + 1) if own in rounded and number == self._box_number else int(number)
        self._step, self._step_of_boxes, self._box_number, self.has_step = box.step, own, number, True
        self._names |= box.values.keys()
        return box if box.values else None


def _of_role(name: str, role: Role) -> str:
    """Return the name of a number that was measured on held-out data."""
    return f"{'test' if role is Role.TEST else 'val'}/{name}"


def _of_one_role(values: dict[str, float]) -> dict[str, float]:
    """Return the numbers of a line that begins with a loss of held-out data.

    Its losses and metrics without a role belong to the same data.

    >>> _of_one_role({"val Loss": 0.5, "Acc": 0.75}), _of_one_role({"train Loss": 0.5, "Acc": 0.75})
    ({'val Loss': 0.5, 'val/Acc': 0.75}, {'train Loss': 0.5, 'Acc': 0.75})
    """
    said = {name: describe(name) for name in values}
    roles = {one.role for one in said.values()} - {Role.NONE}
    first = said[next(iter(values))]
    if len(roles) != 1 or not first.role.is_held_out or len(values) < 2:
        return values
    judged = (Kind.LOSS, Kind.METRIC)
    return {
        _of_role(name, first.role) if said[name].role is Role.NONE and said[name].kind in judged else name: number
        for name, number in values.items()
    }


#: Between two columns of a table; what its first column is called; a cell that is a number, or a time.
_GAP: Final = re.compile(r"\s{2,}|\t")
_FIRST_COLUMNS: Final = ("epoch", "e", "step", "iter", "iteration")
_NUMBER_ALONE: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf|-inf")
_TIME_ALONE: Final = re.compile(r"\(?\d+(?::\d\d)+\)?")
_LONGEST_FIRST: Final = max(map(len, _FIRST_COLUMNS))
_FEWEST_COLUMNS: Final = 3
_LONGEST_HEADING: Final = 400


class ColumnReader:
    """Reads lines of no known trainer: names and numbers that repeat.

    >>> reader = ColumnReader()
    >>> row = reader.read("[12:30:05] epoch 3, train loss = 0.5, lr: 1e-3")
    >>> row.step, row.values
    (3, {'train loss': 0.5, 'lr': 0.001})
    >>> row = reader.read("Loss after epoch 4: 0.25")
    >>> row.step, row.values
    (4, {'Loss': 0.25})
    >>> reader = ColumnReader()
    >>> [reader.read(f"Epoch [{epoch}/9], Step [400/500], Loss: 0.5").step for epoch in (1, 2)]
    [400, 900]
    >>> reader.read("Epoch [2/9], Val Loss: 0.5").step
    900
    >>> reader = ColumnReader()
    >>> [reader.read(f"[epoch {epoch}, step {step}] loss: 0.5").step for epoch in (1, 2) for step in (100, 200)]
    [100, 200, 300, 400]
    >>> reader = ColumnReader()
    >>> [reader.read(f"| epoch   {epoch} |   200/  500 batches | loss  4.5").step for epoch in (1, 2)]
    [200, 700]
    >>> reader = ColumnReader()
    >>> [reader.read(f"step:{step} loss:0.5").step for step in (800, "1K", "1K", "2K")]
    [800, 1000, 1001, 2000]
    >>> reader = ColumnReader()
    >>> lines = "epoch  train_loss  error_rate", "1      1.52        0.25    (00:31)"
    >>> [reader.read(line) for line in lines][1].values
    {'train_loss': 1.52, 'error_rate': 0.25}
    """

    def __init__(self) -> None:
        self._step = -1
        self._row_of: set[str] = set()
        #: The last epoch with batches, its last batch, and the number of batches before each epoch.
        self._epoch = self._batch = -1
        self._before: dict[int, int] = {}
        #: The names of the columns below a line of names.
        self._columns: list[str] = []
        #: Whether commas separate them.
        self._is_cut = False

    def read(self, line: str) -> Row | None:
        """Return the numbers of a line; None if none is one of a training."""
        if self._is_heading(line):
            return None
        if self._columns and (row := self._below_heading(line)) is not None:
            return row
        if _DIGIT.search(line) is None:
            return None
        values: dict[str, float] = {}
        step = self._step_of(line)
        for name, number in pairs_in(line, Pairs.NAMED):
            if match := _STEP_IN_NAME.search(name):
                step = int(match["step"])
                name = (name[: match.start()] + name[match.end() :]).strip()
            if name and name.lower() not in _POSITIONS:
                values.setdefault(name, number)
        if not _tells(values):
            spaced = {name: number for name, number in pairs_in(line, Pairs.SPACED) if _tells([name])}
            values |= spaced | (_cells(line) if spaced else {})
        if not _tells(values) and not (_measures(values) and _has_place(line)):
            return None
        values = _of_one_role(values)
        if step is None:
            # Lines without a step: a name that comes again begins the next one.
            if self._step < 0 or not self._row_of.isdisjoint(values):
                self._step, self._row_of = self._step + 1, set()
            self._row_of |= values.keys()
        else:
            if step != self._step:
                self._row_of = set()
            self._step = step
        return Row(self._step, values)

    def _is_heading(self, line: str) -> bool:
        """Whether a line names columns, which are remembered.

        The tables of spaCy and fastai have such lines.
        """
        # Few lines begin like one, and splitting them takes longer than this test.
        if len(line) >= _LONGEST_HEADING or not line.lstrip()[:_LONGEST_FIRST].lower().startswith(
            (",", *_FIRST_COLUMNS)
        ):
            return False
        columns = _GAP.split(line.strip())
        if is_cut := len(columns) == 1 and "," in line:
            columns = split(line, ",")
        first = columns[0].lower() if len(columns) >= _FEWEST_COLUMNS else ""
        # pandas writes no name of the first column, which numbers the rows.
        if first not in _FIRST_COLUMNS and not (is_cut and not columns[0] and len(columns) >= _FEWEST_COLUMNS):
            return False
        if not _tells(columns) or any(_NUMBER_ALONE.fullmatch(one) or (is_cut and ":" in one) for one in columns):
            return False
        self._columns, self._is_cut = columns, is_cut
        return True

    def _below_heading(self, line: str) -> Row | None:
        """Return the numbers of a line below the names of columns."""
        cells = split(line, ",") if self._is_cut else line.split()
        count = len(self._columns)
        numbers = [float(cell) if _NUMBER_ALONE.fullmatch(cell) else None for cell in cells]
        is_time = [_TIME_ALONE.fullmatch(cell) is not None or (self._is_cut and not cell) for cell in cells]
        if (
            len(cells) < count
            or (self._is_cut and (len(cells) > count or numbers[0] is None))
            or not all(one is not None or time for one, time in zip(numbers, is_time, strict=True))
        ):
            return None
        by_name = {
            name: number for name, number in zip(self._columns, numbers[:count], strict=True) if number is not None
        }
        steps = [by_name[name] for name in by_name if name.lower() in ("#", "step", "iter", "iteration")]
        step = (steps or [numbers[0] or 0.0])[0]
        values = {name: number for name, number in by_name.items() if name.lower() not in (*_FIRST_COLUMNS, "#", "")}
        if not step.is_integer() or not _tells(values):
            return None
        self._step = int(step)
        return Row(self._step, values)

    def _step_of(self, line: str) -> int | None:
        """Return the step that a line names; None if it names none.

        Batches that begin again with each epoch are counted over all epochs.
        """
        *best, of_epoch = _STEPS
        step = next((self._number_of(match) for pattern in best if (match := pattern.search(line))), None)
        epoch, batch = of_epoch.search(line), _BATCH.search(line) or _BATCH_OF_EPOCH.search(line)
        if epoch is None:
            return step
        if step is None and batch is None:
            # What follows the batches of an epoch, such as a validation, has the step of the last one.
            return int(epoch["step"]) if self._epoch < 0 else self._step
        if step is not None and batch is not None and step != int(batch["batch"]):
            return step
        number, at = int(epoch["step"]), int(batch["batch"]) if batch is not None else step or 0
        if number != self._epoch:
            # An epoch that comes again is a restart: it has the batches before it that it had.
            before = max((count for one, count in self._before.items() if one <= number), default=0)
            if 0 <= self._epoch < number and at <= self._batch:
                before += int(batch["of"]) if batch is not None else self._batch
            self._before = {one: count for one, count in self._before.items() if one < number} | {number: before}
            self._epoch = number
        self._batch = at
        return self._before[number] + at

    def _number_of(self, match: re.Match[str]) -> int:
        """Return the number of a step; steps that are rounded alike are numbered on."""
        number, unit = int(match["step"]), match["unit"]
        return max(number * int(_MULTIPLES[unit.upper()]), self._step + 1) if unit else number


def _has_place(line: str) -> bool:
    """Return whether a line says which batch of an epoch it is about.

    >>> _has_place("Epoch 1, Step 100: Rec=0.5"), _has_place("Epoch 1 [20/500]"), _has_place("epoch 1: size=5")
    (True, True, False)
    """
    *best, of_epoch = _STEPS
    is_numbered = of_epoch.search(line) is not None
    return is_numbered and any(pattern.search(line) for pattern in (*best, _BATCH, _BATCH_OF_EPOCH))


def _measures(names: Iterable[str]) -> bool:
    """Return whether one of the names may be what a training measures.

    >>> _measures(["Rec", "Total"]), _measures(["time", "epoch"])
    (True, False)
    """
    return any(describe(name).kind not in _BESIDES for name in names if name.lower() not in _POSITIONS)


def _cells(line: str) -> dict[str, float]:
    """Return the numbers of the parts between bars that are a name and a number.

    >>> _cells("10:00:00 epoch 1/60 | train_loss 0.5876 | train_kl 0.0175 | active_units 0/8")
    {'train_loss': 0.5876, 'train_kl': 0.0175}
    """
    cells = (_CELL.fullmatch(cell) for cell in line.split("|"))
    return {match["name"]: float(match["value"]) for match in cells if match is not None}


def number_of(cell: str) -> float | None:
    """Return the number that a cell begins with, or None.

    >>> number_of("20.5"), number_of("1e+03"), number_of("yes")
    (20.5, 1000.0, None)
    """
    return float(cell.replace(",", "")) if re.fullmatch(_NUMBER, cell) else None


def has_numbers(line: str) -> bool:
    """Return whether a line has a number with the name of a loss, metric or rate.

    >>> has_numbers("test accuracy: 0.9"), has_numbers("numpy==2.1")
    (True, False)
    """
    return _tells(name for name, _ in pairs_in(line, Pairs.NAMED))


def _tells(names: Iterable[str]) -> bool:
    """Return whether one of the names is that of a loss, metric or rate."""
    return any(describe(name).kind in _TELLING for name in names if name.lower() not in _POSITIONS)
