"""Check that texts and names use plain English: `python tools/check_language.py`.

The checks run over the files under version control, or over the files given as arguments:

- No text or name contains a word of the list below. Whole files are searched, so the check covers documents, comments,
  docstrings, messages and the names of tests. Identifiers are split: `step_count` and `stepCount` are two words. Of
  notebooks, only the markdown cells are searched.
- No sentence has a construction of the list `CONSTRUCTIONS`, or begins with "Of a …".
- The first line of a Python docstring has at most 80 characters.
- Variables are not called `found`, `made`, `given`, `known`, `wanted` or `room`: the reader cannot search for them, and
  they do not name what they hold. The number of older ones, `VAGUE_LEFT`, can only fall.
- The subject of the newest commit has at most 72 characters.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hygiene import tracked
from steps import ROOT

SUMMARY_LENGTH = 80
SUFFIXES = (".ipynb", ".md", ".mjs", ".py", ".pyi", ".rs", ".sh", ".toml", ".ts")

# Folders and files whose texts are being rewritten. Remove an entry with the last of its offenders.
NOT_YET_REWRITTEN: tuple[str, ...] = ()

# Files that quote the words, and words of other projects. Each entry says why.
EXEMPT: dict[tuple[str, str], str] = {}

# These files define and test the list.
OWN_FILES = ("tools/check_language.py", "tests/python/tools/test_check_language.py")


@dataclass(frozen=True)
class Word:
    """A word or phrase to avoid.

    Attributes:
        pattern: regular expression for whole words. A space also matches a line break inside a comment.
        reason: why to avoid it.
        instead: what to write.
    """

    pattern: str
    reason: str
    instead: str

    def search(self, words: str) -> Iterator[re.Match[str]]:
        """Return the places in a text prepared by `split_names`."""
        gap = r"(?:[ \t]+|[ \t]*\n[ \t]*(?:(?:#|//[/!]?|\*)[ \t]*)?)"
        return re.finditer(rf"(?<![\w'])(?:{self.pattern.replace(' ', gap)})(?!\w)", words, re.IGNORECASE)


DIALECT = "reads as dialect or as literary English"
RIDDLE = "the reader has to guess what is meant"
PERSON = "a program is not a person"
METAPHOR = "a metaphor in place of the field's term"

WORDS = (
    # Dialect.
    Word("anew", DIALECT, "again, or the verb alone: rebuild, reread"),
    Word("heed(s|ed|ing)?", DIALECT, "check, handle, respect"),
    Word("mend(s|ed|ing)?", DIALECT, "fix, repair"),
    Word("of (yours|ours|theirs)", DIALECT, "your, our, their"),
    Word("of (its|their) own", DIALECT, "its own process, a separate process"),
    Word("whoever", DIALECT, "name the role: the user, the caller, another process"),
    Word("lest|whence|thereof|therein|whereof|hereby", DIALECT, "name the thing"),
    Word("nought|naught", DIALECT, "zero, nothing"),
    Word("as it were|so to speak", DIALECT, "leave it out"),
    # Riddles and turns of phrase.
    Word("what becomes? of|(what|whatever) (has|had) become of|(is|was|has) become of", RIDDLE, "name the change"),
    Word("nothing of", RIDDLE, "name what is missing"),
    Word("held against", RIDDLE, "compared with, checked against"),
    Word("(stands?|belongs?) (there|here)", RIDDLE, "stored X, computed Y; the file contains X"),
    Word("stands? for itself", RIDDLE, "is self-contained"),
    Word("makes? void|(is|are|was|were) void", RIDDLE, "supersedes, is invalid"),
    Word("(is|are) not there", RIDDLE, "does not exist, is missing, not found"),
    Word("(is|are|was|were) meant from", RIDDLE, "resolves against"),
    Word("has none of these", RIDDLE, "name what was not found"),
    Word("makes? no array", RIDDLE, "cannot convert … to an array"),
    Word("took its place", RIDDLE, "was superseded by, replaced it"),
    Word("may be given often", RIDDLE, "repeatable"),
    # Personification.
    Word("told|untold|unasked", PERSON, "sent, reported, notified; as a name: sent_steps"),
    Word("tells? (of|it|them|nothing|apart)", PERSON, "report, show, distinguish"),
    Word("knows? (no|nothing|none)", PERSON, "invalid … ; choose from …; has no information about"),
    Word("(ask|look)(s|ed|ing)? for news", PERSON, "check for new steps, poll"),
    Word("lets? go|letting go", PERSON, "release, free, close"),
    Word("says? nothing", PERSON, "does not state, contains no …"),
    Word("forgiv(es?|en|ing)|doomed|honest(ly)?", PERSON, "name the behaviour"),
    # Metaphors used as names.
    Word("volleys?", METAPHOR, "prefetch, batch of requests"),
    Word("desks?", METAPHOR, "controller"),
    Word("outbox", METAPHOR, "request queue, send queue"),
    Word("predicament", METAPHOR, "error state, unavailable"),
    Word("pulse", METAPHOR, "heartbeat, poller, timer"),
    Word("now knows", METAPHOR, "mark as sent"),
    Word("laid|lay anew", METAPHOR, "built, computed, created"),
)


ORDER = "follows the word order of another language"

#: Constructions to avoid in text.
CONSTRUCTIONS = (
    Word(r"what (was|were) to be", ORDER, "expected"),
    Word(r"did not come", ORDER, "was never captured, is missing"),
    Word(r"(which|and) says so", ORDER, "with a warning; reports it"),
)
#: The beginning of a sentence.
OF_FIRST = re.compile(r"(?m)(?:^[ \t]*(?:(?:#|//[/!]?|[*|-])[ \t]*)?|[.:] )Of (?:an?|the|all|those|its|each) \w")

#: Names of variables that do not say what they hold, and the number of assignments to them that the package still has.
VAGUE = frozenset({"found", "made", "given", "known", "wanted", "room"})
VAGUE_LEFT = 722
#: Most characters of a commit's subject.
SUBJECT_LENGTH = 72


def split_names(text: str) -> str:
    """Return the text with identifiers split into words; line numbers stay the same."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text.replace("_", " "))


