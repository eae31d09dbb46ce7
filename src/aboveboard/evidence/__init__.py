"""What happened in a world: events, the folder that keeps them, and what they come to."""

from __future__ import annotations

from aboveboard.errors import EvidenceError
from aboveboard.evidence.chain import ChainReport, chain_hash
from aboveboard.evidence.event import Event, parse_event
from aboveboard.evidence.store import Evidence
from aboveboard.evidence.verdict import Assurance, ClassAssurance, Effect, Reason, Verdict

__all__ = [
    "Assurance",
    "ChainReport",
    "ClassAssurance",
    "Effect",
    "Event",
    "Evidence",
    "EvidenceError",
    "Reason",
    "Verdict",
    "chain_hash",
    "parse_event",
]
