"""A run condensed for reading: the tree of processes, files by class, what was sent. Pure, one pass, bounded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aboveboard.vet.payloads import Payload, payload_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aboveboard.evidence import Event, Evidence

MAX_PROCESSES = 500
MAX_PATHS = 2_000
"""Distinct paths kept per class of files."""
MAX_FLOWS = 200
MAX_REFUSALS = 100

RUNTIME = "runtime"
"""Class of files that every program of its kind opens; counted, not listed."""


@dataclass(slots=True)
class Process:
    """One process as a line of the tree."""

    pid: int
    parent: int
    command: int
    argv: tuple[str, ...] = ()
    programs: list[str] = field(default_factory=list)
    """Executables it became, in order."""
    status: int | None = None
    """Exit code or minus the signal; only known of a command's main process."""
    survived: bool = False
    children: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Files:
    """Paths of one class and what was done to them."""

    read: dict[str, int] = field(default_factory=dict)
    """Times opened for reading, by path."""
    failed: int = 0
    """Opens that failed: probing is not reading."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One world, condensed."""

    tier: str
    mode: str
    events: int
    seconds: float
    processes: Mapping[int, Process]
    roots: Sequence[int]
    """Processes without a parent in the tree, in order of appearance."""
    files: Mapping[str, Files]
    """By class name of the record's ``roots``; ``other`` for what lies in none."""
    decoys: Sequence[str]
    """Planted paths that were opened."""
    changes: Sequence[tuple[str, str, int]]
    """(what, path, size in bytes) of what was different afterwards."""
    flows: Sequence[Payload]
    names: Sequence[str]
    """DNS names asked for."""
    refusals: Mapping[str, int]
    """Refused calls and how often."""
    limits: Sequence[str]
    cut: bool
    """Some of it was left out to keep this bounded."""


def summarise(evidence: Evidence) -> Summary:
    """Condense one record. Hostile records cost time linear in their size and bounded memory."""
    return _Summariser(evidence).run()


class _Summariser:
    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._processes: dict[int, Process] = {}
        self._files: dict[str, Files] = {}
        self._decoys: dict[str, None] = {}
        self._changes: list[tuple[str, str, int]] = []
        self._flows: list[Payload] = []
        self._names: dict[str, None] = {}
        self._refusals: dict[str, int] = {}
        self._limits: list[str] = []
        self._cut = False
        header = evidence.header
        roots = header.mapping("roots")
        pairs = [
            (path.rstrip("/"), name)
            for name, paths in roots.items()
            if isinstance(paths, list)
            for path in paths
            if isinstance(path, str)
        ]
        # The longest root wins: a site-packages inside a prefix is its own class.
        self._roots = sorted(pairs, key=lambda pair: -len(pair[0]))
        self._planted = {decoy.get("path") for decoy in header.mappings("decoys")}
        self._commands: dict[int, tuple[str, ...]] = {}
        self._mains: dict[int, int] = {}

    def run(self) -> Summary:
        count = 0
        last = 0.0
        for event in self._evidence.events():
            count += 1
            last = max(last, event.time)
            handler = getattr(self, f"_on_{event.type}", None) if event.type.isalpha() else None
            if handler is not None:
                handler(event)
        return Summary(
            tier=self._evidence.header.text("tier"),
            mode=self._evidence.header.text("mode"),
            events=count,
            seconds=last,
            processes=self._processes,
            roots=self._tree(),
            files=self._files,
            decoys=tuple(self._decoys),
            changes=tuple(self._changes),
            flows=tuple(self._flows),
            names=tuple(self._names),
            refusals=self._refusals,
            limits=tuple(dict.fromkeys(self._limits)),
            cut=self._cut,
        )

    def _tree(self) -> tuple[int, ...]:
        roots = []
        for pid, process in self._processes.items():
            parent = self._processes.get(process.parent)
            if parent is None or process.parent == pid:
                roots.append(pid)
            else:
                parent.children.append(pid)
        return tuple(roots)

    def _process(self, event: Event) -> Process | None:
        if not event.pid:
            return None
        process = self._processes.get(event.pid)
        if process is None:
            if len(self._processes) >= MAX_PROCESSES:
                self._cut = True
                return None
            process = self._processes[event.pid] = Process(event.pid, 0, event.command)
        return process

    def _on_command(self, event: Event) -> None:
        self._commands[event.command] = event.texts("argv")

    def _on_proc(self, event: Event) -> None:
        process = self._process(event)
        if process is not None:
            process.parent = event.integer("pp")
            self._mains.setdefault(event.command, event.pid)
            if event.path and not process.programs:
                process.programs.append(event.path)

    def _on_exec(self, event: Event) -> None:
        if event.result not in ("ok", "passed"):
            return
        process = self._process(event)
        if process is not None:
            if not process.programs or process.programs[-1] != event.path:
                process.programs.append(event.path)
            process.argv = event.texts("argv")

    def _on_status(self, event: Event) -> None:
        main = self._processes.get(self._mains.get(event.command, -1))
        if main is not None:
            main.status = event.integer("code")

    def _on_survivor(self, event: Event) -> None:
        process = self._process(event)
        if process is not None:
            process.survived = True

    def _on_open(self, event: Event) -> None:
        path = event.path
        files = self._files.setdefault(self._class_of(path), Files())
        if event.result != "ok":
            files.failed += 1
            return
        if path in self._planted:
            self._decoys.setdefault(path)
        access = event.text("a")
        if "r" in access and "d" not in access and not event.text("k"):
            if path not in files.read and len(files.read) >= MAX_PATHS:
                self._cut = True
                return
            files.read[path] = files.read.get(path, 0) + 1

    def _on_change(self, event: Event) -> None:
        if len(self._changes) >= MAX_PATHS:
            self._cut = True
            return
        self._changes.append((event.text("w"), event.path, event.integer("size")))

    def _on_flow(self, event: Event) -> None:
        if event.text("proto") == "dns":
            name = event.mapping("dns").get("name")
            if isinstance(name, str) and len(self._names) < MAX_FLOWS:
                self._names.setdefault(name)
            return
        if len(self._flows) >= MAX_FLOWS:
            self._cut = True
            return
        self._flows.append(payload_of(event, self._evidence))

    def _on_escape(self, event: Event) -> None:
        name = event.syscall or event.text("n") or "call"
        if name in self._refusals or len(self._refusals) < MAX_REFUSALS:
            self._refusals[name] = self._refusals.get(name, 0) + 1

    def _on_limit(self, event: Event) -> None:
        if len(self._limits) < MAX_REFUSALS:
            self._limits.append(f"{event.text('what')} {event.text('d')}".strip())

    def _class_of(self, path: str) -> str:
        for root, name in self._roots:
            if path == root or path.startswith(f"{root}/"):
                return name
        return "other"
