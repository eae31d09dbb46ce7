"""What a record means: effects, the assurance of the observation, the verdict (``docs/reference/json-output.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Version of the JSON form. It changes when a field changes its meaning or goes, not when one is added.
FORMAT = 1

CLEAN = "clean"
FORBIDDEN = "forbidden"
INDETERMINATE = "indeterminate"

ALLOWED = "allowed"
NOTED = "noted"

ATTEMPT = "attempt"
EFFECT = "effect"

COMPLETE = "complete"
PARTIAL = "partial"
ABSENT = "absent"


class Effect(NamedTuple):
    """One thing that happened, or was tried, and what the contract says to it.

    Attributes
    ----------
    kind, name
        Number 1-30 and name in the catalogue (``docs/reference/effects.md``).
    disposition
        ``forbidden``, ``allowed`` (the contract names it) or ``noted`` (worth knowing, no breach).
    level
        ``effect``, or ``attempt`` when it was refused or failed.
    subject
        The path, destination, program or name it is about.
    rule
        Why the disposition is what it is; ends with the contract's pattern where one decided.
    phase, command, pid, program
        Who and when: label of the phase, command number, host pid and executable; empty or 0 when not attributed.
    events
        Sequence numbers of events that prove it, at most 32, ascending.
    witnesses
        The witnesses these events came from.
    canaries
        ``id/encoding`` of planted values found in it.
    times
        How many equal effects are merged into this one.
    detail
        More for the reader: a method, an argument list, what changed.
    """

    kind: int
    name: str
    disposition: str
    level: str
    subject: str
    rule: str
    phase: str = "call"
    command: int = 0
    pid: int = 0
    program: str = ""
    events: tuple[int, ...] = ()
    witnesses: tuple[str, ...] = ()
    canaries: tuple[str, ...] = ()
    times: int = 1
    detail: str = ""

    def to_dict(self) -> dict[str, object]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in self._asdict().items()}


class Reason(NamedTuple):
    """One reason why "clean" cannot be said.

    ``code`` is stable (``docs/reference/json-output.md``); ``channel`` is the class it weakens, or empty for all;
    ``detail`` is for people; ``events`` are numbers of events that show it.
    """

    code: str
    channel: str
    detail: str
    events: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, object]:
        return {"code": self.code, "class": self.channel, "detail": self.detail, "events": list(self.events)}


class ClassAssurance(NamedTuple):
    """How well one class of effects was watched.

    ``status``: ``complete`` (every witness the tier needs was proven and lost nothing), ``partial`` (some, or all that
    a tier below U has, or not all was searched), ``absent`` (none). ``proven`` and ``missing`` are witness names.
    """

    status: str
    proven: tuple[str, ...]
    missing: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        return {"status": self.status, "proven": list(self.proven), "missing": list(self.missing)}


class Assurance(NamedTuple):
    """What the world could see: its tier and, per class of effects, the state of the witnesses."""

    tier: str
    classes: Mapping[str, ClassAssurance]

    @property
    def complete(self) -> bool:
        return bool(self.classes) and all(entry.status == COMPLETE for entry in self.classes.values())

    def to_dict(self) -> dict[str, object]:
        return {
            "tier": self.tier,
            "complete": self.complete,
            "classes": {name: entry.to_dict() for name, entry in self.classes.items()},
        }


class Verdict(NamedTuple):
    """The answer of an oracle.

    ``verdict`` is ``forbidden`` when an effect breaks the contract, else ``indeterminate`` when there is a reason to
    doubt the record, else ``clean``. Reasons are kept with a forbidden verdict too. ``notes`` tell what a reader should
    know and what changes nothing.
    """

    verdict: str
    reasons: tuple[Reason, ...]
    effects: tuple[Effect, ...]
    assurance: Assurance
    notes: tuple[str, ...] = ()
    contract: str = ""
    head: str = ""
    events: int = 0

    @property
    def forbidden(self) -> tuple[Effect, ...]:
        """The effects that break the contract."""
        return tuple(effect for effect in self.effects if effect.disposition == FORBIDDEN)

    def to_dict(self) -> dict[str, object]:
        """The stable JSON object of ``docs/reference/json-output.md``."""
        return {
            "format": FORMAT,
            "verdict": self.verdict,
            "reasons": [reason.to_dict() for reason in self.reasons],
            "effects": [effect.to_dict() for effect in self.effects],
            "assurance": self.assurance.to_dict(),
            "notes": list(self.notes),
            "contract": self.contract,
            "evidence": {"head": self.head, "events": self.events},
        }
