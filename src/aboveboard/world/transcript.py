"""The bytes of one direction of one flow, however many there are: counted, hashed, searched, the first part stored.

Length and digest are always of the whole. What is stored is bounded by :class:`Payloads`, which all transcripts of a
world share.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Event", "Hit", "Payloads", "Scanner", "Transcript"]

Event = dict[str, object]

_HEAD = 256
_MOST_FILES = 10_000


class Hit(Protocol):
    """A canary that was found."""

    def to_dict(self) -> dict[str, str]:
        """The form it has in an event: ``id``, ``enc``."""


class Scanner(Protocol):
    """Searches one stream for canaries, encoded or not, however the stream is cut
    (:class:`aboveboard.evidence.canary.StreamScanner`)."""

    def feed(self, data: bytes) -> object:
        """Take the next bytes."""

    def close(self) -> Iterable[Hit]:
        """The hits of the whole stream."""


class Payloads:
    """The payload files of a world: ``NNN-proto.bin`` in one directory, bounded in number and in bytes."""

    def __init__(self, directory: int, total: int, each: int, limit: Callable[[str, str], None]) -> None:
        self._directory = directory
        self._left = total
        self._each = each
        self._limit = limit
        self._count = 0

    def create(self, kind: str) -> tuple[str, int] | None:
        """A new file's name and descriptor; None when there may be no more."""
        if self._left <= 0 or self._count >= _MOST_FILES:
            self._limit("payload", "no more payload files are written; lengths, digests and canary scans go on")
            return None
        self._count += 1
        name = f"{self._count:03d}-{kind}.bin"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            return name, os.open(name, flags, 0o600, dir_fd=self._directory)
        except OSError as error:
            self._limit("payload", f"payloads/{name} cannot be created: {error.strerror}")
            return None

    def write(self, name: str, fd: int, data: bytes, already: int) -> int:
        """Write as much of ``data`` as the bounds allow; return how much that was."""
        room = min(self._left, self._each - already, len(data))
        if room < len(data):
            self._limit("payload", f"payloads/{name} is cut; length, digest and canary scan are of the whole")
        try:
            written = os.write(fd, memoryview(data)[:room]) if room > 0 else 0
        except OSError as error:
            self._limit("payload", f"payloads/{name}: {error.strerror}")
            self._left = 0
            return 0
        self._left -= written
        return written


class Transcript:
    """All bytes of one direction of one flow: counted, hashed, searched, the first part stored."""

    def __init__(self, kind: str, payloads: Payloads | None, scanner: Callable[[], Scanner] | None) -> None:
        self.length = 0
        self._kind = kind
        self._payloads = payloads
        self._make_scanner = scanner
        self._digest = hashlib.sha256()
        self._head = b""
        self._file: tuple[str, int] | None = None
        self._written = 0
        self._full = False
        self._main: Scanner | None = None
        self._view: Scanner | None = None

    def keep(self, data: bytes) -> None:
        """Take the next bytes of the flow."""
        if not data:
            return
        if not self.length and self._make_scanner is not None:
            self._main = self._make_scanner()
        self.length += len(data)
        self._digest.update(data)
        if len(self._head) < _HEAD:
            self._head += data[: _HEAD - len(self._head)]
        if self._main is not None:
            self._main.feed(data)
        if self._full or self._payloads is None:
            return
        if self._file is None:
            self._file = self._payloads.create(self._kind)
        if self._file is None:
            self._full = True
            return
        written = self._payloads.write(*self._file, data, self._written)
        self._written += written
        self._full = written < len(data)

    def scan(self, data: bytes) -> None:
        """Search bytes that are another view of the flow, without counting or storing them."""
        if self._make_scanner is None:
            return
        if self._view is None:
            self._view = self._make_scanner()
        self._view.feed(data)

    def close(self) -> Event:
        """The fields of a ``flow`` event that tell what was received."""
        fields: Event = {
            "len": self.length,
            "sha256": self._digest.hexdigest(),
            "head": self._head.decode("utf-8", "surrogateescape"),
        }
        if self._file is not None:
            fields["file"] = f"payloads/{self._file[0]}"
            os.close(self._file[1])
            self._file = None
            self._full = True
        hits = []
        for scanner in (self._main, self._view):
            hits += [hit.to_dict() for hit in scanner.close()] if scanner is not None else []
        if hits:
            fields["canaries"] = [hit for at, hit in enumerate(hits) if hit not in hits[:at]]
        self._main = self._view = None
        return fields
