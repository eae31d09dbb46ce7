"""The control group of a world, over a made-up hierarchy: real files, no kernel behind them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aboveboard.world import cgroup
from aboveboard.world.cgroup import Group


@pytest.fixture
def hierarchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that stands for our own group; a group made below it gets the kernel's files."""
    make = os.mkdir

    def made(path: str, *args: int) -> None:
        make(path, *args)
        for name in ("cgroup.procs", "cgroup.kill", "pids.max", "memory.max", "memory.swap.max", "memory.oom.group"):
            Path(path, name).write_text("")

    monkeypatch.setattr(os, "mkdir", made)
    monkeypatch.setattr(cgroup, "_own_group", lambda: str(tmp_path))
    return tmp_path


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_given_a_hierarchy_of_ours_when_a_group_is_made_then_its_bounds_are_written(hierarchy: Path) -> None:
    group = Group.create(100, 1 << 30)
    assert group is not None
    made = only(hierarchy)
    assert made.name.startswith("world-")
    assert int((made / "pids.max").read_text()) >= 100
    assert (made / "memory.max").read_text() == str(1 << 30)
    assert (made / "memory.swap.max").read_text() == "0"
    assert set(group.limits) == {"pids.max", "memory.max", "memory.swap.max", "memory.oom.group"}


def test_given_a_group_when_a_process_is_added_and_all_are_killed_then_the_kernel_is_told(hierarchy: Path) -> None:
    group = Group.create(100, 1 << 30)
    assert group is not None
    assert group.add(1234)
    group.kill()
    made = only(hierarchy)
    assert (made / "cgroup.procs").read_text() == "1234"
    assert (made / "cgroup.kill").read_text() == "1"


def test_given_no_unified_hierarchy_when_a_group_is_wanted_then_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_own_group", lambda: None)
    assert Group.create(100, 1 << 30) is None


def test_given_a_hierarchy_that_is_not_ours_when_a_group_is_wanted_then_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cgroup, "_own_group", lambda: str(tmp_path / "gone"))
    assert Group.create(100, 1 << 30) is None


def test_given_no_delegated_controller_when_a_group_is_wanted_then_none_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # As the kernel shows it: the group's own files are there, those of controllers are not, and none can be made.
    make = os.mkdir
    removed: list[str] = []

    def made(path: str, *args: int) -> None:
        make(path, *args)
        Path(path, "cgroup.procs").write_text("")

    def no_controller(path: str, *args: object, **options: object) -> object:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "mkdir", made)
    monkeypatch.setattr(os, "rmdir", lambda path, **where: removed.append(path))
    monkeypatch.setattr(cgroup, "_own_group", lambda: str(tmp_path))
    monkeypatch.setattr(cgroup, "open", no_controller, raising=False)
    assert Group.create(100, 1 << 30) is None
    assert removed == [only(tmp_path).name]


def test_given_groups_of_killed_supervisors_when_the_next_is_made_then_old_empty_ones_go_and_full_ones_stay(
    hierarchy: Path,
) -> None:
    empty, full, fresh, other = (hierarchy / n for n in ("world-aa", "world-bb", "world-cc", "session-1"))
    for folder in (empty, full, fresh, other):
        folder.mkdir(exist_ok=True)
        for file in folder.iterdir():
            file.unlink()
    (full / "process").write_text("")  # what cannot be removed stands for a group with processes
    for folder in (empty, full, other):
        os.utime(folder, (0, 0))
    group = Group.create(10, 1 << 20)
    assert group is not None
    assert not empty.exists()
    assert full.exists()
    assert fresh.exists()
    assert other.exists()


def test_given_the_hosts_own_tables_when_read_then_the_group_is_a_directory_or_none() -> None:
    own = cgroup._own_group()
    assert own is None or os.path.isabs(own)
