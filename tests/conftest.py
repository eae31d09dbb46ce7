"""What every test may ask for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import aboveboard
from aboveboard.errors import EnvironmentProblem

REQUIRED = "ABOVEBOARD_REQUIRE_WORLD"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A marker that names a need sees to it: ``root`` is skipped for an ordinary user, ``network`` without an index."""
    for item in items:
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root"))
        if item.get_closest_marker("network"):
            item.add_marker(pytest.mark.usefixtures("index_available"))


@pytest.fixture(scope="session")
def world_available() -> None:
    """Skips when no world can be made here, and says why; fails instead where $ABOVEBOARD_REQUIRE_WORLD is set."""
    try:
        with aboveboard.World() as world:
            completed = world.run(["/bin/echo", "ready"])
    except EnvironmentProblem as problem:
        if os.environ.get(REQUIRED):
            pytest.fail(f"{REQUIRED} is set, and no world can be made: {problem}")
        pytest.skip(f"no world can be made here: {problem}")
    assert (completed.returncode, completed.stdout) == (0, b"ready\n")


@pytest.fixture(scope="session")
def index_available() -> None:
    """Skips when no package index answers; fails instead where $ABOVEBOARD_REQUIRE_WORLD is set."""
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "packaging"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode:
        reason = asked.stderr.strip().splitlines()[-1:] or ["pip failed"]
        if os.environ.get(REQUIRED):
            pytest.fail(f"{REQUIRED} is set, and no package index answers: {reason[0]}")
        pytest.skip(f"no package index answers: {reason[0]}")
