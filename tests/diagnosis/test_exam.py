"""The exam records programs, each alone or in a fork, and diagnoses them."""

import json
import os
import sys

import pytest

from diagnosis.exam import SAME, Exam, expected_of, logs, programs
from fixtures import unpacked
from smdwidgets.finding import KINDS

PROGRAM = """
import os, sys
from smdwidgets.numpy import Hook

with Hook(os.environ["SMDWIDGETS_HOOK"]) as hook:
    for step in range(100):
        hook.save_scalar("train/loss", {loss})
        hook.step()
print("training is over", file=sys.stderr)
sys.exit(0)
"""


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "up_bug.py").write_text(PROGRAM.format(loss="1.0 if step < 30 else step / 10"))
    (tmp_path / "up_fix.py").write_text(PROGRAM.format(loss="2 / (1 + step)"))
    (tmp_path / "broken_fix.py").write_text("raise ValueError('no data')")
    (tmp_path / "labels.json").write_text(json.dumps({"up": ["diverged"]}))
    return tmp_path


@pytest.mark.parametrize(
    "jobs", [0, pytest.param(2, marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork"))]
)
def test_programs_are_recorded_and_diagnosed(directory, tmp_path, jobs):
    keep = tmp_path / "runs"
    results = {one.name: one for one in programs(directory, sys.executable, "", keep, jobs)}
    firsts = {name: one.kinds[:1] for name, one in results.items()}
    assert firsts == {"broken_fix": (), "up_bug": ("diverged",), "up_fix": ()}
    assert {name: one.right for name, one in results.items()} == {"broken_fix": False, "up_bug": True, "up_fix": True}
    assert results["broken_fix"].diagnosis is None
    assert results["up_bug"].expected == ("diverged",)
    again = [one.name for one in programs(directory, "no-such-python", "up", keep, jobs)]  # they are recorded already
    assert again == ["up_bug", "up_fix"]
    report = Exam({"programs": list(results.values())}).report()
    assert "| programs: the cause first | 1 of 1 (100%) |" in report
    assert "broken_fix: no run" in report


def test_equal_faults_of_two_names_are_accepted_for_each_other():
    for kinds in SAME:
        assert kinds <= KINDS.keys()
        assert len(kinds) > 1
        for kind in kinds:
            assert {*expected_of("x", {"x": [kind]})} == kinds
    assert sum(map(len, SAME)) == len(frozenset().union(*SAME))
    assert expected_of("x", {"x": ["dead"]}) == ("dead",)


#: Logs whose fault is not named, and why.
MISSED = {
    "timm_decay_bad": "the losses stay high although the accuracy is good",
    "keras_frozen_bad": "a model of few units that learns a little",
    "hf_clm_mask_bad": "nothing is wrong with the curves but that they are too low for a language model",
    "rnn_adding_bad": "the loss explodes in the first rows and falls for the rest",
    "nanogpt_code_bad": "the spikes are named in place of the divergence",
    "second_gan_ring_bad": "a generator that gives one point has no series that shows it",
    "second_finetune_topic_bad": "the loss is noisy, and falls when the rate does",
    "second_ddpm2d_bad": "the loss stalls at a level that may be its noise",
    "second_shapes_cnn_bad": "the loss is level and the norm of the gradient grows",
    "second_charlm_bad": "the loss jumps by a fifth and falls back",
    "second_churn_bad": "the leak has another data set overfit, which is named",
    "third_regions_d2_bad": "the loss swings with the order of the classes, too fast for the rows of the log",
    "fourth_ddpm_digits_bad": "the loss ends a little below its second level",
    "fourth_fairseq_translate_bad": "the loss falls, but slowly",
    "fourth_lgbm_demand_bad": "the loss of evaluations falls to a high level",
    "fourth_lightning_regress_bad": "a rate that swings and does no harm that is seen",
    "fourth_sb3_cartpole_bad": "the reward rises, but little",
    "second_continual_bad": "steps that are numbered again replace those of the first task",
    "fifth_token_tags_bad": "labels that have slipped at some words only raise the floor of the loss",
    "fifth_lora_bad": "a rate too low for adapters is usual for a whole model, and the log does not say which is trained",
    "seventh_img_glyphs_bad": "the accuracy of a subset of the training data is the only sign",
    "seventh_det_shapes_bad": "the losses fall slowly, and so does the rate",
    "ninth_kd_student_bad": "a teacher that is trained, too, ends as good as it began",
    "ninth_blobseg_bad": "classes that are not predicted until the second half are predicted at the end",
    "ninth_chargpt_bad": "the loss falls to a level that only another run shows to be high",
    "ninth_corridor_a2c_bad": "a policy that is certain before it has learned is named as no learning",
    "fifth_embeddings_bad": "samples of one document in a batch only raise the floor of the loss",
}

#: Logs whose labels say what follows, by the kind that names the cause: the rate of 0.03 to 0.5 that they were run
#: with, features of which the label says that a metric falls, and evaluations of which it says that they rise.
CAUSE_NAMED = {
    "rate_too_high": {"ppo_cartpole_bad", "second_ppo_cart_bad", "trl_letters_bad"},
    "features_collapse": {"simsiam_bad", "second_ssl_bad"},
    "forgetting": {"hf_finetune_domain_bad", "seventh_ft_notes_lm_bad"},
}


def test_faulty_logs_of_small_trainings_are_named_and_healthy_ones_are_not():
    results = {one.name: one for one in logs(unpacked("training-logs"), "")}
    assert len(results) == 390
    assert {name: one.kinds for name, one in results.items() if name.endswith("_good") and one.kinds} == {}
    for kind, names in CAUSE_NAMED.items():
        assert {results[name].kinds[0] for name in names} == {kind}
    known = {*MISSED, *(name for names in CAUSE_NAMED.values() for name in names)}
    wrong = {name: one.kinds for name, one in results.items() if not one.right and name not in known}
    assert wrong == {}
    assert not [name for name in MISSED if results[name].right], "no longer missed"
