"""Only declared outputs leave, only as they were judged, all or nothing."""

from __future__ import annotations

import hashlib
import os

import pytest

from aboveboard.contract import Contract
from aboveboard.errors import UsageError
from aboveboard.vet.phases import HOME, TASK
from aboveboard.vet.release import release

DECLARED = Contract.default().compile(workspace=TASK, home=HOME).write.match


@pytest.fixture
def taken(tmp_path):
    folder = tmp_path / "taken"
    (folder / "output" / "deep").mkdir(parents=True)
    (folder / "input").mkdir()
    return folder


def judged(taken):
    return {
        f"{TASK}/{path.relative_to(taken)}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in taken.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def out(taken, folder, digests=None):
    return release(
        taken, folder, declared=DECLARED, judged=judged(taken) if digests is None else digests, workspace=TASK
    )


def test_declared_files_leave_with_their_content_and_plain_modes(taken, tmp_path):
    (taken / "output" / "deep" / "a").write_bytes(b"A")
    (taken / "output" / "tool").write_bytes(b"T")
    (taken / "output" / "tool").chmod(0o4755)
    (taken / "input" / "in").write_bytes(b"I")
    (taken / "stray").write_bytes(b"S")

    done = out(taken, tmp_path / "done")

    left = {str(p.relative_to(tmp_path / "done")) for p in (tmp_path / "done").rglob("*") if p.is_file()}
    assert left == {"output/deep/a", "output/tool"} == {path for path, _ in done.files}
    assert (tmp_path / "done/output/tool").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "done/output/deep/a").stat().st_mode & 0o7777 == 0o644


def test_links_and_pipes_never_leave(taken, tmp_path):
    (tmp_path / "secret").write_bytes(b"host file")
    os.symlink(tmp_path / "secret", taken / "output" / "link")
    os.symlink("/etc", taken / "output" / "folder")
    os.mkfifo(taken / "output" / "pipe")

    done = out(taken, tmp_path / "done")

    assert done.files == ()
    assert [path for path, _ in done.withheld] == ["output/folder", "output/link", "output/pipe"]
    assert not [path for path in (tmp_path / "done").rglob("*") if not path.is_dir()]


def test_a_file_that_is_not_what_was_judged_stays(taken, tmp_path):
    (taken / "output" / "a").write_bytes(b"judged")
    digests = judged(taken)
    (taken / "output" / "a").write_bytes(b"swapped")

    done = out(taken, tmp_path / "done", digests)

    assert done.files == ()
    assert "changed after" in done.withheld[0][1]


def test_a_file_that_the_target_did_not_touch_stays(taken, tmp_path):
    (taken / "output" / "given").write_bytes(b"was there before")
    done = out(taken, tmp_path / "done", {})
    assert (done.files, done.withheld) == ((), ())


def test_a_destination_with_something_in_it_is_refused_untouched(taken, tmp_path):
    (taken / "output" / "a").write_bytes(b"A")
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "mine").write_bytes(b"keep")
    os.symlink(tmp_path / "empty", tmp_path / "link")
    (tmp_path / "empty").mkdir()

    for folder in ("done", "link", "no/such/parent"):
        with pytest.raises(UsageError):
            out(taken, tmp_path / folder)

    assert (tmp_path / "done" / "mine").read_bytes() == b"keep"
    assert not list((tmp_path / "empty").iterdir())


def test_an_empty_destination_is_filled_and_nothing_else_is_left_behind(taken, tmp_path):
    (taken / "output" / "a").write_bytes(b"A")
    (tmp_path / "done").mkdir()
    out(taken, tmp_path / "done")
    assert (tmp_path / "done/output/a").read_bytes() == b"A"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done", "taken"]
