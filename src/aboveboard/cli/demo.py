"""``aboveboard demo``: three Markdown packages, one planted probe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aboveboard.evidence.verdict import CLEAN, FORBIDDEN

from .app import EXIT_CODES
from .vet import progress_bar

if TYPE_CHECKING:
    import argparse

EPILOG = f"""\
The packages are fetched once from the package index, at pinned digests, and then come from the cache. One of them is
rebuilt with a probe in a module that it imports in turn. The command succeeds when exactly that one is found out.

{EXIT_CODES}"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``demo``."""
    parser.epilog = EPILOG
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--html", metavar="FILE", help="write a report page")
    parser.add_argument("--out", metavar="DIR", help="keep the evidence")
    parser.add_argument("--offline", action="store_true", help="use only what was fetched before")


def run(arguments: argparse.Namespace) -> int:
    """Run the demonstration; 0 when the probe, and nothing else, was found."""
    from aboveboard.report import print_vet, write_html
    from aboveboard.vet import demo

    with progress_bar() as progress:
        report = demo.demo(
            offline=arguments.offline, evidence=Path(arguments.out) if arguments.out else None, progress=progress
        )
    if arguments.html:
        write_html(report, arguments.html)
    if not arguments.json:
        print("Three packages turn the same Markdown document into HTML. One carries a probe in a module it imports.\n")
    print_vet(report, json=arguments.json)
    expected = all(
        target.verdict == (FORBIDDEN if target.prepared.name == demo.CARRIER else CLEAN) for target in report.targets
    )
    # The demonstration shows a forbidden target on purpose: it has failed when it shows anything else.
    return 0 if expected else report.exit_code or 1
