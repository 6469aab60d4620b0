"""Check of functions whose gradient the script computes itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.trials_apart import apart
from smdwidgets.checks.torch.values import is_plain

__all__ = ["FunctionChecks", "is_installed"]

#: Functions that are checked, elements of their inputs, and directions.
_MOST_FUNCTIONS, _MOST_ELEMENTS, _DIRECTIONS = 16, 262_144, 3
#: Distance of the values of a difference, in units of the largest input, and by how much two of them may differ.
_DISTANCE, _UNSTEADY = 1e-6, 1e-3
#: Share by which a gradient differs from differences, and the size below which a difference is 0.
_DIFFERS, _ZERO = 0.1, 1e-9


class FunctionChecks:
    """Compares gradients of `autograd.Function` with differences of its values.

    It looks at the functions of the script. The arguments of one call are copied, and the function is called again with
    copies in float64. A function whose values have steps, or are those of its input, has another gradient on purpose.

    Args:
        context: what the mechanisms share.
        guarded: wraps a function so that it never raises.
    """

    def __init__(self, context: Context, guarded: Callable[[Callable[..., object]], Callable[..., object]]) -> None:
        self._context = context
        self._guarded = guarded
        self._seen: set[type] = set()
        self._watched: dict[type, Any] = {}
        self._calls: list[tuple[type, list[Any], list[bool]]] = []

    def walked(self, functions: Iterable[type]) -> None:
        """The graph of a loss contains these functions."""
        for one in functions:
            forward = one.__dict__.get("forward")
            if one in self._seen or len(self._seen) >= _MOST_FUNCTIONS or not isinstance(forward, staticmethod):
                continue
            self._seen.add(one)
            if self._context.log.runs("wrong_gradient") and not is_installed(one):
                self._watch(one, forward)

    def _watch(self, function: type, forward: staticmethod[..., Any]) -> None:
        """Keep the arguments of the next call.

        A script may hold `apply`, so that `forward` is what is replaced.
        """
        has_context = function.setup_context is torch.autograd.Function.setup_context  # type: ignore[attr-defined]
        original = forward.__func__

        def call(*args: Any) -> Any:
            self._release(function)
            self._guarded(self._keep)(function, args[1:] if has_context else args)
            return original(*args)

        self._watched[function] = forward
        function.forward = staticmethod(call)  # type: ignore[attr-defined]

    def _release(self, function: type) -> None:
        forward = self._watched.pop(function, None)
        if forward is not None:
            function.forward = forward  # type: ignore[attr-defined]

    def _keep(self, function: type, args: tuple[Any, ...]) -> None:
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        if not all(is_plain(one) for one in tensors) or sum(one.numel() for one in tensors) > _MOST_ELEMENTS:
            return
        needs = [isinstance(one, torch.Tensor) and one.is_floating_point() and one.requires_grad for one in args]
        copies = [one.detach().clone() if isinstance(one, torch.Tensor) else one for one in args]
        if any(needs):
            self._calls.append((function, copies, needs))

    def look(self) -> None:
        """Compare what was kept. No function of the script is running."""
        calls, self._calls = self._calls, []
        for function, args, needs in calls:
            devices = sorted({one.device.index or 0 for one in args if isinstance(one, torch.Tensor) and one.is_cuda})
            # The function may print or fail in float64. It may also draw numbers, which the training must not miss.
            differs = None
            with apart(devices), torch.autocast("cpu", enabled=False):
                differs = _compare(function, args, needs)
            if differs is not None:
                name = function.__qualname__
                facts = {"function": name, "given": f"{differs[0]:.4g}", "measured": f"{differs[1]:.4g}"}
                self._context.log.say("wrong_gradient", self._context.step, facts, [name])

    def close(self) -> None:
        """Put functions back."""
        for one in list(self._watched):
            self._release(one)


def is_installed(function: type) -> bool:
    """Whether a function belongs to a library.

    It may approximate gradients on purpose.
    """
    if function.__module__.partition(".")[0] == "torch":
        return True
    try:
        return "site-packages" in inspect.getfile(function)
    except (OSError, TypeError):  # a notebook's cell
        return False


def _compare(function: Any, args: list[Any], needs: list[bool]) -> tuple[float, float] | None:
    """Return a derivative as the function gives it and as measured.

    None: they do not differ.
    """
    args = [one.double() if isinstance(one, torch.Tensor) and one.is_floating_point() else one for one in args]
    numbers = np.random.default_rng(0)

    def called(values: list[Any]) -> list[torch.Tensor]:
        # A function may change its arguments in place.
        passed = [one.clone() if isinstance(one, torch.Tensor) else one for one in values]
        results = function.apply(*passed)
        every = results if isinstance(results, tuple) else (results,)
        return [one for one in every if isinstance(one, torch.Tensor) and one.is_floating_point()]

    def direction(like: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(numbers.standard_normal(tuple(like.shape))).to(like.device)

    first, again = called(args), called(args)
    if not first or any(not torch.equal(one, other) for one, other in zip(first, again, strict=True)):
        return None
    places = [place for place, need in enumerate(needs) if need]
    if any(_is_multiple(one, args[place]) for one in first for place in places):
        return None
    wrong: list[tuple[float, float]] = []
    for place in places:
        compared = [_derivatives(called, args, place, first, direction) for _ in range(_DIRECTIONS)]
        differing = [
            one for one in compared if one is not None and abs(one[0] - one[1]) > _DIFFERS * max(map(abs, one))
        ]
        if len(differing) == _DIRECTIONS:
            wrong.append(differing[0])
    return wrong[0] if wrong else None


def _derivatives(
    called: Callable[[list[Any]], list[torch.Tensor]],
    args: list[Any],
    place: int,
    results: list[torch.Tensor],
    direction: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[float, float] | None:
    """Return the derivative by one argument, as given and as measured."""
    # The gradient of a loss that the function itself computes is 1.
    weights = [torch.ones_like(one) if one.ndim == 0 else direction(one) for one in results]
    along = direction(args[place])

    def weighted(values: list[Any]) -> torch.Tensor:
        return torch.stack([(one * each).sum() for one, each in zip(called(values), weights, strict=True)]).sum()

    def moved(by: float) -> float:
        return float(weighted([*args[:place], args[place] + by * along, *args[place + 1 :]]))

    with torch.enable_grad():
        leaf = args[place].clone().requires_grad_()
        total = weighted([*args[:place], leaf, *args[place + 1 :]])
        gradient = torch.autograd.grad(total, leaf, allow_unused=True)[0] if total.requires_grad else None
    if gradient is None or any(gradient.shape == one.shape and torch.equal(gradient, one) for one in weights):
        return None  # the argument is a constant, or the gradient passes straight through
    distance = _DISTANCE * max(1.0, float(args[place].abs().max()))
    near, far = ((moved(one) - moved(-one)) / (2 * one) for one in (distance, 10 * distance))
    size = max(abs(near), abs(far))
    if not np.isfinite(size) or size <= _ZERO * float(along.norm()) or abs(near - far) > _UNSTEADY * size:
        return None
    return float((gradient * along).sum()), near


def _is_multiple(result: torch.Tensor, argument: torch.Tensor) -> bool:
    """Whether a function returns a multiple of its argument.

    It reverses or scales gradients.
    """
    if result.shape != argument.shape or not argument.any():
        return False
    factor = float((result * argument).sum() / (argument * argument).sum())
    return bool(torch.allclose(result, factor * argument))
