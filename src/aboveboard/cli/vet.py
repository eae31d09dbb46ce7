"""``aboveboard vet``: arguments in, report out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from aboveboard.errors import UsageError

from .app import EXIT_CODES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from aboveboard.vet import Progress

EPILOG = f"""\
a target is
  a script (.py, .sh, .js, or with a #! line)         ./convert.py
  a project folder (pyproject.toml, setup.py, package.json)
  a wheel or an sdist                                 dist/tool-1.0-py3-none-any.whl
  a requirement, fetched without running its code     mistune==3.1.3
  a skill folder with SKILL.md and scripts/
  any command, after --                               -- ./convert {{input}} {{output}}

examples:
  aboveboard vet mistune==3.1.3 --entry mistune:html --pass text --input notes.md
  aboveboard vet ./skills/pdf --contract pdf.toml --input paper.pdf --matrix all
  aboveboard vet a.py b.py --input data.csv --json > report.json
  aboveboard vet --input in.md --release ./done -- pandoc {{input}} -o {{output}}

A script is called with the input and the output path. An --entry is called as function(input_path, output_path); with
--pass text|bytes|json as function(content), what it returns being the output; with --argv as a program. An --adapter is
a Python file with run(module, input_path, output_path).

{EXIT_CODES}"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``vet``."""
    parser.epilog = EPILOG
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help="what to vet; several are compared on the same inputs"
    )
    what = parser.add_argument_group("what it may do, and on what")
    what.add_argument("--contract", metavar="FILE", help="TOML contract (default: read input/**, write output/**)")
    what.add_argument(
        "--input", action="append", default=[], metavar="PATH", help="file or folder to work on; repeatable"
    )
    what.add_argument(
        "--add", action="append", default=[], metavar="PATH", help="file or folder shown beside the target"
    )
    what.add_argument("--requires", action="append", default=[], metavar="REQ", help="requirement to install beside it")
    call = parser.add_argument_group("how it is called")
    call.add_argument(
        "--entry", action="append", default=[], metavar="M:F", help="function to call; one, or one a target"
    )
    call.add_argument(
        "--adapter", action="append", default=[], metavar="FILE", help="Python file with run(); one, or one a target"
    )
    call.add_argument("--argv", metavar="WORDS", help="arguments, {input} and {output} filled in; quotes as in a shell")
    call.add_argument("--pass", dest="way", choices=("paths", "text", "bytes", "json"), default="paths",
                      help="what an entry receives (default: paths)")  # fmt: skip
    call.add_argument(
        "--module", action="append", default=[], metavar="NAME", help="module to import instead of those found"
    )
    call.add_argument("--output", default="result", metavar="NAME", help="file name of the output (default: result)")
    call.add_argument("--instructions", action="store_true", help="run the shell blocks of a SKILL.md first")
    how = parser.add_argument_group("how it is watched")
    how.add_argument("--matrix", metavar="LIST", help="environments: dev,ci,future,locale or all (default: dev)")
    how.add_argument(
        "--tier", default="auto", metavar="T", help="assurance tier to use: auto, R, U, N or P (default: auto)"
    )
    how.add_argument(
        "--timeout", type=float, default=120.0, metavar="S", help="seconds for each command (default: 120)"
    )
    how.add_argument("--jobs", type=int, metavar="N", help="worlds at once (default: one a CPU)")
    how.add_argument("--offline", action="store_true", help="use only what was fetched before")
    out = parser.add_argument_group("what comes out")
    out.add_argument("--json", action="store_true", help="print one JSON object")
    out.add_argument("--html", metavar="FILE", help="write a report page")
    out.add_argument("--out", metavar="DIR", help="keep the evidence, one folder a target and environment")
    out.add_argument("--release", metavar="DIR", help="copy the declared outputs of clean targets to a new folder")


def run(arguments: argparse.Namespace) -> int:
    """Vet, print, and return the exit code of the worst verdict."""
    if not arguments.targets and not arguments.after_dashes:
        raise UsageError("no target is given", advice="Name one, or give a command after --: aboveboard vet --help.")
    from aboveboard.report import print_vet, write_html
    from aboveboard.vet import matrix, phases
    from aboveboard.vet.session import vet

    environments = matrix.parse(arguments.matrix)
    with progress_bar() as progress:
        report = vet(
            arguments.targets,
            contract=Path(arguments.contract) if arguments.contract else None,
            inputs=arguments.input,
            command=arguments.after_dashes or (),
            entry=arguments.entry,
            adapter=arguments.adapter,
            argv=None if arguments.argv is None else phases.split_argv(arguments.argv),
            way=arguments.way,
            modules=arguments.module,
            output=arguments.output,
            instructions=arguments.instructions,
            requires=arguments.requires,
            add=arguments.add,
            environments=environments,
            evidence=arguments.out,
            release_to=arguments.release,
            jobs=arguments.jobs,
            tier=arguments.tier,
            timeout=arguments.timeout,
            offline=arguments.offline,
            progress=progress,
        )
    if arguments.html:
        write_html(report, arguments.html)
    print_vet(report, json=arguments.json)
    return report.exit_code


class progress_bar:  # noqa: N801  # a context manager, used like a function
    """A bar on standard error while trials run; nothing when that is not a terminal."""

    def __enter__(self) -> Callable[[Progress], None] | None:
        self._bar = None
        if not sys.stderr.isatty():
            return None
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True, markup=False, emoji=False, highlight=False),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task("vetting", total=None)
        return self._show

    def _show(self, step: Progress) -> None:
        from aboveboard.errors import printable

        if self._bar is not None:
            text = f"{printable(step.label)[:40]} [{step.environment}] {printable(step.stage)[:30]}"
            self._bar.update(self._task, completed=step.done, total=step.total, description=text)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
