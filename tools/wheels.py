"""Build the wheel of a platform and try it.

Usage: `python tools/wheels.py [--target TRIPLE] [--only build|test]`.

Linux wheels are linked by zig, so that they need no newer C library than their tag says, and one machine builds them
for every architecture. Wheels of macOS and Windows are built on these systems. A wheel contains the stable ABI of
Python 3.11 and serves every later version.

The test installs the wheel into a new environment of each Python from 3.11 to 3.14 that this machine has, and runs the
first minute of a new user in an empty directory, without a network where the system can take it away. The command fails
if a wheel is too large, needs other libraries than its tag allows, or uses more than the stable ABI.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import setup
import steps
from steps import ROOT, SetupError, Step, run
from uv import PROJECT, UV, environment, install, make_venv, program, python_of

DIST = ROOT / "dist"
VENV = ROOT / ".venv-wheels"
PYTHON = python_of(VENV)
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
#: Largest permitted wheel, in bytes.
LARGEST = 8_000_000
#: The oldest C library of each kind of Linux that the wheels run on.
LINUX = {"gnu": "manylinux_2_17", "musl": "musllinux_1_2"}

TOOLS = Step(
    "wheels",
    lambda: make_venv(VENV, "--group", "wheels"),
    outputs=(PYTHON,),
    requires=(UV,),
    key=(str(PROJECT["dependency-groups"]["wheels"]),),
)

#: What a new user does first, in an empty directory. Anything unexpected raises.
FIRST_MINUTE = """
import sys, numpy as np, smdwidgets
from smdwidgets.numpy import Hook

assert "site-packages" in smdwidgets.__file__, smdwidgets.__file__
with Hook("runs/mine") as hook:
    for step in range(20):
        hook.save_tensor("weight", np.full((8, 8), step, np.float32), "weights")
        hook.save_tensor("loss", np.float32(1 / (step + 1)), "losses")
        hook.step()
trial = smdwidgets.create_trial("runs/mine")
assert trial.tensor("weight").value(19).sum() == 64 * 19
explorer = smdwidgets.explore(trial)
explorer.to_html("page.html")
assert "smdw-page" in open("page.html", encoding="utf-8").read()
assert smdwidgets.doctor().ok, smdwidgets.doctor()
print("smdwidgets", smdwidgets.__version__, "on Python", sys.version.split()[0])
"""


def with_tools() -> dict[str, str]:
    """Return the environment variable PATH with the tools of the environment."""
    return {"PATH": os.pathsep.join([str(PYTHON.parent), os.environ["PATH"]])}


def machine() -> str:
    """Return the target triple of this machine, as rustc names it."""
    done = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True)
    return next(line for line in done.stdout.splitlines() if line.startswith("host: ")).removeprefix("host: ")


def build(target: str) -> Path:
    """Build the wheel of a target into dist/ and return its path."""
    steps.ensure(TOOLS)
    setup.ensure(("front-end",))
    words = ["--target", target, "--locked", "--profile", "wheel"]
    if "-linux-" in target:
        words += ["--zig", "--compatibility", LINUX[target.rpartition("-")[2]]]
    with tempfile.TemporaryDirectory() as folder:
        env = {
            **environment(),
            "MATURIN_PEP517_ARGS": " ".join(words),
            **with_tools(),
        }
        run(PYTHON, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, env=env)
        [made] = Path(folder).glob("*.whl")
        DIST.mkdir(exist_ok=True)
        return Path(shutil.move(made, DIST / made.name))


def inspect(wheel: Path) -> None:
    """Raise if the wheel is too large, incomplete, or needs more than its tags say."""
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.2f} MB, at most {LARGEST / 1e6:.0f}", flush=True)
    if size > LARGEST:
        raise SetupError(f"{wheel.name} has {size} bytes, more than {LARGEST}")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    needed = {f"smdwidgets/static/{name}" for name in ("loader.js", "parts.json")}
    needed |= {"smdwidgets/py.typed", "smdwidgets/demo/notebooks/01_look_around.ipynb"}
    if missing := needed - names:
        raise SetupError(f"{wheel.name} lacks {', '.join(sorted(missing))}")
    run(PYTHON, "-m", "abi3audit", "--strict", "--summary", wheel)
    if "linux" in wheel.name:
        run(PYTHON, "-m", "auditwheel", "show", wheel, env=with_tools())


def pythons() -> Iterator[tuple[str, Path | None]]:
    """Return the Python versions to try the wheel with, and the path of each."""
    # pyenv's shims run the selected version only, but all are in one folder.
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in VERSIONS:
        candidates = [sys.executable, shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python3")]
        check = f"import sys; sys.exit('{version}' != '%d.%d' % sys.version_info[:2])"
        yield (
            version,
            next(
                (
                    Path(one)
                    for one in candidates
                    if one and subprocess.run([one, "-c", check], capture_output=True, check=False).returncode == 0
                ),
                None,
            ),
        )


def without_network() -> list[str]:
    """Return the words before a command that take its network away."""
    words = ["unshare", "--net", "--map-root-user"]
    can = shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    return words if can else []


def try_wheel(wheel: Path) -> None:
    """Try a wheel as a new user would, with each Python of this machine."""
    steps.ensure(UV)
    alone = without_network()
    print(f"tried {'without a network' if alone else 'with a network: this system cannot take it away'}", flush=True)
    tried = 0
    for version, python in pythons():
        if python is None:
            print(f"Python {version}: NOT TRIED, this machine does not have it", flush=True)
            continue
        with tempfile.TemporaryDirectory(prefix="smdwidgets-wheel-") as folder:
            env, empty = Path(folder) / "env", Path(folder) / "empty"
            empty.mkdir()
            run(program(), "venv", "--quiet", "--python", python, env, env=environment())
            install(env, wheel)
            command = python_of(env).with_name("smdwidgets.exe" if os.name == "nt" else "smdwidgets")
            for words in (
                (python_of(env), "-c", FIRST_MINUTE),
                (command, "doctor"),
                (command, "demo", "--headless-check"),
                (command, "inspect", "runs/mine"),
            ):
                run(*alone, *words, cwd=empty, env={"PYTHONPATH": "", "PYTHONUTF8": "1"})
        tried += 1
        print(f"Python {version}: passed", flush=True)
    if not tried:
        raise SetupError(f"no Python of {', '.join(VERSIONS)} on this machine")


def main() -> None:
    """Build and try a wheel; exit with the reason when something fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", help="target triple, as rustc names it (default: this machine's)")
    parser.add_argument("--only", choices=("build", "test"), help="build and inspect; or try the wheels in dist/")
    args = parser.parse_args()
    try:
        if args.only == "test":
            wheels = sorted(DIST.glob("*.whl"))
            if not wheels:
                raise SetupError("dist/ contains no wheel")
        else:
            wheels = [build(args.target or machine())]
            inspect(wheels[0])
        if args.only != "build":
            for wheel in wheels:
                try_wheel(wheel)
        print(f"{platform.system()} {platform.machine()}: {', '.join(wheel.name for wheel in wheels)}")
    except SetupError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
