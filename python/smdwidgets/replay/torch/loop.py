"""The loop of a training.

Found in the frames of the training thread, and compiled again from its source.

Only code of the live process is executed, never a text from a run.
"""

from __future__ import annotations

import ast
import collections
import copy
import hashlib
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Final, TypeGuard

from smdwidgets.replay.torch.state import Keep, is_user_code, names_of, small
from smdwidgets.replay.tree import mapped

__all__ = ["Loop", "NoLoop", "Place", "loop_of", "places", "user_frames"]

#: Frames of the script that are looked at, from the innermost one.
_MOST_FRAMES: Final = 8
_LONGEST_SOURCE: Final = 20_000
_PLAIN: Final = (bool, int, float, str, type(None))


class NoLoop(LookupError):
    """The steps of a training cannot be executed from the source of its loop."""


def user_frames() -> list[FrameType]:
    """Return the frames of the script on this thread, the innermost one first."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(frames) < _MOST_FRAMES:
        if is_user_code(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    return frames


@dataclass
class Place:
    """Where a frame of the script is, and its names.

    Attributes:
        code: the code of the frame.
        line: the line that it executes.
        key: identity of the frame.
        names: what its names refer to, weakly where that is possible.
        values: copies of its small values.
        variables: the dictionary of its module.
        is_module: whether it is the frame of a module.
    """

    code: CodeType
    line: int
    key: int
    names: dict[str, Keep] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    globals_values: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    is_module: bool = False

    @classmethod
    def of(cls, frame: FrameType, names: bool = True) -> Place:
        """Return the place of a frame; ``names``: with its names."""
        place = cls(frame.f_code, frame.f_lineno, id(frame))
        if not names:
            return place
        place.variables = frame.f_globals
        place.is_module = frame.f_locals is frame.f_globals
        for name, value in names_of(frame).items():
            if name.startswith("__"):
                continue
            place.names[name] = Keep(value)
        place.values = _copies({name: keep() for name, keep in place.names.items()})
        if not place.is_module:
            place.globals_values = _copies(frame.f_globals)
        return place

    def hold(self) -> None:
        """Keep what the names refer to alive."""
        for keep in self.names.values():
            keep.hold()


def _copies(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of small values, without those that cannot be copied.

    A subclass of ``str`` may need more arguments.
    """
    copies = {}
    for name, value in list(variables.items()):
        if not name.startswith("__") and small(value):
            with suppress(Exception):  # a class of the user
                copies[name] = copy.deepcopy(value)
    return copies


def places(names: bool = True) -> list[Place]:
    """Return the places of the frames of the script; ``names``: with their names."""
    return [Place.of(frame, names) for frame in user_frames()]


