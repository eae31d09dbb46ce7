"""What the user asked to vet: recognise a target from its spelling and from the file or folder it names.

Recognition reads names, a shebang line and directory listings, never runs anything and never unpacks an archive.
"""

from __future__ import annotations

import enum
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aboveboard.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_FILE_BYTES = 1 << 30
"""Largest single file accepted as a target or an input."""
MAX_TREE_FILES = 50_000
"""Most entries in a project or skill folder; a home directory given by mistake is refused, not copied."""
MAX_TREE_BYTES = 1 << 30


class Kind(enum.StrEnum):
    """The sort of thing a target is; it decides which phases exist."""

    SCRIPT = "script"
    PROJECT = "project"
    NODE_PROJECT = "node-project"
    WHEEL = "wheel"
    SDIST = "sdist"
    REQUIREMENT = "requirement"
    SKILL = "skill"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to vet."""

    kind: Kind
    given: str
    """What the user wrote, unchanged."""
    label: str
    """Short display name; unique within one report after :func:`recognise_all`. May hold any character: escape it."""
    path: Path | None = None
    """Absolute path on the host, for everything but a requirement and a command."""
    requirement: str | None = None
    """Canonical PEP 508 spelling, for a requirement."""
    argv: tuple[str, ...] = ()
    """The words of a ``-- CMD`` target, or the interpreter (without the script) that runs a script."""


SUFFIX_INTERPRETER = {
    ".py": ("python3",),
    ".pyw": ("python3",),
    ".sh": ("sh",),
    ".bash": ("bash",),
    ".js": ("node",),
    ".mjs": ("node",),
    ".cjs": ("node",),
    ".rb": ("ruby",),
    ".pl": ("perl",),
}
"""How a script without a usable shebang is started, by suffix."""

SDIST_SUFFIXES = (".tar.gz", ".zip")
_OTHER_ARCHIVES = (".tar.bz2", ".tar.xz", ".tgz", ".tar", ".egg", ".7z", ".rar", ".conda")
_PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
_SHEBANG = re.compile(rb"#!\s*(\S+)(?:[ \t]+([^\r\n]*))?")
_FORMS = (
    "a script, a project folder, a .whl, an sdist (.tar.gz, .zip), a requirement such as mistune==3.1.3, "
    "a skill folder with SKILL.md, or -- CMD"
)


def recognise(text: str) -> Target:
    """The target that ``text`` names.

    A file or folder that exists wins over a requirement of the same spelling; ``./name`` is always a path.

    Raises TargetError when nothing fits, with the reason.
    """
    if not text or "\0" in text:
        raise TargetError(f"the target {text!r} is empty or holds a NUL byte", advice=f"Give {_FORMS}.")
    path = Path(os.path.abspath(os.path.expanduser(text)))
    try:
        info = path.stat()
    except OSError as problem:
        return _not_a_file(text, problem)
    if stat.S_ISDIR(info.st_mode):
        return _folder(text, path)
    if not stat.S_ISREG(info.st_mode):
        raise TargetError(f"{text!r} is neither a regular file nor a folder", advice=f"Give {_FORMS}.")
    if info.st_size > MAX_FILE_BYTES:
        raise TargetError(
            f"{text!r} has {info.st_size:,} bytes, more than the {MAX_FILE_BYTES:,} a target may have",
            advice="Vet the part that an agent would run.",
        )
    return _file(text, path)


def command(argv: Sequence[str]) -> Target:
    """The target of ``-- CMD``: an argument vector, run as it is with ``{input}`` and ``{output}`` filled in."""
    if not argv:
        raise TargetError("-- is followed by nothing", advice="Write the command after it: -- CMD ARG…")
    if any("\0" in word for word in argv):
        raise TargetError("the command holds a NUL byte", advice="Remove it: no program can receive it.")
    # A path is relative to where the user stands; inside, the command stands in the workspace.
    program = os.path.abspath(argv[0]) if os.sep in argv[0] else argv[0]
    return Target(Kind.COMMAND, " ".join(argv), os.path.basename(program) or program, argv=(program, *argv[1:]))


def recognise_all(texts: Sequence[str], argv: Sequence[str] = ()) -> tuple[Target, ...]:
    """Every target of one command line, labels made unique by a number in order of appearance."""
    from dataclasses import replace

    found = [recognise(text) for text in texts]
    if argv:
        found.append(command(argv))
    if not found:
        raise TargetError("no target is given", advice=f"Give {_FORMS}.")
    labels: dict[str, int] = {}
    unique = []
    for target in found:
        seen = labels[target.label] = labels.get(target.label, 0) + 1
        unique.append(target if seen == 1 else replace(target, label=f"{target.label} ({seen})"))
    return tuple(unique)


def _not_a_file(text: str, problem: OSError) -> Target:
    if isinstance(problem, PermissionError):
        raise TargetError(f"{text!r} may not be read: {problem.strerror}", advice="Run as a user who may.") from None
    looks_like_path = os.sep in text or text.startswith(("~", "."))
    if "://" in text or " @ " in text:
        # A direct reference (PEP 508) would let pip clone or build outside a world.
        raise TargetError(
            f"{text!r} names a URL",
            advice="Download the file yourself and give its path: nothing may be built outside a world.",
        )
    if looks_like_path or text.endswith((".whl", *SDIST_SUFFIXES, *_OTHER_ARCHIVES, *SUFFIX_INTERPRETER)):
        raise TargetError(f"{text!r} does not exist", advice="Check the path; relative paths start here.") from None
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(text)
    except InvalidRequirement as invalid:
        first = str(invalid).splitlines()[0]
        raise TargetError(
            f"{text!r} is neither a file, a folder nor a requirement ({first})", advice=f"Give {_FORMS}."
        ) from None
    if requirement.url is not None:
        raise TargetError(f"{text!r} is a direct reference", advice="Give the path of the file.")
    if requirement.marker is not None and not requirement.marker.evaluate():
        raise TargetError(
            f"the marker of {text!r} excludes this Python", advice="Remove the marker or use another interpreter."
        )
    return Target(Kind.REQUIREMENT, text, text.partition(";")[0].strip(), requirement=str(requirement))


def _folder(text: str, path: Path) -> Target:
    label = path.name or text
    try:
        names = set(os.listdir(path))
    except OSError as problem:
        raise TargetError(
            f"the folder {text!r} may not be listed: {problem.strerror}", advice="Check its mode."
        ) from None
    if "SKILL.md" in names:
        return Target(Kind.SKILL, text, label, path)
    if names.intersection(_PROJECT_FILES):
        return Target(Kind.PROJECT, text, label, path)
    if "package.json" in names:
        return Target(Kind.NODE_PROJECT, text, label, path)
    raise TargetError(
        f"the folder {text!r} has none of SKILL.md, {', '.join(_PROJECT_FILES)} and package.json",
        advice="Give the script inside it, or run it with -- CMD.",
    )


def _file(text: str, path: Path) -> Target:
    lower = path.name.lower()
    try:
        with path.open("rb") as stream:
            head = stream.read(256)
    except OSError as problem:
        raise TargetError(f"{text!r} may not be read: {problem.strerror}", advice="Check its mode.") from None
    if lower.endswith(".whl"):
        return Target(Kind.WHEEL, text, path.name, path)
    if lower.endswith(SDIST_SUFFIXES):
        return Target(Kind.SDIST, text, path.name, path)
    if lower.endswith(_OTHER_ARCHIVES):
        raise TargetError(
            f"{text!r} is an archive of a kind that pip does not publish", advice="Unpack it and give the folder."
        )
    suffix = SUFFIX_INTERPRETER.get(path.suffix.lower())
    interpreter = _shebang(head)
    if interpreter and (suffix is None or os.path.basename(interpreter[0]) != "env"):
        # The suffix decides the language, the shebang the flags: python3 -u stays python3 -u.
        return Target(Kind.SCRIPT, text, path.name, path, argv=interpreter)
    if suffix is not None:
        return Target(Kind.SCRIPT, text, path.name, path, argv=suffix)
    if head.startswith(b"\x7fELF"):
        return Target(Kind.SCRIPT, text, path.name, path)
    raise TargetError(
        f"{text!r} has neither a known suffix nor a #! line",
        advice=f"Name the interpreter yourself: -- INTERPRETER {text}, or give {_FORMS}.",
    )


def _shebang(head: bytes) -> tuple[str, ...]:
    """Interpreter words of a ``#!`` line, ``/usr/bin/env`` resolved to the name it looks up; empty when there is
    none."""
    match = _SHEBANG.match(head)
    if match is None:
        return ()
    program = os.fsdecode(match[1])
    rest = os.fsdecode(match[2] or b"").split()
    if os.path.basename(program) == "env":
        rest = [word for word in rest if word != "-S" and "=" not in word]
        return tuple(rest)
    return (program, *rest)


@dataclass(frozen=True, slots=True)
class Tree:
    """A listing of a folder that is about to be shown inside a world."""

    files: int
    bytes: int
    sha256: str
    """Digest over sorted ``path NUL mode NUL sha256-of-content-or-link LF`` lines."""


def digest_file(path: Path) -> str:
    """SHA-256 of a regular file, in hexadecimal. Raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_tree(root: Path) -> Tree:
    """Count, size and digest of a folder. Symbolic links are not followed.

    Raises TargetError above MAX_TREE_FILES or MAX_TREE_BYTES, and for a file that cannot be read.
    """
    total = hashlib.sha256()
    files = size = 0
    for folder, folders, names in os.walk(root, onerror=_unlistable):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            files += 1
            try:
                info = path.lstat()
                if stat.S_ISREG(info.st_mode):
                    size += info.st_size
                    if size > MAX_TREE_BYTES:
                        break
                    content = digest_file(path)
                elif stat.S_ISLNK(info.st_mode):
                    content = os.readlink(path)
                else:
                    content = "special"
            except OSError as problem:
                raise TargetError(
                    f"{str(path)!r} may not be read: {problem.strerror}", advice="Check its mode."
                ) from None
            line = f"{path.relative_to(root)}\0{stat.S_IMODE(info.st_mode):o}\0{content}\n"
            total.update(line.encode("utf-8", "surrogateescape"))
        if files > MAX_TREE_FILES or size > MAX_TREE_BYTES:
            raise TargetError(
                f"the folder {str(root)!r} has more than {MAX_TREE_FILES:,} files or {MAX_TREE_BYTES:,} bytes",
                advice="Give the folder of the project itself, without virtual environments and data.",
            )
    return Tree(files, size, total.hexdigest())


def _unlistable(problem: OSError) -> None:
    raise TargetError(f"{problem.filename!r} may not be listed: {problem.strerror}", advice="Check its mode.")
