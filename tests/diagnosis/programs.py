"""Small PyTorch programs with one fault each, and their repaired twins.

`python tests/diagnosis/programs.py DIRECTORY` writes them; `python tests/diagnosis/exam.py DIRECTORY` examines the
diagnosis on them. A program is a base of a task and one change; its twin is the base with the repaired form, which may
differ from the base where the fault needs other surroundings. Names begin with the part: `t` for tuning of limits, `r`
and `u` for reporting; `r` was looked at once before `u` was written.

`architectures.txt` has whole programs of other architectures and habits, in the parts `a` to `d`,
`keras_programs.txt` those of Keras, in the part `k`, `reported.txt` those with faults that people report, in the part
`e`, `unseen.txt` more of these, in the part `f`, `common.txt` those with common mistakes, in the part `g`,
`reports.txt` those that are modelled on public reports, in the part `h`, `typical.txt` those with typical mistakes, in
the part `i`, `overlooked.txt` those with mistakes that are easily overlooked, in the part `j`, `frequent.txt` those
with the mistakes that people make most often, in the part `l`, `asked.txt` those with mistakes that people ask about,
in the part `m`, `seen_often.txt` those with frequent and with subtle mistakes, in the part `n`, `of_many_fields.txt`
those with mistakes of many fields, in the part `o`, `reported_again.txt` more that people have reported, in the
part `p`, `described.txt` those that public reports describe, in the part `q`, `of_reports.txt` more of these, in
the part `s`, `of_practice.txt` those with mistakes of practice, in the part `v`, `minimal.txt` loops of few lines,
in the part `w`, `as_posted.txt` scripts and loops as people post them, in the part `x`, `as_taught.txt` scripts
with mistakes of courses and forums, in the part `y`, `of_threads.txt` scripts of many architectures with mistakes
that people ask about in threads, in the part `z`, `of_issues.txt` training loops of many fields with mistakes that
people report in issues, in the part `ab`, `in_the_field.txt` scripts of as many fields with mistakes of practice, in
the part `ac`, `in_reviews.txt` such scripts with mistakes that reviews of code find, in the part `ad`,
`of_bug_reports.txt` such scripts with mistakes that bug reports describe, in the part `ae`, and `of_repositories.txt`
such scripts with mistakes of their fields, in the part `af`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

WHOLE = tuple(
    Path(__file__).with_name(f"{name}.txt")
    for name in (
        "architectures",
        "keras_programs",
        "reported",
        "unseen",
        "common",
        "reports",
        "typical",
        "overlooked",
        "frequent",
        "asked",
        "seen_often",
        "of_many_fields",
        "reported_again",
        "described",
        "of_reports",
        "of_practice",
        "minimal",
        "as_posted",
        "as_taught",
        "of_threads",
        "of_issues",
        "in_the_field",
        "in_reviews",
        "of_bug_reports",
        "of_repositories",
    )
)

HEAD = """import math
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(int(os.environ.get("EXAM_SEED", "0")))
torch.set_num_threads(1)
"""

LOOP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
step = 0
while step < 300:
    model.train()
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        schedule.step()
        step += 1
    model.eval()
    with torch.no_grad():
        validation = criterion(model(held_out_inputs), held_out_targets)
    print(step, float(loss), float(validation))
"""

SPLIT = """
held_out_inputs, held_out_targets = every_input[-300:], every_target[-300:]
data = TensorDataset(every_input[:-300], every_target[:-300])
loader = DataLoader(data, batch_size=32, shuffle=True)
"""

