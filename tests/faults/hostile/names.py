"""Texts that are harmful if they are interpreted, for all tests of this folder.

Texts of a run are shown in terminals, pages, notebooks, charts, spreadsheets, paths and logs. For each of these the
list contains texts that would have an effect.
"""

from __future__ import annotations

import unicodedata

#: The effect of a text that a page interprets as markup: tests check this variable, dialogs and requests.
PWNED = "__pwned"
#: Tests fail if this host is requested.
BEACON = "http://beacon.invalid/"

MARKUP = {
    "script": f"<script>window.{PWNED}=1</script>",
    "handler": f'<img src=x onerror="window.{PWNED}=2">',
    "attribute": f'" onmouseover="window.{PWNED}=3" autofocus onfocus=\'window.{PWNED}=4\' x="',
    "end of script": f"</script><script>window.{PWNED}=5</script><!--",
    "svg": f"<svg/onload=window.{PWNED}=6><foreignObject>",
    "frame": f"<iframe srcdoc='<script>parent.{PWNED}=7</script>'></iframe>",
    "address": f"javascript:window.{PWNED}=8",
    "style": f"</style><style>*{{background:url({BEACON}style)}}</style>",
    "image": f"<img src='{BEACON}image'>",
    "entity": f"&lt;img src=x onerror=window.{PWNED}=9&gt;&#x3c;b&#x3e;",
    "comment": "--><b>]]></b><?x ?>",
    "prompt": "<a href=# onclick=alert(1)>loss</a>",
    "markdown": f"![x]({BEACON}markdown) [y](javascript:alert(1)) **b** <b>c</b> `d` | e | # f",
    "formula": r"$\frac{$ $\input{x}$ \(x\) $$",
    "template": "{{7*7}} ${7*7} <%= 7*7 %> #{7*7} {0.__class__} %s%n%(x)d",
    "json": '"}],"x":[{"y":"\\',
    "code": "'); import os; os._exit(3)  #",
    "prototype": "__proto__",
    "constructor": "constructor",
}

SPREADSHEET = {
    "equals": f'=HYPERLINK("{BEACON}csv","loss")',
    "plus": "+cmd|' /C calc'!A0",
    "at": "@SUM(1+1)*cmd|' /C calc'!A0",
    "tab": "\t=1+1",
    "quote": '",=1+1,"',
}

TERMINAL = {
    "clear": "a\x1b[2J\x1b[Hb",
    "title": "a\x1b]0;owned\x07b",
    "clipboard": "a\x1b]52;c;cm0gLXJm\x07b",
    "link": "a\x1b]8;;http://beacon.invalid/\x1b\\loss\x1b]8;;\x1b\\b",
    "c1": "a\x9b2Jb\x90x\x9c",
    "rewrite": "loss\r\x1b[K0 faults",
    "bell": "a\x07\x08\x08b",
    "lines": "a\nNo faults.\n\n0 of 1 rules fired\vb\fc\x85d\u2028e\u2029f",
    "nul": "a\0b",
    "delete": "a\x7fb",
}

UNICODE = {
    "override": "loss\u202egpj.exe",
    "isolate": "\u2066\u2067\u2068a\u2069 \u200f\u200e\u061c",
    "invisible": "lo\u200bss\u200d\ufeff\u2060",
    "tags": "loss\U000e0041\U000e0042",
    "look-alike": "l\u043ess",  # a Cyrillic o
    "fullwidth": "\uff1cscript\uff1e",
    "marks": "z" + "\u0300\u0489\u20dd" * 50,
    "none": "\uffff\ufdd0\U0010ffff",
    "private": "\ue000\U000f0000",
    "astral": "\U0001f9e8\U0001d5f9",
}

PATHS = {
    "up": "../../../../etc/passwd",
    "absolute": "/etc/passwd",
    "windows": "..\\..\\windows\\system32",
    "drive": "C:\\x",
    "home": "~/x",
    "dot": ".",
    "dots": "..",
    "device": "CON",
    "long": "d/" * 3000,
}

LARGE = {"a megabyte": "n" * 1_000_000, "a megabyte of markup": "<b>" * 333_000}

#: Texts that are valid in file names.
SMALL = {**MARKUP, **SPREADSHEET, **TERMINAL, **UNICODE, **PATHS}
ALL = {**SMALL, **LARGE}

#: Characters that must be escaped: they act on a terminal, or change how adjacent text is read.
_ACTING = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def acting(text: str, allowed: str = "\n") -> list[str]:
    """Return the characters in an output that act instead of being shown."""
    return sorted({char for char in text if char not in allowed and unicodedata.category(char) in _ACTING})


def file_name(text: str) -> str:
    """Return the text as part of a file name."""
    return text.replace("/", "\u2215").replace("\0", "\u2400").encode()[:150].decode(errors="ignore")
