"""The event log: append-only, hash-chained, one ``write(2)`` an event before the caller is released.

The page cache keeps what was written when the writer is killed, so the log is whole up to the last event. The format is
documented in ``docs/reference/evidence.md``.
"""

from __future__ import annotations

import codecs
import os
import time
from _json import encode_basestring_ascii as quote
from typing import Any

from ..evidence.chain import GENESIS, seal

_LIMIT = 4096


def _escape(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return quote(error.object[error.start : error.end])[1:-1], error.end


# Fragments are ASCII already; one that is not must not break the line it stands in.
codecs.register_error("aboveboard.json", _escape)


def text(value: bytes | str) -> str:
    """A JSON string literal for bytes or text from outside: escaped, cut at 4,096 characters."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if len(value) > _LIMIT:
        value = value[:_LIMIT] + "…"
    return quote(value)


def encode(value: object) -> str:
    """JSON for the plain data of an event (dict, list, str, bytes, int, float, bool, None)."""
    if isinstance(value, (str, bytes)):
        return text(value)
    if value is True or value is False or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        shown = f"{value:.6f}"
        return shown.rstrip("0").rstrip(".") if shown[-1].isdigit() else "null"  # JSON has no nan and no inf
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{text(str(k))}:{encode(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return "[" + ",".join(encode(v) for v in value) + "]"
    return text(str(value))


class Log:
    """Writer of one world's events.

    ``add`` takes the fields of an event as a prepared JSON fragment, since it stands between a candidate and the
    answer to its system call; ``record`` takes a mapping.
    """

    def __init__(self, fd: int, limit: int) -> None:
        self.fd = fd
        self.count = 0
        self.size = 0
        self.limit = limit
        self.counts: dict[str, int] = {}
        self.head = GENESIS
        self.lost = 0
        self._start = time.monotonic()
        self.phases: dict[int, str] = {}
        self._labels: dict[int, str] = {}
        self.proved: list[tuple[str, str]] = []

    def add(self, kind: str, pid: int, command: int, fields: str = "") -> int:
        """Append one event; returns its number. ``fields`` starts with a comma or is empty."""
        if command < 0:  # the process that proves the witnesses
            self.proved.append((kind, fields))
            return -1
        number = self.count
        phase = self.phases.get(command)
        line = (
            f'{{"i":{number},"t":{time.monotonic() - self._start:.6f},"e":"{kind}","p":{pid},"c":{command}'
            f"{phase or ''}{fields}"
        ).encode("ascii", "aboveboard.json")
        line, self.head = seal(self.head, line)
        try:
            if os.write(self.fd, line) != len(line):
                self.lost += 1
        except OSError:
            self.lost += 1  # disk full: the verdict becomes indeterminate
        self.count = number + 1
        self.size += len(line)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return number

    def record(self, event: dict[str, Any], command: int = 0) -> int:
        """Append one event given as a mapping with ``e`` (and optionally ``p``, ``c``)."""
        event = dict(event)
        kind, pid, command = str(event.pop("e")), event.pop("p", 0), event.pop("c", command)
        fields = "".join(f",{text(k)}:{encode(v)}" for k, v in event.items())
        return self.add(kind, int(pid), int(command), fields)

    def cause(self, pid: int, command: int) -> dict[str, object]:
        """The common fields of an event that ``pid`` will have caused: process, command, current phase."""
        phase = self._labels.get(command)
        return {"p": pid, "c": command} | ({"f": phase} if phase else {})

    def set_phase(self, command: int, phase: str) -> None:
        """Label the events of ``command`` from now on; ``call`` is the default and not written."""
        if phase in ("", "call"):
            self.phases.pop(command, None)
            self._labels.pop(command, None)
        else:
            self._labels[command] = phase[:32]
            self.phases[command] = f',"f":{text(phase[:32])}'
