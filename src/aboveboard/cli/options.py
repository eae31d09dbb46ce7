"""Arguments that several commands share, so that they are spelt and checked in one way."""

from __future__ import annotations

import argparse
import os

from aboveboard.errors import UsageError

TYPE_CHECKING = False  # as in aboveboard/__init__.py
if TYPE_CHECKING:
    from aboveboard.contract import Contract

#: Assurance tiers a user may ask for; ``auto`` takes the strongest that works here.
TIERS = ("auto", "R", "U", "N", "P", "refuse")


def add_contract(parser: argparse.ArgumentParser, *, help: str) -> None:  # noqa: A002  # argparse's own word
    """``--contract FILE``, a path; :func:`load_contract` reads it."""
    parser.add_argument("--contract", metavar="FILE", help=help)


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help="print one JSON object (docs/reference/json-output.md)")


def add_world(parser: argparse.ArgumentParser) -> None:
    """``--tier`` and ``--timeout``: how the world is made, and how long a command may run in it."""
    parser.add_argument(
        "--tier",
        choices=TIERS,
        default="auto",
        help="assurance tier; the default is the strongest that works here; 'refuse' takes full assurance or nothing",
    )
    parser.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", help="kill the command after this time (default: 300)"
    )


def seconds(text: str) -> float:
    """A positive, finite number of seconds, for argparse."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 < value <= 7 * 24 * 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and a week")
    return value


def load_contract(path: str | None) -> Contract | None:
    """The contract in a file, or None when none is asked for. Raises ContractError."""
    if path is None:
        return None
    from pathlib import Path

    from aboveboard.contract import Contract

    # As a Path, so that no file name can be taken for TOML text.
    return Contract.load(Path(path))


def verdict_code(verdict: str) -> int:
    """The exit code that stands for ``clean``, ``forbidden`` or ``indeterminate``."""
    return {"clean": 0, "forbidden": 1, "indeterminate": 3}[verdict]


def empty_folder(path: str | None) -> str | None:
    """``path``, made sure to be absent or an empty folder: evidence is never mixed or overwritten."""
    if path is None:
        return None
    if path == "":
        raise UsageError("--out names no folder", advice="Give the folder that shall hold the evidence.")
    try:
        if os.listdir(path):
            raise UsageError(
                f"the folder {path!r} is not empty, and evidence is never overwritten",
                advice="Name a new folder with --out, or remove this one yourself.",
            )
    except FileNotFoundError:
        pass
    except NotADirectoryError:
        raise UsageError(f"{path!r} is not a folder", advice="Name a new folder with --out.") from None
    return path
