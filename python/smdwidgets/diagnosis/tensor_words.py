"""Texts about findings in tensors. Placeholders are facts of the candidate."""

from __future__ import annotations

from smdwidgets.diagnosis.text import Text

TEXTS: dict[str, Text] = {
    "input_not_finite": Text(
        "The inputs `{tensor}` are not finite at step {onset:,}",
        "{count:,} of {total:,} values",
        "NaN or infinity in a batch spreads to every tensor that is computed from it.",
        "Look at the batch of step {onset:,}: check how its data are read and normalized; drop or mask such values.",
    ),
    "input_not_scaled": Text(
        "The inputs `{tensor}` are not scaled",
        "mean {mean:.3g}, standard deviation {std:.3g}",
        "Large inputs make large gradients in the first layer.",
        "Standardize each feature to mean 0 and standard deviation 1.",
    ),
    "workers_apart": Text(
        "The weights of `{tensor}` differ between workers since step {onset:,}",
        "by {apart:.1%} of their norm between {first} and {second}",
        "The workers do not train one model.",
        "Check that gradients are averaged over all workers and that all start from the same weights.",
    ),
    "same_batch": Text(
        "The same batch is fed at every step since step {onset:,}",
        "the statistics of `{tensor}` are identical at {saves} saves",
        "Probably the iterator of the data is created again at every step. Training on the full data set looks the same.",
        "Check the data loader: create its iterator once per epoch.",
    ),
    "loss_sign": Text(
        "{what}",
        "cosine of update and gradient {cosine:.2f} in `{tensor}`, and the loss rises",
        "Probably the sign of the loss or of the update is wrong.",
        "Check the sign of the loss, and whether the optimizer maximizes.",
    ),
    "gradients_add_up": Text(
        "Successive gradients are almost the same",
        "cosine {cosine:.2f} in `{tensor}`",
        "Probably gradients add up because they are not reset between steps. Training on the full data set looks the same.",
        "Reset the gradients before each backward pass, such as with optimizer.zero_grad().",
    ),
    "bad_batch": Text(
        "The inputs at step {onset:,} are far larger than before",
        "standard deviation of `{tensor}` {std:.3g}, {ratio:.3g} times its median",
        "Probably a damaged or unscaled batch.",
        "Look at the batch of step {onset:,}; clip gradients so that one batch cannot harm the model.",
    ),
    "exploding": Text(
        "The gradient of `{tensor}` is far larger than its weights since step {onset:,}",
        "norm of the gradient / norm of the weights up to {ratio:.3g}",
        "Gradients explode.",
        "Clip the norm of the gradients; check the initialization and the scale of recurrent weights.",
    ),
    "decay_too_strong": Text(
        "The weights shrink to {ratio:.1%} of their first norm",
        "`{tensor}`, while nothing is learned",
        "Probably the weight decay is too strong.",
        "Reduce the weight decay.",
    ),
    "rate_too_high": Text(
        "Updates are too large since step {onset:,}",
        "one step changes `{tensor}` by {update:.2g} of its norm",
        "Probably the learning rate is too high.",
        "Reduce the learning rate by a factor of 3 to 10, or warm it up.",
    ),
    "saturated": Text(
        "`{tensor}` is saturated since step {onset:,}",
        "{share:.0%} of its values are at the limits",
        "Saturated units pass almost no gradient.",
        "Reduce the learning rate or the scale of the initial weights; check the scale of the inputs.",
    ),
    "dead": Text(
        "Most units of `{tensor}` are dead since step {onset:,}",
        "{share:.0%} are 0 for every sample",
        "{reason}",
        "{advice}",
    ),
    "vanishing": Text(
        "Gradients vanish towards the first layers",
        "RMS in `{tensor}` is {ratio:.2g} of that in `{other}`",
        "The first layers barely learn.",
        "Use ReLU-like activations, normalization or residual connections; check the initialization.",
    ),
    "rate_too_low": Text(
        "Updates are too small",
        "one step changes the weights by {update:.2g} of their norm, in the median of layers",
        "Probably the learning rate is too low.",
        "Increase the learning rate by a factor of 10 to 100.",
    ),
    "labels_unrelated": Text(
        "The training loss falls but the validation loss never leaves chance",
        "{training} {first:.3g} → {end:.3g}; {validation} stays at {level:.3g}, guessing {classes} classes gives {chance:.3g}",
        "Probably the labels do not belong to the inputs, and the model learns them by heart.",
        "Check that shuffling keeps inputs and labels together, and how the labels are read.",
    ),
    "one_class": Text(
        "The model predicts one class for {share:.0%} of the samples",
        "`{tensor}`",
        "It ignores its inputs, or one class dominates the data.",
        "Check the balance of the classes and the gradients of the first layers.",
    ),
    "frozen": Text(
        "The weights of `{tensor}` never change",
        "{saves} saves; other layers' do",
        "They are not trained.",
        "If that is not intended, check that they are passed to the optimizer and require gradients.",
    ),
}
