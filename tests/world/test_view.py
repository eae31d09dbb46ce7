"""What of the host a world shows, planned before anything is mounted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from aboveboard.world import view
from aboveboard.world.view import Mount, find_program, plan_view, program_trees


def script(path: Path, first_line: str = "#!/bin/sh") -> Path:
    """An executable text file; its parent directories are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{first_line}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def link(path: Path, target: Path | str) -> Path:
    """A symbolic link; its parent directories are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def trees(program: Path, search: str = "", home: str = "/home/nobody-here") -> list[str]:
    return program_trees(str(program), search, home)


# --- the trees a program needs --------------------------------------------------------------------------------------


def test_given_a_program_of_the_system_when_planned_then_no_further_tree_is_needed() -> None:
    # /bin/sh may lead through several links; all of them stay in system trees
    assert program_trees("/bin/sh", os.defpath, "/home/nobody-here") == []


def test_given_a_program_in_a_prefix_when_planned_then_the_whole_prefix_is_shown(tmp_path: Path) -> None:
    program = script(tmp_path / "go/bin/go")
    assert trees(program) == [str(tmp_path / "go")]


def test_given_a_program_outside_any_bin_when_planned_then_only_the_file_is_shown(tmp_path: Path) -> None:
    program = script(tmp_path / "downloads/tool")
    (tmp_path / "downloads/taxes.pdf").write_text("private")
    assert trees(program) == [str(program)]


def test_given_a_virtual_environment_when_planned_then_its_base_and_its_links_are_shown(tmp_path: Path) -> None:
    base = script(tmp_path / "pythons/3.11/bin/python3.11", "")
    link(tmp_path / "pythons/3.11/bin/python3", "python3.11")
    venv = tmp_path / "project/.venv"
    link(venv / "bin/python", base)
    (venv / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    assert set(trees(venv / "bin/python")) == {str(venv), str(tmp_path / "pythons/3.11")}


def test_given_an_environment_whose_base_was_moved_when_planned_then_what_is_left_is_shown(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    script(venv / "bin/python", "")
    (venv / "pyvenv.cfg").write_text(f"home = {tmp_path / 'gone/bin'}\n")
    assert trees(venv / "bin/python") == [str(venv)]


def test_given_a_configuration_of_hostile_bytes_when_planned_then_it_is_no_error(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    script(venv / "bin/python", "")
    (venv / "pyvenv.cfg").write_bytes(b"home = \xff\xfe/../../\nhome\n=\n" + b"x" * 100_000)
    assert trees(venv / "bin/python") == [str(venv)]


def test_given_a_console_script_when_planned_then_its_interpreters_installation_is_shown_too(tmp_path: Path) -> None:
    interpreter = script(tmp_path / "versions/3.12/bin/python3.12", "")
    tool = script(tmp_path / "tools/bin/tool", f"#!{interpreter}")
    assert set(trees(tool)) == {str(tmp_path / "tools"), str(tmp_path / "versions/3.12")}


def test_given_an_env_line_with_options_when_planned_then_the_interpreter_is_found_on_the_path(tmp_path: Path) -> None:
    node = script(tmp_path / "node/bin/node", "")
    tool = script(tmp_path / "pkg/bin/tool", "#!/usr/bin/env -S NODE_ENV=production node --no-warnings")
    assert set(trees(tool, search=str(node.parent))) == {str(tmp_path / "pkg"), str(tmp_path / "node")}


def test_given_a_pyenv_shim_when_planned_then_the_shim_and_its_shell_are_shown(tmp_path: Path) -> None:
    shim = script(tmp_path / ".pyenv/shims/python3", "#!/usr/bin/env bash")
    assert trees(shim, search="/usr/bin:/bin") == [str(shim)]


def test_given_an_interpreter_that_is_a_script_itself_when_planned_then_the_whole_chain_is_shown(
    tmp_path: Path,
) -> None:
    last = script(tmp_path / "c/bin/c", "")
    middle = script(tmp_path / "b/bin/b", f"#!{last}")
    first = script(tmp_path / "a/bin/a", f"#!{middle}")
    assert set(trees(first)) == {str(tmp_path / n) for n in "abc"}


def test_given_two_scripts_that_interpret_each_other_when_planned_then_it_ends(tmp_path: Path) -> None:
    one, two = tmp_path / "one/bin/x", tmp_path / "two/bin/y"
    script(one, f"#!{two}")
    script(two, f"#!{one}")
    assert set(trees(one)) == {str(tmp_path / "one"), str(tmp_path / "two")}


def test_given_links_in_a_circle_when_planned_then_nothing_is_shown_and_it_ends(tmp_path: Path) -> None:
    link(tmp_path / "x/bin/a", "b")
    link(tmp_path / "x/bin/b", "a")
    found = trees(tmp_path / "x/bin/a")
    assert found == [str(tmp_path / "x")]


def test_given_a_link_that_leads_nowhere_when_planned_then_only_what_exists_is_shown(tmp_path: Path) -> None:
    link(tmp_path / "x/bin/a", tmp_path / "gone/bin/a")
    assert trees(tmp_path / "x/bin/a") == [str(tmp_path / "x")]


def test_given_a_program_of_pipx_when_planned_then_the_rest_of_dot_local_stays_hidden(tmp_path: Path) -> None:
    home = tmp_path / "home"
    tool = script(home / ".local/bin/tool")
    (home / ".local/lib/python3.11/site-packages").mkdir(parents=True)
    (home / ".local/share/keyrings").mkdir(parents=True)
    found = trees(tool, home=str(home))
    assert set(found) == {str(home / ".local/bin"), str(home / ".local/lib")}


def test_given_a_program_in_bin_of_the_home_when_planned_then_the_home_stays_hidden(tmp_path: Path) -> None:
    home = tmp_path / "home"
    tool = script(home / "bin/tool")
    (home / ".ssh").mkdir()
    assert trees(tool, home=str(home)) == [str(home / "bin")]


def test_given_a_binary_file_when_planned_then_its_bytes_name_no_interpreter(tmp_path: Path) -> None:
    program = tmp_path / "t/bin/elf"
    program.parent.mkdir(parents=True)
    for content in (b"\x7fELF" + b"\0" * 200, b"#!", b"#! \n", b"#!\xff\xfe\n", b""):
        program.write_bytes(content)
        assert trees(program) == [str(tmp_path / "t")]


# --- finding a program ----------------------------------------------------------------------------------------------


def test_given_a_name_when_searched_then_directories_and_plain_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a/tool").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/tool").write_text("not executable")
    wanted = script(tmp_path / "c/tool")
    search = ":".join(str(tmp_path / n) for n in "abc")
    if os.geteuid() == 0:
        assert os.access(wanted, os.X_OK)
    assert find_program("tool", search) == str(wanted)
    assert find_program("no-such-tool", search) is None


def test_given_a_path_when_searched_then_it_starts_at_the_directory_of_the_command(tmp_path: Path) -> None:
    program = script(tmp_path / "sub/run.sh")
    assert find_program("./sub/run.sh", None, str(tmp_path)) == str(program)
    assert find_program("sub/../sub/run.sh", None, str(tmp_path)) == str(program)
    assert find_program("./gone.sh", None, str(tmp_path)) is None


# --- the plan -------------------------------------------------------------------------------------------------------


def plan(programs: list[str] | None = None, **options: object) -> view.View:
    defaults: dict[str, object] = {"workspace": None, "mounts": [], "search": os.defpath, "home": "/home/nobody-here"}
    return plan_view(programs or [], **{**defaults, **options})  # type: ignore[arg-type]


def test_given_a_system_tree_that_is_a_link_when_planned_then_the_link_is_shown_as_one() -> None:
    made = plan()
    for tree in view.SYSTEM_TREES:
        if os.path.islink(tree):
            assert made.symlinks[tree] == os.readlink(tree)
        elif os.path.isdir(tree):
            assert Mount(tree, tree) in made.mounts
        else:
            assert tree not in made.runtime
    assert "/usr" in made.runtime


@pytest.mark.parametrize("name", ["/root", "/home", "/etc", "/var", "/proc", "/sys", "/run", "/boot"])
def test_given_nothing_but_a_program_when_planned_then_the_rest_of_the_host_is_not_mounted(name: str) -> None:
    assert all(m.target != name and m.source != name for m in plan(["sh"]).mounts)


def test_given_the_home_as_workspace_when_planned_then_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be the workspace"):
        plan(workspace=str(tmp_path), home=str(tmp_path))


def test_given_the_root_as_workspace_when_planned_then_it_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be the workspace"):
        plan(workspace="/")


def test_given_a_link_to_the_home_as_workspace_when_planned_then_it_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    link(tmp_path / "alias", home)
    with pytest.raises(ValueError, match="cannot be the workspace"):
        plan(workspace=str(tmp_path / "alias"), home=str(home))


def test_given_the_home_through_a_link_as_workspace_when_planned_then_it_is_refused(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    alias = link(tmp_path / "alias", real)
    with pytest.raises(ValueError, match="cannot be the workspace"):
        plan(workspace=str(real), home=str(alias))


def test_given_a_workspace_when_planned_then_it_is_copy_on_write_at_its_own_path(tmp_path: Path) -> None:
    made = plan(workspace=str(tmp_path))
    assert Mount(str(tmp_path), str(tmp_path), "cow") in made.mounts
    assert str(tmp_path) not in made.runtime


def test_given_a_program_of_the_workspace_when_planned_then_it_is_no_part_of_the_runtime(tmp_path: Path) -> None:
    tool = script(tmp_path / "work/.venv/bin/tool")
    made = plan([str(tool)], workspace=str(tmp_path / "work"))
    assert not any(root.startswith(str(tmp_path)) for root in made.runtime)


def test_given_this_interpreter_when_planned_then_its_installation_is_runtime_and_shown() -> None:
    made = plan([sys.executable])
    visible = tuple(m.target for m in made.mounts) + tuple(made.symlinks)
    real = os.path.realpath(sys.executable)
    assert any(real == v or real.startswith(v + "/") for v in visible)
    assert any(real == v or real.startswith(v + "/") for v in made.runtime)


def test_given_mounts_below_one_another_when_planned_then_the_outer_one_comes_first(tmp_path: Path) -> None:
    deep = Mount(str(tmp_path), "/srv/a/b/c", "ro")
    outer = Mount(str(tmp_path), "/srv/a")
    targets = [m.target for m in plan(mounts=[deep, outer]).mounts]
    assert targets.index("/srv/a") < targets.index("/srv/a/b/c")


def test_given_a_mount_of_the_users_when_planned_then_it_is_taken_as_it_is(tmp_path: Path) -> None:
    wanted = Mount(str(tmp_path), "/data", "ro")
    assert wanted in plan(mounts=[wanted]).mounts


def test_given_a_file_system_mounted_below_a_shown_tree_when_planned_then_it_has_a_mount_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inner = tmp_path / "work/with space/inner"
    inner.mkdir(parents=True)
    escaped = str(inner).replace(" ", "\\040")
    table = tmp_path / "mountinfo"
    table.write_text(
        f"30 1 0:20 / / rw - ext4 /dev/vda rw\n"
        f"31 30 0:21 / {escaped} rw,relatime shared:1 - tmpfs tmpfs rw\n"
        f"32 30 0:22 / {tmp_path}/elsewhere rw - tmpfs tmpfs rw\n"
    )
    real_open = open

    def redirected(path: object, *args: object, **options: object) -> object:
        return real_open(table if path == "/proc/self/mountinfo" else path, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", redirected)
    made = plan(workspace=str(tmp_path / "work"))
    assert Mount(str(inner), str(inner)) in made.mounts
    assert not any(m.source.endswith("elsewhere") for m in made.mounts)
    targets = [m.target for m in made.mounts]
    assert targets.index(str(tmp_path / "work")) < targets.index(str(inner))


def test_given_a_search_path_with_hidden_parts_when_planned_then_the_inside_has_only_the_visible(
    tmp_path: Path,
) -> None:
    tool = script(tmp_path / "shown/bin/tool")
    hidden = tmp_path / "hidden/bin"
    hidden.mkdir(parents=True)
    made = plan([str(tool)], search=f"{hidden}:{tool.parent}:/usr/bin:{tool.parent}:")
    parts = made.path.split(":")
    assert parts[:2] == [str(tool.parent), "/usr/bin"]
    assert str(hidden) not in parts
    assert "" not in parts, "an empty part would mean the current directory"
    assert len(parts) == len(set(parts))
    assert {"/usr/local/bin", "/bin", "/usr/sbin", "/sbin"} <= set(parts)


def test_given_a_tree_inside_one_already_shown_when_planned_then_it_is_not_mounted_twice(tmp_path: Path) -> None:
    tool = script(tmp_path / "p/bin/tool")
    nested = script(tmp_path / "p/libexec/n/bin/nested")
    made = plan([str(tool), str(nested)])
    assert [m.target for m in made.mounts if m.target.startswith(str(tmp_path))] == [str(tmp_path / "p")]
