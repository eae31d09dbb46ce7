"""Aboveboard: run code you do not trust yet, and know what it did.

The names below are the public API; everything else may change. Each is imported when it is first used, so that
``import aboveboard`` costs nothing and a command pays only for its own part.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

__version__ = "0.1.0"

# Type checkers know this name; importing typing for it would be most of what `import aboveboard` costs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from aboveboard.contract import Contract as Contract
    from aboveboard.errors import AboveboardError as AboveboardError
    from aboveboard.evidence import Assurance as Assurance
    from aboveboard.evidence import Effect as Effect
    from aboveboard.evidence import Evidence as Evidence
    from aboveboard.evidence import Verdict as Verdict
    from aboveboard.oracles.process import judge as judge
    from aboveboard.trace import atrace as atrace
    from aboveboard.trace import trace as trace
    from aboveboard.vet import avet as avet
    from aboveboard.vet import vet as vet
    from aboveboard.world import Limits as Limits
    from aboveboard.world import Mount as Mount
    from aboveboard.world import Service as Service
    from aboveboard.world import World as World

#: Public name → the module that has it.
_HOME = {
    "AboveboardError": "aboveboard.errors",
    "Assurance": "aboveboard.evidence",
    "Contract": "aboveboard.contract",
    "Effect": "aboveboard.evidence",
    "Evidence": "aboveboard.evidence",
    "Limits": "aboveboard.world",
    "Mount": "aboveboard.world",
    "Service": "aboveboard.world",
    "Verdict": "aboveboard.evidence",
    "World": "aboveboard.world",
    "atrace": "aboveboard.trace",
    "avet": "aboveboard.vet",
    "judge": "aboveboard.oracles.process",
    "trace": "aboveboard.trace",
    "vet": "aboveboard.vet",
}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604  # the table above is the list


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    # A function with its module's name stays behind that module, which Python has just put here: see _Package.
    return globals().setdefault(name, value)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


class _Callable(ModuleType):
    """A module that can be called: the function of its own name does the work."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


class _Package(ModuleType):
    """This package, in which ``aboveboard.vet`` is a function and a module at once.

    Importing ``aboveboard.vet.anything`` makes Python set the attribute ``vet`` of this package to the module, whenever
    that happens. If the module could not be called, ``aboveboard.vet("mistune")`` would work or not depending on what
    some other code had imported before.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and _HOME.get(name) == value.__name__:
            value.__class__ = _Callable
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
