"""Kinds of findings in large models, and in their reinforcement learning.

They are part of the table of kinds. Their evidence is in signals, and in series that trainers log.
"""

from __future__ import annotations

from smdwidgets.finding.kind import Kind

__all__ = ["large_model_kinds"]

_NOT_REWARDED = frozenset({"collapsed", "not_learning"})


def large_model_kinds(unstable: frozenset[str]) -> tuple[Kind, ...]:
    """Return the kinds, from cause to symptom.

    Args:
        unstable: kinds that an unstable training shows.
    """
    return (
        Kind(
            "second_moments_lag",
            "Second moments lag",
            "second moments that lag",
            "The squared gradients are more than 5 times the second moments of Adam in the median of all matrices, at two saves in "
            "succession after the first 20 steps. The optimizer takes larger steps than it should, because the data have changed "
            "at once. A note unless the training suffers.",
            "squared gradients of the size of the second moments",
            "look at the batches of these steps; clip gradients; try a smaller second beta, such as 0.95.",
            "Gradients outgrow the second moments of the optimizer at step {first:,}",
            "root of their ratio {ratio:.2g} in the median of {count} matrices; healthy: about 1",
            "Probably the data changed at once; the moments keep the size of earlier gradients.",
            explains=unstable - {"exploding"} | {"rate_too_high"},
            needs_symptom=True,
            level="warning",
            test="train on the batches of these steps with a second beta of 0.95: if the loss stays calm, the moments were the cause",
        ),
        Kind(
            "attention_logits_grow",
            "Attention logits grow",
            "attention logits that grow",
            "The largest attention logit of a head is above 50 at three saves in succession. Attention then looks at single "
            "tokens, its gradients vanish or jump, and the loss usually diverges some time later.",
            "attention logits below 30",
            "reduce the learning rate or warm it up longer; normalize queries and keys, or cap the logits (QK-Clip, soft caps).",
            "Attention logits grow in `{tensor}`, head {head}, since step {first:,}",
            "up to {largest:.3g}; {projection}",
            "The loss usually follows many steps later.",
            explains=unstable | {"rate_too_high", "weights_blow_up"},
            level="warning",
            test="normalize queries and keys and train again: if the logits stay below 30, they were the cause",
        ),
        Kind(
            "weights_blow_up",
            "Weights blow up",
            "singular values that grow",
            "The largest singular value of a matrix is more than 20 times its first value, while the median update changes "
            "matrices by more than 5 % of their norm, at three saves in succession. With normalized queries and keys, it is the "
            "sign that attention logits are elsewhere.",
            "singular values that grow a few times, with updates below 3 %",
            "reduce the learning rate, or warm it up longer; check weight decay.",
            "The largest singular value of `{tensor}` has grown {growth:.0f}-fold since step {first:,}",
            "one step changes matrices by {update:.2g} of their norm in the median; healthy: 0.0007 to 0.03",
            "The loss usually follows many steps later. Probably the learning rate is too high.",
            explains=unstable | {"rate_too_high"},
            level="warning",
            test="divide the learning rate by 3 and train again: if the singular values stay, the rate was the cause",
        ),
        Kind(
            "experts_collapsed",
            "Experts collapsed",
            "tokens that go to few experts",
            "A router sends nearly all tokens to as few experts as it can: the largest load is above 85 % of what it can be, for "
            "at least the last 15 steps. Or the largest load that a training logs, as a share of the tokens, is above 70 %. The loss hardly "
            "shows it.",
            "a largest load below twice the equal share, after the first steps",
            "check that the loss that balances the load is added and large enough, or that the router's bias is updated; check the "
            "scale of the router's initial weights.",
            "The router `{tensor}` sends {share:.0%} of the tokens to {expert} since step {first:,}",
            "{equal}",
            "The other experts learn nothing, and the loss hardly shows it.",
            explains=frozenset({"dead_experts", "not_learning"}),
            level="warning",
        ),
        Kind(
            "dead_experts",
            "Dead experts",
            "experts without tokens",
            "An expert gets less than 5 % of an equal share of the tokens for at least the last 25 steps, after it had more than 25 %; or "
            "the share of the tokens that a training logs for it is 0. The loss hardly shows it.",
            "every expert with more than half of an equal share",
            "raise the weight of the loss that balances the load, or update the router's bias; look at what changed at this step.",
            "Expert {expert} of the router `{tensor}` gets no tokens since step {first:,}",
            "{load:.2g} of an equal share{others}",
            "Its parameters learn nothing, and the loss hardly shows it.",
            level="warning",
            state="dead",
        ),
        Kind(
            "sampler_mismatch",
            "Sampler mismatch",
            "a sampler that differs from the model",
            "The probabilities that the sampler gave to its tokens differ from those of the trained model: the mean difference of "
            "their logarithms is above 0.1, that of probabilities above 0.03, their correlation below 0.95, or the mean ratio "
            "outside 0.8 to 1.25, at 5 logs in succession. Such a training is off-policy without correction.",
            "a difference of logarithms near 0.02 and a ratio near 1",
            "compare precision, kernels, temperature and penalties of sampler and trainer; correct by importance sampling.",
            "The sampler's probabilities differ from those of the model since step {first:,}",
            "{series} {value:.3g}; healthy: {healthy}",
            "The gradients are those of another policy.",
            explains=frozenset({"entropy_explosion", "kl_without_gain", "entropy_collapse", "length_explosion"})
            | _NOT_REWARDED,
            level="warning",
            test="score sampled tokens with the trainer before any update: if the logarithms differ, the sampler is the cause",
        ),
        Kind(
            "zero_advantage",
            "Zero advantage",
            "groups without different rewards",
            "At least 80 % of the groups have equal rewards, or their standard deviation is 0, at 10 logs in succession. Then the "
            "advantages are 0, and nothing is learned from these groups. A note if the reward has risen, is exactly its best at half of "
            "the later logs, and the entropy is above 0.05: then every answer is right.",
            "groups with different rewards",
            "choose tasks that are neither always nor never solved; sample more answers for each; look at the reward function.",
            "The rewards of most groups are equal since step {first:,}",
            "{series} {value:.3g}{gradient}",
            "Their advantages are 0, so nothing is learned from them.",
            explains=_NOT_REWARDED,
            level="warning",
        ),
        Kind(
            "policy_steps_large",
            "Policy steps large",
            "updates that change the policy too far",
            "In the second half of a training by PPO the median of the approximate divergence of an update is above 0.2, and more than 40 % "
            "of the samples are clipped; or it is above 0.5, and more than 10 % are, as of a policy that is sure of most actions.",
            "a divergence of 0.01 to 0.05, and less than a third of the samples clipped",
            "reduce the learning rate, or the epochs over the same samples; set a limit of the divergence, such as `target_kl`.",
            "Each update changes the policy far beyond the range of its clipping",
            "{numbers}",
            "The samples are those of a policy that the update has left, so that their advantages say little.",
            explains=_NOT_REWARDED | {"entropy_collapse"},
            level="warning",
            test="divide the learning rate by 10 for 20 updates: if the divergence falls below 0.05, the rate was the cause",
        ),
        Kind(
            "entropy_collapse",
            "Entropy collapse",
            "a policy that no longer explores",
            "The entropy of the policy is below 20 % of its first values and below 0.05 at 5 logs in succession, while the reward "
            "is below its best. Or it is below 5 % of its first value within the first quarter of the run, after an update that moved "
            "the policy by 0.5 nats or more.",
            "an entropy that falls slowly while the reward rises",
            "raise the upper clipping limit or the entropy bonus; reduce the learning rate; sample at temperature 1.",
            "The entropy of the policy has collapsed since step {first:,}",
            "{series} {before:.3g} → {after:.3g}",
            "The policy no longer explores.",
            explains=_NOT_REWARDED,
            level="warning",
        ),
        Kind(
            "entropy_explosion",
            "Entropy explosion",
            "a policy that becomes random",
            "The entropy of the policy is more than 3 times its first values at 5 logs in succession, and the reward does not rise.",
            "an entropy that falls, or stays",
            "reduce the entropy bonus and the learning rate; filter broken answers.",
            "The entropy of the policy has grown {growth:.1f}-fold since step {first:,}",
            "{series} {before:.3g} → {after:.3g}",
            "The policy becomes random.",
            explains=_NOT_REWARDED,
            level="warning",
        ),
        Kind(
            "kl_without_gain",
            "KL without gain",
            "a policy that leaves its reference without gain",
            "The divergence from the reference is more than 5 times that of its first tenth and above 0.1, or above 2, at 5 logs in "
            "succession, while the reward stays inside its noise.",
            "a divergence that grows with the reward",
            "raise the KL coefficient; reduce the learning rate; look at answers for what the reward does not measure.",
            "The policy leaves its reference without a higher reward since step {first:,}",
            "{series} {before:.3g} → {after:.3g}",
            "It changes in ways that the reward does not measure.",
            explains=_NOT_REWARDED,
            level="warning",
        ),
        Kind(
            "kl_unbounded",
            "KL unbounded",
            "a policy that its penalty does not hold",
            "The divergence of whole answers from the reference is above 50, has grown more than fivefold, and costs less than a tenth of "
            "the reward, although the entropy falls.",
            "a divergence of a few nats, or one that costs about as much as the reward gains",
            "raise the coefficient of the divergence; reduce the learning rate; read answers with a high reward.",
            "The policy leaves its reference, and the penalty does not hold it: {series} {before:.3g} → {after:.3g}",
            "{numbers}",
            "Probably the policy exploits the reward: at such a divergence, answers have little in common with those of the reference.",
            level="warning",
            explains=_NOT_REWARDED,
            test="read answers with the highest rewards: if they are alike or broken, the reward is exploited",
        ),
        Kind(
            "length_explosion",
            "Length explosion",
            "answers that grow to the limit",
            "The mean length of answers is more than twice its first values, and at least 30 % of them are truncated, at 5 logs in "
            "succession; or it has grown by half, and 90 % of them are truncated, of which at most half were at first; "
            "or some answers end at first, and none in the second half of the run.",
            "few truncated answers",
            "mask truncated answers in the loss, or penalize them; check the normalization of the loss by length.",
            "Answers grow to the limit of their length since step {first:,}",
            "{series} {before:.4g} → {after:.4g}, {share:.0%} truncated",
            "Truncated answers get no reward that they could have had.",
            explains=_NOT_REWARDED,
            level="warning",
        ),
    )
