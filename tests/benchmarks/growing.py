"""Runs that grow by one step at a time, made of copies of one step. Read by both sides; needs nothing but Python."""

import shutil
from pathlib import Path

STEP = "000000000000"


def folder_of(step):
    """The index folder of a step."""
    return f"index/{step // 1000:09d}"


class Growing:
    """A run of `steps` steps below a folder; `grow` adds the next."""

    def __init__(self, root, template, steps):
        self.root = Path(root)
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(template / "collections", self.root / "collections")
        self.event = (template / f"events/{STEP}/{STEP}_worker_0.tfevents").read_bytes()
        self.index = (template / f"{folder_of(0)}/{STEP}_worker_0.json").read_text()
        self.next = 0
        for _ in range(steps):
            self.grow()

    def grow(self):
        """The next step, its event file first."""
        name = f"{self.next:012d}"
        event = self.root / f"events/{name}/{name}_worker_0.tfevents"
        event.parent.mkdir(parents=True, exist_ok=True)
        event.write_bytes(self.event)
        index = self.root / folder_of(self.next) / f"{name}_worker_0.json"
        index.parent.mkdir(parents=True, exist_ok=True)
        text = self.index.replace(STEP, name).replace('"mode_step": 0', f'"mode_step": {self.next}')
        partial = index.with_suffix(".tmp")
        partial.write_text(text)
        partial.replace(index)
        self.next += 1
        return self.next - 1
