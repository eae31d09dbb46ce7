"""Bounded reading of the metadata of a wheel or an sdist, without unpacking it.

An archive is attacker-controlled: sizes are bounded before anything is decompressed, names are never used as paths, and
each way to be malformed ends in a TargetError. Formats: PEP 427 (wheel), PEP 625 (sdist), core metadata 2.x.
"""

from __future__ import annotations

import gzip
import lzma
import os
import struct
import tarfile
import tomllib
import zipfile
import zlib
from dataclasses import dataclass
from email.errors import MessageError
from typing import TYPE_CHECKING, Any

from aboveboard.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MAX_METADATA_BYTES = 4 << 20
MAX_DIRECTORY_BYTES = 32 << 20
"""Bound on a zip's central directory: zipfile reads it whole, at about 100 bytes an entry."""
MAX_UNPACKED_BYTES = 1 << 30
"""Bound on the bytes of a tar stream that are decompressed in search of the metadata, and on the sizes a zip
declares."""
MAX_ENTRIES = 100_000

_MALFORMED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    ValueError,  # includes UnicodeDecodeError and TOMLDecodeError
    OverflowError,
    NotImplementedError,
    RuntimeError,  # zipfile: encrypted
    MessageError,
    KeyError,
    IndexError,
    MemoryError,
)


@dataclass(frozen=True, slots=True)
class Metadata:
    """What an archive says about itself. Claims of the author, not facts."""

    name: str
    """Normalised project name (PEP 503)."""
    version: str
    requires: tuple[str, ...]
    """``Requires-Dist`` lines, as written."""
    build_requires: tuple[str, ...]
    """``build-system.requires`` of an sdist or a project; empty for a wheel."""
    modules: tuple[str, ...]
    """Importable top-level names, sorted; empty when unknown."""
    scripts: tuple[tuple[str, str], ...]
    """Console scripts as (name, ``module:function``)."""
    notes: tuple[str, ...] = ()
    """Oddities worth showing: names that climb out, ``.pth`` files, entries beyond what a wheel holds."""


DEFAULT_BUILD_REQUIRES = ("setuptools>=40.8.0",)
"""What PEP 517 front ends install when a project does not say."""


def read_wheel(path: Path) -> Metadata:
    """Metadata of a wheel file.

    Raises TargetError when the name, the zip or the metadata is malformed, or the wheel does not fit this interpreter.
    """
    from packaging.tags import sys_tags
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as problem:
        raise _unreadable(path, "wheel", problem) from None
    if not tags.intersection(sys_tags()):
        some = ", ".join(sorted(map(str, tags))[:3])
        raise TargetError(
            f"the wheel {path.name!r} is built for {some}, which this Python cannot install",
            advice="Give the wheel for this interpreter and machine, or the sdist.",
        )
    try:
        with open_zip(path) as archive:
            names = archive.namelist()
            info = _dist_info(names, str(name))
            text = _member(archive, f"{info}/METADATA")
            entry_points = _member(archive, f"{info}/entry_points.txt") if f"{info}/entry_points.txt" in names else ""
    except _MALFORMED as problem:
        raise _unreadable(path, "wheel", problem) from None
    return Metadata(
        name=str(name),
        version=str(version),
        requires=requires_of(text),
        build_requires=(),
        modules=top_level(names),
        scripts=console_scripts(entry_points),
        notes=odd_names(names),
    )


def read_sdist(path: Path) -> Metadata:
    """Metadata of a source distribution. Nothing in it runs, so dynamic metadata stays unknown.

    Raises TargetError when the name or the archive is malformed.
    """
    from packaging.utils import InvalidSdistFilename, parse_sdist_filename

    try:
        name, version = parse_sdist_filename(path.name)
    except InvalidSdistFilename as problem:
        raise _unreadable(path, "sdist", problem) from None
    try:
        names, wanted = _sdist_files(path)
        requires = requires_of(wanted.get("PKG-INFO", ""))
        pyproject = tomllib.loads(wanted.get("pyproject.toml", ""))
    except _MALFORMED as problem:
        raise _unreadable(path, "sdist", problem) from None
    build, project_requires, scripts = read_pyproject(pyproject)
    inner = ["/".join(parts[1:]) for parts in (entry.split("/") for entry in names) if len(parts) > 1]
    return Metadata(
        name=str(name),
        version=str(version),
        requires=requires or project_requires or requires_txt(wanted.get("requires.txt", "")),
        build_requires=build,
        modules=top_level(inner)
        or top_level(entry.removeprefix("src/") for entry in inner if entry.startswith("src/")),
        scripts=scripts,
        notes=odd_names(names),
    )


