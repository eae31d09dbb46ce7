"""``aboveboard trace`` as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_descriptors_the_caller_closed_are_no_descriptors_of_ours(
    closed: str, world_available: object, tmp_path: Path
) -> None:
    line = f"{sys.executable} -m aboveboard trace --timeout 20 -- /bin/cat {closed}"
    command = ["/bin/sh", "-c", line]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"internal error" not in done.stderr
