"""List the components of the wheel and its requirements.

`python tools/supply.py check` checks licences and sources; `python tools/supply.py sbom` writes a bill of materials.
Neither needs more network access than a build.

Rust crates are linked into the extension module. Python packages are run-time requirements, named with the version that
the tests use. The front end's bundle contains no packages.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from steps import ROOT

BILL = ROOT / "dist" / "smdwidgets.cdx.json"
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
#: Licences of shipped components that are compatible with Apache-2.0 and require only attribution.
ALLOWED = frozenset(
    {
        "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "MIT", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "Zlib", "ISC", "Unicode-3.0",
        "Unlicense", "CC0-1.0", "PSF-2.0", "Python-2.0", "CNRI-Python", "HPND", "MIT-CMU",
    }
)  # fmt: skip
#: Licences of requirements that are not shipped, in addition. Changes to these would have to be
#: published; use has no conditions.
ALLOWED_REQUIREMENTS = ALLOWED | {"MPL-2.0"}
#: Packages whose metadata name their licence in free text.
KNOWN = {"BSD": "BSD-3-Clause", "BSD License": "BSD-3-Clause", "Apache License 2.0": "Apache-2.0", "Apache 2.0": "Apache-2.0",
         "MIT License": "MIT", "Apache Software License": "Apache-2.0", "BSD-3-Clause License": "BSD-3-Clause", "BSD 3-Clause": "BSD-3-Clause",
         "PSFL": "PSF-2.0", "ISC License (ISCL)": "ISC", "Python Software Foundation License": "PSF-2.0"}  # fmt: skip


@dataclass(frozen=True, order=True)
class Component:
    """A package."""

    kind: str  #: type in package URLs: cargo, pypi
    name: str
    version: str
    licence: str
    source: str = ""

    @property
    def url(self) -> str:
        """The package URL."""
        return f"pkg:{self.kind}/{self.name}@{self.version}"


def crates() -> list[Component]:
    """Return the crates that wheels are linked with, from the lock file."""
    graph = tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))["graph"]
    systems = [word for target in graph["targets"] for word in ("--filter-platform", target)]
    done = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked", *systems],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    metadata = json.loads(done.stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    needs = {
        node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
        for node in metadata["resolve"]["nodes"]
    }
    [root] = [package["id"] for package in metadata["packages"] if package["name"] == "smdwidgets-py"]
    seen, ahead = set(), [root]
    while ahead:
        here = ahead.pop()
        if here not in seen:
            seen.add(here)
            ahead += needs[here]
    found = (packages[one] for one in seen)
    return sorted(
        Component("cargo", one["name"], one["version"], one["license"] or "none", one["source"] or "")
        for one in found
        if one["source"] is not None
    )


def distributions() -> list[Component]:
    """Return the run-time requirements and their dependencies, as installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ahead, found = [_name(line) for line in project["dependencies"]], {}
    while ahead:
        name = ahead.pop()
        if name in found:
            continue
        try:
            about = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # for another system
        found[name] = Component("pypi", name, about.version, _licence(about.metadata))
        ahead += [_name(line) for line in about.requires or () if "extra ==" not in line]
    return sorted(found.values())


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def _licence(about: Any) -> str:
    if expression := about.get("License-Expression"):
        return str(expression)
    words = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if line.startswith("License ::")]
    for said in (*words, (about.get("License") or "").splitlines()[0] if about.get("License") else ""):
        if said and (KNOWN.get(said, said) in ALLOWED):
            return KNOWN.get(said, said)
    return (words or [about.get("License") or "none"])[0][:60]


def permits(expression: str, allowed: frozenset[str] = ALLOWED) -> bool:
    """Return whether allowed licences can satisfy a licence expression.

    >>> permits("GPL-3.0 OR MIT"), permits("MIT AND GPL-3.0"), permits("(MIT OR Apache-2.0) AND Unicode-3.0")
    (True, False, True)
    """
    words = re.findall(r"\(|\)|[^\s()]+(?: WITH [^\s()]+)?", expression.replace("/", " OR "))
    joined = " ".join(
        word if word in "()" else {"AND": "and", "OR": "or"}.get(word, str(word in allowed)) for word in words
    )
    return _evaluate(joined.split())


def _evaluate(words: list[str]) -> bool:
    """Evaluate an expression such as `( True or False ) and True`."""

    def either(at: int) -> tuple[bool, int]:
        value, at = both(at)
        while at < len(words) and words[at] == "or":
            other, at = both(at + 1)
            value = value or other
        return value, at

    def both(at: int) -> tuple[bool, int]:
        value, at = one(at)
        while at < len(words) and words[at] == "and":
            other, at = one(at + 1)
            value = value and other
        return value, at

    def one(at: int) -> tuple[bool, int]:
        if at < len(words) and words[at] == "(":
            value, at = either(at + 1)
            return value, at + 1
        return at < len(words) and words[at] == "True", at + 1

    value, end = either(0)
    return value and end == len(words)


def problems(components: Iterable[Component]) -> Iterator[str]:
    """Yield problems: licences that are not allowed, and crates not from crates.io."""
    for one in components:
        if not permits(one.licence, ALLOWED_REQUIREMENTS if one.kind == "pypi" else ALLOWED):
            yield f"{one.url}: licence {one.licence!r} is not allowed"
        if one.kind == "cargo" and one.source != CRATES_IO:
            yield f"{one.url}: source is {one.source} instead of crates.io"
    needed = json.loads((ROOT / "js" / "package.json").read_text(encoding="utf-8")).get("dependencies", {})
    for name in needed:
        yield f"js/package.json: {name} would become part of the bundle; add it to the list of components"


def bill(components: Iterable[Component]) -> dict[str, Any]:
    """Return a CycloneDX 1.5 bill of materials. Equal components give equal bytes."""
    listed = list(components)
    version = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
    made = [
        {
            "type": "library",
            "bom-ref": one.url,
            "name": one.name,
            "version": one.version,
            "purl": one.url,
            "scope": "required",
            "licenses": [{"expression": one.licence.replace("/", " OR ")}],
        }
        for one in listed
    ]
    root = f"pkg:pypi/smdwidgets@{version}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(made))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library", "bom-ref": root, "name": "smdwidgets", "version": version, "purl": root,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": made,
        "dependencies": [{"ref": root, "dependsOn": [one.url for one in listed]}],
    }  # fmt: skip


def main(what: str) -> int:
    """Run the check, or write the bill of materials."""
    components = [*crates(), *distributions()]
    if what == "sbom":
        BILL.parent.mkdir(exist_ok=True)
        BILL.write_text(json.dumps(bill(components), indent=1) + "\n", encoding="utf-8")
        print(f"{BILL.relative_to(ROOT)}: {len(components)} components")
        return 0
    found = list(problems(components))
    print("\n".join(found) or f"{len(components)} components, all licences and sources are allowed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "check"))
