"""Collects effects while they are found: merges equal ones and keeps their number bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aboveboard.evidence.verdict import ALLOWED, ATTEMPT, EFFECT, FORBIDDEN, NOTED, Effect
from aboveboard.oracles.catalogue import KIND, STANDS_IN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aboveboard.evidence.event import Event

MAX_PROOFS = 32
#: Distinct effects kept per disposition. A flood of them proves no more than these do.
MAX_EFFECTS = 5_000

_ORDER = {FORBIDDEN: 0, NOTED: 1, ALLOWED: 2}


class Findings:
    """The effects found so far. Judges name the witnesses of tier U; below it, what stands in for them is named."""

    def __init__(self, programs: dict[int, str], tier: str = "U") -> None:
        self._programs = programs
        self._stands_in = STANDS_IN.get(tier, {})
        self._found: dict[tuple[object, ...], Effect] = {}
        self._numbers: dict[tuple[object, ...], set[int]] = {}
        self._kept = {FORBIDDEN: 0, NOTED: 0, ALLOWED: 0}
        self.dropped = 0

    def add(
        self,
        kind: int,
        disposition: str,
        subject: str,
        rule: str,
        events: Iterable[Event],
        *,
        level: str = EFFECT,
        witnesses: Sequence[str] = (),
        canaries: Iterable[str] = (),
        detail: str = "",
        actor: Event | None = None,
    ) -> None:
        """Adds one effect; ``actor`` is the event that names the process when it is not the first proof."""
        proofs = tuple(events)
        if self._stands_in:
            witnesses = tuple(dict.fromkeys(self._stands_in.get(name, name) for name in witnesses))
        who = actor if actor is not None else (proofs[0] if proofs else None)
        command = who.command if who is not None else 0
        key = (kind, disposition, level, subject, command)
        known = self._found.get(key)
        if known is not None:
            numbers = self._numbers[key]
            if len(numbers) < MAX_PROOFS:
                numbers.update(event.number for event in proofs)
            self._found[key] = known._replace(
                times=known.times + 1,
                canaries=tuple(sorted({*known.canaries, *canaries}))[:MAX_PROOFS],
                witnesses=tuple(dict.fromkeys((*known.witnesses, *witnesses))),
            )
            return
        if self._kept[disposition] >= MAX_EFFECTS:
            self.dropped += 1
            return
        self._kept[disposition] += 1
        pid = who.pid if who is not None else 0
        self._numbers[key] = {event.number for event in proofs}
        self._found[key] = Effect(
            kind=kind,
            name=KIND[kind].name,
            disposition=disposition,
            level=level,
            subject=subject,
            rule=rule,
            phase=who.phase if who is not None else "call",
            command=command,
            pid=pid,
            program=self._programs.get(pid, ""),
            witnesses=tuple(witnesses),
            canaries=tuple(sorted(set(canaries)))[:MAX_PROOFS],
            detail=detail[:400],
        )

    def effects(self) -> tuple[Effect, ...]:
        """Every effect: forbidden first, then noted, then allowed; each group in the order it was proved."""
        done = [
            effect._replace(events=tuple(sorted(self._numbers[key])[:MAX_PROOFS]))
            for key, effect in self._found.items()
        ]
        done.sort(key=lambda effect: (_ORDER[effect.disposition], effect.events[:1], effect.kind, effect.subject))
        return tuple(done)


def attempt_or_effect(result: str) -> str:
    """Level of a call by its result: what we or the kernel refused was an attempt."""
    return EFFECT if result in ("ok", "passed", "") else ATTEMPT
