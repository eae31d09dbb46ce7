"""``aboveboard doctor``: what works on this machine."""

from __future__ import annotations

from . import options
from .app import EXIT_CODES

TYPE_CHECKING = False  # as in aboveboard/__init__.py
if TYPE_CHECKING:
    import argparse

    from aboveboard.cli.app import Parser

_EPILOG = f"""\
Tries, one after the other, what a world is made of, and proves every witness with an action it has to see. Where a step
fails it says which one and the narrowest fix. Changes nothing.

examples:
  aboveboard doctor
  aboveboard doctor --json

{EXIT_CODES}
Here 0 means that the default tier works in full, 2 that it does not."""


def configure(parser: Parser) -> None:
    """The arguments of ``aboveboard doctor``."""
    parser.epilog = _EPILOG
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the report. Returns 0 when worlds of full assurance work here, else 2."""
    from aboveboard.world.doctor import report

    findings = report()
    if arguments.json:
        import json

        print(json.dumps(findings.to_dict(), indent=2))
    else:
        print(findings)
    return 0 if findings.ok else 2