def read_project(path: Path) -> Metadata:
    """Metadata of a project folder, as far as it stands in pyproject.toml."""
    from packaging.utils import canonicalize_name

    source = path / "pyproject.toml"
    pyproject: dict[str, Any] = {}
    try:
        if source.exists():
            with source.open("rb") as stream:
                raw = stream.read(MAX_METADATA_BYTES + 1)
            if len(raw) > MAX_METADATA_BYTES:
                raise ValueError(f"it is larger than {MAX_METADATA_BYTES:,} bytes")
            pyproject = tomllib.loads(raw.decode("utf-8"))
    except _MALFORMED as problem:
        raise TargetError(f"{str(source)!r} cannot be read: {problem}", advice="Repair it.") from None
    build, requires, scripts = read_pyproject(pyproject)
    project = pyproject.get("project")
    table: dict[str, Any] = project if isinstance(project, dict) else {}
    names = [*_listing(path), *(name for name in _listing(path / "src"))]
    return Metadata(
        name=canonicalize_name(str(table.get("name") or path.name)),
        version=str(table.get("version") or "0"),
        requires=requires,
        build_requires=build,
        modules=top_level(names),
        scripts=scripts,
    )


def read_pyproject(pyproject: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Build requirements, run requirements and console scripts of a parsed pyproject.toml of any shape."""

    def strings(value: object) -> tuple[str, ...]:
        return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()

    def table(value: object) -> dict[str, Any]:
        return value if isinstance(value, dict) else {}

    system = table(pyproject.get("build-system"))
    # An empty list is an answer (PEP 518): a back end that lies in the tree needs nothing.
    build = strings(system.get("requires")) if "requires" in system else DEFAULT_BUILD_REQUIRES
    project = table(pyproject.get("project"))
    scripts = tuple((k, v) for k, v in table(project.get("scripts")).items() if isinstance(v, str))
    return build, strings(project.get("dependencies")), scripts


def open_zip(path: Path) -> zipfile.ZipFile:
    """A zip opened for reading once its directory and declared sizes are within bounds. Raises zipfile.BadZipFile."""
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - 65_557))
        tail = stream.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) - end < 22:
        raise zipfile.BadZipFile("it has no end-of-directory record")
    (directory,) = struct.unpack_from("<L", tail, end + 12)
    if directory == 0xFFFFFFFF:
        record = tail.rfind(b"PK\x06\x06")
        if record < 0 or len(tail) - record < 56:
            raise zipfile.BadZipFile("its zip64 end-of-directory record is missing")
        (directory,) = struct.unpack_from("<Q", tail, record + 40)
    if directory > MAX_DIRECTORY_BYTES:
        raise zipfile.BadZipFile(f"its directory claims {directory:,} bytes, more than {MAX_DIRECTORY_BYTES:,}")
    archive = zipfile.ZipFile(path)
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES or sum(entry.file_size for entry in entries) > MAX_UNPACKED_BYTES:
        archive.close()
        raise zipfile.BadZipFile(
            f"it unpacks to more than {MAX_ENTRIES:,} files or {MAX_UNPACKED_BYTES:,} bytes (a bomb?)"
        )
    return archive


def requires_of(metadata: str) -> tuple[str, ...]:
    """``Requires-Dist`` values of core metadata text."""
    from email.parser import HeaderParser

    return tuple(str(value) for value in HeaderParser().parsestr(metadata).get_all("Requires-Dist", []))


def requires_txt(text: str) -> tuple[str, ...]:
    """Requirements of a setuptools ``requires.txt`` (sdists from before metadata 2.1): sections become markers."""
    found = []
    extra = marker = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            extra, _, marker = line[1:-1].partition(":")
        elif line and not line.startswith("#"):
            conditions = [f"({marker})"] * bool(marker) + [f"extra == {extra!r}"] * bool(extra)
            found.append(f"{line}; {' and '.join(conditions)}" if conditions else line)
    return tuple(found)


def console_scripts(entry_points: str) -> tuple[tuple[str, str], ...]:
    """The ``[console_scripts]`` group of an entry_points.txt; malformed text gives none, as pip installs none then."""
    import configparser

    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(entry_points)
    except configparser.Error:
        return ()
    if not parser.has_section("console_scripts"):
        return ()
    return tuple((name, value.partition("[")[0].strip()) for name, value in parser.items("console_scripts"))


_NOT_MODULES = frozenset(
    {"tests", "test", "docs", "doc", "examples", "scripts", "setup", "conftest", "benchmarks", "tasks"}
)


def top_level(names: Iterable[str]) -> tuple[str, ...]:
    """Importable top-level names among the member names of a wheel or a source tree."""
    found = set()
    for name in names:
        first, slash, rest = name.partition("/")
        if slash and rest in ("__init__.py", "__init__.so") and first.isidentifier():
            found.add(first)
        elif not slash and first.endswith((".py", ".so", ".pyd")):
            stem = first.partition(".")[0]
            if stem.isidentifier():
                found.add(stem)
    return tuple(sorted(found - _NOT_MODULES)) or tuple(sorted(found))


def odd_names(names: Iterable[str]) -> tuple[str, ...]:
    """Notes on member names that an honest archive does not have, one a class, with the first example."""
    notes: dict[str, str] = {}
    for name in names:
        parts = name.split("/")
        if name.startswith(("/", "\\")) or ".." in parts or "\\" in name:
            notes.setdefault("a member name leaves the archive", name)
        if len(parts) == 1 and name.endswith(".pth"):
            notes.setdefault("a .pth file runs at every interpreter start", name)
        if any(ord(character) < 32 for character in name):
            notes.setdefault("a member name holds control characters", name)
    return tuple(f"{what}: {name[:200]!r}" for what, name in notes.items())


def _dist_info(names: Iterable[str], project: str) -> str:
    from packaging.utils import canonicalize_name

    found = {name.split("/", 1)[0] for name in names if name.count("/") == 1 and name.endswith(".dist-info/METADATA")}
    if len(found) != 1:
        raise ValueError(f"it has {len(found)} .dist-info/METADATA files, a wheel has one")
    info = found.pop()
    if canonicalize_name(info.removesuffix(".dist-info").rpartition("-")[0]) != project:
        raise ValueError(f"its metadata is for {info!r}, its file name says {project!r}")
    return info


def _member(archive: zipfile.ZipFile, name: str) -> str:
    with archive.open(name) as stream:
        raw = stream.read(MAX_METADATA_BYTES + 1)
    if len(raw) > MAX_METADATA_BYTES:
        raise ValueError(f"{name} is larger than {MAX_METADATA_BYTES:,} bytes")
    return raw.decode("utf-8", "replace")


class _BoundedReader:
    """A seekable gzip stream for tarfile that never reads far or much at once.

    A pax header may declare gigabytes, which tarfile would read in one piece.
    """

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MAX_DIRECTORY_BYTES:
            raise ValueError(f"a header of {size:,} bytes is not read")
        if self._stream.tell() + size > MAX_UNPACKED_BYTES:
            raise ValueError(f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes (a bomb?)")
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET or not 0 <= offset <= MAX_UNPACKED_BYTES:
            raise ValueError(f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes (a bomb?)")
        return self._stream.seek(offset)

    def tell(self) -> int:
        return self._stream.tell()


def _sdist_files(path: Path) -> tuple[list[str], dict[str, str]]:
    """Member names, and the texts that hold metadata: PKG-INFO and pyproject.toml at the top of the root folder, and
    the requires.txt that setuptools left in an egg-info folder."""
    wanted: dict[str, str] = {}
    names: list[str] = []

    def is_wanted(name: str) -> str | None:
        root, slash, rest = name.removeprefix("./").partition("/")
        if rest.removeprefix("src/").count("/") == 1 and rest.endswith(".egg-info/requires.txt"):
            rest = "requires.txt"
        known = ("PKG-INFO", "pyproject.toml", "requires.txt")
        return rest if slash and root and rest in known and rest not in wanted else None

    if path.name.lower().endswith(".zip"):
        with open_zip(path) as archive:
            for name in archive.namelist():
                names.append(name)
                if (file := is_wanted(name)) is not None:
                    wanted[file] = _member(archive, name)
        return names, wanted
    with gzip.open(path) as stream, tarfile.open(fileobj=_BoundedReader(stream), mode="r:") as tar:  # type: ignore[call-overload]
        for member in tar:
            names.append(member.name)
            if len(names) > MAX_ENTRIES:
                raise ValueError(f"it has more than {MAX_ENTRIES:,} members (a bomb?)")
            if member.isreg() and (file := is_wanted(member.name)) is not None:
                if member.size > MAX_METADATA_BYTES:
                    raise ValueError(f"{member.name} is larger than {MAX_METADATA_BYTES:,} bytes")
                content = tar.extractfile(member)
                wanted[file] = content.read(MAX_METADATA_BYTES).decode("utf-8", "replace") if content else ""
    if not names:
        raise ValueError("it is empty")
    return names, wanted


def _listing(folder: Path) -> list[str]:
    """Names of modules and packages in a folder, in the spelling of :func:`top_level`."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []
    found = []
    for entry in entries:
        if entry.is_dir() and os.path.exists(os.path.join(entry.path, "__init__.py")):
            found.append(f"{entry.name}/__init__.py")
        elif entry.is_file():
            found.append(entry.name)
    return found


def _unreadable(path: Path, what: str, problem: Exception) -> TargetError:
    reason = str(problem) or type(problem).__name__
    return TargetError(
        f"{path.name!r} is not a readable {what}: {reason}",
        advice="Download it again and compare its sha256 with the index; do not install it by hand.",
    )
