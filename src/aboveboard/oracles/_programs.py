"""Judges processes: kinds 18-23, 27 and 30 (``docs/reference/effects.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aboveboard.evidence.verdict import ALLOWED, ATTEMPT, EFFECT, FORBIDDEN, NOTED
from aboveboard.oracles import _places as places
from aboveboard.oracles import catalogue
from aboveboard.oracles._files import hit_list
from aboveboard.oracles._findings import attempt_or_effect

if TYPE_CHECKING:
    from aboveboard.evidence.event import Event
    from aboveboard.oracles._findings import Findings
    from aboveboard.oracles._record import Record

#: Limits that a legitimate heavy task may reach too; reaching the others is abuse.
_ABUSE = frozenset({"processes", "disk"})
_RESOURCES = frozenset({"processes", "disk", "wall", "memory", "output", "payload", "scan"})
#: That many processes are worth a word.
_MANY_PROCESSES = 1_000
_MANY_OVERLONG = 100


class _Declared:
    """The programs that commands were started with, and what they are interpreted by."""

    def __init__(self, record: Record) -> None:
        self.programs: set[str] = set()
        self._chain: dict[int, tuple[int, str]] = {}
        self._record = record

    def takes(self, event: Event, path: str) -> bool:
        """Whether an exec is the start of its command: the first one, or what a launcher or a ``#!`` leads to."""
        start = self._chain.get(event.command)
        if start is None:
            self._chain[event.command] = (event.pid, path)
            self._add(event, path)
            return True
        pid, last = start
        if pid != event.pid or not self._leads_on(event, last):
            return False
        self._chain[event.command] = (pid, path)
        self._add(event, path)
        return True

    def _leads_on(self, event: Event, last: str) -> bool:
        if last.rpartition("/")[2] in catalogue.LAUNCHERS and self._record.places.of(last) == places.RUNTIME:
            return True
        # A script with "#!/usr/bin/env python3": the kernel runs env on it, and env the interpreter on the script.
        return self._record.places.of(last) != places.RUNTIME and any(
            argument and last.endswith(argument.lstrip(".")) for argument in event.texts("argv")[1:4]
        )

    def _add(self, event: Event, path: str) -> None:
        self.programs.add(path)
        interpreter = self._record.actual.get(event.number, "")
        if interpreter and self._record.places.of(interpreter) == places.RUNTIME:
            self.programs.add(interpreter)


def judge_programs(record: Record, findings: Findings) -> None:
    """Adds every effect of processes."""
    _execs(record, findings)
    _survivors(record, findings)
    _limits(record, findings)
    _escapes(record, findings)
    _signals(record, findings)


def _execs(record: Record, findings: Findings) -> None:
    declared = _Declared(record)
    look_alikes: set[int] = set()
    for event, before, parent in record.execs:
        path = event.path
        _arguments(record, findings, event)
        if event.result not in ("ok", "passed"):
            if event.result == "denied":
                findings.add(18, FORBIDDEN, path, "no programs pattern names it; refused", (event,), level=ATTEMPT,
                             witnesses=("notify",), detail=_command_line(event))  # fmt: skip
            continue
        if declared.takes(event, path):
            continue
        _exec(record, findings, declared, look_alikes, event, before, parent)
    for actual, asked in record.swapped:
        _swapped(record, findings, declared, actual, asked)


def _swapped(record: Record, findings: Findings, declared: _Declared, actual: Event, asked: Event) -> None:
    """A process that runs another file than its exec named: the interpreter of a ``#!``, or a swap behind our back."""
    path = actual.path
    if path in declared.programs:
        return
    place, changed = record.places.of(path), path in record.changes
    if place == places.RUNTIME and not changed:
        return
    if place == places.CANDIDATE and asked.flag("main"):
        return
    digest = record.digests.get(path, "")
    if record.rules.programs.rule(path, path, digest, original=place != places.CANDIDATE and not changed) is not None:
        return
    made = changed or path.startswith("/memfd:") or path.endswith(" (deleted)") or record.made(path)
    findings.add(19 if made else 18, FORBIDDEN, path, f"runs in place of {asked.path[:200]}, which its exec named",
                 (asked, actual), witnesses=("notify",), detail=_command_line(asked), actor=asked)  # fmt: skip


def _exec(
    record: Record,
    findings: Findings,
    declared: _Declared,
    look_alikes: set[int],
    event: Event,
    before: str,
    parent: int,
) -> None:
    path, asked = event.path, event.text("n")
    fileless = event.flag("fileless") or path.startswith("/memfd:") or path.endswith(" (deleted)")
    change = record.changes.get(path)
    changed = change is not None and change.text("w") in ("created", "modified", "replaced")
    made = fileless or changed or record.made(path)
    digest = event.text("h256").lower() or record.digests.get(path, "")
    place = record.places.of(path)
    original = not made and place not in (places.CANDIDATE, places.RIVAL)
    rule = record.rules.programs.rule(asked, path, digest, original=original)
    line = _command_line(event)

    def add(kind: int, disposition: str, why: str) -> None:
        findings.add(kind, disposition, path, why, (event,) if change is None else (event, change),
                     witnesses=("notify", "overlay") if made and not fileless else ("notify",), detail=line,
                     actor=event)  # fmt: skip

    if rule is not None:
        add(19 if made else 18, ALLOWED, f"contract: programs {rule}")
        return
    if made:
        add(19, FORBIDDEN, "executed without ever being a file" if fileless else "made during the run, then executed")
        if fileless:
            add(20, FORBIDDEN, "code that never was a file")
        elif any(flow.number < event.number and flow.command == event.command for flow in record.flows[:1000]):
            add(20, FORBIDDEN, "made after the network was used, then executed")
        return
    if path in declared.programs and place == places.RUNTIME:
        add(18, NOTED, "the command's own program again")
        return
    if original and place == places.RUNTIME:
        why = _look_alike(declared, look_alikes, path, event, before, parent)
        if why:
            look_alikes.add(event.pid)
            add(18, NOTED, why)
            return
    name = path.rpartition("/")[2]
    if name in catalogue.SCHEDULERS:
        add(21, FORBIDDEN, "arranges for something to run later")
    add(18, FORBIDDEN, "no programs pattern names it")


