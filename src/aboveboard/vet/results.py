"""What vetting found: frozen records and the pure functions that join them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from aboveboard.evidence.verdict import (
    ABSENT,
    CLEAN,
    COMPLETE,
    FORBIDDEN,
    FORMAT,
    INDETERMINATE,
    NOTED,
    PARTIAL,
    Assurance,
    ClassAssurance,
    Effect,
    Reason,
    Verdict,
)
from aboveboard.vet.compare import Output, Sameness, consensus, only_here, sameness
from aboveboard.vet.payloads import Payload, payload_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from aboveboard.evidence.store import Evidence
    from aboveboard.vet.prepare import Prepared
    from aboveboard.vet.release import Released

EXIT_CODES = {CLEAN: 0, FORBIDDEN: 1, INDETERMINATE: 3}
"""Process exit code by verdict."""

_SEVERITY = (CLEAN, INDETERMINATE, FORBIDDEN)
_STATUSES = (COMPLETE, PARTIAL, ABSENT)
_TIERS = ("R", "U", "N", "P")


class Observed(NamedTuple):
    """An effect, and where in the vetting it was met."""

    effect: Effect
    phase: str
    """``install``, ``import``, ``call``, ``exit`` or ``post``; a label, no proof."""
    environments: tuple[str, ...]
    payloads: tuple[Payload, ...] = ()

    @property
    def identity(self) -> Hashable:
        """Equal for the same effect in another run: no process ids, no sequence numbers."""
        return (self.effect.kind, self.effect.disposition, self.effect.level, self.effect.subject, self.phase)

    def to_dict(self) -> dict[str, object]:
        return {
            **self.effect.to_dict(),
            "phase": self.phase,
            "environments": list(self.environments),
            "payloads": [payload.to_dict() for payload in self.payloads],
        }


@dataclass(frozen=True, slots=True)
class Ran:
    """One command of a trial."""

    phase: str
    name: str
    returncode: int
    timed_out: bool
    seconds: float
    said: str
    """End of standard error (or of standard output when that is empty); escape before showing."""

    def to_dict(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Trial:
    """One target in one environment: one or two worlds."""

    environment: str
    verdicts: tuple[tuple[str, Verdict], ...]
    """(world, verdict), worlds being ``install`` and ``main``."""
    observed: tuple[Observed, ...]
    output: Output
    ran: tuple[Ran, ...]
    reasons: tuple[Reason, ...] = ()
    """Doubts of the vetting itself, such as a target that did not install."""
    evidence: tuple[str, ...] = ()
    """Evidence folders; empty when they were not kept."""
    notes: tuple[str, ...] = ()
    judged: Mapping[str, str] = field(default_factory=dict)
    """Digest in the evidence by absolute inside path, for every file that changed in the main world."""
    taken: str = ""
    """Host folder with the workspace as it was taken from the main world; empty when it was not."""

    @property
    def verdict(self) -> str:
        return worst([verdict.verdict for _, verdict in self.verdicts] + [INDETERMINATE] * bool(self.reasons))


@dataclass(frozen=True, slots=True)
class TargetReport:
    """Everything found about one target."""

    prepared: Prepared
    trials: tuple[Trial, ...]
    sameness: Sameness
    """Against the output most targets agree on; MISSING when there is none."""
    effects: tuple[Observed, ...]
    """Of all environments, united."""
    only_here: tuple[Hashable, ...]
    """Identities of effects that no other target has; empty when one target was vetted."""
    released: Released | None = None

    @property
    def label(self) -> str:
        return self.prepared.target.label

    @property
    def verdict(self) -> str:
        return worst(trial.verdict for trial in self.trials)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        found = [reason for trial in self.trials for _, verdict in trial.verdicts for reason in verdict.reasons]
        found += [reason for trial in self.trials for reason in trial.reasons]
        return tuple({(reason.code, reason.channel, reason.detail): reason for reason in found}.values())

    @property
    def assurance(self) -> Assurance:
        return weakest([verdict.assurance for trial in self.trials for _, verdict in trial.verdicts])

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes of the vetting itself, such as what did not run."""
        return tuple(dict.fromkeys(note for trial in self.trials for note in trial.notes))

    @property
    def notes(self) -> tuple[str, ...]:
        """All notes, those of the oracle too."""
        found = list(self.remarks)
        found += [note for trial in self.trials for _, verdict in trial.verdicts for note in verdict.notes]
        return tuple(dict.fromkeys(found))

    @property
    def forbidden(self) -> tuple[Observed, ...]:
        return tuple(entry for entry in self.effects if entry.effect.disposition == FORBIDDEN)

    @property
    def conditional(self) -> tuple[Observed, ...]:
        """Effects met in some environments only."""
        return tuple(entry for entry in self.effects if len(entry.environments) < len(self.trials))

    def to_dict(self) -> dict[str, object]:
        prepared = self.prepared
        return {
            "target": prepared.target.given,
            "label": self.label,
            "kind": prepared.target.kind.value,
            "name": prepared.name,
            "version": prepared.version,
            "sha256": prepared.sha256,
            "packages": [
                {"name": package.name, "version": package.version, "file": package.filename, "sha256": package.sha256}
                for package in prepared.packages
            ],
            "verdict": self.verdict,
            "reasons": [reason.to_dict() for reason in self.reasons],
            "effects": [
                {**entry.to_dict(), "only_here": entry.identity in set(self.only_here)} for entry in self.effects
            ],
            "assurance": self.assurance.to_dict(),
            "output": {
                "sameness": self.sameness.value,
                "sha256": self.trials[0].output.sha256 if self.trials and self.trials[0].output.files else None,
                "files": sorted(self.trials[0].output.files) if self.trials else [],
            },
            "environments": [
                {
                    "name": trial.environment,
                    "verdict": trial.verdict,
                    "commands": [ran.to_dict() for ran in trial.ran],
                    "evidence": [
                        {"world": world, "head": verdict.head, "events": verdict.events, "contract": verdict.contract}
                        for world, verdict in trial.verdicts
                    ],
                    "folders": list(trial.evidence),
                }
                for trial in self.trials
            ],
            "released": None
            if self.released is None
            else {
                "folder": self.released.folder,
                "files": [{"path": path, "sha256": digest} for path, digest in self.released.files],
                "withheld": [{"path": path, "reason": reason} for path, reason in self.released.withheld],
            },
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class VetReport:
    """The answer of :func:`aboveboard.vet.vet`."""

    targets: tuple[TargetReport, ...]
    contract: str
    """Digest of the user's contract."""
    inputs: tuple[tuple[str, str], ...]
    """(name, sha256) of every input."""
    seconds: float

    @property
    def verdict(self) -> str:
        """The worst verdict of a target."""
        return worst(target.verdict for target in self.targets)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    def to_dict(self) -> dict[str, object]:
        """The stable JSON object of ``docs/reference/json-output.md``: verdict, reasons, effects and assurance at
        the top, the same per target below ``targets``."""
        return {
            "format": FORMAT,
            "verdict": self.verdict,
            "reasons": [{"target": t.label, **reason.to_dict()} for t in self.targets for reason in t.reasons],
            "effects": [
                {"target": target.label, **entry.to_dict()}
                for target in self.targets
                for entry in target.effects
                if entry.effect.disposition != NOTED
            ],
            "assurance": weakest([target.assurance for target in self.targets]).to_dict(),
            "contract": self.contract,
            "inputs": [{"name": name, "sha256": digest} for name, digest in self.inputs],
            "targets": [target.to_dict() for target in self.targets],
            "seconds": round(self.seconds, 3),
        }


def worst(verdicts: Iterable[str]) -> str:
    """Forbidden before indeterminate before clean; indeterminate when nothing was judged."""
    return max(verdicts, key=_SEVERITY.index, default=INDETERMINATE)


def weakest(assurances: Sequence[Assurance]) -> Assurance:
    """What can be claimed of several worlds together: the lowest tier, the worst status of each class."""
    if not assurances:
        return Assurance("", {})
    tier = max(
        (assurance.tier for assurance in assurances), key=lambda t: _TIERS.index(t) if t in _TIERS else len(_TIERS)
    )
    classes: dict[str, ClassAssurance] = {}
    for name in dict.fromkeys(name for assurance in assurances for name in assurance.classes):
        entries = [a.classes[name] if name in a.classes else ClassAssurance(ABSENT, (), ()) for a in assurances]
        classes[name] = ClassAssurance(
            max((entry.status for entry in entries), key=lambda s: _STATUSES.index(s) if s in _STATUSES else 2),
            tuple(sorted(set.intersection(*(set(entry.proven) for entry in entries)))),
            tuple(sorted({witness for entry in entries for witness in entry.missing})),
        )
    return Assurance(tier, classes)


def unite(trials: Sequence[Trial]) -> tuple[Observed, ...]:
    """Effects of every environment, one row for the same effect, forbidden first, then by phase order of first
    sight."""
    rows: dict[Hashable, Observed] = {}
    for trial in trials:
        for entry in trial.observed:
            known = rows.get(entry.identity)
            if known is None:
                rows[entry.identity] = entry
            else:
                seen = tuple(dict.fromkeys((*known.environments, *entry.environments)))
                rows[entry.identity] = known._replace(environments=seen, payloads=known.payloads or entry.payloads)
    order = {FORBIDDEN: 0, "allowed": 1, NOTED: 2}
    return tuple(sorted(rows.values(), key=lambda entry: order.get(entry.effect.disposition, 3)))


def compare(prepared: Sequence[Prepared], trials: Sequence[Sequence[Trial]]) -> tuple[TargetReport, ...]:
    """One report a target, outputs and effects set against those of the other targets."""
    outputs = [target[0].output if target else Output({}) for target in trials]
    reference = consensus(outputs)
    united = {str(number): unite(target) for number, target in enumerate(trials)}
    unique = only_here({number: [entry.identity for entry in rows if _tells(entry)] for number, rows in united.items()})
    return tuple(
        TargetReport(
            prepared=prepared[number],
            trials=tuple(trials[number]),
            sameness=sameness(outputs[number], reference) if reference is not None else Sameness.MISSING,
            effects=united[str(number)],
            only_here=tuple(unique[str(number)]) if len(trials) > 1 else (),
        )
        for number in range(len(trials))
    )


def _tells(entry: Observed) -> bool:
    """Whether an effect is worth comparing: a package's own modules and caches always differ."""
    return entry.effect.disposition != NOTED


def observe(evidence: Evidence, verdict: Verdict, environment: str) -> tuple[Observed, ...]:
    """The effects of one world with their phase and payloads, looked up in the events that prove them.

    An effect all of whose events came after the main process of its command had ended belongs to ``post``.
    """
    wanted = {number for effect in verdict.effects for number in effect.events}
    ended: dict[int, int] = {}
    payloads: dict[int, Payload] = {}
    dialled: dict[tuple[int, str, int], str] = {}
    phases: dict[int, str] = {}
    for event in evidence.events():
        if event.type == "status":
            ended.setdefault(event.command, event.number)
        elif event.type == "net":
            dialled.setdefault((event.command, event.text("addr"), event.integer("port")), event.phase)
        elif event.type == "flow" and event.number in wanted:
            payloads[event.number] = payload_of(event, evidence)
            # A flow is written when it is over, which may be long after the call that began it.
            began = dialled.get((event.command, event.text("dst"), event.integer("port")))
            if began is not None:
                phases[event.number] = began
    rows = []
    for effect in verdict.effects:
        end = ended.get(effect.command)
        late = effect.command > 0 and end is not None and effect.pid and effect.events and min(effect.events) > end
        began = next((phases[number] for number in effect.events if number in phases), "")
        rows.append(
            Observed(
                effect,
                began or ("post" if late else effect.phase),
                (environment,),
                tuple(payloads[number] for number in effect.events if number in payloads),
            )
        )
    return tuple(rows)
