"""Environments in which a target is run, to meet behaviour that waits for one (a table of facts).

Malicious packages have gated on CI variables, dates and locales (process_oracle study, sections 5 G 64 and 6.3 kind
26).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aboveboard.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Environment:
    """One variant of the surroundings."""

    name: str
    about: str
    """What a reader of the report needs to know about it."""
    env: Mapping[str, str] = field(default_factory=dict)
    clock_shift: float = 0.0
    """Seconds added to the wall clock, at Python level only: no kernel interface shifts CLOCK_REALTIME for one process
    tree (time_namespaces(7) covers CLOCK_MONOTONIC and CLOCK_BOOTTIME), so a candidate that reads the clock through
    another language, a child process or ctypes sees the true one."""

    @property
    def partial(self) -> str:
        """Why this environment shows less than its name says; empty when it shows all."""
        return "the clock is shifted for Python code only" if self.clock_shift else ""


_YEAR = 365.2425 * 86_400

ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("dev", "a developer's machine", {"TERM": "xterm-256color", "EDITOR": "vim"}),
        Environment(
            "ci",
            "a GitHub Actions runner, by its variables",
            {
                "CI": "true",
                "CONTINUOUS_INTEGRATION": "true",
                "GITHUB_ACTIONS": "true",
                "GITHUB_WORKFLOW": "release",
                "GITHUB_EVENT_NAME": "push",
                "GITHUB_REF": "refs/heads/main",
                "GITHUB_REPOSITORY": "example/app",
                "GITHUB_RUN_ID": "7413920561",
                "GITHUB_SERVER_URL": "https://github.com",
                "RUNNER_OS": "Linux",
                "RUNNER_NAME": "GitHub Actions 4",
                "RUNNER_ENVIRONMENT": "github-hosted",
                "DEBIAN_FRONTEND": "noninteractive",
            },
        ),
        Environment("future", "a year and a month later", {}, clock_shift=_YEAR + 31 * 86_400),
        Environment(
            "locale",
            "another language and time zone",
            {"LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de", "TZ": "Asia/Tokyo"},
        ),
    )
}
"""By name, in the order in which they run."""

DEFAULT = (ENVIRONMENTS["dev"],)


def parse(text: str | None) -> tuple[Environment, ...]:
    """The environments of ``--matrix dev,ci,…``; ``all`` names every one, None gives the default.

    Raises UsageError for an unknown or missing name.
    """
    if text is None:
        return DEFAULT
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["all"]:
        return tuple(ENVIRONMENTS.values())
    unknown = [name for name in names if name not in ENVIRONMENTS]
    if unknown or not names:
        import difflib

        close = difflib.get_close_matches(unknown[0], ENVIRONMENTS, 1) if unknown else []
        hint = f"Did you mean {close[0]!r}? " if close else ""
        raise UsageError(
            f"--matrix has no environment {unknown[0] if unknown else text!r}",
            advice=f"{hint}Choose from {', '.join(ENVIRONMENTS)} or all.",
        )
    return tuple(ENVIRONMENTS[name] for name in dict.fromkeys(names))
