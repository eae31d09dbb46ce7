"""What a person writes is recognised for what it is, or refused with a reason."""

from __future__ import annotations

import contextlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aboveboard.errors import AboveboardError, TargetError
from aboveboard.vet import targets
from aboveboard.vet.targets import Kind


@pytest.mark.parametrize(
    ("name", "content", "interpreter"),
    [
        ("a.py", b"print(1)\n", ("python3",)),
        ("a.sh", b"echo\n", ("sh",)),
        ("a.mjs", b"", ("node",)),
        ("tool", b"#!/usr/bin/env python3\n", ("python3",)),
        ("tool", b"#!/usr/bin/env -S python3 -u\n", ("python3", "-u")),
        ("tool", b"#!/bin/bash -e\nexit\n", ("/bin/bash", "-e")),
        ("a.py", b"#!/usr/bin/env python3\n", ("python3",)),
        ("tool", b"\x7fELF\x02\x01", ()),
    ],
)
def test_a_script_is_known_by_suffix_shebang_or_magic(tmp_path, name, content, interpreter):
    path = tmp_path / name
    path.write_bytes(content)

    target = targets.recognise(str(path))

    assert (target.kind, target.argv, target.path) == (Kind.SCRIPT, interpreter, path)


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("SKILL.md", Kind.SKILL),
        ("pyproject.toml", Kind.PROJECT),
        ("setup.py", Kind.PROJECT),
        ("package.json", Kind.NODE_PROJECT),
    ],
)
def test_a_folder_is_known_by_what_lies_in_it(tmp_path, file, kind):
    (tmp_path / file).touch()
    assert targets.recognise(str(tmp_path)).kind is kind


def test_a_skill_with_a_project_file_is_a_skill(tmp_path):
    for name in ("SKILL.md", "pyproject.toml"):
        (tmp_path / name).touch()
    assert targets.recognise(str(tmp_path)).kind is Kind.SKILL


@pytest.mark.parametrize(("name", "kind"), [("x-1.0-py3-none-any.whl", Kind.WHEEL), ("x-1.0.tar.gz", Kind.SDIST)])
def test_an_archive_is_known_by_its_suffix(tmp_path, name, kind):
    (tmp_path / name).write_bytes(b"not read yet")
    assert targets.recognise(str(tmp_path / name)).kind is kind


@pytest.mark.parametrize("text", ["mistune==3.1.3", "requests[socks]>=2,<3", "Markdown"])
def test_a_requirement_is_anything_that_pep_508_accepts_and_no_file_has_as_name(text):
    target = targets.recognise(text)
    assert target.kind is Kind.REQUIREMENT
    assert target.requirement


def test_an_existing_file_wins_over_a_requirement_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tool").write_bytes(b"#!/bin/sh\n")
    assert targets.recognise("tool").kind is Kind.SCRIPT


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("./missing.py", "does not exist"),
        ("missing.whl", "does not exist"),
        ("dist/missing-1.0.tar.gz", "does not exist"),
        ("", "empty"),
        ("a\0b", "NUL"),
        ("two words here", "neither a file"),
        ("--index-url=http://192.0.2.1/", "URL"),
        ("--no-index", "neither a file"),
        ("evil @ https://evil.test/evil-1.0.tar.gz", "URL"),
        ("evil @ git+https://evil.test/evil", "URL"),
        ("tool; python_version < '3'", "marker"),
    ],
)
def test_what_is_no_target_is_refused_with_the_reason(text, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TargetError, match=says) as caught:
        targets.recognise(text)
    assert caught.value.advice


def test_a_folder_or_file_of_no_known_kind_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("text")
    for path, says in ((tmp_path, "none of SKILL.md"), (tmp_path / "notes.txt", "neither a known suffix")):
        with pytest.raises(TargetError, match=says):
            targets.recognise(str(path))


def test_a_pipe_is_refused_without_being_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(TargetError, match="neither a regular file"):
        targets.recognise(str(tmp_path / "pipe.py"))


def test_equal_labels_are_told_apart(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.py").touch()
    found = targets.recognise_all([str(tmp_path / "a/run.py"), str(tmp_path / "b/run.py")], ["./run.py", "x"])
    assert [target.label for target in found] == ["run.py", "run.py (2)", "run.py (3)"]


def test_the_digest_of_a_folder_tells_content_mode_and_links(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    os.symlink("/nowhere", tmp_path / "link")
    before = targets.digest_tree(tmp_path)
    assert before.files == 2

    (tmp_path / "a").chmod(0o755)
    changed_mode = targets.digest_tree(tmp_path)
    (tmp_path / "link").unlink()
    os.symlink("/elsewhere", tmp_path / "link")

    assert len({before.sha256, changed_mode.sha256, targets.digest_tree(tmp_path).sha256}) == 3


def test_a_folder_with_too_many_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(targets, "MAX_TREE_FILES", 3)
    for number in range(5):
        (tmp_path / str(number)).touch()
    with pytest.raises(TargetError, match="more than 3 files"):
        targets.digest_tree(tmp_path)


@given(st.text())
def test_no_spelling_ends_in_anything_but_a_target_or_a_clear_error(text):
    with contextlib.suppress(AboveboardError):
        assert targets.recognise(text).given == text
