"""Check that a tag can be released, and print its section of CHANGELOG.md.

Usage: `python tools/release.py v1.2.3`.

Without a tag, the version of the workspace is checked. The version stands in Cargo.toml; the conda recipe repeats it.
"""

from __future__ import annotations

import sys
import tomllib

from steps import ROOT


def version() -> str:
    """Return the version of the workspace."""
    found: str = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
    return found


def notes(changelog: str, of: str) -> str:
    r"""Return the section of a version without its heading, or "".

    >>> notes("# Changelog\n\n## 1.1.0\n\n- Faster.\n\n## 1.0.0\n\n- First.\n", "1.1.0")
    '- Faster.'
    """
    lines = changelog.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("## ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        if lines[start].removeprefix("## ").split()[0] == of:
            return "\n".join(lines[start + 1 : end]).strip()
    return ""


def problem(tag: str, declared: str, changelog: str) -> str | None:
    """Return why the tag cannot be released, or None."""
    if tag != f"v{declared}":
        return f"the tag is {tag}, but Cargo.toml has version {declared}"
    if not notes(changelog, declared):
        return f"CHANGELOG.md has no section '## {declared}'"
    return None


def main(tag: str | None) -> None:
    """Print the notes of a release; exit with the reason if it cannot be made."""
    declared = version()
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if why := problem(tag or f"v{declared}", declared, changelog):
        sys.exit(f"error: {why}")
    print(notes(changelog, declared))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
