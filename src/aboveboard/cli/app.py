"""Finds the command, runs it, and turns every way it can end into an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from aboveboard.errors import AboveboardError, EnvironmentProblem, printable

TYPE_CHECKING = False  # as in aboveboard/__init__.py
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import NoReturn

    from _typeshed import SupportsWrite

#: Command → what it is for. Its module is ``aboveboard.cli.<command>``.
COMMANDS = {
    "vet": "run packages, skills, scripts or projects in a world and judge what they did",
    "trace": "run any command in a world and show what it did",
    "judge": "judge saved evidence again, under another contract if wanted",
    "doctor": "show what works on this machine, and what to change when something does not",
    "demo": "vet three Markdown packages, one of them with a planted probe",
}

EXIT_CODES = """\
exit codes:
  0    clean, or nothing to judge
  1    something forbidden was found
  2    wrong usage, or this machine cannot do it
  3    indeterminate: the evidence allows no verdict
  130  interrupted
"""

INTERRUPTED = 128 + 2  # as a shell reports a death by SIGINT
BROKEN_PIPE = 128 + 13  # as a shell reports a death by SIGPIPE


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors end with the next step and whose long options are never guessed."""

    def __init__(self, *, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        # argparse's own swallows every OSError, so that --help to a full disk would look like a success.
        if message:
            (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: error: {printable(message)}\n  Next: {self.prog} --help\n")


def _occupy_standard_descriptors() -> None:
    """A caller may have closed 0, 1 or 2 (``cmd <&-``): a socket of ours that took the number would be given out."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            stream = open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line (``sys.argv`` by default) and returns its exit code; never raises."""
    if argv is None:
        _occupy_standard_descriptors()
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None and words[:1] == ["trace"]:  # a process of one command and one world: fork it, spare an interpreter
        from aboveboard.world.spawner import SPAWNER

        SPAWNER.in_process = True
    try:
        try:
            code = _dispatch(words)
        except SystemExit as stop:  # argparse: --help or a usage error
            code = stop.code if isinstance(stop.code, int) else 2
        sys.stdout.flush()  # a full disk or a closed pipe must be met here, not in the interpreter's last breath
    except AboveboardError as problem:
        code = _complain(problem)
    except KeyboardInterrupt:
        _say("interrupted")
        code = INTERRUPTED
    except BrokenPipeError:
        code = BROKEN_PIPE
    except OSError as problem:
        code = _complain(_from_system(problem))
    except RecursionError:
        code = _complain(EnvironmentProblem("the input is nested too deeply", advice="Give a flatter file."))
    except Exception as problem:
        code = _bug(problem)
    return _close(code)


def command_parser(name: str) -> Parser:
    """The parser of one command, as ``aboveboard NAME --help`` shows it."""
    parser = Parser(prog=f"aboveboard {name}", description=COMMANDS[name].capitalize() + ".")
    _module(name).configure(parser)
    return parser


def _dispatch(words: list[str]) -> int:
    name = words[0] if words else ""
    if name not in COMMANDS:
        return _top(words)
    rest, after = words[1:], None
    if "--" in rest:
        cut = rest.index("--")
        rest, after = rest[:cut], rest[cut + 1 :]
    arguments = command_parser(name).parse_args(rest)
    arguments.after_dashes = after
    code: int = _module(name).run(arguments)
    return code


def _top(words: list[str]) -> int:
    width = max(map(len, COMMANDS))
    parser = Parser(
        prog="aboveboard",
        description="Run code you do not trust yet, and know what it did.\n\ncommands:\n"
        + "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()),
    )
    parser.usage = "aboveboard COMMAND …"
    parser.epilog = f"aboveboard COMMAND --help explains a command.\n\n{EXIT_CODES}"
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    # The words after an unknown command belong to it; complaining about them first would hide the actual mistake.
    arguments = parser.parse_args(words[:1])
    if arguments.version:
        from aboveboard import __version__

        print(f"aboveboard {__version__}")
        return 0
    if arguments.command is None:
        parser.print_help(sys.stderr)
        return 2
    import difflib

    near = difflib.get_close_matches(arguments.command, COMMANDS, n=1)
    parser.error(f"there is no command {arguments.command!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"aboveboard.cli.{name}")


def _complain(problem: AboveboardError) -> int:
    _say(f"error: {printable(problem.message)}", printable(problem.advice))
    return problem.exit_code


def _from_system(problem: OSError) -> AboveboardError:
    import errno

    where = "".join(f": {name!r}" for name in (problem.filename, problem.filename2) if name is not None)
    advice = {
        errno.ENOSPC: "Free some space, or choose another folder with --out or TMPDIR.",
        errno.EDQUOT: "Free some of your quota, or choose another folder with --out or TMPDIR.",
        errno.EACCES: "Check the owner and mode of the path, or run as a user who may.",
        errno.EPERM: "Check the owner and mode of the path; aboveboard doctor shows what this machine allows.",
        errno.EROFS: "Choose a folder that can be written with --out or TMPDIR.",
        errno.EMFILE: "Raise the limit on open files (ulimit -n), or lower --jobs.",
        errno.ENOENT: "Check the path; relative paths start in the current folder.",
    }.get(problem.errno or 0, "aboveboard doctor shows what this machine allows.")
    return EnvironmentProblem(f"{problem.strerror or problem}{where}", advice=advice)


def _bug(problem: Exception) -> int:
    if os.environ.get("ABOVEBOARD_DEBUG"):
        import traceback

        traceback.print_exc()
    last = problem.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    where = f" at {last.tb_frame.f_code.co_filename}:{last.tb_lineno}" if last is not None else ""
    _say(
        f"internal error: {type(problem).__name__}: {printable(str(problem))}{printable(where)}",
        "This is a bug, no verdict was reached. Set ABOVEBOARD_DEBUG=1 for the traceback and report it.",
    )
    return 2


def _say(text: str, advice: str = "") -> None:
    try:
        print(f"aboveboard: {text}" + (f"\n  Next: {advice}" if advice else ""), file=sys.stderr)
    except OSError:
        pass  # nobody is listening; the exit code says it


def _close(code: int) -> int:
    """Empties the standard streams so that the interpreter has nothing left to complain about when it exits."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except BrokenPipeError:
            _discard(stream.fileno())
            code = code or BROKEN_PIPE
        except (OSError, ValueError):
            _discard(stream.fileno())
            code = code or 2
    return code


def _discard(descriptor: int) -> None:
    # What is left in the buffer would be written, and fail, once more at exit.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
