"""Training scripts for all ways to end, ways to hold the hook, and frameworks.

A script is a separate file, run in a separate process. It closes the hook only if its way to end does.
"""

from __future__ import annotations

import signal
import textwrap
from dataclasses import dataclass

#: Steps that each script trains; all must be in its run.
STEPS = 5

NUMPY = """
    import numpy as np
    from smdwidgets import CapturePlan
    from smdwidgets.numpy import Hook, get_hook

    def make_hook(**options):
        # Scripts that train until they are ended save more than the default budget holds.
        return Hook(RUN, plan=CapturePlan(budget="10GB"), **options)

    def train(hook, steps=5):
        for step in range(steps):
            hook.save_tensor("weight", np.full(3, step), "weights")
            hook.step()
"""

TORCH = """
    import torch
    import smdwidgets.pytorch as smd
    from smdwidgets.pytorch import get_hook

    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def make_hook(**options):
        hook = smd.Hook(RUN, include_collections=["weights", "gradients"], save_config=smd.SaveConfig(save_interval=1), **options)
        hook.register_module(model)
        return hook

    def train(hook, steps=5):
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
"""

KERAS = """
    import keras, numpy as np
    import smdwidgets.keras as smd
    from smdwidgets.keras import get_hook

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def make_hook(**options):
        return smd.Hook(RUN, include_collections=["weights"], save_config=smd.SaveConfig(save_interval=1), **options)

    def train(hook, steps=5):
        model.fit(np.ones((steps, 4), "float32"), np.zeros((steps, 1), "float32"), batch_size=1, verbose=0, callbacks=[hook])
"""

TAPE = """
    import tensorflow as tf
    import smdwidgets.tensorflow as smd
    from smdwidgets.tensorflow import get_hook

    weight = tf.Variable([1.0, 2.0], name="weight")

    def make_hook(**options):
        return smd.Hook(RUN, include_collections=["weights", "gradients"], save_config=smd.SaveConfig(save_interval=1), **options)

    def train(hook, steps=5):
        for step in range(steps):
            with hook.wrap_tape(tf.GradientTape()) as tape:
                loss = tf.reduce_sum(weight * weight)
            weight.assign_sub(0.1 * tape.gradient(loss, weight))
"""

XGBOOST = """
    import numpy as np, xgboost
    import smdwidgets.xgboost as smd
    from smdwidgets.xgboost import get_hook

    data = xgboost.DMatrix(np.arange(40.0).reshape(20, 2), label=np.arange(20.0))

    def make_hook(**options):
        return smd.Hook(RUN, include_collections=["feature_importance"], save_config=smd.SaveConfig(save_interval=1), **options)

    def train(hook, steps=5):
        xgboost.train({"max_depth": 2}, data, steps, evals=[(data, "train")], callbacks=[hook], verbose_eval=False)
"""

MXNET = """
    import mxnet
    from mxnet import autograd, gluon, nd
    import smdwidgets.mxnet as smd
    from smdwidgets.mxnet import get_hook

    net = gluon.nn.Dense(1)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

    def make_hook(**options):
        hook = smd.Hook(RUN, include_collections=["weights", "gradients"], save_config=smd.SaveConfig(save_interval=1), **options)
        hook.register_block(net)
        return hook

    def train(hook, steps=5):
        for step in range(steps):
            with autograd.record():
                loss = net(nd.ones((2, 4))).sum()
            loss.backward()
            trainer.step(2)
"""

#: How the script holds its hook. ``train`` trains five steps; ``END`` is how the process ends, in the middle of
#: training.
HOLDS = {
    "a global": """
        hook = make_hook()
        train(hook)
        END
    """,
    "a local of a function that returned": """
        def main():
            hook = make_hook()
            train(hook)

        main()
        END
    """,
    "a local of the function that runs": """
        def main():
            hook = make_hook()
            train(hook)
            END

        main()
    """,
    "an attribute": """
        class Trainer:
            def __init__(self):
                self.hook = make_hook()

            def run(self):
                train(self.hook)
                END

        Trainer().run()
    """,
    "only get_hook()": """
        make_hook()
        train(get_hook())
        END
    """,
    "a with block": """
        with make_hook() as hook:
            train(hook)
            END
    """,
    "a cell that is run again": """
        cell = '''
        hook = make_hook(overwrite=True)
        train(hook)
        '''
        exec(textwrap.dedent(cell))
        exec(textwrap.dedent(cell))
        END
    """,
}

#: For frameworks whose models call the hook: the function that created the hook does not return it.
MODEL_HOLDS = {
    **HOLDS,
    "only the model's callbacks": """
        def set_up():
            make_hook()

        set_up()
        train(None)
        END
    """,
}


@dataclass(frozen=True)
class End:
    """A way for a process to end, and what a script that ends so must leave behind.

    Attributes:
        code: what stands in the script.
        exit: the process's exit status, as it is without a hook.
        marker: how the end marker says that training ended; None where there must be none.
        with_block: the same inside a ``with`` block, which sees the error itself.
    """

    code: str
    exit: int = 0
    marker: str | None = "completed"
    with_block: str | None = None


#: Waits, without a call to the hook, until all saved steps are readable. Bounded, so that a failure ends.
_WRITTEN = """
deadline = time.monotonic() + 60
while not os.path.exists(LAST) and time.monotonic() < deadline:
    time.sleep(0.01)
"""

ENDS = {
    "end of the script": End("pass"),
    "an exception": End("raise ValueError('loss is NaN')", 1, "exception (ValueError: loss is NaN)"),
    "sys.exit()": End("sys.exit()"),
    "sys.exit(3)": End("sys.exit(3)", 3, "completed", "exception (SystemExit: 3)"),
    "Ctrl-C": End(
        "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT, "exception (KeyboardInterrupt)"
    ),
    "SIGTERM": End("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM, "signal (SIGTERM)"),
    "SIGHUP": End("os.kill(os.getpid(), signal.SIGHUP); time.sleep(60)", -signal.SIGHUP, "signal (SIGHUP)"),
    "os._exit": End(_WRITTEN + "os._exit(0)", 0, None),
    "SIGKILL": End(_WRITTEN + "os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, None),
}


def script(framework: str, hold: str, end: str) -> str:
    """Return the text of a script. Its argument is the run's directory."""
    head = f"""
        import os, signal, sys, textwrap, threading, time
        RUN = sys.argv[1]
        LAST = os.path.join(RUN, "index", "000000000", "{STEPS - 1:012d}_worker_0.json")
    """
    lines = []
    for line in textwrap.dedent(MODEL_HOLDS[hold]).splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(textwrap.indent(ENDS[end].code.strip(), indent) if line.strip() == "END" else line)
    return "\n".join([textwrap.dedent(head), textwrap.dedent(framework), *lines])
