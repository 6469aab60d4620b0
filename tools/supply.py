"""What a wheel is made of and needs: `python tools/supply.py check` for licences and sources, `... sbom` for a bill of materials.

Neither asks the network for anything that a build does not. Rust crates are linked into the extension module; Python packages are required at run time and are
named with the version that the tests run with; the front end's bundle holds no package but its own code.
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
#: Licences under which everything that is shipped may be used beside Apache-2.0, without a duty beyond naming it.
ALLOWED = frozenset(
    {
        "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "MIT", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "Zlib", "ISC", "Unicode-3.0",
        "Unlicense", "CC0-1.0", "PSF-2.0", "Python-2.0", "CNRI-Python", "HPND", "MIT-CMU",
    }
)  # fmt: skip
#: The same for what is installed beside the package and not shipped with it: changes to it would have to be published, its use
#: asks for nothing.
BESIDE = ALLOWED | {"MPL-2.0"}
#: Packages whose metadata name their licence in words of their own.
KNOWN = {"BSD": "BSD-3-Clause", "BSD License": "BSD-3-Clause", "Apache License 2.0": "Apache-2.0", "Apache 2.0": "Apache-2.0",
         "MIT License": "MIT", "Apache Software License": "Apache-2.0", "BSD-3-Clause License": "BSD-3-Clause", "BSD 3-Clause": "BSD-3-Clause",
         "PSFL": "PSF-2.0", "ISC License (ISCL)": "ISC", "Python Software Foundation License": "PSF-2.0"}  # fmt: skip


@dataclass(frozen=True, order=True)
class Component:
    """One package."""

    kind: str  #: as package URLs have it: cargo, pypi
    name: str
    version: str
    licence: str
    source: str = ""

    @property
    def url(self) -> str:
        """Its package URL."""
        return f"pkg:{self.kind}/{self.name}@{self.version}"


def crates() -> list[Component]:
    """Crates that the extension module is linked with, from the lock file."""
    asked = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = json.loads(asked.stdout)
    packages = {package["id"]: package for package in told["packages"]}
    needs = {
        node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
        for node in told["resolve"]["nodes"]
    }
    [root] = [package["id"] for package in told["packages"] if package["name"] == "smdwidgets-py"]
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
    """Python packages that are needed at run time, and what they need, in the version that is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ahead, found = [_name(line) for line in project["dependencies"]], {}
    while ahead:
        name = ahead.pop()
        if name in found:
            continue
        try:
            about = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # another system's
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
    """Whether a licence expression can be met by licences that are allowed.

    >>> permits("GPL-3.0 OR MIT"), permits("MIT AND GPL-3.0"), permits("(MIT OR Apache-2.0) AND Unicode-3.0")
    (True, False, True)
    """
    words = re.findall(r"\(|\)|[^\s()]+(?: WITH [^\s()]+)?", expression.replace("/", " OR "))
    joined = " ".join(
        word if word in "()" else {"AND": "and", "OR": "or"}.get(word, str(word in allowed)) for word in words
    )
    return _holds(joined.split())


def _holds(words: list[str]) -> bool:
    """The truth of words such as `( True or False ) and True`."""

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


def faults(components: Iterable[Component]) -> Iterator[str]:
    """What is wrong with them: a licence that asks for more, a crate from anywhere but crates.io."""
    for one in components:
        if not permits(one.licence, BESIDE if one.kind == "pypi" else ALLOWED):
            yield f"{one.url}: the licence {one.licence!r} is not among those allowed"
        if one.kind == "cargo" and one.source != CRATES_IO:
            yield f"{one.url} comes from {one.source}, not from crates.io"
    needed = json.loads((ROOT / "js" / "package.json").read_text(encoding="utf-8")).get("dependencies", {})
    for name in needed:
        yield f"js/package.json: {name} would be part of the bundle, which this list does not know"


def bill(components: Iterable[Component]) -> dict[str, Any]:
    """A bill of materials in CycloneDX 1.5. The same components give the same bytes."""
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
    """Checks, or writes the bill."""
    components = [*crates(), *distributions()]
    if what == "sbom":
        BILL.parent.mkdir(exist_ok=True)
        BILL.write_text(json.dumps(bill(components), indent=1) + "\n", encoding="utf-8")
        print(f"{BILL.relative_to(ROOT)}: {len(components)} components")
        return 0
    found = list(faults(components))
    print("\n".join(found) or f"{len(components)} components, all of known licence and source")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "check"))