@dataclass
class Loop:
    """A loop of the script that can be executed from a step on.

    Attributes:
        place: where its frame was when the step began.
        filename: its file or cell.
        line: its first line.
        source: its text.
    """

    place: Place
    filename: str
    line: int
    source: str
    _node: ast.For | ast.While
    _class: str

    @property
    def sha256(self) -> str:
        """A checksum of its text."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    def starts(self, by_delivery: bool) -> list[str]:
        """Return the ways to start with, the most exact one first.

        ``"inside"`` an iteration, or at its ``"top"``.
        """
        index = self._statement()
        if by_delivery:
            return ["inside"] if index > 0 else ["top"]
        return ["inside", "top"] if index > 0 else ["top"]

    def _statement(self) -> int:
        """Return the index of the statement of the body that was executed.

        -1: the head of the loop.
        """
        for index, one in enumerate(self._node.body):
            if _first_line(one) <= self.place.line <= (one.end_lineno or one.lineno):
                return index
        return -1

    def compiled(self, start: str, yielded: int) -> ast.Module:
        """Return a module with a function that executes the loop.

        Args:
            start: one of `starts`.
            yielded: the number of batches that the loop's iterator had given.
        """
        node = copy.deepcopy(self._node)
        index = self._statement()
        if isinstance(node, ast.For):
            self._continue(node, advanced=index >= 0, skip=start == "inside", yielded=yielded)
        names = sorted(_stored(node))
        body: list[ast.stmt] = [ast.Global(names)] if names else []
        if start == "inside":
            once = ast.For(
                ast.Name("__once__", ast.Store()),
                ast.Tuple([ast.Constant(0)], ast.Load()),
                copy.deepcopy(self._node.body[index:]),
                [node],
            )
            body.append(once)
        else:
            body.append(node)
        function = ast.FunctionDef("__replay__", ast.arguments([], [], None, [], [], None, []), body, [], None)
        function.__dict__.setdefault("type_params", [])
        module = ast.Module([function], [])
        if self._class:
            _Mangle(self._class).visit(module)
        return ast.fix_missing_locations(module)

    def _continue(self, node: ast.For, advanced: bool, skip: bool, yielded: int) -> None:
        """Have `range` and `enumerate` continue where the loop was."""
        call, target = node.iter, node.target
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args):
            return
        if call.func.id == "enumerate":
            base = call.args[1] if len(call.args) > 1 else next((one.value for one in call.keywords), ast.Constant(0))
            begin: ast.expr = ast.BinOp(base, ast.Add(), ast.Constant(yielded + (1 if skip else 0)))
            call.args, call.keywords = [call.args[0], begin], []
        elif call.func.id == "range" and isinstance(target, ast.Name) and advanced and target.id in self.place.values:
            now = self.place.values[target.id]
            if isinstance(now, int):
                step = call.args[2] if len(call.args) > 2 else ast.Constant(1)
                begin = ast.BinOp(ast.Constant(now), ast.Add(), step) if skip else ast.Constant(now)
                call.args = [begin, call.args[0] if len(call.args) == 1 else call.args[1], *call.args[2:]]

    @contextmanager
    def running(self, start: str, yielded: int, rebound: Mapping[str, Any]) -> Iterator[Callable[[], object]]:
        """Yield a function that executes the loop.

        The names of the script are put back after it.

        Args:
            start: one of `starts`.
            yielded: the number of batches that the loop's iterator had given.
            rebound: further values of names.

        Raises:
            NoLoop: the source cannot be compiled.
        """
        try:
            code = compile(self.compiled(start, yielded), self.filename, "exec")
        except (SyntaxError, ValueError, RecursionError) as error:
            raise NoLoop(f"the loop at {self.filename}:{self.line} cannot be executed alone: {error}") from None
        place = self.place
        variables = place.variables
        before = dict(variables)
        held = {name: keep() for name, keep in place.names.items()}
        contents = [(value, mapped(value, lambda one: one)) for value in held.values() if _is_filled(value)]
        if place.is_module:
            space = variables
        else:
            space = {**variables, **{name: one for name, one in held.items() if one is not None}}
            variables.update(
                {
                    name: one
                    for name, one in place.globals_values.items()
                    if isinstance(one, _PLAIN) and name in variables
                }
            )
        for name, value in place.values.items():
            live = held.get(name)
            space[name] = _fill(live, value) if _is_filled(live) and type(live) is type(value) else copy.deepcopy(value)
        space.update({name: value for name, value in rebound.items() if name in place.names})
        try:
            exec(code, space)  # the script's own loop, of this process
            yield space["__replay__"]
        finally:
            for value, content in contents:
                _fill(value, content)
            for name in [name for name in variables if name not in before]:
                del variables[name]
            variables.update(before)


def _is_filled(value: Any) -> TypeGuard[Any]:
    """Whether a container is filled in place, as others may refer to it."""
    return isinstance(value, list | dict | set | collections.deque) and small(value)


def _fill(value: Any, content: Any) -> Any:
    if isinstance(value, list):
        value[:] = copy.deepcopy(content)
        return value
    items = copy.deepcopy(content)
    value.clear()
    if isinstance(value, dict | set):
        value.update(items)
    else:
        value.extend(items)
    return value


def loop_of(began: Sequence[Place], ended: Sequence[Place]) -> Loop:
    """Return the loop whose iterations are steps.

    The innermost one around the beginning and the end of a step.

    Args:
        began: the places of the script's frames when the step began.
        ended: those when it ended.

    Raises:
        NoLoop: there is none.
    """
    ends = {(one.key, one.code): one.line for one in ended or began}
    problem = "no frame of the script is around both"
    for place in began:
        line = ends.get((place.key, place.code))
        if line is None:
            continue
        filename = place.code.co_filename
        lines = linecache.getlines(filename, place.variables)
        if not lines:
            problem = f"the source of {filename} is not available"
            continue
        try:
            tree = ast.parse("".join(lines))
        except (SyntaxError, ValueError, RecursionError) as error:
            problem = f"the source of {filename} cannot be parsed: {error}"
            continue
        scope, class_name = _scope(tree, place.code)
        if scope is None:
            problem = f"{filename} has changed since it was loaded"
            continue
        loops = [one for one in _loops(scope) if _contains(one, place.line) and _contains(one, line)]
        if not loops:
            problem = f"{filename}:{place.line} is in no loop"
            continue
        node = max(loops, key=lambda one: one.lineno)
        if any(isinstance(one, ast.Yield | ast.YieldFrom | ast.Await | ast.Nonlocal) for one in ast.walk(node)):
            raise NoLoop(f"the loop at {filename}:{node.lineno} yields, waits or changes names of a function around it")
        source = "".join(lines[node.lineno - 1 : node.end_lineno])[:_LONGEST_SOURCE]
        return Loop(place, filename, node.lineno, source, node, class_name)
    raise NoLoop(f"no loop around a step was found: {problem}")


def _scope(tree: ast.Module, code: CodeType) -> tuple[ast.AST | None, str]:
    """Return the function or module of a code object, and the name of its class."""
    if code.co_name == "<module>":
        return tree, ""
    classes: dict[ast.AST, str] = {}
    for one in ast.walk(tree):
        for child in ast.iter_child_nodes(one):
            classes[child] = one.name if isinstance(one, ast.ClassDef) else classes.get(one, "")
        if isinstance(one, ast.FunctionDef) and one.name == code.co_name and _first_line(one) == code.co_firstlineno:
            return one, classes.get(one, "")
    return None, ""


def _first_line(node: Any) -> int:
    decorators = getattr(node, "decorator_list", None)
    return int(min([node.lineno, *(one.lineno for one in decorators)]) if decorators else node.lineno)


def _loops(scope: ast.AST) -> Iterator[ast.For | ast.While]:
    """Yield the loops of a function, not those of functions inside."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(child, ast.For | ast.While):
            yield child
        yield from _loops(child)


def _contains(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _stored(node: ast.AST) -> set[str]:
    """Return the names that a loop binds."""
    names: set[str] = set()
    pending = [node]
    while pending:
        one = pending.pop()
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store | ast.Del):
            names.add(one.id)
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(one.name)
            pending += one.decorator_list
            continue
        elif isinstance(one, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            names |= {each.target.id for each in ast.walk(one) if isinstance(each, ast.NamedExpr)}
            continue
        elif isinstance(one, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and one.name:
            names.add(one.name)
        elif isinstance(one, ast.Import | ast.ImportFrom):
            names |= {(each.asname or each.name).partition(".")[0] for each in one.names}
        pending += list(ast.iter_child_nodes(one))
    return names


class _Mangle(ast.NodeTransformer):
    """Spells private names of a class as the compiler does inside of it."""

    def __init__(self, name: str) -> None:
        self._prefix = f"_{name.lstrip('_')}"

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Spell a private attribute."""
        self.generic_visit(node)
        if node.attr.startswith("__") and not node.attr.endswith("__"):
            node.attr = self._prefix + node.attr
        return node
