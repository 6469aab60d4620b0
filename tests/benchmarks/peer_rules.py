"""Ten rules written and invoked with smdebug: `python peer_rules.py RUN STEPS`.

Runs in .venv-peers.
"""

import logging
import os
import sys
from contextlib import suppress
from itertools import pairwise

import numpy as np
from clock import once, print_result

os.environ["SMDEBUG_LOG_LEVEL"] = "off"
from smdebug.exceptions import NoMoreData, RuleEvaluationConditionMet
from smdebug.rules import Rule, invoke_rule
from smdebug.trials import create_trial

logging.disable(logging.CRITICAL)


class Each(Rule):
    """A condition on each tensor of a collection on every worker.

    Records the firing steps.
    """

    def __init__(self, base_trial, collection, limit=0.0):
        super().__init__(base_trial, "")
        self.collection, self.limit = collection, limit
        self.steps = []

    def invoke_at_step(self, step):
        met = False
        for name in self.base_trial.tensor_names(collection=self.collection):
            tensor = self.base_trial.tensor(name)
            for worker in tensor.workers(step):
                met = self.met(tensor, step, worker) or met
        if met:
            self.steps.append(step)
        return met


class Vanishing(Each):
    def met(self, tensor, step, worker):
        return tensor.reduction_value(step, "mean", worker=worker, abs=True) < self.limit


class Exploding(Each):
    def met(self, tensor, step, worker):
        return not np.isfinite(tensor.value(step, worker=worker)).all()


class Variance(Each):
    def met(self, tensor, step, worker):
        return tensor.reduction_value(step, "variance", worker=worker) > self.limit


class AllZero(Each):
    def met(self, tensor, step, worker):
        value = tensor.value(step, worker=worker)
        return 100.0 * (value == 0).sum() / value.size >= self.limit


class Unchanged(Each):
    def met(self, tensor, step, worker):
        steps = tensor.prev_steps(step, 3)
        values = [tensor.value(each, worker=worker) for each in steps]
        return len(values) == 3 and all(np.allclose(a, b) for a, b in pairwise(values))


class UpdateRatio(Each):
    def met(self, tensor, step, worker):
        steps = tensor.prev_steps(step, 2)
        if len(steps) < 2:
            return False
        before, now = tensor.value(steps[0], worker=worker), tensor.value(step, worker=worker)
        ratio = np.abs(now - before).mean() / (np.abs(before).mean() + 1e-9)
        return ratio > self.limit or ratio < 1e-8


class NormGrowth(Each):
    def met(self, tensor, step, worker):
        first = tensor.steps()[0]
        before, now = tensor.value(first, worker=worker), tensor.value(step, worker=worker)
        return np.sqrt((now**2).sum()) > self.limit * np.sqrt((before**2).sum()) and np.sqrt((now**2).mean()) > 1


class NormSpike(Each):
    def __init__(self, base_trial, collection, limit):
        super().__init__(base_trial, collection, limit)
        self.norms = []

    def invoke_at_step(self, step):
        total = {}
        for name in self.base_trial.tensor_names(collection=self.collection):
            tensor = self.base_trial.tensor(name)
            for worker in tensor.workers(step):
                value = tensor.value(step, worker=worker)
                total[worker] = total.get(worker, 0.0) + float((value.astype(np.float64) ** 2).sum())
        norm = np.sqrt(max(total.values()))
        met = len(self.norms) >= 15 and self.is_spike(norm, np.sort(self.norms[-50:]))
        self.norms.append(norm)
        if met:
            self.steps.append(step)
        return met

    def is_spike(self, norm, window):
        level = window[len(window) // 2]
        away = np.sort(np.abs(window - level))
        spread = max(1.4826 * away[len(away) // 2], away[round(0.95 * (len(away) - 1))] / 1.96, 1e-3 * level)
        return norm - level > max(8 * spread, 0.5 * level) / self.limit


def rules(trial):
    return {
        "VanishingGradient": Vanishing(trial, "gradients", 0.65),
        "ExplodingTensor": Exploding(trial, "all"),
        "TensorVariance": Variance(trial, "weights", 1.8),
        "TensorVariance-2": Variance(trial, "gradients", 1.8),
        "AllZero": AllZero(trial, "weights", 100.0),
        "AllZero-2": AllZero(trial, "gradients", 100.0),
        "UnchangedTensor": Unchanged(trial, "weights"),
        "WeightUpdateRatio": UpdateRatio(trial, "weights", 2.2),
        "WeightNormGrowth": NormGrowth(trial, "weights", 1.5),
        "GradientNormSpike": NormSpike(trial, "gradients", 20.0),
    }


def main(run, steps):
    trial = create_trial(run)
    end = trial.steps()[steps - 1] + 1
    times, fired = {}, {}
    for name, rule in rules(trial).items():

        def work(rule=rule):
            with suppress(NoMoreData, RuleEvaluationConditionMet):
                invoke_rule(rule, end_step=end)

        times[name] = once(work)[0]
        fired[name] = rule.steps
    print_result({"cpu": sum(times.values()), "each": times, "fired": fired})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
