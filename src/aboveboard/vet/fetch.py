"""Bring requirements to this machine without running any of their code.

pip downloads wheels (``--only-binary :all: --no-deps``), one level of dependencies at a time: a wheel's metadata is
data, so no build hook runs. What exists only as an sdist is taken as a file, straight from the index (PEP 503, PEP
691), and is built later inside a world. Direct references (``name @ git+https://…``) are refused: pip would clone
and build them here.

Every file is kept under its sha256 in ``$XDG_CACHE_HOME/aboveboard``; a pinned requirement that was fetched once works
offline.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aboveboard.errors import EnvironmentProblem, TargetError
from aboveboard.vet import archives
from aboveboard.vet.targets import digest_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from packaging.requirements import Requirement

MAX_ROUNDS = 30
"""Most levels of dependencies, and most revisions of a choice, before a resolution is given up."""
MAX_PACKAGES = 300
PIP_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Package:
    """One distribution file in the cache."""

    name: str
    """Normalised project name."""
    version: str
    filename: str
    sha256: str
    size: int
    """Bytes."""

    @property
    def is_wheel(self) -> bool:
        return self.filename.endswith(".whl")

    @property
    def path(self) -> Path:
        return cache_dir() / "files" / self.sha256 / self.filename


def cache_dir() -> Path:
    """The cache folder; not created here."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "aboveboard"


def collect(
    requirements: Iterable[str], *, offline: bool = False, pins: Mapping[str, str] | None = None
) -> tuple[Package, ...]:
    """Files for ``requirements`` and everything they depend on, sorted by name.

    ``pins`` maps a normalised name to the sha256 its file must have. With ``offline`` only the cache is used.

    Raises TargetError when a requirement cannot be met or a digest differs, EnvironmentProblem when the index or the
    cache cannot be used.
    """
    roots = [parsed for parsed in map(_parse, requirements) if parsed.marker is None or parsed.marker.evaluate()]
    if not roots:
        return ()
    pinned = all(any(spec.operator in ("==", "===") and "*" not in spec.version for spec in r.specifier) for r in roots)
    record = _record_path(roots)
    known = _recall(record) if pinned or offline else None
    if known is None:
        if offline:
            names = ", ".join(str(root) for root in roots)
            raise EnvironmentProblem(
                f"{names} is not in the cache {str(cache_dir())!r} and the index may not be used",
                advice="Run the same command once with the network, without --offline.",
            )
        known = _resolve(roots)
        _remember(record, known)
    for package in known:
        wanted = (pins or {}).get(package.name)
        if wanted is not None and wanted != package.sha256:
            raise TargetError(
                f"{package.filename!r} has sha256 {package.sha256}, the pin says {wanted}",
                advice="The index serves another file than the one that was pinned: do not use it.",
            )
    return known


def _parse(text: str) -> Requirement:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        parsed = Requirement(text)
    except InvalidRequirement as problem:
        raise TargetError(f"{text[:200]!r} is not a requirement: {problem}", advice="See PEP 508.") from None
    if parsed.url is not None:
        raise TargetError(
            f"{text[:200]!r} is a direct reference",
            advice="It would be built outside a world. Download the file and vet it by its path.",
        )
    return parsed


def _resolve(roots: Sequence[Requirement]) -> tuple[Package, ...]:
    chosen: dict[str, tuple[Package, archives.Metadata]] = {}
    for _ in range(MAX_ROUNDS):
        wanted = _wanted(roots, chosen)
        if len(wanted) > MAX_PACKAGES:
            raise TargetError(f"it needs more than {MAX_PACKAGES} packages", advice="Vet its dependencies one by one.")
        missing = {
            name: need
            for name, need in wanted.items()
            if name not in chosen or not need.specifier.contains(chosen[name][0].version, prereleases=True)
        }
        if not missing:
            return tuple(chosen[name][0] for name in sorted(wanted))
        for package in _download(list(missing.values())):
            chosen[package.name] = (package, metadata_of(package))
        for name, need in missing.items():
            if name not in chosen:
                raise TargetError(f"pip delivered no file for {need}", advice="Check the name and version.")
    raise TargetError(
        f"the requirements of {', '.join(map(str, roots))} contradict each other",
        advice="Pin the versions that you install, or give a wheel.",
    )


def _wanted(
    roots: Sequence[Requirement], chosen: Mapping[str, tuple[Package, archives.Metadata]]
) -> dict[str, Requirement]:
    """What is needed, by name, given the metadata seen so far: specifiers joined, extras united."""
    from packaging.utils import canonicalize_name

    wanted: dict[str, Requirement] = {}
    queue = list(roots)
    expanded: set[tuple[str, frozenset[str]]] = set()
    while queue:
        need = queue.pop()
        name = canonicalize_name(need.name)
        have = wanted.get(name)
        if have is None:
            wanted[name] = have = _parse(name)
        have.specifier &= need.specifier
        have.extras |= need.extras
        key = (name, frozenset(have.extras))
        if name not in chosen or key in expanded:
            continue
        expanded.add(key)
        for line in chosen[name][1].requires:
            dependency = _parse(line)
            marker = dependency.marker
            dependency.marker = None
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *sorted(have.extras))):
                queue.append(dependency)
    return wanted


