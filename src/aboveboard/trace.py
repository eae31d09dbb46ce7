"""``trace``: run one command in a world of its own and keep what happened."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .errors import UsageError
from .world import Limits, Mount, Service, World

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .contract import Contract
    from .evidence import Evidence, Verdict


@dataclass(frozen=True)
class Traced:
    """A traced command: its return code, its evidence, the verdict when there was a contract, and captured output."""

    returncode: int
    evidence: Evidence
    verdict: Verdict | None
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False


def trace(
    argv: Sequence[str],
    *,
    contract: Contract | None = None,
    mode: Literal["observe", "block"] = "observe",
    evidence: Path | str | None = None,
    workspace: Path | str | None = None,
    tier: str = "auto",
    timeout: float | None = None,
    stdin: bytes | int | None = None,
    stdout: int | Literal["capture", "inherit"] = "capture",
    stderr: int | Literal["capture", "inherit"] = "capture",
    env: Mapping[str, str] | None = None,
    mounts: Sequence[Mount] = (),
    services: Sequence[Service] = (),
    limits: Limits | None = None,
    decoys: bool = True,
    intercept_tls: bool = True,
) -> Traced:
    """Run ``argv`` in a fresh world and return what it did; with a contract also the verdict.

    The workspace (default: the current directory) is shown copy-on-write at its own path; nothing of it changes. The
    home directory and the root are never shown as a whole: started there, the command runs in an empty home. Without
    ``timeout`` the world's own limit holds. Raises UsageError (program not found) and EnvironmentProblem (no world
    here).
    """
    if not argv:
        raise UsageError("no command is given", advice="Give the program and its arguments.")
    here = os.path.abspath(workspace) if workspace is not None else os.getcwd()
    if workspace is None and os.path.realpath(here) in {"/", os.path.realpath(os.path.expanduser("~"))}:
        shown: str | None = None
    else:
        shown = here
    if limits is None:
        limits = Limits(wall_seconds=timeout + 30 if timeout else Limits.wall_seconds)
    world = World(
        evidence=evidence,
        mode=mode,
        contract=contract,
        workspace=shown,
        mounts=mounts,
        env=env,
        services=services,
        decoys=decoys,
        limits=limits,
        tier=tier,
        programs=[argv[0]],
        candidate=_own_files(argv, here),
        intercept_tls=intercept_tls,
    )
    with world:
        done = world.run(argv, stdin=stdin, stdout=stdout, stderr=stderr, timeout=timeout)
    record = world.close()
    verdict = None
    if contract is not None:
        from .oracles.process import judge

        verdict = judge(record, contract)
    return Traced(done.returncode, record, verdict, done.stdout, done.stderr, done.timed_out)


_INTERPRETER = re.compile(r"(python|pypy|node|nodejs|deno|bun|ruby|perl|php|lua|sh|bash|dash|zsh|ksh|Rscript)[0-9.]*\Z")


def _own_files(argv: Sequence[str], here: str) -> list[str]:
    """The command's own program, which it may read whatever the contract says: a file of the workspace that is run, or
    the script an interpreter is given."""
    words = [argv[0]]
    if _INTERPRETER.match(os.path.basename(argv[0])):
        words += [word for word in argv[1:] if not word.startswith("-")][:1]
    paths = [os.path.join(here, word) for word in words if "/" in word or word is not argv[0]]
    return [os.path.normpath(path) for path in paths if os.path.isfile(path)]


async def atrace(argv: Sequence[str], **options: object) -> Traced:
    """``trace`` without blocking the event loop; the same arguments."""
    import asyncio
    from functools import partial

    call = partial(trace, argv, **options)  # type: ignore[arg-type]
    return await asyncio.get_running_loop().run_in_executor(None, call)
