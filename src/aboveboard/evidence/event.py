"""One line of an event log, parsed so that no content of it can surprise the code that reads it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Type given to a line that is no event: not JSON, not an object, or common fields of the wrong type.
INVALID = "invalid"

_EMPTY: Mapping[str, object] = {}
_decode = json.JSONDecoder().raw_decode


class Event:
    """One observed fact. Immutable; ``data`` holds every field as it was logged, common fields checked.

    The accessors below answer with an empty value where a field is absent or of another type than asked for: the log
    may hold whatever a hostile program managed to have written into it.
    """

    __slots__ = ("data", "type")

    type: str
    data: Mapping[str, object]

    def __init__(self, kind: str, data: Mapping[str, object]) -> None:
        _set_type(self, kind)
        _set_data(self, data)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Event is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("Event is immutable")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self.type == other.type and self.data == other.data

    def __hash__(self) -> int:
        return hash((self.type, self.number))

    def __repr__(self) -> str:
        return f"Event({self.type!r}, {ascii(dict(self.data))[:200]})"

    @property
    def number(self) -> int:
        """Sequence number, from 0; -1 for an invalid line."""
        return self.integer("i", -1)

    @property
    def time(self) -> float:
        """Seconds since the world started."""
        value = self.data.get("t")
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0

    @property
    def pid(self) -> int:
        """Process (host view) that caused it; 0 for the supervisor."""
        return self.integer("p")

    @property
    def command(self) -> int:
        """Number of the command in this world; 0 for the world itself."""
        return self.integer("c")

    @property
    def phase(self) -> str:
        """``install``, ``import``, ``call``, ``exit`` or ``post``: a label the candidate's driver set, no proof."""
        return self.text("f") or "call"

    @property
    def syscall(self) -> str:
        """Name of the system call, or empty."""
        return self.text("s")

    @property
    def result(self) -> str:
        """``ok``, an errno name, ``denied`` (by us) or ``passed`` (not observed)."""
        return self.text("r") or "ok"

    @property
    def path(self) -> str:
        """Resolved path, or the requested one where both are the same."""
        return self.text("x") or self.text("n")

    def text(self, key: str) -> str:
        value = self.data.get(key)
        return value if isinstance(value, str) else ""

    def integer(self, key: str, default: int = 0) -> int:
        value = self.data.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def flag(self, key: str) -> bool:
        return self.data.get(key) is True

    def mapping(self, key: str) -> Mapping[str, object]:
        value = self.data.get(key)
        return value if isinstance(value, dict) else _EMPTY

    def mappings(self, key: str) -> tuple[Mapping[str, object], ...]:
        """The objects in a list; anything else in it is left out."""
        value = self.data.get(key)
        return tuple(item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()

    def texts(self, key: str) -> tuple[str, ...]:
        """The strings in a list; anything else in it is left out."""
        value = self.data.get(key)
        return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


# Event forbids assignment; the slots' own descriptors are the quickest way past that, for the constructor only.
_set_type = Event.__dict__["type"].__set__
_set_data = Event.__dict__["data"].__set__


def parse_event(line: bytes) -> Event:
    """Parses one line, with or without newline. Never raises: what is no event becomes one of type ``invalid``."""
    try:
        text = line.decode("utf-8", "surrogateescape")
        data, end = _decode(text)
    except (ValueError, RecursionError):
        return Event(INVALID, {"detail": "not JSON"})
    if type(data) is not dict or text[end:].strip():
        return Event(INVALID, {"detail": "not a JSON object"})
    get = data.get
    kind = get("e")
    if (
        type(kind) is not str
        or type(get("i")) is not int
        or type(get("p", 0)) is not int
        or type(get("c", 0)) is not int
        or type(get("r", "")) is not str
        or type(get("s", "")) is not str
        or type(get("f", "")) is not str
        or type(get("t", 0)) not in (int, float)
    ):
        return Event(INVALID, {"detail": "common fields missing or of the wrong type"})
    return Event(kind, data)
