"""``aboveboard trace``: run any command in a world and show what it did."""

from __future__ import annotations

import argparse
import sys

from aboveboard.errors import TargetError, UsageError

from . import options
from .app import EXIT_CODES

TYPE_CHECKING = False  # as in aboveboard/__init__.py
if TYPE_CHECKING:
    from aboveboard.cli.app import Parser

_EPILOG = f"""\
The command runs as an ordinary user on a copy-on-write view of the current folder, and cannot reach the network: every
address answers, and what is sent is kept. Nothing outside the world changes. The summary goes to stderr; with --json it
goes to stdout, and the command's own output to stderr.

examples:
  aboveboard trace -- python3 build.py
  aboveboard trace --out evidence/ -- npm install left-pad
  aboveboard trace --contract task.toml --json -- ./convert input/a.md output/a.html
  aboveboard trace --contract task.toml --block -- ./convert input/a.md output/a.html

{EXIT_CODES}
Without --contract nothing is judged, and the exit code is the command's own (128 + N when signal N ended it). The JSON
object then has the verdict of the default contract (read input/**, write output/**), for information."""


def configure(parser: Parser) -> None:
    """The arguments of ``aboveboard trace``."""
    parser.usage = "aboveboard trace [options] [--] COMMAND [ARGUMENT …]"
    parser.epilog = _EPILOG
    options.add_contract(parser, help="judge what happened by this contract (docs/reference/contract.md)")
    parser.add_argument(
        "--block", action="store_true", help="refuse what the contract forbids, instead of only recording it"
    )
    options.add_json(parser)
    parser.add_argument("--out", metavar="DIR", help="keep the evidence in this folder, new or empty")
    parser.add_argument(
        "--workspace",
        metavar="DIR",
        help="folder shown to the command, copy-on-write, at the same path (default: the current folder)",
    )
    options.add_world(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command in a world. Returns its exit code, or the verdict's when there is a contract."""
    command = _command(arguments)
    if arguments.block and arguments.contract is None:
        raise UsageError("--block has nothing to go by", advice="Add --contract FILE.")
    contract = options.load_contract(arguments.contract)
    evidence = options.empty_folder(arguments.out)

    from aboveboard.report import print_trace
    from aboveboard.trace import trace

    result = trace(
        command,
        contract=contract,
        mode="block" if arguments.block else "observe",
        evidence=evidence,
        workspace=arguments.workspace,
        tier=arguments.tier,
        timeout=arguments.timeout,
        stdin=0,
        stdout=2 if arguments.json else 1,
        stderr=2,
    )
    verdict = result.verdict
    if arguments.json and verdict is None:
        from aboveboard.contract import Contract
        from aboveboard.oracles.process import judge

        verdict = judge(result.evidence, Contract.default())
    # The command owns standard output, unless JSON was asked for.
    print_trace(result.evidence, verdict, json=arguments.json, file=None if arguments.json else sys.stderr)
    if result.verdict is None:
        code: int = result.returncode
        return 128 - code if code < 0 else code
    return options.verdict_code(result.verdict.verdict)


def _command(arguments: argparse.Namespace) -> list[str]:
    command: list[str] = list(arguments.command)
    if arguments.after_dashes is not None:
        # Dashes after the command has begun are the command's own.
        command = [*command, "--", *arguments.after_dashes] if command else arguments.after_dashes
    if not command:
        raise UsageError("no command is given", advice="Write it after the options: aboveboard trace -- CMD ARG …")
    if not command[0]:
        raise TargetError("the command's name is empty", advice="Name a program: aboveboard trace -- CMD ARG …")
    return command
