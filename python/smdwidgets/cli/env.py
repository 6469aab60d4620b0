"""What `smdwidgets env` does."""

from __future__ import annotations

import argparse

from smdwidgets.launch import installation


def run(args: argparse.Namespace) -> int:
    """Change the environment of this Python, or print its state."""
    path = installation.path_of_file()
    if args.action == "install":
        print(f"wrote {installation.install()}")
    elif args.action == "uninstall":
        removed = installation.uninstall()
        print(f"{path} does not exist" if removed is None else f"removed {removed}")
    else:
        print(f"installed: {path}" if path.exists() else "not installed")
    return 0