def metadata_of(package: Package) -> archives.Metadata:
    """Metadata of a cached file. Raises TargetError when it is malformed."""
    return archives.read_wheel(package.path) if package.is_wheel else archives.read_sdist(package.path)


def _download(needs: Sequence[Requirement]) -> list[Package]:
    """Files for exactly ``needs``: by pip where a wheel exists, else the sdist as a file."""
    _make_cache()
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="tmp-") as folder:
        if _pip_download(needs, folder):
            return [store(Path(folder, name)) for name in sorted(os.listdir(folder))]
    if len(needs) > 1:
        # One of them has no wheel: ask one at a time to learn which.
        return [package for need in needs for package in _download([need])]
    from aboveboard.vet import index

    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="tmp-") as folder:
        return [store(index.download_sdist(needs[0], Path(folder), pip=pip_command()))]


def _pip_download(needs: Sequence[Requirement], folder: str) -> bool:
    argv = [
        *pip_command(),
        "download",
        "--only-binary=:all:",
        "--no-deps",
        "--no-input",
        "--quiet",
        "--progress-bar=off",
        "--disable-pip-version-check",
        "--retries=1",
        "--timeout=20",
        f"--dest={folder}",
        "--",
        *map(str, needs),
    ]
    try:
        done = subprocess.run(
            argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=PIP_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentProblem(
            f"pip did not finish within {PIP_SECONDS} s",
            advice="Check the network and pip's configuration (pip config list).",
        ) from None
    return done.returncode == 0


def pip_command() -> list[str]:
    """The words that start a pip that needs no installation in the current environment.

    Raises EnvironmentProblem when there is none.
    """
    # -P keeps the working directory out of sys.path.
    return [sys.executable, "-P", str(pip_home() / "pip")] if pip_home().suffix == ".whl" else _pip_module()


def _pip_module() -> list[str]:
    return [sys.executable, "-P", "-m", "pip"]


def pip_home() -> Path:
    """Folder (or wheel) on ``sys.path`` from which ``import pip`` works: shown to a world, used by the download.

    Raises EnvironmentProblem when this Python has neither pip nor ensurepip's copy of it.
    """
    import importlib.util

    found = importlib.util.find_spec("pip")
    if found is not None and found.origin is not None:
        return Path(found.origin).parent.parent
    bundled = importlib.util.find_spec("ensurepip")
    if bundled is not None and bundled.origin is not None:
        wheels = sorted(Path(bundled.origin).parent.glob("_bundled/pip-*.whl"))
        if wheels:
            return wheels[-1]
    raise EnvironmentProblem(
        f"{sys.executable!r} has no pip, which fetches and installs packages",
        advice="Install it: python3 -m ensurepip, or apt install python3-pip.",
    )


def store(path: Path) -> Package:
    """Move a downloaded distribution file into the cache under its digest."""
    from packaging.utils import (
        InvalidSdistFilename,
        InvalidWheelFilename,
        parse_sdist_filename,
        parse_wheel_filename,
    )

    try:
        name, version = (
            parse_wheel_filename(path.name)[:2] if path.name.endswith(".whl") else parse_sdist_filename(path.name)
        )
    except (InvalidWheelFilename, InvalidSdistFilename) as problem:
        raise TargetError(f"the index served {path.name!r}: {problem}", advice="Ask its operator.") from None
    package = Package(str(name), str(version), path.name, digest_file(path), path.stat().st_size)
    if not package.path.exists():
        with _cache_errors():
            package.path.parent.mkdir(parents=True, exist_ok=True)
            staged = package.path.with_name(f".{os.getpid()}-{package.filename}")
            shutil.copyfile(path, staged)
            os.replace(staged, package.path)
    return package


def _record_path(roots: Sequence[Requirement]) -> Path:
    from packaging.tags import sys_tags

    # The best tag of this interpreter stands for interpreter, ABI and machine.
    key = json.dumps([sorted(map(str, roots)), str(next(iter(sys_tags()))), sys.version_info[:3]])
    return cache_dir() / "resolved" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


def _recall(record: Path) -> tuple[Package, ...] | None:
    """The files of an earlier resolution, if each is still there with its digest."""
    try:
        rows = json.loads(record.read_bytes())
        packages = tuple(Package(**row) for row in rows)
        intact = bool(packages) and all(
            _SHA256.match(p.sha256) and os.sep not in p.filename and digest_file(p.path) == p.sha256 for p in packages
        )
    except (OSError, ValueError, TypeError):
        return None
    return packages if intact else None


def _remember(record: Path, packages: Sequence[Package]) -> None:
    with _cache_errors():
        record.parent.mkdir(parents=True, exist_ok=True)
        staged = record.with_suffix(f".{os.getpid()}")
        staged.write_text(json.dumps([asdict(package) for package in packages], indent=1))
        os.replace(staged, record)


def _make_cache() -> None:
    with _cache_errors():
        cache_dir().mkdir(mode=0o700, parents=True, exist_ok=True)


@contextlib.contextmanager
def _cache_errors() -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise EnvironmentProblem(
            f"the cache {str(cache_dir())!r} cannot be written: {problem.strerror}",
            advice="Free some space or set XDG_CACHE_HOME to a folder of yours.",
        ) from None
