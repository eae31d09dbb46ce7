"""Writes the table of docs/reference/compatibility.md from a run: ``python -m tests.compat.table --write``."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

from aboveboard.errors import AboveboardError

from . import programs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "compatibility.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
HEAD = "| program | version | what it does in the test | what it needed | same as outside |\n|---|---|---|---|---|\n"


def row(program: programs.Program) -> tuple[str, bool]:
    """One line of the table, and whether the program is fine (or could not be tried)."""
    try:
        setup = programs.prepare(program)
    except programs.Missing as reason:
        return f"| {program.title} | | {program.what} | {program.needed or 'nothing'} | not tried: {reason} |", True
    with tempfile.TemporaryDirectory() as folder:
        workspace, home = Path(folder, "work"), Path(folder, "home")
        workspace.mkdir()
        home.mkdir()
        inside = programs.run_in_world(program, setup, workspace)
        outside = programs.run_natively(program, setup, workspace, home)
    same = (inside.code, inside.stdout) == (outside.code, outside.stdout) and outside.code == 0
    version = programs.version(program, setup)
    if number := re.search(r"\d+(\.\d+)+[a-z]?", version):
        version = number[0]
    if not same:
        print(f"{program.name}: inside {inside}\noutside {outside}", file=sys.stderr)
    word = "yes" if same else "**no**"
    return f"| {program.title} | {version} | {program.what} | {program.needed or 'nothing'} | {word} |", same


def main() -> int:
    parser = argparse.ArgumentParser(description="Run real programs natively and in a world; print the table.")
    parser.add_argument("--write", action="store_true", help=f"put it into {PAGE.name}")
    options = parser.parse_args()
    rows = [row(program) for program in programs.load()]
    table = HEAD + "\n".join(line for line, _ in rows) + "\n"
    print(table)
    if options.write:
        before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise SystemExit(f"{PAGE} has no {BEGIN} … {END}: put the markers back, the table goes between them")
        PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n{END}{after}", encoding="utf-8")
    return 0 if all(fine for _, fine in rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AboveboardError as problem:
        sys.exit(f"{problem}")
