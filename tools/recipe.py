"""Check the conda recipe: `python tools/recipe.py`.

Renders it for every platform, as rattler-build does before it builds.
"""

from __future__ import annotations

import subprocess
import sys

import steps
from steps import ROOT, SetupError
from wheels import PYTHON, TOOLS

RECIPE = ROOT / "packaging" / "conda" / "recipe.yaml"
RENDER = """
import sys
from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

variants = VariantConfig({
    "c_compiler": ["gcc"], "rust_compiler": ["rust"], "c_stdlib": ["sysroot"], "c_stdlib_version": ["2.17"],
})
for platform in ("linux-64", "linux-aarch64", "osx-64", "osx-arm64", "win-64", "win-arm64"):
    config = RenderConfig(platform=PlatformConfig(target_platform=platform))
    [variant] = Stage0Recipe.from_file(sys.argv[1]).render(variants, config)
    print(platform, variant.recipe.package.name, variant.recipe.package.version)
"""


def main() -> None:
    """Render the recipe; exit with the reason when that fails."""
    try:
        steps.ensure(TOOLS)
    except SetupError as error:
        sys.exit(f"error: {error}")
    sys.exit(subprocess.run([str(PYTHON), "-c", RENDER, str(RECIPE)], check=False).returncode)


if __name__ == "__main__":
    main()
