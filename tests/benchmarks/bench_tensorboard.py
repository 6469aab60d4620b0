"""Compare readers of TensorBoard logs.

The peers are EventAccumulator, tbparse and TensorBoard's server in Rust.

Usage: python tests/benchmarks/bench_tensorboard.py [--scale 0.1] [--numbers]

Two logs: 1,000,000 scalars in 50 tags, and 5,000 histograms with 500 images. Ours verifies every checksum.
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
from pathlib import Path

import numpy as np
import report
from PIL import Image
from run import ask

from smdwidgets import _core

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parents[1] / ".venv" / "bin" / "python"

READERS = {
    "EventAccumulator": (PYTHON, "accumulator"),
    "tbparse": (PYTHON, "tbparse"),
    "TensorBoard's server, no checksums": (PYTHON, "server"),
    "TensorBoard's server, checksums": (PYTHON, "server_checked"),
}
TARGETS = {
    "EventAccumulator": "100× in time, 5× in memory",
    "tbparse": "–",
    "TensorBoard's server, no checksums": "2× in time",
    "TensorBoard's server, checksums": "–",
}
#: More than any peer does when it loads: histograms as one array, and the encoded images.
GIVEN = "all held, and each given once"


def scalars(path: Path, count: int) -> None:
    """Write a log of so many scalars in 50 tags."""
    path.mkdir()
    with (path / "events.out.tfevents.1700000000.host").open("wb") as out:
        out.write(_core.version_record(1.0))
        for step in range(count // 50):
            for tag in range(50):
                out.write(_core.scalar_record(f"metrics/number_{tag:02d}", step, 1.7e9 + step, step / (tag + 1)))


def pictures(path: Path, histograms: int) -> None:
    """Write a log of so many histograms of 100 buckets, and a tenth as many images."""
    path.mkdir()
    rng = np.random.default_rng(0)
    limits = np.linspace(-3, 3, 100).tolist()
    with (path / "events.out.tfevents.1700000000.host").open("wb") as out:
        out.write(_core.version_record(1.0))
        for at in range(histograms):
            counts = rng.integers(0, 1000, 100).astype(float).tolist()
            out.write(
                _core.histogram_record(
                    f"layer_{at % 10}/weights", at // 10, 1.7e9 + at, limits, counts,
                    min=-3, max=3, num=sum(counts), sum=0, sum_squares=1,
                )
            )  # fmt: skip
            if at % 10 == 0:
                png = io.BytesIO()
                Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(png, "PNG")
                out.write(_image_record("picture", at // 10, png.getvalue()))


def _image_record(tag: str, step: int, encoded: bytes) -> bytes:
    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2]) + _varint(len(content)) + content

    image = b"\x08\x40\x10\x40\x18\x03" + field(4, encoded)
    summary = field(5, field(1, field(1, tag.encode()) + field(4, image)))
    return _core.write_record(b"\x10" + _varint(step) + summary)


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def compare(name: str, path: Path, scale: float) -> tuple[list[list[str]], float]:
    """Return a row for each reader.

    Ours is measured five times, alternating with the others.
    """
    rows = []
    size = sum(file.stat().st_size for file in path.iterdir()) / 1e6

    def ours(what: str) -> dict[str, float]:
        """Return the median of five."""
        return sorted((_read(PYTHON, what, path) for _ in range(5)), key=lambda one: one["cpu"])[2]

    opened = ours("ours")
    # Scalars are already values; of the others, EventAccumulator also holds the values.
    ways = {"": opened}
    if name != "scalars":
        ways |= {"all values held": ours("ours_held"), GIVEN: ours("ours_given")}
    for peer, (python, who) in READERS.items():
        if who == "tbparse" and name != "scalars":
            continue
        theirs = _read(python, who, path)
        rows += [_row(f"{name} ({size:.0f} MB)", peer, way, mine, theirs) for way, mine in ways.items()]
        print(*rows[-len(ways) :], sep="\n", flush=True)
    again = ours("ours_cached")
    rows.append(_row(f"{name} ({size:.0f} MB)", "our own first opening", "second opening, by a cache", again, opened))
    print(rows[-1], flush=True)
    return rows, scale


def numbers(path: Path, count: int) -> None:
    """Compare a load of TensorBoard's server with ours up to the table of all numbers.

    Each is the median of five, in turn.
    """
    readers = {who: READERS[who][1] for who in READERS if "server" in who}
    ways = {"create_trial(path).scalars()": "ours_numbers", "opened only": "ours", **readers}
    rounds = [{way: _read(PYTHON, who, path) for way, who in ways.items()} for _ in range(5)]
    median = {way: sorted((one[way] for one in rounds), key=lambda one: one["cpu"])[2] for way in ways}
    mine = median["create_trial(path).scalars()"]
    rows = [
        [way, f"{one['cpu']:.3f} s", f"{one['megabytes']:.0f} MB", f"{one['cpu'] / mine['cpu']:.1f}×"]
        for way, one in median.items()
    ]
    body = (
        f"`python tests/benchmarks/bench_tensorboard.py --numbers`. CPU seconds, the median of five in turn; {count:,} scalars in 50 tags. "
        "Ours finds the run, verifies every checksum and returns names, steps, modes, workers, times and values of all scalars as columns, "
        "imports excluded; the server loads them and returns nothing. "
        f"Load average {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores, which increases CPU times of both sides.\n\n"
        + report.table(["way", "CPU", "memory", "time beside the first row"], rows)
    )
    print(body)
    if count == 1_000_000:
        report.write_section("TensorBoard logs, to the numbers in the user's hands", body)


def _read(python: Path, who: str, path: Path) -> dict[str, float]:
    return ask(python, "tensorboard_readers.py", who, str(path))


def _row(what: str, peer: str, way: str, mine: dict[str, float], theirs: dict[str, float]) -> list[str]:
    return [
        what, peer,
        f"{mine['cpu']:.3f} s, {mine['megabytes']:.0f} MB" + (f" ({way})" if way else ""),
        f"{theirs['cpu']:.2f} s, {theirs['megabytes']:.0f} MB",
        f"{theirs['cpu'] / mine['cpu']:.1f}×", f"{theirs['megabytes'] / max(mine['megabytes'], 0.1):.1f}×",
        "–" if way == GIVEN else TARGETS.get(peer, "–"),
    ]  # fmt: skip


def main() -> None:
    """Write the logs, time the readers, print and keep the table."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--scale", type=float, default=1.0, help="how large the logs are: 1 is a million scalars")
    given.add_argument("--numbers", action="store_true", help="only compare the way to the table of all scalars")
    options = given.parse_args()
    scale = options.scale
    with tempfile.TemporaryDirectory() as folder:
        logs = {"scalars": Path(folder, "scalars"), "histograms and images": Path(folder, "pictures")}
        scalars(logs["scalars"], int(1_000_000 * scale))
        numbers(logs["scalars"], int(1_000_000 * scale))
        if options.numbers:
            return
        pictures(logs["histograms and images"], int(5_000 * scale))
        rows = [row for name, path in logs.items() for row in compare(name, path, scale)[0]]
    head = ["log", "peer", "ours", "theirs", "time", "memory", "target"]
    body = (
        "`python tests/benchmarks/bench_tensorboard.py`. CPU seconds of one thread until every scalar is in memory and the position of "
        "all other values is known; memory beyond the reader's imports; ours is the median of five runs. Ours verifies every checksum. "
        '"All values held" means that all fields of a value are in memory and returned without the file, images encoded, as in '
        "EventAccumulator; the benchmark checks this for each value. "
        f"{int(1_000_000 * scale):,} scalars in 50 tags; {int(5_000 * scale):,} histograms of 100 buckets and {int(500 * scale):,} images. "
        f"Load average {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores, which increases CPU times of both sides.\n\n"
        + report.table(head, rows)
    )
    print(body)
    if scale == 1:
        report.write_section("TensorBoard logs", body)


if __name__ == "__main__":
    main()
