"""Generate the reference of docs/rules.md from the docstrings of the rules.

Run `python -m smdwidgets.rules.document docs/rules.md`. Only the text between the two markers is replaced.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

from smdwidgets.rules.builtin import BUILTIN, BuiltinRule, CreateXgboostReport
from smdwidgets.rules.parameters import Parameter

__all__ = ["reference", "with_reference"]

BEGIN, END = "<!-- rules: begin -->", "<!-- rules: end -->"


def reference() -> str:
    """Return the reference of all built-in rules as Markdown.

    Each entry has the rule's documentation, a picture of a run on which it fires, its base configuration and its
    parameters.
    """
    sagemaker = [rule for rule in BUILTIN.values() if rule.sagemaker]
    additional = [rule for rule in BUILTIN.values() if not rule.sagemaker]
    parts = ["## SageMaker's rules", *map(_rule, sagemaker), "## Additional rules", *map(_rule, additional)]
    return "\n\n".join(parts)


def _rule(rule: type[BuiltinRule]) -> str:
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(rule.__doc__ or ""))
    body = "\n\n".join(_joined(paragraph) for paragraph in paragraphs)
    saved = ", ".join(f"`{name}`" for name in rule.collections)
    reads = [f"The base configuration saves {saved}."] if saved else []
    return "\n\n".join([f"### {rule.__name__}", body, *_picture(rule), *reads, _table(rule)])


def _picture(rule: type[BuiltinRule]) -> list[str]:
    """Return a picture of a run on which the rule fires.

    `tools/rule_pictures.py` draws the pictures. CreateXgboostReport never fires and has no picture.
    """
    name = rule.__name__
    return [] if rule is CreateXgboostReport else [f"![A run on which {name} fires](pictures/rules/{name}.webp)"]


def _joined(paragraph: str) -> str:
    """Join a paragraph to one line, or a list to one line per item."""
    items = re.split(r"\n(?=- )", paragraph)
    text = "\n".join(" ".join(item.split()) for item in items)
    text = text.replace("`diagnose`", "[`diagnose`](diagnosis.md)")
    return re.sub(r"^What to do: ", "**What to do:** ", text)


def _table(rule: type[BuiltinRule]) -> str:
    parameters = rule.parameters()
    if not parameters:
        return "This rule has no parameters."
    rows = [f"| `{name}` | {_kind(each)} | {_default(each)} | {each.doc} |" for name, each in parameters.items()]
    return "\n".join(["| parameter | type | default | meaning |", "|---|---|---|---|", *rows])


def _kind(parameter: Parameter[object]) -> str:
    spec = parameter.spec()
    word = {
        "real": "number",
        "integer": "integer",
        "flag": "True or False",
        "text": "string",
        "words": "comma-separated names",
        "patterns": "comma-separated regular expressions",
        "numbers": "comma-separated numbers",
        "choice": "one of " + ", ".join(f"`{choice}`" for choice in spec.get("choices", ())),
    }[spec["kind"]]
    low, high = spec.get("minimum"), spec.get("maximum")
    limits = " to ".join(f"{limit:g}" for limit in (low, high) if limit is not None)
    if low is not None and high is None:
        limits = f"at least {limits}"
    parts = [word, limits, spec["unit"], "or None" if spec.get("optional") else ""]
    return ", ".join(part for part in parts if part)


def _default(parameter: Parameter[object]) -> str:
    def cell(text: str) -> str:
        if "|" not in text:
            return f"`{text}`" if text else ""
        # Some Markdown renderers need an escaped bar in table code and others show the escape; all decode entities.
        return f"<code>{re.sub(r'[^A-Za-z0-9]', lambda sign: f'&#{ord(sign[0])};', text)}</code>"

    shown = (
        "<br>".join(map(cell, parameter.default))
        if parameter.kind == "patterns" and isinstance(parameter.default, tuple) and parameter.default
        else cell(parameter.format(parameter.default))
    )
    return shown + (f" (SageMaker's: {cell(parameter.documented)})" if parameter.documented else "")


def with_reference(page: str) -> str:
    """Return the page with its reference regenerated."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference()}\n\n{END}{after}"


def main() -> None:
    """Update the page given as command-line argument."""
    path = Path(sys.argv[1])
    path.write_text(with_reference(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