BASES = {
    "classifier": """
centres = 1.2 * torch.randn(8, 20)
every_target = torch.randint(0, 8, (1260,))
every_input = centres[every_target] + torch.randn(1260, 20)
"""
    + SPLIT
    + """
model = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 8))
criterion = nn.CrossEntropyLoss()
"""
    + LOOP,
    "images": """
patterns = torch.randn(6, 1, 12, 12)
every_target = torch.randint(0, 6, (940,))
every_input = 0.8 * patterns[every_target] + torch.randn(940, 1, 12, 12)
"""
    + SPLIT
    + """
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(144, 6),
)
criterion = nn.CrossEntropyLoss()
"""
    + LOOP,
    "regression": """
every_input = torch.randn(1260, 10)
every_target = torch.sin(every_input @ torch.randn(10, 1) / 2) + 0.1 * torch.randn(1260, 1)
"""
    + SPLIT
    + """
model = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
criterion = nn.MSELoss()
"""
    + LOOP,
    "sequences": """
every_input = torch.randn(1260, 16, 4)
every_target = (every_input[:, :, 0].mean(1) > 0).long()
"""
    + SPLIT
    + """
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(4, 32, batch_first=True)
        self.head = nn.Linear(32, 2)

    def forward(self, inputs):
        return self.head(self.rnn(inputs)[0][:, -1])


model = Reader()
criterion = nn.CrossEntropyLoss()
"""
    + LOOP,
    "text": """
every_input = torch.randint(0, 24, (1260, 12))
every_target = every_input.flip(1)
"""
    + SPLIT
    + """
class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(24, 32)
        self.places = nn.Parameter(0.5 * torch.randn(12, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(32, 24)

    def forward(self, inputs):
        return self.head(self.encoder(self.tokens(inputs) + self.places))


model = Translator()
criterion = lambda outputs, targets: F.cross_entropy(outputs.flatten(0, 1), targets.flatten())
"""
    + LOOP.replace("torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)", "torch.optim.Adam(model.parameters(), lr=2e-3)"),
}  # fmt: skip

SGD = "torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)"
ADAM = "torch.optim.Adam(model.parameters(), lr=2e-3)"
STEP = "        optimizer.step()\n"
BACK = "        loss.backward()\n"
ZERO = "        optimizer.zero_grad()\n"
LATE = "lambda step: 1.0"
MODEL = "criterion ="


class Case(NamedTuple):
    """A fault in a task: a text of the base, its faulty and its repaired form.

    The repaired form is that of the base if it is None.
    """

    base: str
    kinds: tuple[str, ...]
    text: str
    faulty: str
    repaired: str | None = None


