"""Measure the PyTorch hook beside smdebug's hook and an earlier release.

Usage: `make bench-hooks`, or `make bench-hooks EARLIER=DIRECTORY`, where DIRECTORY contains the package of another
release (its folder `smdwidgets` with the extension module). It writes the section in RESULTS.md.

Two equal trainings, one bare and one with a hook, alternate at every step. The time is CPU time of the training's
thread. What a hook adds is the least time of a step with it less the least time of a step without: other processes only
ever add to both. Everything is written before the next step begins.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import time
from pathlib import Path

from apart import apart
from report import table, write_section

HERE = Path(__file__).resolve()
TITLE = "Cost of the PyTorch hook"
WARM = 4
#: What is measured.
WHAT = {
    "values": "every step saved: weights and gradients of 27.6 M parameters",
    "reductions": "every step saved: 6 reductions of each instead",
    "unsaved": "a step that is not saved, `save_all` with 3,000 tensors",
}


def measure(what: str, whose: str, steps: int, root: Path) -> dict[str, float]:
    """Return the least seconds of a step without and with a hook."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    if whose == "smdebug":
        import smdebug.pytorch as smd
    else:
        import smdwidgets.pytorch as smd

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(8192, 768)
            layers = [nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True) for _ in range(3)]
            self.layers = nn.Sequential(*layers)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(self.embed(x)).mean()

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(750)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x.mean()

    options: dict[str, object] = {"save_config": smd.SaveConfig(save_interval=1)}
    options["include_collections"] = ["weights", "biases", "gradients"]
    if what == "reductions":
        options["reduction_config"] = smd.ReductionConfig(reductions=["min", "max", "mean", "std"], norms=["l1", "l2"])
    elif what == "unsaved":
        options = {"save_config": smd.SaveConfig(save_interval=10**6), "save_all": True}
    inputs = torch.randn(4, 8) if what == "unsaved" else torch.randint(0, 8192, (1, 16))

    trainings, hook = [], None
    for hooked in (False, True):
        torch.manual_seed(0)
        model = Deep() if what == "unsaved" else Transformer()
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        if hooked:
            hook = smd.Hook(out_dir=str(root / "run"), **options)
            hook.register_module(model)

        def step(model=model, optimizer=optimizer) -> None:
            optimizer.zero_grad()
            model(inputs).backward()
            optimizer.step()

        trainings.append((model, step, []))
    flush = getattr(hook, "flush", lambda: None)
    gc.disable()
    for number in range(WARM + steps):
        for hooked, (_, step, taken) in list(enumerate(trainings))[:: 1 if number % 2 else -1]:
            began = time.thread_time()
            step()
            taken.append(time.thread_time() - began)
            if hooked:
                flush()
        for file in root.rglob("*.tfevents"):
            file.unlink()
    hook.close()
    pairs = zip(trainings[0][0].parameters(), trainings[1][0].parameters(), strict=True)
    if not all(torch.equal(one, other) for one, other in pairs):
        raise SystemExit("the hook has changed the training")
    bare, hooked = (min(taken[WARM:]) for _, _, taken in trainings)
    return {"bare": bare, "adds": hooked - bare}


def main() -> None:
    """Write the section."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--earlier", help="folder with the package of an earlier release")
    parser.add_argument("--apart", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.apart:
        what, whose, steps, root = arguments.apart
        print(json.dumps(measure(what, whose, int(steps), Path(root))))
        return
    rows = []
    for what, text in WHAT.items():
        ours = apart(HERE, what, "ours", arguments.steps)
        smdebug = apart(HERE, what, "smdebug", max(arguments.steps // 4, 3))
        earlier = apart(HERE, what, "ours", arguments.steps, package=arguments.earlier) if arguments.earlier else None
        share = ours["adds"] / ours["bare"]
        if what == "values":
            target, met = "<= 60 % of 0.1.0", None if earlier is None else ours["adds"] <= 0.6 * earlier["adds"]
        elif what == "reductions":
            target, met = "<= 15 ms", ours["adds"] <= 0.015
        else:
            target, met = "<= 0.1 % of a step", share <= 0.001
        rows.append(
            [
                text,
                _milliseconds(ours["bare"]),
                _milliseconds(ours["adds"]) + (f" ({share:.2%})" if what == "unsaved" else ""),
                "" if earlier is None else _milliseconds(earlier["adds"]),
                _milliseconds(smdebug["adds"]),
                target,
                "not measured" if met is None else "yes" if met else "**no**",
            ]
        )
    load = f"; load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    body = (
        "`make bench-hooks`. CPU time of the training's thread in a step, PyTorch on one thread, in memory without a GPU: the "
        f"least of {arguments.steps} steps without a hook, and what each hook adds to it{load}.\n\n"
        + table(("what", "bare", "ours adds", "0.1.0 adds", "smdebug adds", "target", "met"), rows)
    )
    print(body)
    write_section(TITLE, body)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.2f} ms"


if __name__ == "__main__":
    main()
