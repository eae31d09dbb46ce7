"""Errors a person can act on: what happened, why, and what to do next.

Everything the library raises on purpose derives from :class:`AboveboardError`. The command line prints ``message`` and
``advice`` and exits with ``exit_code``; it never shows a traceback for one of these.
"""

from __future__ import annotations


class AboveboardError(Exception):
    """Base of every deliberate error.

    ``message`` names the thing and the reason, ``advice`` the next step ("" when there is none worth giving).
    ``exit_code`` is what a command exits with: 2, usage or environment, unless a subclass says otherwise.
    """

    exit_code: int = 2

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message}. {self.advice}" if self.advice else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # The default would call the class with the positional arguments only and lose the advice.
        return _rebuild, (type(self), self.message, self.advice)


class UsageError(AboveboardError):
    """The caller asked for something that makes no sense: options that exclude each other, an unknown name."""


class EnvironmentProblem(AboveboardError):
    """This machine cannot do what is asked: no namespaces, no network, no permission, no space.

    Not ``EnvironmentError``: that built-in name is an alias of ``OSError``.
    """


class ContractError(AboveboardError, ValueError):
    """A contract that cannot be used. The message names the place in it."""


class EvidenceError(AboveboardError, ValueError):
    """A folder that is not evidence, or that cannot be read."""


class TargetError(AboveboardError):
    """Something to be vetted or run that is missing, unreadable or of an unknown kind."""


def printable(text: str) -> str:
    """``text`` with everything a terminal could act on escaped, so that a hostile name cannot rewrite the screen.

    Line breaks, control characters (C0, C1), bidirectional overrides, and bytes that are not UTF-8 come out as
    backslash escapes; every other character stays as it is.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _rebuild(kind: type[AboveboardError], message: str, advice: str) -> AboveboardError:
    return kind(message, advice=advice)