HIGH = ("rate_too_high",)
LABELS = ("labels_unrelated",)
#: The cases by name; `t` are for tuning, `r` and `u` for reporting.
CASES = {
    "t_high_rate_classifier": Case("classifier", HIGH, SGD, SGD.replace("0.05", "3.0")),
    "t_high_rate_images": Case("images", HIGH, SGD, ADAM.replace("2e-3", "0.3"), ADAM),
    "r_high_rate_regression": Case("regression", (*HIGH, "diverged", "not_finite"), SGD, SGD.replace("0.05", "4.0")),
    "r_high_rate_text": Case("text", HIGH, ADAM, ADAM.replace("2e-3", "0.3")),
    "r_high_rate_sequences": Case("sequences", HIGH, SGD, ADAM.replace("2e-3", "0.5"), ADAM),
    "t_low_rate_classifier": Case("classifier", ("rate_too_low",), SGD, SGD.replace("0.05", "1e-7")),
    "r_low_rate_text": Case("text", ("rate_too_low",), ADAM, ADAM.replace("2e-3", "1e-7")),
    "r_low_rate_images": Case("images", ("rate_too_low",), SGD, SGD.replace("0.05", "1e-6")),
    "t_rate_ends_classifier": Case("classifier", ("rate_zero",), LATE, "lambda step: max(0.0, 1 - step / 90)"),
    "r_rate_ends_text": Case("text", ("rate_zero",), LATE, "lambda step: float(step < 120)"),
    "t_rate_jumps_images": Case(
        "images", ("rate_rise",), LATE, "lambda step: 120.0 if 150 <= step < 170 else 1.0"
    ),
    "r_rate_jumps_sequences": Case(
        "sequences", ("rate_rise",), LATE, "lambda step: 200.0 if step >= 180 else 1.0"
    ),
    "t_dead_classifier": Case(
        "classifier", ("dead",), MODEL, "nn.init.constant_(model[2].bias, -9.0)\ncriterion ="
    ),
    "r_dead_images": Case("images", ("dead",), MODEL, "nn.init.constant_(model[3].bias, -9.0)\ncriterion ="),
    "t_constant_weights_classifier": Case(
        "classifier",
        ("symmetric_units",),
        MODEL,
        "for layer in model[::2]:\n    nn.init.constant_(layer.weight, 0.05)\n    nn.init.zeros_(layer.bias)\ncriterion =",
    ),
    "r_constant_weights_regression": Case(
        "regression",
        ("symmetric_units",),
        MODEL,
        "for layer in model[::2]:\n    nn.init.constant_(layer.weight, 0.1)\n    nn.init.zeros_(layer.bias)\ncriterion =",
    ),
    "t_softmax_of_one_unit": Case(
        "regression",
        ("output_constant", "softmax_one_unit"),
        "nn.Linear(64, 1))\ncriterion = nn.MSELoss()",
        "nn.Linear(64, 1), nn.Softmax(1))\ncriterion = nn.BCELoss()\nevery_target.gt_(0)",
        "nn.Linear(64, 1), nn.Sigmoid())\ncriterion = nn.BCELoss()\nevery_target.gt_(0)",
    ),
    "r_output_below_zero": Case(
        "regression",
        ("output_constant", "unreachable_targets"),
        "nn.Linear(64, 1))",
        "nn.Linear(64, 1), nn.ReLU())\nnn.init.constant_(model[4].bias, -6.0)",
    ),
    "t_shuffled_labels_classifier": Case(
        "classifier", LABELS, "held_out_inputs, held", "every_target = every_target[torch.randperm(1260)]\nheld_out_inputs, held"
    ),
    "r_shuffled_labels_images": Case(
        "images", LABELS, "held_out_inputs, held", "every_target = every_target[torch.randperm(940)]\nheld_out_inputs, held"
    ),
    "r_shuffled_labels_text": Case(
        "text", LABELS, "held_out_inputs, held", "every_target = every_target[torch.randperm(1260)]\nheld_out_inputs, held"
    ),
    "t_inputs_not_scaled": Case(
        "classifier", ("input_not_scaled",), "held_out_inputs, held", "every_input = 300 * every_input + 900\nheld_out_inputs, held"
    ),
    "r_inputs_not_scaled_images": Case(
        "images", ("input_not_scaled",), "held_out_inputs, held", "every_input = 127 + 60 * every_input\nheld_out_inputs, held"
    ),
    "t_log_of_zero": Case(
        "classifier",
        ("not_finite",),
        "nn.CrossEntropyLoss()",
        "lambda outputs, targets: -(F.one_hot(targets, 8) * torch.log(torch.softmax(12 * outputs, 1))).sum(1).mean()",
        "lambda outputs, targets: -(F.one_hot(targets, 8) * torch.log_softmax(outputs, 1)).sum(1).mean()",
    ),
    "r_nan_in_data": Case(
        "regression", ("input_not_finite",), "held_out_inputs, held", "every_input[77, 3] = math.nan\nheld_out_inputs, held"
    ),
    "t_strong_decay": Case(
        "classifier", ("decay_too_strong",), SGD, SGD.replace("momentum", "weight_decay=0.5, momentum")
    ),
    "r_strong_decay_images": Case(
        "images", ("decay_too_strong",), SGD, SGD.replace("momentum", "weight_decay=0.4, momentum")
    ),
    "t_frozen_layer": Case(
        "classifier", ("frozen", "mostly_frozen", "no_gradient"), MODEL, "model[2].weight.requires_grad_(False)\ncriterion ="
    ),
    "r_not_in_optimizer": Case(
        "images", ("frozen", "not_in_optimizer"), SGD, SGD.replace("model.parameters()", "[*model[0].parameters(), *model[7].parameters()]")
    ),
    "t_few_samples": Case(
        "images", ("overfit",), "every_input[:-300], every_target[:-300]", "every_input[:48], every_target[:48]"
    ),
    "r_few_samples": Case(
        "classifier", ("overfit",), "every_input[:-300], every_target[:-300]", "every_input[:40], every_target[:40]"
    ),
    "t_wrong_sign": Case("classifier", ("loss_sign",), "loss = criterion", "loss = -criterion"),
    "r_maximize": Case("images", ("loss_sign",), SGD, SGD.replace("momentum", "maximize=True, momentum")),
    "t_no_zero_grad": Case("classifier", ("not_reset", "gradients_add_up"), ZERO, ""),
    "r_no_zero_grad_text": Case("text", ("not_reset", "gradients_add_up"), ZERO, ""),
    "t_same_batch": Case(
        "images", ("same_batch",), "    for inputs, targets in loader:\n", "    for _ in range(20):\n        inputs, targets = next(iter(ordered))\n"
    ),
    "r_same_batch": Case(
        "classifier", ("same_batch",), "    for inputs, targets in loader:\n", "    for _ in range(30):\n        inputs, targets = next(iter(ordered))\n"
    ),
    "t_one_class": Case(
        "classifier", ("one_class",), "every_target = torch.randint(0, 8, (1260,))", "every_target = torch.randint(1, 8, (1260,)) * (torch.rand(1260) > 0.96)"
    ),
    "r_burst": Case(
        "classifier", ("bad_batch",), ZERO, ZERO + "        inputs = inputs * (5000.0 if step == 150 else 1.0)\n"
    ),
    "t_empty_batches": Case(
        "images", ("bad_batch", "zero_batch"), ZERO, ZERO + "        inputs = inputs * float(step % 9 != 8)\n"
    ),
    "t_sigmoid_tower": Case(
        "classifier",
        ("vanishing",),
        "nn.Linear(48, 48), nn.ReLU(), ",
        "*[part for _ in range(8) for part in (nn.Linear(48, 48), nn.Sigmoid())], ",
    ),
    "r_no_step": Case("classifier", ("no_step", "no_update", "rate_zero"), STEP, ""),
    "r_half_frozen_text": Case(
        "text", ("frozen", "mostly_frozen", "no_gradient", "not_in_optimizer"), MODEL, "model.encoder.requires_grad_(False)\ncriterion ="
    ),
    "r_detached": Case(
        "sequences", ("no_gradient", "frozen"), "self.rnn(inputs)[0][:, -1])", "self.rnn(inputs)[0][:, -1].detach())"
    ),
    "u_low_rate_regression": Case("regression", ("rate_too_low",), SGD, SGD.replace("0.05", "1e-7")),
    "u_rate_ends_regression": Case("regression", ("rate_zero",), LATE, "lambda step: max(0.0, 1 - step / 100)"),
    "u_dead_classifier": Case("classifier", ("dead",), MODEL, "nn.init.constant_(model[0].bias, -30.0)\ncriterion ="),
    "u_wrong_sign_regression": Case("regression", ("loss_sign",), "loss = criterion", "loss = -criterion"),
    "u_wrong_sign_text": Case("text", ("loss_sign",), "loss = criterion", "loss = -criterion"),
    "u_maximize_classifier": Case("classifier", ("loss_sign",), SGD, ADAM.replace("lr", "maximize=True, lr"), ADAM),
    "u_no_zero_grad_regression": Case("regression", ("not_reset", "gradients_add_up"), ZERO, ""),
    "u_no_zero_grad_sequences": Case("sequences", ("not_reset", "gradients_add_up"), ZERO, ""),
    "u_few_samples_text": Case(
        "text", ("overfit",), "every_input[:-300], every_target[:-300]", "every_input[:40], every_target[:40]"
    ),
    "u_few_samples_regression": Case(
        "regression", ("overfit",), "every_input[:-300], every_target[:-300]", "every_input[:32], every_target[:32]"
    ),
    "u_shuffled_labels_regression": Case(
        "regression",
        (*LABELS, "not_learning"),
        "held_out_inputs, held",
        "every_target = every_target[torch.randperm(1260)]\nheld_out_inputs, held",
    ),
    "u_inputs_not_scaled_regression": Case(
        "regression", ("input_not_scaled",), "held_out_inputs, held", "every_input = 500 + 200 * every_input\nheld_out_inputs, held"
    ),
    "u_same_batch_text": Case(
        "text", ("same_batch",), "    for inputs, targets in loader:\n", "    for _ in range(30):\n        inputs, targets = next(iter(ordered))\n"
    ),
    "u_strong_decay_regression": Case(
        "regression", ("decay_too_strong",), SGD, SGD.replace("momentum", "weight_decay=0.6, momentum")
    ),
    "u_nan_in_data_images": Case(
        "images", ("input_not_finite",), "held_out_inputs, held", "every_input[5, 0, 3, 3] = math.inf\nheld_out_inputs, held"
    ),
    "u_softmax_twice": Case(
        "classifier", ("softmax_before_loss", "double_softmax"), "nn.Linear(48, 8))", "nn.Linear(48, 8), nn.Softmax(1))"
    ),
    "u_stale_optimizer": Case(
        "classifier",
        ("stale_optimizer", "not_in_optimizer"),
        "schedule = ",
        "import copy\nmodel = copy.deepcopy(model)\nschedule = ",
    ),
    "u_clip_before_backward": Case(
        "images",
        ("clip_before_backward",),
        BACK,
        "        nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n" + BACK,
        BACK + "        nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n",
    ),
    "u_broadcast_loss": Case(
        "regression", ("broadcast_loss",), "criterion(model(inputs), targets)", "criterion(model(inputs), targets[:, 0])"
    ),
}  # fmt: skip


