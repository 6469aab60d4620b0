"""The interval of keyframes follows from what recording takes."""

from __future__ import annotations

from smdwidgets.replay.torch.pace import EVERY, LONGEST, Pace


def _keyframes(step, cost, others, steps, epoch=10**9):
    """Return the steps of keyframes.

    `step`, `cost` and `others` are seconds: of a step, of a keyframe, and of what else is recorded in a step.
    """
    now, spent = 0.0, 0.0
    pace, frames = Pace(now), []
    for number in range(steps):
        now, spent = now + step, spent + others
        since = number - frames[-1] if frames else LONGEST
        allowed = pace.allows(now, spent, ahead=number % epoch == 0)
        if since >= LONGEST or (allowed and since >= EVERY):
            frames.append(number)
            pace.took(cost)
            now += cost
    return frames, (len(frames) * cost + others * steps) / now


def test_the_interval_of_keyframes_grows_until_the_share_of_the_time_holds():
    for step, cost, others in [
        (0.1, 0.025, 0.0007),
        (0.1, 0.2, 0.0005),
        (0.2, 0.5, 0.001),
        (2.0, 3.0, 0.001),
        (5.0, 0.1, 0.002),
    ]:
        for epoch in (50, 10**9):
            frames, share = _keyframes(step, cost, others, 4000, epoch)
            # The credit and what is taken ahead come once.
            assert share <= 0.01 + (0.05 + 9 * cost) / (4000 * step), (step, cost, others, epoch)
            assert len(frames) > 7
    frames, _ = _keyframes(5.0, 0.1, 0.002, 400)
    assert frames[:4] == [0, 8, 16, 24]  # as often as they may be
    frames, share = _keyframes(0.001, 0.0005, 0.0005, 4000)  # what else is recorded takes too long by itself
    assert frames[:8] == list(range(0, 64, 8))
    assert share < 0.5 + 0.02


def test_time_without_steps_pays_for_no_series_of_keyframes():
    pace = Pace(0.0)
    pace.took(0.5)
    assert pace.allows(7200.0, 0.0)
    taken = 0
    while pace.allows(7200.0, 0.0):
        pace.took(0.5)
        taken += 1
    assert taken == 2
