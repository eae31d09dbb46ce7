"""Worlds: disposable places in which code runs and every effect has a witness.

The design is in ``docs/explanation/process-oracle.md``.
"""

from .spec import WITNESSES, Limits, Service
from .view import Mount
from .world import Assurance, Completed, Process, World

__all__ = ["WITNESSES", "Assurance", "Completed", "Limits", "Mount", "Process", "Service", "World"]
