"""The evasion matrix as frozen data: rows of ``matrix.toml`` crossed with what the carriers express."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
CARRIERS = HERE / "carriers"


@dataclass(frozen=True)
class Carrier:
    """A way to write a program: its source file and how an effect is declared in it."""

    name: str
    title: str
    source: str
    declaration: str


ALL_CARRIERS = (
    Carrier("plain", "Python", "plain.py", r"^@effect\ndef (\w+)\("),
    Carrier("raw", "ctypes", "raw.py", r"^@effect\ndef (\w+)\("),
    Carrier("tool", "static C", "tool.c", r"^EFFECT\((\w+)\)"),
    Carrier(
        "sh",
        "shell",
        "tool.sh",
        r"^((?:read|env|write|persist|tamper|delete|meta|exec|life|net|escape|twin)_\w+)\(\) \{",
    ),
    Carrier("node", "Node", "tool.js", r"^  (\w+_\w+): \("),
    Carrier("i386", "i386", "tool32.c", r"^EFFECT\((\w+)\)"),
)


@dataclass(frozen=True)
class Row:
    """One effect, the trick that hides it, and what must be found (fields: see ``matrix.toml``)."""

    effect: str
    kinds: tuple[int, ...]
    trick: str
    group: str
    twin: bool = False
    found: str = "forbidden"
    subject: str = ""
    network: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    refused: str = ""
    wait: float = 0.0


@dataclass(frozen=True)
class Case:
    """One row in one carrier."""

    row: Row
    carrier: Carrier

    @property
    def id(self) -> str:
        return f"{self.carrier.name}-{self.row.effect}"


@cache
def _data() -> dict[str, object]:
    return tomllib.loads((HERE / "matrix.toml").read_text("utf-8"))


@cache
def rows() -> tuple[Row, ...]:
    found = []
    for group in _data()["group"]:  # type: ignore[attr-defined]
        for raw in group["rows"]:
            fields: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()
            }
            found.append(Row(group=group["name"], twin=group.get("twin", False), **fields))
    return tuple(found)


@cache
def expressed(carrier: Carrier) -> frozenset[str]:
    """The effects that a carrier's source declares."""
    return frozenset(re.findall(carrier.declaration, (CARRIERS / carrier.source).read_text("utf-8"), re.MULTILINE))


def absence(carrier: Carrier, effect: str) -> str | None:
    """Why a carrier does not express an effect, or None when no reason is written down."""
    reasons: dict[str, list[str]] = _data()["absent"].get(carrier.name, {})  # type: ignore[attr-defined]
    for reason, patterns in reasons.items():
        if any(fnmatch.fnmatchcase(effect, pattern) for pattern in patterns):
            return reason
    return None


def cases() -> Iterator[Case]:
    """Every row in every carrier that expresses it."""
    for row in rows():
        for carrier in ALL_CARRIERS:
            if row.effect in expressed(carrier):
                yield Case(row, carrier)
