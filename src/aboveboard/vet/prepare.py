"""What must be known about a target before it can be planned: digests, metadata, its dependencies as files.

Runs outside every world, so it runs nothing of the target: it reads bounded metadata and asks the index for files.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aboveboard.errors import TargetError
from aboveboard.vet import archives, fetch, targets
from aboveboard.vet.phases import safe_name
from aboveboard.vet.targets import Kind, Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MAX_SKILL_SCRIPTS = 64
MAX_SKILL_BYTES = 1 << 20
_FENCE = re.compile(r"^```[ \t]*(?:bash|sh|shell|console)[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A target with everything that planning needs."""

    target: Target
    inside: str
    """Name under the tool folder inside."""
    sha256: str
    """Of the file, or over the folder; empty for a command and for a requirement, whose files stand in ``packages``."""
    name: str = ""
    version: str = ""
    packages: tuple[fetch.Package, ...] = ()
    """Distributions to install beside the target, or the target itself when it is a requirement."""
    build_packages: tuple[fetch.Package, ...] = ()
    """Only shown to the build."""
    modules: tuple[str, ...] = ()
    scripts: tuple[tuple[str, str], ...] = ()
    installs: bool = False
    """There is an environment to install into."""
    install_target: bool = False
    """The target's own path is given to pip."""
    builds: bool = False
    """Something is built from source."""
    skill_scripts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Scripts of a skill: path in the folder, interpreter words."""
    instructions: tuple[str, ...] = ()
    npm: str = ""
    pip_name: str = "pip"
    notes: tuple[str, ...] = ()


def prepare(
    target: Target, *, requires: Sequence[str] = (), offline: bool = False, pins: Mapping[str, str] | None = None
) -> Prepared:
    """Read and fetch what ``target`` needs. ``requires`` are further requirements to install beside it.

    Raises TargetError for an unreadable target, EnvironmentProblem when files cannot be fetched.
    """
    kind = target.kind
    if kind is Kind.REQUIREMENT:
        return _requirement(target, requires, offline, pins)
    if kind is Kind.COMMAND:
        return _plain(target, "", requires, offline)
    assert target.path is not None
    if kind in (Kind.WHEEL, Kind.SDIST):
        read = archives.read_wheel if kind is Kind.WHEEL else archives.read_sdist
        return _source(target, read(target.path), targets.digest_file(target.path), requires, offline, pins)
    if kind is Kind.PROJECT:
        digest = targets.digest_tree(target.path).sha256
        return _source(target, archives.read_project(target.path), digest, requires, offline, pins)
    if kind is Kind.SCRIPT:
        return _plain(target, targets.digest_file(target.path), requires, offline)
    digest = targets.digest_tree(target.path).sha256
    if kind is Kind.NODE_PROJECT:
        from dataclasses import replace

        return replace(_plain(target, digest, requires, offline), npm=_program("npm"))
    return _skill(target, target.path, digest, requires, offline)


def _requirement(target: Target, requires: Sequence[str], offline: bool, pins: Mapping[str, str] | None) -> Prepared:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    assert target.requirement is not None
    wanted = Requirement(target.requirement)
    packages = fetch.collect([target.requirement, *requires], offline=offline, pins=pins)
    own = next(package for package in packages if package.name == canonicalize_name(wanted.name))
    metadata = fetch.metadata_of(own)
    return Prepared(
        target,
        inside=own.filename,
        sha256=own.sha256,
        name=own.name,
        version=own.version,
        packages=packages,
        build_packages=_build_packages(packages, (), offline),
        modules=metadata.modules,
        scripts=metadata.scripts,
        installs=True,
        builds=not all(package.is_wheel for package in packages),
        pip_name=_pip_name(),
        notes=metadata.notes,
    )


def _source(
    target: Target,
    metadata: archives.Metadata,
    sha256: str,
    requires: Sequence[str],
    offline: bool,
    pins: Mapping[str, str] | None,
) -> Prepared:
    assert target.path is not None
    needs = [line for line in metadata.requires if _applies(line)]
    packages = fetch.collect([*needs, *requires], offline=offline, pins=pins)
    return Prepared(
        target,
        # pip reads name and version from the file name, so it must not be changed; the parsers above accept plain
        # ones only.
        inside=target.path.name if target.kind is not Kind.PROJECT else safe_name(target.path.name),
        sha256=sha256,
        name=metadata.name,
        version=metadata.version,
        packages=packages,
        build_packages=_build_packages(packages, metadata.build_requires, offline),
        modules=metadata.modules,
        scripts=metadata.scripts,
        installs=True,
        install_target=True,
        builds=target.kind is not Kind.WHEEL or not all(package.is_wheel for package in packages),
        pip_name=_pip_name(),
        notes=metadata.notes,
    )


def _plain(target: Target, sha256: str, requires: Sequence[str], offline: bool) -> Prepared:
    packages = fetch.collect(requires, offline=offline)
    return Prepared(
        target,
        inside=safe_name(target.path.name) if target.path else "",
        sha256=sha256,
        packages=packages,
        build_packages=_build_packages(packages, (), offline),
        installs=bool(packages),
        builds=not all(package.is_wheel for package in packages),
        pip_name=_pip_name() if packages else "pip",
    )


def _skill(target: Target, path: Path, sha256: str, requires: Sequence[str], offline: bool) -> Prepared:
    from dataclasses import replace

    listed, odd = _requirements_file(path / "requirements.txt")
    try:
        with (path / "SKILL.md").open("rb") as stream:
            text = stream.read(MAX_SKILL_BYTES).decode("utf-8", "replace")
    except OSError as problem:
        raise TargetError(
            f"{str(path / 'SKILL.md')!r} may not be read: {problem.strerror}", advice="Check it."
        ) from None
    plain = _plain(target, sha256, [*listed, *requires], offline)
    scripts, more = _skill_scripts(path)
    return replace(plain, skill_scripts=scripts, instructions=instructions(text), notes=(*odd, *more))


def instructions(markdown: str) -> tuple[str, ...]:
    """Shell blocks of a SKILL.md, prompts (``$ ``) removed: an agent that follows the text would run them."""
    blocks = (re.sub(r"^\$ ", "", block, flags=re.MULTILINE).strip() for block in _FENCE.findall(markdown))
    return tuple(block for block in blocks if block)[:MAX_SKILL_SCRIPTS]


def _skill_scripts(root: Path) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], tuple[str, ...]]:
    """Scripts at the top of a skill and below ``scripts/``, by suffix or shebang. Links are not followed."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if folder != str(root) or name in ("scripts", "bin"))
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            try:
                script = targets.recognise(path)
            except TargetError:
                continue
            if script.kind is Kind.SCRIPT:
                found.append((os.path.relpath(path, root), script.argv))
    cut = (
        (f"the skill has {len(found)} scripts, the first {MAX_SKILL_SCRIPTS} ran",)
        if len(found) > MAX_SKILL_SCRIPTS
        else ()
    )
    return tuple(found[:MAX_SKILL_SCRIPTS]), cut


