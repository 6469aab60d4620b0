r"""Patterns of names: globs and regular expressions, matched in linear time.

The regular expressions are those that Python and JavaScript understand alike, without what takes exponential time: literals,
``.``, ``[a-z]``, ``\d \w \s \b``, ``^ $``, groups, ``|``, and repetitions. Groups do not capture. A pattern becomes a state
machine that is determined while it reads names. JavaScript has the same machine in ``js/src/query/pattern.ts``.

Both ignore the case of ASCII letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from smdwidgets.queries.words import folded, quoted

#: Maximum depth of groups, repetitions of one part, parts with repetitions expanded, and states that are kept.
_DEEPEST, _MOST_TIMES, _LARGEST, _KEPT = 50, 1_000, 2_000, 10_000
_LAST = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]

_CLASSES: Final[dict[str, Ranges]] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 13), (32, 32)),
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r"}
#: What stands before and after a place in a name.
_EDGE, _WORD, _OTHER = 0, 1, 2


class PatternError(Exception):
    """A regular expression is invalid."""

    def __init__(self, start: int, end: int, reason: str) -> None:
        super().__init__(reason)
        self.start, self.end, self.reason = start, end, reason


class Glob:
    """Literal parts that occur in a name in order, anywhere.

    >>> Glob(["layers.", ".q_proj"]).matches("model.Layers.3.q_proj.weight")
    True
    """

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts = [folded(part) for part in parts if part]

    def matches(self, name: str) -> bool:
        """Return whether a name matches."""
        lower, at = folded(name), 0
        for part in self._parts:
            found = lower.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        return True


class _Node(NamedTuple):
    """A part of an expression.

    Kinds are ``set``, ``assert``, ``all`` (a sequence), ``any`` (alternatives) and ``repeat``.
    """

    kind: str
    ranges: Ranges = ()
    negated: bool = False
    parts: tuple[_Node, ...] = ()
    least: int = 0
    most: int | None = None
    mark: str = ""


class _State:
    """A set of places in the program, and what stands before the next character."""

    __slots__ = ("after", "before", "places")

    def __init__(self, places: tuple[int, ...], before: int) -> None:
        self.places, self.before = places, before
        #: The next state by character; None: the pattern is found.
        self.after: dict[str, _State | None] = {}


class Regex:
    r"""A regular expression, found anywhere in a name.

    >>> Regex(r"layers\.\d+\.(q|k)_proj$").matches("model.layers.3.K_PROJ")
    True
    """

    def __init__(self, pattern: str, at: int = 0) -> None:
        """Compile a pattern that starts at a place of a text. Raises PatternError."""
        node = _Parser(pattern, at).parse()
        self._program: list[tuple[str, _Node | None, int, int]] = []
        self._left = _LARGEST
        self._error = PatternError(at, at + len(pattern), "the pattern is too large")
        self._emit(node)
        self._program.append(("found", None, 0, 0))
        self._states: dict[tuple[tuple[int, ...], int], _State] = {}

    def matches(self, name: str) -> bool:
        """Return whether the pattern is found in a name."""
        state = self._state((), _EDGE)
        for char in name:
            if char not in state.after:
                state.after[char] = self._step(state, char)
            after = state.after[char]
            if after is None:
                return True
            state = after
        return self._closed(state, _EDGE) is None

    # ---------------------------------------------------------------------------------------------------------- states

    def _state(self, places: tuple[int, ...], before: int) -> _State:
        if len(self._states) >= _KEPT:
            self._states = {}
        return self._states.setdefault((places, before), _State(places, before))

    def _step(self, state: _State, char: str) -> _State | None:
        code = ord(char)
        kind = _WORD if _within(code, _CLASSES["w"]) else _OTHER
        closed = self._closed(state, kind)
        if closed is None:
            return None
        after = [at + 1 for at in closed if _accepts(self._program[at][1], code)]
        return self._state(tuple(after), kind)

    def _closed(self, state: _State, behind: int) -> list[int] | None:
        """Return the places that read a character, in ascending order.

        None: the pattern is found.
        """
        seen = set(state.places) | {0}
        stack, reading = list(seen), []
        while stack:
            at = stack.pop()
            kind, node, first, second = self._program[at]
            if kind == "found":
                return None
            if kind == "read":
                reading.append(at)
                continue
            following = (first, second) if kind == "fork" else (at + 1,) if _holds(node, state.before, behind) else ()
            for place in following:
                if place not in seen:
                    seen.add(place)
                    stack.append(place)
        return sorted(reading)

    # --------------------------------------------------------------------------------------------------------- program

    def _emit(self, node: _Node) -> None:
        """Append the instructions of a part: read, assert, and fork to two places."""
        self._left -= 1
        if self._left < 0:
            raise self._error
        program = self._program
        if node.kind in ("set", "assert"):
            program.append(("read" if node.kind == "set" else "assert", node, 0, 0))
        elif node.kind == "all":
            for part in node.parts:
                self._emit(part)
        elif node.kind == "any":
            ends = []
            for part in node.parts[:-1]:
                fork = self._fork()
                self._emit(part)
                ends.append(self._fork())
                program[fork] = ("fork", None, fork + 1, len(program))
            self._emit(node.parts[-1])
            for end in ends:
                program[end] = ("fork", None, len(program), len(program))
        else:
            self._repeat(node)

    def _repeat(self, node: _Node) -> None:
        program, (part,) = self._program, node.parts
        for _ in range(node.least):
            self._emit(part)
        if node.most is None:
            fork = self._fork()
            self._emit(part)
            program.append(("fork", None, fork, fork))
            program[fork] = ("fork", None, fork + 1, len(program))
            return
        forks = []
        for _ in range(node.most - node.least):
            forks.append(self._fork())
            self._emit(part)
        for fork in forks:
            program[fork] = ("fork", None, fork + 1, len(program))

    def _fork(self) -> int:
        self._program.append(("fork", None, 0, 0))
        return len(self._program) - 1


def _within(code: int, ranges: Ranges) -> bool:
    return any(low <= code <= high for low, high in ranges)


def _accepts(node: _Node | None, code: int) -> bool:
    assert node is not None
    other = code + 32 if 65 <= code <= 90 else code - 32 if 97 <= code <= 122 else code
    return (_within(code, node.ranges) or _within(other, node.ranges)) != node.negated


def _holds(node: _Node | None, before: int, behind: int) -> bool:
    assert node is not None
    if node.mark == "^":
        return before == _EDGE
    if node.mark == "$":
        return behind == _EDGE
    return ((before == _WORD) != (behind == _WORD)) == (node.mark == "b")


def _complement(ranges: Ranges) -> Ranges:
    found, at = [], 0
    for low, high in ranges:  # sorted, and apart from each other
        found.append((at, low - 1))
        at = high + 1
    return (*found, (at, _LAST))


class _Parser:
    def __init__(self, pattern: str, offset: int) -> None:
        self._pattern, self._offset, self._at = pattern, offset, 0

    def parse(self) -> _Node:
        node = self._alternatives(0)
        if self._at < len(self._pattern):
            raise self._error(self._at, "')' without '('; write \\) for the character")
        return node

    def _error(self, start: int, reason: str, end: int | None = None) -> PatternError:
        return PatternError(self._offset + start, self._offset + (start + 1 if end is None else end), reason)

    def _peek(self, length: int = 1) -> str:
        return self._pattern[self._at : self._at + length]

    def _alternatives(self, depth: int) -> _Node:
        parts = [self._sequence(depth)]
        while self._peek() == "|":
            self._at += 1
            parts.append(self._sequence(depth))
        return parts[0] if len(parts) == 1 else _Node("any", parts=tuple(parts))

    def _sequence(self, depth: int) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._pattern) and self._peek() not in "|)":
            part = self._one(depth)
            parts.append(self._repeated(part))
        return _Node("all", parts=tuple(parts))

    def _repeated(self, part: _Node) -> _Node:
        start = self._at
        char = self._peek()
        if char not in ("*", "+", "?", "{"):
            return part
        if part.kind == "assert":
            raise self._error(start, "nothing to repeat")
        self._at += 1
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(char) or self._times(start)
        if self._peek() == "?":
            self._at += 1  # whether the shortest or the longest match is found makes no difference
        if self._peek() in ("*", "+", "?", "{"):
            raise self._error(self._at, "nothing to repeat")
        return _Node("repeat", parts=(part,), least=least, most=most)

    def _times(self, start: int) -> tuple[int, int | None]:
        low = self._digits()
        comma = self._peek() == ","
        self._at += comma
        high = self._digits() if comma else low
        if not low or self._peek() != "}":
            raise self._error(start, "invalid repetition; write \\{ for the character")
        self._at += 1
        numbers = [int(digits[:8]) for digits in (low, high) if digits]
        if max(numbers) > _MOST_TIMES:
            raise self._error(start, f"more than {_MOST_TIMES} repetitions", self._at)
        if numbers[0] > numbers[-1]:
            raise self._error(start, "minimum of a repetition exceeds its maximum", self._at)
        return numbers[0], numbers[1] if len(numbers) > 1 else None

    def _digits(self) -> str:
        begin = self._at
        while "0" <= self._peek() <= "9":
            self._at += 1
        return self._pattern[begin : self._at].lstrip("0") or self._pattern[begin : self._at][:1]

    def _one(self, depth: int) -> _Node:
        start = self._at
        char = self._peek()
        self._at += 1
        if char == "(":
            return self._group(start, depth)
        if char == "[":
            return self._set(start)
        if char == "\\":
            return self._escape(start)
        if char == ".":
            return _Node("set", ((0, _LAST),))
        if char in "^$":
            return _Node("assert", mark=char)
        if char in "*+?":
            raise self._error(start, "nothing to repeat")
        if char in "{}]":
            raise self._error(start, f"write \\{char} for the character")
        return _character(char)

    def _group(self, start: int, depth: int) -> _Node:
        if depth >= _DEEPEST:
            raise self._error(start, "groups are nested too deeply")
        if self._peek() == "?":
            if self._peek(2) != "?:":
                raise self._error(start, "look-around, flags and named groups are not supported", self._at + 1)
            self._at += 2
        node = self._alternatives(depth + 1)
        if self._peek() != ")":
            raise self._error(start, "'(' without ')'; write \\( for the character")
        self._at += 1
        return node

    def _escaped(self, start: int, inside: bool) -> str | _Node:
        """Return the character or the class of an escape, whose backslash was read."""
        char = self._peek()
        self._at += 1
        if not char:
            raise self._error(start, "nothing after the backslash")
        if char.lower() in _CLASSES and char.isascii():
            ranges = _CLASSES[char.lower()]
            return _Node("set", ranges if char.islower() else _complement(ranges))
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char in "bB" and not inside:
            return _Node("assert", mark=char)
        if char.isascii() and char.isalnum():
            raise self._error(start, f"escape {quoted(chr(92) + char)} is not supported", self._at)
        return char

    def _escape(self, start: int) -> _Node:
        found = self._escaped(start, inside=False)
        return _character(found) if isinstance(found, str) else found

    def _set(self, start: int) -> _Node:
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[int, int]] = []
        if self._peek() == "]":
            raise self._error(start, "empty set; write \\] for the character", self._at + 1)
        while self._peek() != "]":
            begin = self._at
            first = self._member(start)
            if isinstance(first, _Node):
                ranges += first.ranges
            elif self._peek() == "-" and self._peek(2) not in ("-", "-]"):
                self._at += 1
                last = self._member(start)
                if isinstance(last, _Node) or last < first:
                    raise self._error(begin, "invalid range", self._at)
                ranges.append((ord(first), ord(last)))
            else:
                ranges.append((ord(first), ord(first)))
        self._at += 1
        return _Node("set", tuple(ranges), negated)

    def _member(self, start: int) -> str | _Node:
        at, char = self._at, self._peek()
        if not char:
            raise self._error(start, "'[' without ']'; write \\[ for the character")
        self._at += 1
        return self._escaped(at, inside=True) if char == "\\" else char


def _character(char: str) -> _Node:
    return _Node("set", ((ord(char), ord(char)),))
