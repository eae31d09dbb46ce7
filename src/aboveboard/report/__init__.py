"""What a person reads: terminal text, JSON and HTML. Nothing here decides anything.

Every text that came out of a candidate (paths, arguments, payloads) is escaped before it is shown: a terminal and a
browser act on what they are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aboveboard.report.html import write_html
    from aboveboard.report.terminal import print_trace, print_verdict, print_vet

__all__ = ["print_trace", "print_verdict", "print_vet", "write_html"]


def __getattr__(name: str) -> object:
    # rich costs more to import than a world to start.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{'html' if name == 'write_html' else 'terminal'}"), name)
