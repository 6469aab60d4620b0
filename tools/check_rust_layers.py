"""Check the layers of the Rust modules: `python tools/check_rust_layers.py`.

Two rules hold. A module of the core or of the stores uses only the modules above it in the table "Layers of the core"
or "Layers of the stores" of docs/architecture.md, which list all of them. No two modules of a crate use each other,
directly or through others; a submodule may use its parent. Tests are exempt.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
Module = tuple[str, ...]

_USE = re.compile(r"(pub(?:\([a-z ]+\))? )?\buse ([^;]+);")
_PATH = re.compile(r"\b((?:crate|super)(?:::\w+)+)")


def layers(document: str, crate: str) -> list[str]:
    """Return the modules in the table of a crate's layers, lowest first."""
    heading = f"## Layers of the {crate}\n"
    _, found, rest = document.partition(heading)
    if not found:
        sys.exit(f"error: docs/architecture.md has no heading {heading!r}")
    return re.findall(r"^\| `(\w+)` \|", rest.partition("\n## ")[0], re.M)


def expanded(tree: str) -> Iterator[str]:
    """Yield the paths of a use declaration: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    tree = re.sub(r"\s+as\s+\w+", "", tree.strip())
    prefix, brace, group = tree.partition("{")
    if not brace:
        yield re.sub(r"\s", "", tree)
        return
    depth, start = 0, 0
    group = group.rpartition("}")[0]
    for at, character in enumerate(group + ","):
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            if group[start:at].strip():
                yield from (re.sub(r"\s", "", prefix) + path for path in expanded(group[start:at]))
            start = at + 1


def code_of(text: str) -> str:
    """Return a file's code without comments, strings and the tests at its end."""
    text = text.partition("#[cfg(test)]\nmod tests {")[0]
    return re.sub(r'"(?:\\.|[^"\\\n])*"|//[^\n]*', "", text)


def sources(crate: Path) -> dict[Module, str]:
    """Return the code of each module of a crate by path. The root's path is empty."""
    found: dict[Module, str] = {}
    for file in sorted(crate.rglob("*.rs")):
        parts = file.relative_to(crate).with_suffix("").parts
        if parts[-1] != "tests":
            found[parts[:-1] if parts[-1] in ("mod", "lib") else parts] = code_of(file.read_text(encoding="utf-8"))
    return found


def _absolute(path: str, module: Module) -> Module:
    first, *rest = path.split("::")
    base = {"crate": (), "self": module, "super": module[:-1]}.get(first)
    if base is None:
        return (*module, first, *rest)
    while rest and rest[0] == "super":
        base, rest = base[:-1], rest[1:]
    return (*base, *rest)


def exports(modules: dict[Module, str]) -> dict[Module, Module]:
    """Return the items that modules re-export, with the paths of their definitions."""
    found: dict[Module, Module] = {}
    for module, code in modules.items():
        for visible, tree in _USE.findall(code):
            for path in expanded(tree) if visible else ():
                target = _absolute(path, module)
                found[*module, target[-1]] = target
    return found


def uses(modules: dict[Module, str]) -> dict[Module, set[Module]]:
    """Return the modules that each module uses, without ancestors and submodules."""
    exported = exports(modules)
    graph: dict[Module, set[Module]] = {}
    for module, code in modules.items():
        graph[module] = set()
        declared = {path for _, tree in _USE.findall(code) for path in expanded(tree)}
        for used in declared | set(_PATH.findall(code)):
            if used.partition("::")[0] not in ("crate", "super"):
                continue
            target = _absolute(used, module)
            while target in exported:
                target = exported[target]
            while target not in modules:
                target = target[:-1]
            if target[: len(module)] != module and module[: len(target)] != target:
                graph[module].add(target)
    return graph


def check_layers(modules: dict[Module, str], order: list[str]) -> Iterator[str]:
    """Yield violations of the first rule."""
    known = {module[0] for module in modules if module}
    for name in sorted(known - set(order)):
        yield f"module `{name}` is not in the table of layers in docs/architecture.md"
    for name in sorted(set(order) - known):
        yield f"the table of layers in docs/architecture.md lists `{name}`, which is not a module"
    for module, targets in uses(modules).items():
        for target in sorted(targets):
            if module and {module[0], target[0]} <= set(order) and order.index(target[0]) > order.index(module[0]):
                yield f"{'::'.join(module)} uses {'::'.join(target)}, which is in a higher layer"


def check_cycles(modules: dict[Module, str]) -> Iterator[str]:
    """Yield violations of the second rule."""
    graph = uses(modules)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield f"import cycle: {' -> '.join('::'.join(module) for module in error.args[1])}"


def main() -> int:
    """Check all crates; return 1 if a rule is broken."""
    document = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    problems = []
    for crate in ("core", "stores", "python"):
        modules = sources(ROOT / "rust" / crate / "src")
        problems += check_cycles(modules)
        if crate != "python":
            problems += check_layers(modules, layers(document, crate))
    for problem in problems:
        print(f"error: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
