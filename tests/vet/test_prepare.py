"""What is learnt about a target before it runs, without running it."""

from __future__ import annotations

import os

import pytest

from aboveboard.errors import TargetError
from aboveboard.vet import prepare, targets


def test_shell_blocks_of_a_skill_are_its_instructions():
    text = (
        "# S\n```bash\n$ pip install x\n$ x --init\n```\n```python\nprint()\n```\n```sh\n\n```\n```console\nls\n```\n"
    )
    assert prepare.instructions(text) == ("pip install x\nx --init", "ls")


def test_a_skill_tells_its_scripts_and_leaves_links_and_data_alone(tmp_path):
    (tmp_path / "SKILL.md").write_text("# Skill\n```bash\necho hi\n```\n")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "b.sh").write_text("echo")
    (tmp_path / "scripts" / "a.py").write_text("")
    (tmp_path / "scripts" / "data.csv").write_text("")
    os.symlink("/etc/passwd", tmp_path / "scripts" / "link.py")
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "example.py").write_text("")

    found = prepare.prepare(targets.recognise(str(tmp_path)))

    assert found.skill_scripts == (("scripts/a.py", ("python3",)), ("scripts/b.sh", ("sh",)))
    assert found.instructions == ("echo hi",)


def test_a_project_tells_modules_and_scripts_from_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare.fetch, "collect", lambda requirements, **_: ())
    (tmp_path / "src" / "tool").mkdir(parents=True)
    (tmp_path / "src" / "tool" / "__init__.py").touch()
    (tmp_path / "setup.py").touch()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "Tool.X"\nversion = "1"\nscripts = {t = "tool:main"}\n')

    found = prepare.prepare(targets.recognise(str(tmp_path)))

    assert (found.name, found.version, found.modules) == ("tool-x", "1", ("tool",))
    assert found.scripts == (("t", "tool:main"),)
    assert found.installs
    assert found.builds


def test_a_project_with_broken_metadata_is_refused(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project\n")
    with pytest.raises(TargetError, match="cannot be read"):
        prepare.prepare(targets.recognise(str(tmp_path)))
