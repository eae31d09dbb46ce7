"""Big real programs run in a world as they run outside: same output, same exit code, and the host is not changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from . import programs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.usefixtures("world_available"), pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    "program",
    [pytest.param(p, id=p.name, marks=[pytest.mark.network] if p.npm else []) for p in programs.load()],
)
def test_a_program_does_the_same_in_a_world(program: programs.Program, tmp_path: Path) -> None:
    try:
        setup = programs.prepare(program)
    except programs.Missing as reason:
        pytest.skip(str(reason))
    workspace, home = tmp_path / "work", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()

    inside = programs.run_in_world(program, setup, workspace)
    assert list(workspace.iterdir()) == [], "the host's folder was changed"
    outside = programs.run_natively(program, setup, workspace, home)

    assert outside.code == 0, f"the script fails natively: {outside.stderr}"
    assert outside.stdout
    assert (inside.code, inside.stdout) == (outside.code, outside.stdout), inside.stderr
