"""Kinds of findings in what evaluations say beside the training.

They are part of the table of kinds. Their evidence is in scalars, so they are found in logs of other programs, too.
"""

from __future__ import annotations

from smdwidgets.finding.kind import Kind

__all__ = ["OF_EVALUATIONS", "OF_TRENDS"]

OF_EVALUATIONS: tuple[Kind, ...] = (
    Kind(
        "strong_smoothing",
        "Strong smoothing",
        "targets that are nearly the same for all classes",
        "The training loss begins at that of guessing and stays within 7 % of it, and so does that of evaluations, although at least "
        "90 % of the answers are right.",
        "a label smoothing of 0.05 to 0.2, and a loss that falls with the mistakes",
        "reduce the label smoothing to 0.1; check by what the outputs are divided before the loss.",
        "{series} stays at that of guessing, although {share:.0%} of the answers are right",
        "{numbers}",
        "Targets that are nearly the same for all classes give such a loss, as with a label smoothing near 1; so do outputs that are "
        "limited, or divided by a high temperature.",
        level="warning",
        explains=frozenset({"not_learning", "evaluation_differs", "constant"}),
        test="compute the cross-entropy of one batch without smoothing: if it is far lower, the targets are the cause",
    ),
    Kind(
        "no_targets",
        "No targets",
        "a part of the loss without targets",
        "A part of the training loss, such as that of boxes or masks, is exactly 0 at every step, while the same part of evaluations is "
        "not. Of other parts this is said only if every metric of evaluations is 0, too, since their weight may be 0.",
        "parts of the loss that are above 0 in training and evaluation alike",
        "count the targets in some batches of the training; check the paths and the format of their labels.",
        "{series} is exactly 0 at each of {count:,} values, and not in evaluations",
        "{numbers}",
        "Probably no target of the training reaches this part: the labels were not found or are all filtered out, so that every sample "
        "counts as background.",
        explains=frozenset(
            {
                *(
                    "evaluation_differs",
                    "metric_stuck",
                    "losses_on_two_scales",
                    "labels_unrelated",
                    "one_class",
                    "overfit",
                ),
                *("metric_falls", "not_learning"),
            }
        ),
        test="print the number of targets of 10 training batches: if it is 0, the labels are the cause",
    ),
    Kind(
        "forgetting",
        "Forgetting",
        "earlier data that are forgotten",
        "The loss of held-out data that were known at the first of at least 5 evaluations ends 30 % or more above it, while that of other "
        "data, which was larger at first, falls by 30 % and ends near its best. Said where something else is logged of both data, "
        "such as their accuracies.",
        "losses of earlier data that stay where they were",
        "mix some of the earlier data into the training; reduce the learning rate, or train few weights, as with LoRA.",
        "{series} rises since step {keep:,}, while other data are learned",
        "{numbers}",
        "The model forgets what it knew before: probably the training has only other data.",
        "Mix some of the earlier data into the training, reduce the learning rate, or train few weights, as with LoRA.",
        explains=frozenset({"evaluation_differs", "overfit", "metric_falls"}),
        test="train with a tenth of the earlier data in each batch: if their loss stays, they were forgotten",
    ),
    Kind(
        "evaluation_differs",
        "Evaluation differs",
        "evaluations that are prepared in another way",
        "The accuracy of evaluations is never better than guessing, and their loss is never below that of guessing, although the "
        "training loss halves within the first quarter of the run: so fast is only learned what also holds for other data. The same if "
        "their loss stays within 2 % of its first value while the training loss halves. Or their loss is always more than 3 times that of the untrained model, or more than 2.5 times since the training loss had hardly fallen; or it is largest at first, and above 1.5 times that at three evaluations or more at which the training loss has halved, although it becomes right later, as with running statistics that lag behind the weights. Where evaluations have no loss: their accuracy is below 25 % from the first one "
        "on, while that of the training is above 80 %; or, with a loss that rises, it is one number at or below 25 %. Or the loss of averaged weights stays within 2 % of its first value, while that of the last weights is below half of it. Or the loss of evaluations is never below 70 % of that of guessing among 5 or more classes, although 65 % of the answers are right and the training loss falls below a quarter. Or a metric of validation data is more than 1.5 times that of test data. Or at most a quarter of the pairs of preferences are "
        "ordered right at each evaluation, and at least three quarters in the training.",
        "evaluations that get better while the training loss falls fast",
        "evaluate some batches of training data with the code of the evaluation.",
        "{what}",
        "{numbers}",
        "{why}",
        "Evaluate some batches of training data with the code of the evaluation: if the accuracy stays that of guessing, "
        "compare the shape, scale and labels of these batches with those of the training.",
        explains=frozenset(
            {"overfit", "labels_unrelated", "metric_falls", "one_class", "not_learning", "losses_on_two_scales"}
        ),
        test="evaluate batches of training data with the code of the evaluation: if the accuracy is poor, this code is the cause",
    ),
    Kind(
        "metric_stuck",
        "Metric stuck",
        "a metric that ignores what is learned",
        "A metric has its worst value, such as an accuracy of 0 or a word error rate of 1, at each of at least 5 evaluations, "
        "while a loss of the same model falls by 30 %. Or a metric of generated texts is below 75 % although the loss of a held-out "
        "token is below 0.1, a rate of errors is 97 % or more in the last half of the evaluations, or the texts are at least 3 times as long as the references at all evaluations. Or an accuracy or "
        "an overlap is 0.01 or less at each of 8 evaluations, and the loss halves.",
        "a metric that changes when the loss falls",
        "compute the metric by hand for one batch; compare the form, the scale and the numbers of predictions and targets.",
        "{series} is {value:.3g} {when}, although losses fall",
        "{loss}",
        "{why}",
        test="compute the metric of the targets with themselves: if it is not the best value, its computation is the cause",
    ),
    Kind(
        "evaluation_too_good",
        "Evaluation too good",
        "an evaluation without mistakes",
        "In the second half of the run the loss of evaluations is below a fifth of the training loss, and they are without a "
        "mistake, although the model errs on its training data. Or they equal those of the training in every digit, the area under the "
        "curve is 1 from the first evaluation on, or so are all accuracies, or a language model gives held-out tokens a probability above "
        "90 %. Or the training loss is below 0.005 within the first epoch, in which all samples are new, or the loss of evaluations "
        "of a fine-tuned model is below 0.001.",
        "a loss of held-out data that is close to the training loss, or above it",
        "look for samples of the evaluation among those of the training, and for inputs that contain the answer.",
        "{what}",
        "{numbers}",
        "{why}",
        level="warning",
        explains=frozenset({"losses_on_two_scales", "overfit"}),
        test="count the samples that both data sets contain: if there are any, they are the cause",
    ),
    Kind(
        "preferences_by_chance",
        "Preferences by chance",
        "pairs of answers that are ordered by chance",
        "In a training on preferences with at least 100 logs, at most 60 % of the pairs are ordered right, over the whole run and in its "
        "last third, and the loss does not fall by 5 %. Or at most 60 % are at each of at least 5 evaluations, whose loss never falls "
        "by 2 %.",
        "a share of pairs that are ordered right of 65 % or more, and a loss that falls",
        "read 20 pairs: is the chosen answer the better one, and do the two differ in more than their length?",
        "Pairs are ordered right hardly more often than by chance: {series} is {late:.2f} in the last third",
        "{numbers}",
        "The model cannot learn what distinguishes the pairs: chosen and rejected answers are mixed up in a part of the data, or nearly "
        "equal, or the learning rate is too low.",
        explains=frozenset({"not_learning", "metric_falls", "losses_on_two_scales"}),
        test="train on 50 pairs that you have checked: if their share rises to 1, the data are the cause",
    ),
    Kind(
        "as_baseline",
        "As baseline",
        "forecasts that are those of a baseline",
        "The error of evaluations equals that of a baseline of the log, such as one that repeats the last value, within 2 % in the median "
        "of the last two thirds of the evaluations and 6 % at each, or the skill against it is 0, although the training loss halves.",
        "an error below that of a forecast without a model",
        "compare the target of one sample with its inputs; check by how many steps it is shifted.",
        "{what}",
        "{numbers}",
        "Probably the model learns to repeat its last input, because the target is shifted by too little and is among the inputs. Or these "
        "inputs allow no better forecast.",
        level="warning",
        explains=frozenset({"losses_on_two_scales", "overfit", "not_learning"}),
        test="print the target beside the last input of 10 samples: if they are equal, the shift is the cause",
    ),
    Kind(
        "losses_on_two_scales",
        "Losses on two scales",
        "losses on two scales",
        "The training loss is the loss of evaluations times a number above 8, or divided by it, at all evaluations; above 4 in logs "
        "of Transformers, whose two losses are computed in the same way. Or the loss of "
        "evaluations is below 30 % of what its wrong answers cost at least, and far below the training loss.",
        "losses of training and evaluation of about the same size",
        "divide both by the number of samples, or of tokens, before they are logged.",
        "{what}",
        "{numbers}",
        "Probably one is a sum over a batch, or over the batches of one update, and the other a mean. The training itself need not be affected, but the curves cannot "
        "be compared.",
        level="warning",
        test="log both losses of one batch: if their ratio is the number of samples, one of them is a sum",
    ),
    Kind(
        "sum_not_reset",
        "Sum not reset",
        "a logged sum that is not reset",
        "A training loss rises from value to value, by half or more, and falls back after a fixed number of them, at least three "
        "times.",
        "a loss that falls from one logged value to the next, apart from noise",
        "set the sum that is logged to 0 after each value.",
        "{series} rises for {period} values and falls back, again and again",
        "{tooth}",
        "Probably a sum over batches is logged that is reset once an epoch only. The training itself is not affected.",
        level="warning",
        explains=frozenset({"diverged", "not_learning", "swings"}),
        test="log the loss of the last batch beside it: if that one falls, the sum is not reset",
    ),
)
"""Kinds that are causes, or mistakes of the evaluation itself, from cause to symptom."""