def source(case: Case, bug: bool) -> str:
    """Return the program of a case."""
    base = HEAD + BASES[case.base]
    if "ordered" in case.faulty:
        base = base.replace("shuffle=True)", "shuffle=True)\nordered = DataLoader(data, batch_size=32)")
    if base.count(case.text) < 1:
        raise ValueError(f"the base {case.base} has no {case.text!r}")
    repaired = case.text if case.repaired is None else case.repaired
    return base.replace(case.text, case.faulty if bug else repaired, 1)


class Pair(NamedTuple):
    """A faulty program, its repaired twin, and the kinds that name the fault."""

    kinds: tuple[str, ...]
    faulty: str
    repaired: str


def pairs() -> dict[str, Pair]:
    """Return all programs by name."""
    programs = {name: Pair(case.kinds, source(case, bug=True), source(case, bug=False)) for name, case in CASES.items()}
    for block in (block for file in WHOLE for block in file.read_text(encoding="utf-8").split("\n=== ")[1:]):
        head, _, body = block.partition("\n")
        name, _, kinds = head.partition(" | ")
        lines = body.splitlines()
        faulty = [line.removesuffix("#B").rstrip() for line in lines if not line.endswith("#F")]
        repaired = [line.removesuffix("#F").rstrip() for line in lines if not line.endswith("#B")]
        programs[name] = Pair(tuple(kinds.split()), "\n".join(faulty) + "\n", "\n".join(repaired) + "\n")
    return programs


def write(directory: Path, part: str = "") -> None:
    """Write all programs of a part, and the labels."""
    programs = directory / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    chosen = {name: pair for name, pair in pairs().items() if not part or name.partition("_")[0] == part}
    for name, pair in chosen.items():
        (programs / f"{name}_bug.py").write_text(pair.faulty, encoding="utf-8")
        (programs / f"{name}_fix.py").write_text(pair.repaired, encoding="utf-8")
    labels = {name: list(pair.kinds) for name, pair in chosen.items()}
    (programs / "labels.json").write_text(json.dumps(labels, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), *sys.argv[2:])
