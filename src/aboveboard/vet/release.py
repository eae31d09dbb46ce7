"""Copy the declared outputs of a clean run out of its world, and nothing else (detonate, judge, release).

What is copied is what was judged: a file leaves only when the ``change`` record of the sealed evidence has its digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aboveboard.errors import EnvironmentProblem, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MAX_RELEASE_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Released:
    """What came out."""

    folder: str
    files: tuple[tuple[str, str], ...]
    """Path relative to the workspace and sha256, sorted."""
    withheld: tuple[tuple[str, str], ...]
    """Path and reason of everything else that a declared output could have been."""


def check_destination(folder: Path) -> None:
    """Refuse early a destination that cannot be filled in one step: it must be new or empty, its parent writable.

    Raises UsageError.
    """
    try:
        if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
            raise UsageError(
                f"the release folder {str(folder)!r} is not empty", advice="Name a new or an empty folder."
            )
        parent = folder.absolute().parent
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            raise UsageError(
                f"{str(parent)!r} is not a folder that may be written", advice="Create it, or choose another."
            )
    except PermissionError as problem:
        raise UsageError(
            f"the release folder {str(folder)!r} cannot be used: {problem.strerror}", advice="Check it."
        ) from None


def release(
    taken: Path, folder: Path, *, declared: Callable[[str], bool], judged: Mapping[str, str], workspace: str
) -> Released:
    """Copy declared outputs from ``taken`` (the workspace as taken from the world) to ``folder``, all or nothing.

    ``declared`` says whether the contract declares an absolute inside path; ``judged`` maps absolute inside paths to
    the sha256 in the evidence. Links, devices, FIFOs, set-id bits and undeclared files never leave. The folder
    appears in one rename.

    Raises EnvironmentProblem when it cannot be written, UsageError when it is not empty.
    """
    check_destination(folder)
    files: list[tuple[str, str]] = []
    withheld: list[tuple[str, str]] = []
    budget = MAX_RELEASE_BYTES
    try:
        staging = Path(tempfile.mkdtemp(prefix=".release-", dir=folder.absolute().parent))
    except OSError as problem:
        raise EnvironmentProblem(f"{str(folder)!r} cannot be made: {problem.strerror}", advice="Free space.") from None
    try:
        for relative, info in _entries(taken):
            inside = f"{workspace}/{relative}"
            if not declared(inside):
                continue
            if not stat.S_ISREG(info.st_mode):
                withheld.append((relative, "not a regular file"))
                continue
            if inside not in judged:
                # Unchanged since it went in: the owner has it already.
                continue
            budget -= info.st_size
            if budget < 0:
                withheld.append((relative, f"more than {MAX_RELEASE_BYTES:,} bytes in all"))
                continue
            digest = _copy(taken / relative, staging / relative, executable=bool(info.st_mode & 0o100))
            if digest != judged[inside]:
                (staging / relative).unlink()
                withheld.append((relative, "it changed after it was taken: the evidence has another digest"))
                continue
            files.append((relative, digest))
        os.chmod(staging, 0o755)
        os.rename(staging, folder)
    except OSError as problem:
        raise EnvironmentProblem(
            f"the outputs cannot be copied to {str(folder)!r}: {problem.strerror or problem}", advice="Free some space."
        ) from None
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(staging, ignore_errors=True)
    return Released(str(folder), tuple(sorted(files)), tuple(sorted(withheld)))


def _entries(root: Path) -> Iterable[tuple[str, os.stat_result]]:
    for folder, folders, names in os.walk(root):
        for name in sorted(folders + names):
            path = os.path.join(folder, name)
            info = os.lstat(path)
            if not stat.S_ISDIR(info.st_mode):
                yield os.path.relpath(path, root), info


def _copy(source: Path, target: Path, *, executable: bool) -> str:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
    with open(descriptor, "rb") as stream, open(target, "xb") as out:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
            out.write(chunk)
        os.fchmod(out.fileno(), 0o755 if executable else 0o644)
    return digest.hexdigest()
