"""The command line: one module a command group, no logic of its own.

A command module has two functions, and is imported only when its command is called, so that ``aboveboard trace`` does
not pay for ``aboveboard vet``:

``configure(parser)``
    adds the arguments. The epilog ends with the table in :data:`EXIT_CODES`.
``run(arguments) -> int``
    does the work by calling the library and returns the exit code. ``arguments.after_dashes`` holds the words after a
    free-standing ``--`` (None when there was none): argparse never sees them, so a traced command keeps its options.

Exit codes are those of :data:`EXIT_CODES` for every command. Errors meant for people (``aboveboard.errors``) are
printed without a traceback.
"""

from __future__ import annotations

from .app import COMMANDS, EXIT_CODES, main

__all__ = ["COMMANDS", "EXIT_CODES", "main"]