def _look_alike(declared: _Declared, look_alikes: set[int], path: str, event: Event, before: str, parent: int) -> str:
    """Why a child is one that a standard library starts for a harmless look; empty when it is not."""
    helper = parent in look_alikes or event.pid in look_alikes
    if not helper and before not in declared.programs:
        return ""
    name = path.rpartition("/")[2]
    if helper and (name in catalogue.COMPILER_HELPERS or name.startswith(catalogue.COMPILER_HELPERS_PREFIX)):
        return "a helper of a harmless look-up"
    argv = event.texts("argv")
    arguments = argv[1:]
    asked = {name, event.text("n").rpartition("/")[2]}
    plain = {program.rpartition("-")[0] or program for program in asked} | asked
    plain |= {program.removeprefix("x86_64-linux-gnu-").removeprefix("aarch64-linux-gnu-") for program in plain}
    if asked & catalogue.SHELLS:
        if len(argv) == 3 and argv[1] == "-c" and argv[2].startswith(catalogue.LOOK_ALIKE_SHELL):
            return "a standard library asks the system by the shell"
        # Debian's /sbin/ldconfig is a shell script: sh /sbin/ldconfig -p.
        if len(argv) == 3 and argv[1].endswith("/ldconfig") and argv[2] == "-p":
            return "ctypes.util.find_library asks for the loader cache"
        return ""
    for entry in catalogue.LOOK_ALIKES:
        if plain & entry.programs and all(not text or text.startswith(entry.arguments) for text in arguments):
            return entry.why
    return ""


def _arguments(record: Record, findings: Findings, event: Event) -> None:
    hits = [(canary, enc) for canary, enc, _ in hit_list(event) if not canary.startswith("input:")]
    if not hits and record.values:
        line = "\0".join(event.texts("argv"))
        hits = [(canary, "raw") for canary, value in record.values.items() if value in line]
    hits = [hit for hit in hits if record.variable(hit[0]) not in record.rules.environment]
    if hits:
        findings.add(
            27,
            FORBIDDEN,
            event.path,
            "a planted secret on a command line, where every process can read it",
            (event,),
            level=attempt_or_effect(event.result),
            witnesses=("canary", "notify"),
            canaries=[f"{record.canary_name(canary)}/{enc}" for canary, enc in hits],
        )


def _survivors(record: Record, findings: Findings) -> None:
    for event in record.survivors:
        path = event.text("x") or "?"
        ended = event.command == 0 or event.command in record.statuses
        if ended:
            why, disposition = "still alive after the command had ended and its grace was over", FORBIDDEN
        else:
            why, disposition = "still running when the world was closed", NOTED
        findings.add(21, disposition, path, why, (event,), witnesses=("pidns",), detail=_command_line(event))


def _limits(record: Record, findings: Findings) -> None:
    for event in record.limits:
        what = event.text("what") or "limit"
        detail = event.text("d")
        if what not in _RESOURCES:
            findings.add(30, NOTED, what, "what the observer can take was exceeded", (event,), witnesses=("notify",),
                         detail=detail)  # fmt: skip
            continue
        disposition = FORBIDDEN if what in _ABUSE else NOTED
        findings.add(22, disposition, what, "a resource bound was reached", (event,), witnesses=("notify",),
                     detail=detail)  # fmt: skip
    for event in record.pids:
        if event.integer("allocated") - event.integer("threads") >= _MANY_PROCESSES:
            findings.add(22, NOTED, "processes", f"{event.integer('allocated')} processes and threads", (event,),
                         witnesses=("pidns",))  # fmt: skip
    if record.overlong >= _MANY_OVERLONG:
        findings.add(30, NOTED, "paths", f"{record.overlong} paths longer than the system takes", ())


def _escapes(record: Record, findings: Findings) -> None:
    for event in record.escapes:
        call = event.syscall or event.text("n") or event.text("d") or "?"
        parts = (event.text("abi"), event.text("n"), event.text("d"))
        detail = " ".join(part for part in parts if part and part != call)
        if call in catalogue.HARMLESS_CALLS and not event.text("abi"):
            findings.add(23, NOTED, call, "a run-time library tries it and does without", (event,), level=ATTEMPT,
                         witnesses=("escape",), detail=detail)  # fmt: skip
        else:
            level = EFFECT if event.result in ("ok", "passed") and event.text("r") else ATTEMPT
            findings.add(23, FORBIDDEN, call, "reaches for more privilege or for other processes", (event,),
                         level=level, witnesses=("escape",), detail=detail)  # fmt: skip


def _signals(record: Record, findings: Findings) -> None:
    for event in record.signals:
        signal, target = event.integer("sig"), event.integer("to")
        subject = f"pid {target}"
        if signal in catalogue.HARMLESS_SIGNALS:
            findings.add(30, NOTED, subject, "asks whether a process is there", (event,), level=ATTEMPT,
                         witnesses=("notify",), detail=f"signal {signal}")  # fmt: skip
        else:
            findings.add(30, FORBIDDEN, subject, "a signal to a process that is not its own", (event,),
                         level=attempt_or_effect(event.result), witnesses=("notify",),
                         detail=f"signal {signal}")  # fmt: skip


def _command_line(event: Event) -> str:
    return " ".join(event.texts("argv")[:32])[:400]
