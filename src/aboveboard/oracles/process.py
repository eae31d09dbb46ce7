"""The process oracle: did anything happen that the contract forbids?

``judge`` is a pure function of a record and a contract. It runs nothing, asks nobody and keeps nothing, so a record can
be judged again, elsewhere and under another contract, with the same answer. Its time is linear in the events.

What each kind of effect is derived from is tabled in ``docs/reference/effects.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aboveboard.evidence.event import Event
from aboveboard.evidence.verdict import CLEAN, FORBIDDEN, INDETERMINATE, NOTED, Effect, Verdict
from aboveboard.oracles._checks import assurance, reasons
from aboveboard.oracles._files import judge_files
from aboveboard.oracles._findings import MAX_PROOFS, Findings
from aboveboard.oracles._network import judge_network
from aboveboard.oracles._programs import judge_programs
from aboveboard.oracles._record import Record
from aboveboard.oracles.catalogue import CHANGE, KIND, WITNESS_EVENTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from aboveboard.contract import Contract
    from aboveboard.evidence.store import Evidence


def judge(evidence: Evidence, contract: Contract, *, disabled: Collection[str] = ()) -> Verdict:
    """The verdict on one record under one contract.

    Parameters
    ----------
    evidence
        The record of a world.
    contract
        What was allowed; need not be the contract the world ran with.
    disabled
        Names of witnesses to leave out, as if the world had run without them. What they alone saw is not looked at, and
        the classes they serve cannot be clean: the oracle's own mutation test.

    Returns
    -------
    Verdict
        ``forbidden`` when an effect breaks the contract, else ``indeterminate`` when the record has a gap or the
        witnesses disagree, else ``clean``.
    """
    stream = evidence.stream()
    events = iter(stream)
    first = next(events, None)
    header = first if first is not None and first.type == "world" else Event("world", {})
    off = {*disabled, *header.texts("disabled")}
    record = Record(header, contract, _ignored(off))
    record.feed(_rest(first, events))
    chain = stream.report()

    state = assurance(record, disabled)
    findings = Findings(record.image, state.tier)
    judge_files(record, findings, changes_seen=bool(state.classes[CHANGE].proven))
    judge_network(record, findings)
    judge_programs(record, findings)
    effects = findings.effects()
    doubts = reasons(record, contract, findings, chain, state)

    if any(effect.disposition == FORBIDDEN for effect in effects):
        answer = FORBIDDEN
    else:
        answer = INDETERMINATE if doubts else CLEAN
    return Verdict(
        verdict=answer,
        reasons=tuple(doubts),
        effects=effects,
        assurance=state,
        notes=_notes(record, effects),
        contract=contract.digest(),
        head=chain.head,
        events=chain.events,
    )


def conditional_effects(verdicts: Mapping[str, Verdict]) -> tuple[Effect, ...]:
    """Kind 26: effects that appear in some of several runs that differ in nothing but their environment.

    ``verdicts`` maps the name of an environment to the verdict of its run. An effect that all runs share is not
    conditional. The disposition is the one the effect has where it appears, so that a gated breach stays a breach.
    """
    found: dict[tuple[object, ...], tuple[Effect, list[str]]] = {}
    for environment, verdict in verdicts.items():
        for effect in verdict.effects:
            key = (effect.kind, effect.disposition, effect.level, effect.subject)
            names = found.setdefault(key, (effect, []))[1]
            if environment not in names:
                names.append(environment)
    kind = KIND[26]
    return tuple(
        Effect(
            kind=kind.number,
            name=kind.name,
            disposition=FORBIDDEN if effect.disposition == FORBIDDEN else NOTED,
            level=effect.level,
            subject=effect.subject,
            rule=f"{effect.name} in {', '.join(names)} only, of {len(verdicts)} environments",
            phase=effect.phase,
            command=effect.command,
            program=effect.program,
            witnesses=effect.witnesses,
            detail=effect.rule,
        )
        for effect, names in found.values()
        if len(names) < len(verdicts)
    )


def _rest(first: Event | None, events: Iterator[Event]) -> Iterator[Event]:
    if first is not None:
        yield first
    yield from events


def _ignored(off: Collection[str]) -> frozenset[str]:
    """Event types that only switched-off witnesses contribute."""
    ignored: set[str] = set()
    for name in off:
        ignored |= WITNESS_EVENTS.get(name, frozenset())
    return frozenset(ignored)


def _notes(record: Record, effects: tuple[Effect, ...]) -> tuple[str, ...]:
    notes = []
    unattributed = sum(1 for effect in effects if effect.witnesses in (("overlay",), ("walk",)))
    if unattributed:
        notes.append(f"{unattributed} changes of files are attributed to no process: the change witness alone saw them")
    unknown = sorted(kind for kind in record.types if kind not in _KNOWN)
    if unknown:
        shown = ", ".join(ascii(kind)[1:41] for kind in unknown[:8])
        notes.append(f"event types this oracle does not know were passed over: {shown}")
    longer = sum(1 for effect in effects if len(effect.events) >= MAX_PROOFS)
    if longer:
        notes.append(f"{longer} effects list their first {MAX_PROOFS} events only")
    return tuple(notes)


_KNOWN = frozenset(
    [
        "world",
        "witness",
        "command",
        "status",
        "phase",
        "proc",
        "gone",
        "open",
        "exec",
        "hash",
        "fs",
        "meta",
        "net",
        "flow",
        "packets",
        "escape",
        "probe",
        "limit",
        "signal",
        "fanotify",
        "change",
        "survivor",
        "pids",
        "end",
        "invalid",
    ]
)
