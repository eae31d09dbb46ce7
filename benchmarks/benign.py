"""False alarms: popular packages, imported and called once each in a world, must never be forbidden.

Run by ``make bench`` or by hand::

    python benchmarks/benign.py                 # all of benign_packages.toml
    python benchmarks/benign.py --only 'num*'   # some
    python benchmarks/benign.py --json out.json

The packages are installed by pip outside the world, wheels only, into a virtual environment kept below the user's
cache directory; what runs in the world is the import and the call. Exit status: 0 no false alarm, 1 at least one, 2 the
packages could not be installed.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aboveboard.contract import Contract
from aboveboard.oracles.process import judge
from aboveboard.world import Limits, World

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LIST = Path(__file__).with_name("benign_packages.toml")


@dataclass(frozen=True)
class Package:
    """A pinned requirement, the call to make, and what its documentation says it runs and reads besides its input."""

    requirement: str
    call: str
    ci: bool = False
    programs: tuple[str, ...] = ()
    read: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.requirement.split("==")[0]


@dataclass(frozen=True)
class Result:
    """What the oracle said of one call."""

    name: str
    status: int
    verdict: str
    effects: tuple[str, ...]
    reasons: tuple[str, ...]
    error: str


def packages() -> list[Package]:
    """The list, in file order."""
    data = tomllib.loads(LIST.read_text("utf-8"))
    lists = ("programs", "read")
    return [Package(**{**entry, **{key: tuple(entry.get(key, ())) for key in lists}}) for entry in data["package"]]


def install(chosen: Sequence[Package], directory: Path) -> str:
    """A virtual environment with the packages; returns its interpreter. Raises ``CalledProcessError``."""
    python = directory / "bin" / "python"
    stamp = directory / "installed"
    wanted = "\n".join(package.requirement for package in chosen)
    if stamp.exists() and stamp.read_text() == wanted:
        return str(python)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--only-binary", ":all:"]
    subprocess.run([*pip, *wanted.split()], check=True, stdout=sys.stderr)
    stamp.write_text(wanted)
    return str(python)


def contract(package: Package) -> Contract:
    """The ordinary contract of a task: read the input, write the output."""
    read, programs = (json.dumps(values) for values in (["input/**", *package.read], list(package.programs)))
    text = f'[contract]\nread = {read}\nwrite = ["output/**"]\nprograms = {programs}\ngrace_seconds = 0.2\n'
    return Contract.load(text.encode())


def check(package: Package, python: str) -> Result:
    """One package in a world of its own."""
    rules = contract(package)
    with tempfile.TemporaryDirectory(prefix="task-") as folder, tempfile.TemporaryDirectory() as record:
        for name in ("input", "output"):
            (Path(folder) / name).mkdir()
        (Path(folder) / "input/data.txt").write_text("name,amount\nleft,12\nright,30\n")
        world = World(evidence=record, workspace=folder, programs=[python], limits=Limits(wall_seconds=60.0))
        with world:
            done = world.run([python, "-c", package.call], timeout=50.0)
            verdict = judge(world.close(), rules)
        return Result(
            name=package.name,
            status=done.returncode,
            verdict=verdict.verdict,
            effects=tuple(f"{e.kind} {e.disposition} {e.subject} ({e.rule})" for e in verdict.effects),
            reasons=tuple(f"{reason.code}: {reason.detail}" for reason in verdict.reasons),
            error=done.stderr.decode(errors="replace")[-300:] if done.returncode else "",
        )


def check_all(chosen: Sequence[Package], python: str, jobs: int = 2) -> Iterator[Result]:
    """Results in list order, ``jobs`` worlds at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda package: check(package, python), chosen)


def default_directory(chosen: Sequence[Package]) -> Path:
    """Below the user's cache, one environment per list and interpreter."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    text = sys.version + "\n".join(package.requirement for package in chosen)
    return base / "aboveboard" / f"benign-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Count false alarms on popular packages.")
    parser.add_argument("--only", default="*", metavar="GLOB", help="only packages whose name matches")
    parser.add_argument("--ci", action="store_true", help="only the part that the test suite runs")
    parser.add_argument("--directory", type=Path, help="where the packages are installed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write all results to this file")
    options = parser.parse_args()
    listed = [package for package in packages() if package.ci or not options.ci]
    chosen = [package for package in listed if fnmatch.fnmatch(package.name.lower(), options.only.lower())]
    try:
        python = install(listed, options.directory or default_directory(listed))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"The packages could not be installed ({error}). Check that pip reaches an index.", file=sys.stderr)
        return 2
    results = []
    for result in check_all(chosen, python, options.jobs):
        results.append(result)
        if result.verdict != "clean" or result.status:
            print(f"{result.name}: {result.verdict}, exit {result.status} {result.error.strip()}")
            for line in (*result.effects, *result.reasons):
                print(f"    {line}")
    counts = Counter(result.verdict for result in results)
    forbidden = counts["forbidden"]
    print(
        f"{len(results)} packages: {counts['clean']} clean, {forbidden} forbidden, "
        f"{counts['indeterminate']} indeterminate; {sum(result.status != 0 for result in results)} calls failed"
    )
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    return 1 if forbidden else 0


if __name__ == "__main__":
    sys.exit(main())