def _requirements_file(path: Path) -> tuple[list[str], tuple[str, ...]]:
    """Plain requirements of a requirements.txt, and a note on the lines that are something else."""
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_SKILL_BYTES).decode("utf-8", "replace")
    except OSError:
        return [], ()
    from packaging.requirements import InvalidRequirement, Requirement

    good: list[str] = []
    bad = 0
    for line in text.splitlines():
        line = line.partition(" #")[0].strip()
        if not line or line.startswith("#"):
            continue
        try:
            parsed = Requirement(line)
        except InvalidRequirement:
            bad += 1
            continue
        if parsed.url is None:
            good.append(line)
        else:
            bad += 1
    return good, ((f"requirements.txt: {bad} lines are not plain requirements and were left out",) if bad else ())


def _build_packages(
    packages: Sequence[fetch.Package], build_requires: Sequence[str], offline: bool
) -> tuple[fetch.Package, ...]:
    """Wheels for the isolated builds that pip will make inside."""
    needed = list(build_requires)
    for package in packages:
        if not package.is_wheel:
            needed += fetch.metadata_of(package).build_requires
    if not needed:
        return ()
    if any(re.match(r"setuptools\b", line.strip(), re.IGNORECASE) for line in needed):
        # Old setuptools asks for wheel dynamically, which cannot be known without running the project.
        needed.append("wheel")
    return fetch.collect(sorted(set(filter(_applies, needed))), offline=offline)


def _applies(line: str) -> bool:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        marker = Requirement(line).marker
        return marker is None or marker.evaluate({"extra": ""})
    except InvalidRequirement:
        raise TargetError(
            f"it requires {line[:200]!r}, which is not a requirement", advice="Repair its metadata."
        ) from None


def _pip_name() -> str:
    home = fetch.pip_home()
    return f"{home.name}/pip" if home.suffix == ".whl" else "pip"


def _program(name: str) -> str:
    return shutil.which(name) or ""
