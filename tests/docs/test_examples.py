"""The examples of the documentation are run as they stand.

A block that follows a comment ``<!-- run -->`` is executed; the blocks of a page share one folder and run in order.

- ``python``: in an interpreter of its own; it must succeed, and says by ``assert`` what it shows.
- ``console``: lines that start with ``$`` are typed into one shell (a here-document goes on to its end mark). Every
  other line must be found in what was printed, in that order; ``…`` stands for anything, and runs of blanks count as
  one.

``<!-- run: exit=1 -->`` names the exit code of the last command (0 if not given), ``network`` what needs an index.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).resolve().parents[2] / "docs"
_MARK = re.compile(r"<!-- run(?:: (?P<options>[^>]*?))? -->\n```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
_HERE = re.compile(r"<<'?(\w+)'?\s*$")
_ANY_MARK = "<!-- run"


class Example(NamedTuple):
    """One runnable block."""

    language: str
    text: str
    code: int
    network: bool


def examples(page: str) -> list[Example]:
    """The runnable blocks of a page, in order. Raises ValueError for a mark that no block follows."""
    found = []
    for match in _MARK.finditer(page):
        options = (match["options"] or "").split()
        codes = [int(option[5:]) for option in options if option.startswith("exit=")]
        found.append(Example(match["language"], match["text"], codes[0] if codes else 0, "network" in options))
    if len(found) != page.count(_ANY_MARK):
        raise ValueError("a <!-- run --> mark is not followed by a block")
    return found


def typed_and_shown(text: str) -> tuple[list[str], list[str]]:
    """(what a person types, what is shown) in a console block."""
    typed: list[str] = []
    shown: list[str] = []
    end = ""
    for line in text.splitlines():
        if end:
            typed[-1] += "\n" + line
            end = "" if line == end else end
        elif line.startswith("$ "):
            typed.append(line[2:])
            here = _HERE.search(line)
            end = here[1] if here else ""
        else:
            shown.append(line)
    return typed, shown


def plain(text: str) -> str:
    """``text`` with every run of white space as one blank."""
    return " ".join(text.split())


def expression(line: str) -> str:
    """A regular expression for a shown line, in plain text."""
    return ".*?".join(re.escape(plain(part)) for part in line.split("…"))


PAGES = sorted(path for path in DOCS.rglob("*.md") if _ANY_MARK in path.read_text(encoding="utf-8"))


def identify(path: Path) -> str:
    return str(path.relative_to(DOCS))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, with the tested command first on the path. Its name is short: a table breaks long paths."""
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "aboveboard"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aboveboard "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with tempfile.TemporaryDirectory(prefix="docs-") as folder:
        yield Path(folder)


@pytest.mark.parametrize("page", PAGES, ids=identify)
@pytest.mark.usefixtures("world_available")
def test_the_examples_of_a_page_do_what_it_says(page: Path, place: Path) -> None:
    follow([example for example in examples(page.read_text(encoding="utf-8")) if not example.network], place)


@pytest.mark.network
@pytest.mark.parametrize("page", [page for page in PAGES if "<!-- run: network" in page.read_text(encoding="utf-8")],
                         ids=identify)  # fmt: skip
@pytest.mark.usefixtures("world_available")
def test_so_do_those_that_need_a_package_index(page: Path, place: Path) -> None:
    follow([example for example in examples(page.read_text(encoding="utf-8")) if example.network], place)


def follow(blocks: list[Example], place: Path) -> None:
    """Do what the blocks say, and compare."""
    for example in blocks:
        if example.language == "python":
            command = [sys.executable, "-W", "error", "-c", example.text]
        else:
            assert example.language == "console"
            command = ["bash", "-c", "\n".join(typed_and_shown(example.text)[0])]
        done = subprocess.run(
            command,
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=100,
            check=False,
        )
        printed = done.stdout.decode("utf-8", "replace")
        assert done.returncode == example.code, f"{example.text}\n--- printed:\n{printed}"
        if example.language == "console":
            rest = plain(printed)
            for line in typed_and_shown(example.text)[1]:
                found = re.search(expression(line), rest)
                assert found, f"{line!r} was not printed by\n{example.text}\n--- printed:\n{printed}"
                rest = rest[found.end() :]


def test_a_mark_without_a_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="not followed"):
        examples("<!-- run -->\nno block\n")


def test_a_here_document_is_typed_to_its_end_and_output_is_not_typed() -> None:
    typed, shown = typed_and_shown("$ cat > a <<'END'\n$ not a prompt\nEND\n$ cat a\n$ not a prompt\nsaid …\n")
    assert typed == ["cat > a <<'END'\n$ not a prompt\nEND", "cat a", "not a prompt"]
    assert shown == ["said …"]


def test_dots_in_a_shown_line_stand_for_anything_and_blanks_for_any_blanks() -> None:
    assert re.search(expression("created …/a.txt  6 bytes"), plain("created   /tmp/x/a.txt 6   bytes"))
    assert not re.search(expression("created …/a.txt"), plain("deleted /tmp/x/a.txt"))


def test_every_kind_of_page_has_runnable_examples() -> None:
    """So that a change of the marks cannot silently leave nothing to run."""
    assert {"tutorial/vet-a-package.md", "how-to/trace.md", "how-to/python.md"} <= {identify(page) for page in PAGES}
