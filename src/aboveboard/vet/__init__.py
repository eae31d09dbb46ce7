"""Vet third-party code before an agent may run it: run it in disposable worlds, say what it did, compare.

>>> from aboveboard.vet import vet
>>> report = vet(["mistune==3.1.3"], inputs=["notes.md"], entry="mistune:html", way="text")  # doctest: +SKIP
>>> report.verdict, [entry.effect.name for entry in report.targets[0].forbidden]  # doctest: +SKIP
('clean', [])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aboveboard.vet.matrix import ENVIRONMENTS, Environment
    from aboveboard.vet.payloads import Payload
    from aboveboard.vet.results import Observed, TargetReport, Trial, VetReport
    from aboveboard.vet.session import Progress, avet, vet
    from aboveboard.vet.targets import Kind, Target, recognise

_HOME = {
    "ENVIRONMENTS": "matrix",
    "Environment": "matrix",
    "Kind": "targets",
    "Observed": "results",
    "Payload": "payloads",
    "Progress": "session",
    "Target": "targets",
    "TargetReport": "results",
    "Trial": "results",
    "VetReport": "results",
    "avet": "session",
    "recognise": "targets",
    "vet": "session",
}

__all__ = [
    "ENVIRONMENTS",
    "Environment",
    "Kind",
    "Observed",
    "Payload",
    "Progress",
    "Target",
    "TargetReport",
    "Trial",
    "VetReport",
    "avet",
    "recognise",
    "vet",
]


def __getattr__(name: str) -> object:
    # Recognising a target must not pay for worlds, nor a world for archives.
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
