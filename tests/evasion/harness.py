"""Runs a program of the matrix in a world of its own and judges what was recorded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aboveboard.contract import Contract
from aboveboard.evidence import Evidence
from aboveboard.oracles.process import judge
from aboveboard.world import Limits, Mount, World

from .matrix import CARRIERS, Case, Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aboveboard.evidence.verdict import Verdict

DONE, REFUSED, UNKNOWN, ABSENT = 0, 10, 64, 77
PYTHON = os.path.realpath(sys.executable)
TOOLS = "/srv/tool"
"""Where the programs lie inside a world."""

SMALL = Limits(wall_seconds=30.0, processes=96, memory_bytes=512 << 20, disk_bytes=64 << 20, file_bytes=48 << 20)

_STATIC = ("-static", "-O1", "-pthread")
_BARE_32 = (
    *("-m32", "-nostdlib", "-static", "-ffreestanding", "-O1"),
    *("-fno-pic", "-fno-pie", "-no-pie", "-fno-stack-protector", "-fcf-protection=none"),
)


@cache
def _build_directory() -> Path:
    """A directory of compiled programs, made once a session and removed at its end."""
    import atexit

    directory = Path(tempfile.mkdtemp(prefix="evasion-programs-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    directory.chmod(0o755)
    for source in CARRIERS.iterdir():
        if source.suffix in {".py", ".sh", ".js"}:
            shutil.copy(source, directory / source.name)
    return directory


@cache
def compiled(source: str) -> Path | None:
    """The program made of ``carriers/SOURCE``; None where this machine cannot compile it."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    target = _build_directory() / Path(source).stem
    options: Sequence[str] = _BARE_32 if source == "tool32.c" else _STATIC
    made = subprocess.run(
        [compiler, *options, str(CARRIERS / source), "-o", str(target)], capture_output=True, check=False
    )
    return target if made.returncode == 0 else None


def command(case: Case) -> list[str] | None:
    """The argument list of a case inside a world; None where the machine lacks what the carrier needs."""
    tools = _build_directory()
    if case.carrier.name in {"tool", "i386"}:
        program = compiled(case.carrier.source)
        return None if program is None else [f"{TOOLS}/{program.name}", case.row.effect]
    runner = {"plain": PYTHON, "raw": PYTHON, "sh": "/bin/sh", "node": shutil.which("node")}[case.carrier.name]
    return None if runner is None else [runner, f"{TOOLS}/{(tools / case.carrier.source).name}", case.row.effect]


def tools_mount() -> Mount:
    return Mount(str(_build_directory()), TOOLS, "ro")


@contextmanager
def workspace() -> Iterator[Path]:
    """A task folder as the programs expect it, below a plain name: fingerprinting must find nothing to see."""
    base = Path(tempfile.mkdtemp(prefix="report-"))
    try:
        for name in ("input", "output", "private/tree", "elsewhere", "package", "candidates/other", ".git/hooks"):
            (base / name).mkdir(parents=True)
        (base / "input/data.txt").write_text("name,amount\nleft,12\nright,30\n" * 8)
        (base / "output/self.sh").write_text("rm output/self.sh\n: > output/done\n")
        (base / "private/notes.txt").write_text("not part of the task\n" * 8)
        (base / "elsewhere/existing.txt").write_text("somebody else's file\n" * 8)
        (base / "package/own_module.py").write_text("def greet() -> str:\n    return 'hello'\n")
        (base / "candidates/other/impl.py").write_text("def run(data):\n    return data\n")
        Path(os.fsdecode(os.fsencode(base / "private") + b"/\xff\xfe.txt")).write_text("x\n")
        for number in range(40):
            (base / f"private/tree/file{number:02d}.txt").write_text(f"{number}\n")
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)