def searched_text(path: Path) -> str:
    """Return the part of a file that people read.

    Lines of a notebook's code cells are empty.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    markdown = {
        line for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown" for line in cell["source"]
    }
    quoted = {json.dumps(line, ensure_ascii=ascii_only) for line in markdown for ascii_only in (True, False)}
    return "\n".join(line if line.strip().removesuffix(",") in quoted else "" for line in text.split("\n"))


def words_to_avoid(text: str) -> Iterator[tuple[int, str, Word]]:
    """Return line number, text and list entry of each word to avoid."""
    words = split_names(text)
    for word in (*WORDS, *CONSTRUCTIONS):
        for match in word.search(words):
            yield words.count("\n", 0, match.start()) + 1, re.sub(r"[\s#/!*]+", " ", match[0]), word
    for match in OF_FIRST.finditer(words):
        begin = match.end() - len(match[0].lstrip())
        yield (
            words.count("\n", 0, begin) + 1,
            match[0].strip(),
            Word("", ORDER, "the subject first: 'For runs …, the …'"),
        )


def long_summaries(source: str) -> Iterator[tuple[int, int]]:
    """Return line number and length of each docstring's first line that is too long."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and (docstring := ast.get_docstring(node)):
            length = len(docstring.partition("\n")[0])
            if length > SUMMARY_LENGTH:
                yield node.body[0].lineno, length


def problems(path: Path, name: str) -> Iterator[tuple[int, str]]:
    """Return line number and message of each problem in a file."""
    for line, found, word in words_to_avoid(searched_text(path)):
        if (name, found.lower()) not in EXEMPT:
            yield line, f"{found!r}: {word.reason}; write instead: {word.instead}"
    if path.suffix in (".py", ".pyi"):
        for line, length in long_summaries(path.read_text(encoding="utf-8")):
            yield line, f"first docstring line has {length} characters; shorten it to {SUMMARY_LENGTH} or fewer"


def vague_names(source: str) -> int:
    """Return the number of assignments to variables with vague names."""
    return sum(
        (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE)
        or (isinstance(node, ast.arg) and node.arg in VAGUE)
        for node in ast.walk(ast.parse(source))
    )


def problems_of_repository(names: Iterable[str]) -> Iterator[str]:
    """Return the problems of the package as a whole, and of the newest commit."""
    package = [ROOT / name for name in names if name.startswith("python/smdwidgets/") and name.endswith(".py")]
    count = sum(vague_names(path.read_text(encoding="utf-8")) for path in package)
    if count > VAGUE_LEFT:
        names_ = ", ".join(sorted(VAGUE))
        yield f"{count} assignments to variables called {names_}; at most {VAGUE_LEFT}: name what the variable holds"
    log = subprocess.run(["git", "log", "-1", "--format=%s"], cwd=ROOT, capture_output=True, text=True, check=False)
    if len(log.stdout.strip()) > SUBJECT_LENGTH:
        yield f"the subject of the newest commit has more than {SUBJECT_LENGTH} characters: {log.stdout.strip()}"


def is_checked(name: str) -> bool:
    """Return whether a file of the repository is checked."""
    return name.endswith(SUFFIXES) and name not in OWN_FILES and not name.startswith(NOT_YET_REWRITTEN)


def main(arguments: Iterable[str] = ()) -> int:
    """Print each problem of the given files, or of all; return 1 if there is one."""
    paths = [Path(argument).resolve() for argument in arguments]
    named = [(path, path.relative_to(ROOT).as_posix()) for path in paths or tracked()]
    lines = [
        f"{name}:{line}: {message}"
        for path, name in named
        if paths or is_checked(name)
        for line, message in sorted(problems(path, name))
    ]
    if not paths:
        lines += problems_of_repository(name for _, name in named)
    print("\n".join(lines) or "clean")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
