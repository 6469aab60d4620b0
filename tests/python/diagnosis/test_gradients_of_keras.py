"""Gradients as the hook of Keras names them belong to their weights."""

import numpy as np

import smdwidgets
from smdwidgets.numpy import Hook


def test_a_gradient_belongs_to_its_weight(tmp_path):
    hook = Hook(tmp_path / "run", save_all=True)
    random = np.random.default_rng(0)
    kernels = {name: random.normal(size=(8, 8)).astype(np.float32) for name in ("dense", "dense_1")}
    for _ in range(30):
        for name, kernel in kernels.items():
            gradient = random.normal(size=(8, 8)).astype(np.float32)
            hook.save_tensor(f"{name}/weights/kernel", kernel.copy(), "weights")
            hook.save_tensor(f"gradients/{name}/kernelGrad", gradient, "gradients")
            kernel -= 0.001 * gradient
        hook.save_scalar("loss", random.random())
        hook.step()
    hook.close()
    gaps = smdwidgets.diagnose(tmp_path / "run").coverage.gaps
    assert not any(gap.startswith("Gradients were not recorded") for gap in gaps), gaps
