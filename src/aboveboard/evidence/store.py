"""Evidence on disk: one folder a world, read lazily and without trust in a single byte of it."""

from __future__ import annotations

import io
import os
from typing import IO, TYPE_CHECKING

from aboveboard.errors import EvidenceError
from aboveboard.evidence.chain import GENESIS, ChainReport, chain_hash, unseal
from aboveboard.evidence.event import INVALID, Event, parse_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

EVENTS = "events.jsonl"
PAYLOADS = "payloads"
CONTENT = "content"

#: No line a supervisor writes comes near this; a longer one is skipped without being held in memory.
MAX_LINE_BYTES = 8 << 20


class EventStream:
    """Iterates over the events of a log once and follows the hash chain on the way.

    ``report()`` tells what the chain has shown so far; it is final when the iteration is exhausted.
    """

    def __init__(self, source: Callable[[], IO[bytes]]) -> None:
        self._source = source
        self._head = GENESIS
        self._events = 0
        self._lines = 0
        self._bad: int | None = None
        self._complete = False
        self._torn = False

    def __iter__(self) -> Iterator[Event]:
        with self._source() as file:
            yield from self._events_of(file)

    def _events_of(self, file: IO[bytes]) -> Iterator[Event]:
        read = file.readline
        while line := read(MAX_LINE_BYTES):
            self._lines += 1
            if not line.endswith(b"\n"):
                if len(line) < MAX_LINE_BYTES:
                    # The end of the file, half-way through a line: not an event, and not tampering either.
                    self._torn = True
                    self._complete = False
                    return
                _skip_line(file)
                self._break()
                yield Event(INVALID, {"detail": f"line longer than {MAX_LINE_BYTES} bytes"})
                continue
            line = line[:-1]
            event = parse_event(line)
            sealed = unseal(line)
            if self._bad is None:
                in_order = event.data.get("i") == self._events
                if in_order and sealed is not None and sealed[1] == chain_hash(self._head, sealed[0]):
                    self._head = sealed[1]
                    self._events += 1
                else:
                    self._break()
            self._complete = event.type == "end" and self._bad is None
            yield event

    def report(self) -> ChainReport:
        return ChainReport(
            ok=self._bad is None and self._events > 0,
            events=self._events,
            head=self._head.decode("ascii"),
            first_bad_line=self._bad,
            complete=self._complete,
            torn=self._torn,
        )

    def _break(self) -> None:
        if self._bad is None:
            self._bad = self._lines
        self._complete = False


def _skip_line(file: IO[bytes]) -> None:
    while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
        pass


class Evidence:
    """The record of one world: a folder, or in tests and receipts the lines of its log.

    Nothing is read until it is asked for. Every call of ``events`` or ``stream`` reads the log anew, so a log of two
    million events needs no memory to speak of.

    Raises
    ------
    EvidenceError
        The folder has no event log, or it cannot be read.
    """

    def __init__(self, path: Path | str) -> None:
        self._opened(os.fspath(path))

    def _opened(self, folder: str) -> None:
        self.folder: str | None = folder
        log = os.path.join(folder, EVENTS)
        if not os.path.isfile(log):
            raise EvidenceError(f"{folder} holds no evidence: there is no {EVENTS}; name the folder given to --out")
        self._open: Callable[[], IO[bytes]] = lambda: _open_log(log)
        self._header: Event | None = None

    @classmethod
    def from_bytes(cls, log: bytes) -> Evidence:
        """Evidence whose log is already in memory; it has no payloads."""
        evidence = cls.__new__(cls)
        evidence.folder = None
        evidence._open = lambda: io.BytesIO(log)
        evidence._header = None
        return evidence

    @classmethod
    def from_events(cls, events: Iterable[Mapping[str, object]]) -> Evidence:
        """Evidence made of event objects: numbers them where they carry no ``i`` and seals each line."""
        import json

        from aboveboard.evidence.chain import seal

        head = GENESIS
        lines: list[bytes] = []
        for number, fields in enumerate(events):
            body = json.dumps({"i": number, "t": number / 1000, **fields}, separators=(",", ":")).encode("ascii")
            line, head = seal(head, body[:-1])
            lines.append(line)
        return cls.from_bytes(b"".join(lines))

    def stream(self) -> EventStream:
        """A fresh pass over the log that checks the chain while the events go by."""
        return EventStream(self._open)

    def events(self) -> Iterator[Event]:
        """Every event in order; a line that is no event comes as one of type ``invalid``."""
        yield from self.stream()

    @property
    def header(self) -> Event:
        """The ``world`` event, or an empty one when the log does not start with it."""
        if self._header is None:
            first = next(iter(self.stream()), None)
            self._header = first if first is not None and first.type == "world" else Event("world", {})
        return self._header

    def verify_chain(self) -> ChainReport:
        """Follows the hash chain from the first to the last line."""
        stream = self.stream()
        for _ in stream:
            pass
        return stream.report()

    def payload(self, name: str, limit: int = 1 << 20) -> bytes:
        """The first ``limit`` bytes of a transcript named by a ``flow`` event's ``file``.

        Raises
        ------
        EvidenceError
            ``name`` is not the bare name of a regular file in ``payloads/``.
        """
        return self._member(PAYLOADS, name, limit)

    def content(self, digest: str, limit: int = 1 << 20) -> bytes:
        """The first ``limit`` bytes of a kept copy of a changed file, by its lower-case hex SHA-256.

        Raises
        ------
        EvidenceError
            No such copy was kept.
        """
        return self._member(CONTENT, digest, limit)

    def _member(self, part: str, name: str, limit: int) -> bytes:
        if part == PAYLOADS:
            # The log names transcripts with or without their folder.
            name = name.removeprefix(f"{PAYLOADS}/")
        if self.folder is None or not name or "/" in name or "\0" in name or name in (".", ".."):
            raise EvidenceError(f"evidence has no {part}/{name!a}")
        try:
            # A log is untrusted: it must not name a link or a pipe into the reader's own files.
            descriptor = os.open(os.path.join(self.folder, part, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise EvidenceError(f"evidence has no {part}/{name!a}: {error.strerror}") from error
        with open(descriptor, "rb") as file:
            import stat

            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise EvidenceError(f"evidence {part}/{name!a} is not a regular file")
            return file.read(limit)


def _open_log(path: str) -> IO[bytes]:
    try:
        return open(path, "rb", buffering=1 << 18)
    except OSError as error:
        raise EvidenceError(f"cannot read {path}: {error.strerror}; check that you may read it") from error
