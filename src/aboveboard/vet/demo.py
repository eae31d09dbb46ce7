"""The demonstration: three real Markdown packages, one document, one planted probe.

The packages come from the index at pinned digests. One of them is rebuilt with a probe the way a taken-over release
would carry it: not in the module that a user imports but in one that this module imports, and looking like
telemetry. All three return the same HTML; only watching what they do tells them apart.

The slice (Markdown 3.8.2, markdown2 2.5.4, mistune 3.1.3) is the Markdown part of SINGED's public-package study.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aboveboard.errors import EnvironmentProblem
from aboveboard.vet import archives, fetch, targets
from aboveboard.vet.session import Progress, vet

if TYPE_CHECKING:
    from collections.abc import Callable

    from aboveboard.vet.results import VetReport

DATA = Path(__file__).parent / "demo_data"
DOCUMENT = DATA / "minutes.md"

CONTRACT = """\
[contract]
read    = ["input/**"]
write   = ["output/**"]
network = []
"""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A release and the digest of its wheel on PyPI."""

    name: str
    version: str
    sha256: str


PACKAGES = (
    Pinned("markdown", "3.8.2", "5c83764dbd4e00bdd94d85a19b8d55ccca20fe35b2e678a1422b380324dd5f24"),
    Pinned("markdown2", "2.5.4", "3c4b2934e677be7fec0e6f2de4410e116681f4ad50ec8e5ba7557be506d3f439"),
    Pinned("mistune", "3.1.3", "1a32314113cff28aa6432e99e522677c8587fd83e3d51c29b82a52409c842bd9"),
)
CARRIER = "mistune"
"""The package that gets the probe."""

# Where a probe hides well: mistune/__init__.py imports .core, and .core the new module; every document passes here.
_HOST_MODULE = "mistune/core.py"
_PROBE_MODULE = "mistune/_usage.py"
_CALL = "        if self.parent is None:\n            _usage.note(src)\n"
_EDITS = (
    ('_LINE_END = re.compile(r"\\n|$")\n', 'from . import _usage\n\n_LINE_END = re.compile(r"\\n|$")\n'),
    ("        self.src = src\n        self.cursor_max", _CALL + "        self.src = src\n        self.cursor_max"),
)


def demo(
    *, offline: bool = False, evidence: Path | None = None, progress: Callable[[Progress], None] | None = None
) -> VetReport:
    """Fetch the packages, plant the probe in one, vet the three on the shipped document.

    Raises EnvironmentProblem when the packages are not cached and the index cannot be reached.
    """
    requirements = [f"{package.name}=={package.version}" for package in PACKAGES]
    pins = {package.name: package.sha256 for package in PACKAGES}
    try:
        files = {package.name: package for package in fetch.collect(requirements, offline=offline, pins=pins)}
    except EnvironmentProblem as problem:
        raise EnvironmentProblem(
            f"the demonstration needs three packages from the index: {problem.message}",
            advice="Connect once; afterwards it runs from the cache. " + problem.advice,
        ) from None
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        chosen = []
        for package in PACKAGES:
            path = files[package.name].path
            if package.name == CARRIER:
                path = plant(path, Path(folder))
            target = targets.recognise(str(path))
            chosen.append(
                replace(target, given=f"{package.name}=={package.version}", label=f"{package.name} {package.version}")
            )
        contract = Path(folder, "contract.toml")
        contract.write_text(CONTRACT)
        return vet(
            chosen,
            contract=contract,
            inputs=[DOCUMENT],
            adapter=DATA / "adapter.py",
            output="minutes.html",
            evidence=evidence,
            offline=offline,
            progress=progress,
        )


def plant(wheel: Path, folder: Path) -> Path:
    """A copy of the wheel with the probe in a transitive import and a RECORD that agrees with it (PEP 427)."""
    target = folder / wheel.name
    with archives.open_zip(wheel) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        changed = {_PROBE_MODULE: (DATA / "usage.py.txt").read_bytes()}
        text = source.read(_HOST_MODULE).decode()
        for before, after in _EDITS:
            if text.count(before) != 1:
                raise EnvironmentProblem(f"{wheel.name} is not the release that the demonstration expects")
            text = text.replace(before, after)
        changed[_HOST_MODULE] = text.encode()
        for entry in source.infolist():
            if entry.filename.endswith(".dist-info/RECORD"):
                lines = [
                    line for line in source.read(entry).decode().splitlines() if line.partition(",")[0] not in changed
                ]
                lines += [_record_line(name, data) for name, data in sorted(changed.items())]
                out.writestr(entry, "\n".join(lines) + "\n")
            elif entry.filename not in changed:
                out.writestr(entry, source.read(entry))
        for name, data in changed.items():
            out.writestr(name, data)
    return target


def _record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"
