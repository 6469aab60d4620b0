"""What a release is made of: version, notes, conda recipe and workflows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture(scope="module")
def release():
    sys.path.insert(0, str(TOOLS))
    try:
        import release
    finally:
        sys.path.remove(str(TOOLS))
    return release


def workflow(repository: Path, name: str) -> dict:
    return yaml.safe_load((repository / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))


def test_a_tag_must_be_the_version_and_have_notes(release):
    changelog = "# Changelog\n\n## Unreleased\n\n## 1.1.0 (2026)\n\n- Faster.\n\n## 1.0.0\n\n- First.\n"
    assert release.problem("v1.1.0", "1.1.0", changelog) is None
    assert release.notes(changelog, "1.1.0") == "- Faster."
    assert release.notes(changelog, "1.0.0") == "- First."
    assert release.problem("v1.1.0", "1.2.0", changelog) == "the tag is v1.1.0, but Cargo.toml has version 1.2.0"
    assert "no section '## 1.2.0'" in release.problem("v1.2.0", "1.2.0", changelog)
    assert "no section '## 1'" in release.problem("v1", "1", changelog)  # the start of a version is another version


def test_the_version_stands_in_one_place_and_the_recipe_repeats_it(repository, release):
    recipe = yaml.safe_load((repository / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == release.version()
    assert "version" not in json.loads((repository / "js" / "package.json").read_text(encoding="utf-8"))
    assert "version" not in tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for crate in ("core", "python"):
        manifest = tomllib.loads((repository / "rust" / crate / "Cargo.toml").read_text(encoding="utf-8"))
        assert manifest["package"]["version"] == {"workspace": True}


def test_the_recipe_has_the_requirements_of_the_package(repository):
    recipe = yaml.safe_load((repository / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    expected = {f"python {project['project']['requires-python']}"}
    expected |= {re.sub(r"^([\w-]+)", r"\1 ", line) for line in project["project"]["dependencies"]}
    assert set(recipe["requirements"]["run"]) == expected
    [maturin] = [line for line in project["build-system"]["requires"] if line.startswith("maturin")]
    assert maturin.replace("maturin", "maturin ") in recipe["requirements"]["host"]


def test_every_wheel_that_is_built_is_tried(repository):
    jobs = workflow(repository, "wheels")["jobs"]
    targets = {
        name: {each["target"] for each in job["strategy"]["matrix"]["include"]}
        for name, job in jobs.items()
        if "strategy" in job
    }
    assert len(targets["build"]) == 8
    assert targets["try"] | targets["try-musl"] == targets["build"]
    assert not targets["try"] & targets["try-musl"]


def test_actions_are_pinned_and_secrets_unused(repository):
    for path in (repository / ".github" / "workflows").glob("*.yml"):
        text = path.read_text(encoding="utf-8")
        for action in re.findall(r"uses: (\S+)", text):
            assert action.startswith("./") or re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert "secrets." not in text
    publish = workflow(repository, "release")["jobs"]["publish"]
    assert publish["needs"] == "wheels"
    assert publish["permissions"] == {"contents": "write", "id-token": "write", "attestations": "write"}


def test_the_options_of_the_workflows_exist(repository):
    calls = re.findall(
        r"python tools/wheels.py (.+)", (repository / ".github/workflows/wheels.yml").read_text(encoding="utf-8")
    )
    done = subprocess.run(
        [sys.executable, str(TOOLS / "wheels.py"), "--help"], capture_output=True, text=True, check=True
    )
    options = {option for call in calls for option in re.findall(r"--\w+", call)}
    assert options == {"--only", "--target"}
    assert all(option in done.stdout for option in options)