OF_TRENDS: tuple[Kind, ...] = (
    Kind(
        "swings",
        "Swings",
        "a loss that does not settle",
        "The loss of held-out data changes by a factor of about 1.4 or more from evaluation to evaluation, has no trend, and "
        "stays above 1.5 times its best, while the training loss no longer falls. A factor of about 1.25 is enough if the training loss swings as "
        "much from epoch to epoch. Not said where the learning rate falls and rises again and again.",
        "evaluations that differ by a few percent",
        "reduce the learning rate, or let it decay; average the weights.",
        "{series} swings between {low:.3g} and {high:.3g} to the end",
        "{count:,} evaluations",
        "Probably the learning rate is too high to settle. Very few held-out samples look the same.",
        explains=frozenset({"not_learning"}),
        test="divide the learning rate by 10 at the end of the run: if the loss falls at once, the rate was the cause",
    ),
    Kind(
        "metric_falls",
        "Metric falls",
        "a metric that falls",
        "A metric has lost more than a quarter of its best value, and 80 % of what it had gained, since the first 60 % of the run, "
        "while the loss, the reward or the metric that is trained on improves. Or the preferred answers of a training on preferences "
        "become unlikely: the logarithm of their probability falls to 3 times its first value.",
        "a metric that ends near its best",
        "keep the checkpoint of the best step; look for what the loss rewards and the metric does not.",
        "{series} falls from {best:.3g} to {end:.3g} since step {first:,}, although the training improves",
        "{beside}",
        "The loss or reward is improved in a way that the metric does not measure: a collapse of the representation, an exploited "
        "reward, or overfitting.",
        "Keep the checkpoint of step {keep:,}; look at outputs of both steps, and at what the loss rewards but the metric "
        "does not.",
        symptom=True,
        test="compare outputs of the best and of the last step: if they have become alike, it is a collapse",
    ),
)
"""Kinds that are symptoms of other causes."""
