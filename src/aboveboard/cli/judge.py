"""``aboveboard judge``: judge saved evidence again."""

from __future__ import annotations

from . import options
from .app import EXIT_CODES

TYPE_CHECKING = False  # as in aboveboard/__init__.py
if TYPE_CHECKING:
    import argparse

    from aboveboard.cli.app import Parser

_EPILOG = f"""\
The evidence is a folder written by 'aboveboard trace --out DIR' or 'aboveboard vet --out DIR'. Nothing is run: the same
evidence and contract always give the same verdict, on any machine.

examples:
  aboveboard judge evidence/
  aboveboard judge evidence/ --contract stricter.toml
  aboveboard judge evidence/ --contract task.toml --json

{EXIT_CODES}"""


def configure(parser: Parser) -> None:
    """The arguments of ``aboveboard judge``."""
    parser.epilog = _EPILOG
    parser.add_argument("evidence", metavar="DIR", help="folder with the evidence of one world")
    options.add_contract(parser, help="contract to judge by (default: read input/**, write output/**, nothing else)")
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Judges and prints the verdict. Returns its exit code."""
    contract = options.load_contract(arguments.contract)

    from aboveboard.contract import Contract
    from aboveboard.evidence import Evidence
    from aboveboard.oracles.process import judge

    evidence = Evidence(arguments.evidence)
    verdict = judge(evidence, contract if contract is not None else Contract.default())

    from aboveboard.report import print_verdict

    print_verdict(verdict, evidence, json=arguments.json)
    return options.verdict_code(verdict.verdict)
