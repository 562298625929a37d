"""Text that a user reads: at most twenty words a sentence, and none of the words on a list.

Collected from the string constants of the product, from the golden file of the advisor's sentences,
and, for the words only, from README and docs.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "unit" / "advisor" / "golden" / "sentences.txt"
MOST_WORDS = 20
LEAST_WORDS = 4  # shorter constants are names, keys and labels
UNWANTED = re.compile(
    r"\b(told|beside|whoever|whom|likewise|nobody|contenders?|entrants?|yardsticks?"
    r"|sen[dt]s? away|give it|so written that|ahead by|spared|as where|the textbook)\b",
    re.IGNORECASE,
)
# Source code, TOML, markup and style sheets are no prose.
CODE = re.compile(r"^\s*(import |from \w+ import |def |#include|\[\[|<)|[{}]")
FOLDERS = sorted(
    path.relative_to(ROOT).as_posix()
    for top in (ROOT / "workbench", ROOT / "screens", ROOT / "workloads")
    for path in (top, *top.iterdir())
    if path.is_dir() and any(path.glob("*.py"))
)
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
)


def _text_of(node: ast.AST) -> str | None:
    """The text of a string constant; of an f-string with X for each value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "X" for v in node.values)
    return None


def _is_command(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    """Whether it is a command whose docstring is its help."""
    return isinstance(node, ast.FunctionDef) and any(
        re.search(r"\.(command|group)\b", ast.unparse(line)) for line in node.decorator_list
    )


def _not_prose(tree: ast.AST) -> set[int]:
    """Docstrings other than the help of a command, parts of f-strings, patterns."""
    skipped: set[int] = set()
    shown = {id(node.body[0]) for node in ast.walk(tree) if _is_command(node)}
    for node in ast.walk(tree):
        if id(node) in shown:
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped |= {id(inner) for inner in ast.walk(node) if inner is not node}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re."):
            skipped |= {id(inner) for inner in ast.walk(node)}
    return skipped


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The line and text of every constant of a file that a user may read."""
    tree = ast.parse(path.read_text())
    skipped = _not_prose(tree)
    for node in ast.walk(tree):
        text = _text_of(node)
        if text is None or id(node) in skipped or CODE.search(text):
            continue
        if len(text.split()) >= LEAST_WORDS:
            yield getattr(node, "lineno", 0), text


def sentences(text: str) -> list[str]:
    """Commands between backticks count as one word, a line break as the end of a sentence."""
    plain = re.sub(r"`[^`]*`", "`command`", text)
    return [part for part in re.split(r"(?<=[.!?])\s+|\n+", plain) if part.strip()]


def faults(text: str) -> Iterator[str]:
    for match in UNWANTED.finditer(text):
        yield f"{match.group()!r}: {text[:120]}"
    for sentence in sentences(text):
        if (count := len(sentence.split())) > MOST_WORDS:
            yield f"{count} words: {sentence[:120]}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_messages_are_short_and_plain(folder: str) -> None:
    """A folder that holds files and folders stands for its own files only."""
    top = ROOT / folder
    files = top.glob("*.py") if folder.count("/") == 0 else top.rglob("*.py")
    found = [
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in sorted(files)
        for line, text in texts(path)
        for fault in faults(text)
    ]
    assert found == [], "\n".join(found)


def test_the_sentences_of_the_advisor_are_short_and_plain() -> None:
    lines = [line for line in GOLDEN.read_text().splitlines() if ": " in line]
    found = [
        fault
        for line in lines
        for part in line.partition(": ")[2].split(" -> ")
        for fault in faults(part)
    ]
    assert lines
    assert found == [], "\n".join(found)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_use_none_of_the_unwanted_words(document: str) -> None:
    lines = (ROOT / document).read_text().splitlines()
    found = [
        f"{document}:{number}: {match.group()!r}: {line[:100]}"
        for number, line in enumerate(lines, start=1)
        for match in UNWANTED.finditer(line)
    ]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Raise the budget: `workbench advise row --budget 120`.", 0),
        ("nobody was told", 2),
        (" ".join(["word"] * 21), 1),
        (". ".join([" ".join(["word"] * 15)] * 3), 0),
    ],
)
def test_a_fault_is_found(text: str, count: int) -> None:
    assert len(list(faults(text))) == count