def contract(row: Row | None = None, *, grace: float = 0.1) -> Contract:
    """The contract of the matrix, `read input/**, write output/**`, with a row's additions."""
    read, write = ["input/**"], ["output/**"]
    if row is not None and row.effect == "twin_import_own_module":
        read.append("package/**")
    lines = ["[contract]", f"read = {_toml(read)}", f"write = {_toml(write)}"]
    if row is not None:
        lines += [f"{key} = {_toml(getattr(row, key))}" for key in ("network", "programs", "metadata")]
        grace = row.wait or grace
    lines.append(f"grace_seconds = {grace}")
    return Contract.load("\n".join(lines).encode())


def _toml(values: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"


@dataclass
class Outcome:
    """What came of one run."""

    verdict: Verdict
    status: int
    stdout: bytes = b""
    stderr: bytes = b""
    events: list[dict[str, object]] = field(default_factory=list)


def run(
    argv: Sequence[str],
    rules: Contract,
    *,
    mode: Literal["observe", "block"] = "observe",
    limits: Limits = SMALL,
    disable: frozenset[str] = frozenset(),
    folder: Path | None = None,
    mounts: Sequence[Mount] = (),
    env: dict[str, str] | None = None,
    timeout: float = 25.0,
) -> Outcome:
    """One command in a fresh world over a fresh workspace (or ``folder``), judged under ``rules``."""
    with tempfile.TemporaryDirectory(prefix="record-") as record, workspace() as fresh:
        world = World(
            evidence=record,
            mode=mode,
            contract=rules if mode == "block" else None,
            workspace=folder or fresh,
            mounts=[tools_mount(), *mounts],
            candidate=[TOOLS],
            env=env,
            limits=limits,
            disable=disable,
            grace_seconds=rules.grace_seconds,
        )
        with world:
            done = world.run(list(argv), timeout=timeout)
            evidence = world.close()
        return Outcome(
            verdict=judge(evidence, rules),
            status=done.returncode,
            stdout=done.stdout,
            stderr=done.stderr,
            events=raw_events(record),
        )


def raw_events(record: str | Path) -> list[dict[str, object]]:
    """The lines of a record as they are, independent of the package's own reader."""
    import json

    with open(Path(record) / "events.jsonl", "rb") as file:
        return [json.loads(line) for line in file]


def complaint(row: Row, outcome: Outcome) -> str:
    """Why an outcome is not what the row demands; empty when it is."""
    verdict = outcome.verdict
    shown = [(e.kind, e.disposition, e.level, e.subject[-60:]) for e in verdict.effects]
    told = f"verdict {verdict.verdict}, reasons {[(r.code, r.detail) for r in verdict.reasons]}, effects {shown}"
    if row.twin:
        return "" if verdict.verdict == "clean" else f"benign twin is not clean: {told}"
    if row.refused and outcome.status == REFUSED:
        told_of = any(event["e"] == row.refused for event in outcome.events)
        return "" if told_of else f"refused, and no {row.refused} event tells of it"
    wanted = {
        "forbidden": {"forbidden"},
        "noted": {"noted", "allowed"},
        "recorded": {"forbidden", "noted", "allowed"},
    }[row.found]
    matching = [
        effect
        for effect in verdict.effects
        if effect.kind in row.kinds and effect.disposition in wanted and row.subject in effect.subject + effect.detail
    ]
    if not matching:
        return f"no effect of kind {row.kinds} about {row.subject!r}, {sorted(wanted)}: {told}"
    if row.found == "forbidden" and verdict.verdict != "forbidden":
        return f"not forbidden: {told}"
    if row.found == "noted" and verdict.verdict != "clean":
        return f"noted, but not clean: {told}"
    if row.found == "recorded" and verdict.verdict == "clean":
        return f"a bound was hit, yet clean: {told}"
    return ""


__all__ = [
    "ABSENT", "DONE", "PYTHON", "REFUSED", "SMALL", "TOOLS", "Evidence", "Outcome", "command", "compiled", "complaint",
    "contract", "raw_events", "run", "tools_mount", "workspace",
]  # fmt: skip
