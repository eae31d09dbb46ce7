"""A target becomes commands: which phases it has and what each of them runs."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aboveboard.contract import Contract
from aboveboard.errors import UsageError
from aboveboard.vet import matrix, phases
from aboveboard.vet.phases import ENVIRONMENT, INPUT, OUTPUT, TASK, TOOL, Calling
from aboveboard.vet.prepare import Prepared
from aboveboard.vet.targets import Kind, Target

PYTHON = "/usr/bin/python3.11"
DEV = matrix.ENVIRONMENTS["dev"]
FUTURE = matrix.ENVIRONMENTS["future"]


def prepared(kind, *, argv=(), inside="tool", **more):
    return Prepared(Target(kind, "given", "label", argv=argv), inside=inside, sha256="", **more)


def package(**more):
    return prepared(Kind.WHEEL, installs=True, install_target=True, name="tool", modules=("tool",), **more)


def plan(target, calling=None, inputs=("in.md",), environment=DEV):
    return phases.plan(target, calling or Calling(), inputs, environment, python=PYTHON)


def spec(step):
    return json.loads(step.argv[-1])


def test_a_package_is_installed_then_imported_then_called_each_in_a_fresh_interpreter():
    made = plan(package(), Calling(entry="tool:convert"))

    assert [(step.phase, step.name) for step in made.install] == [("install", "pip install")]
    assert [step.name for step in made.main] == ["import", "call in.md"]
    assert {step.argv[0] for step in (*made.install, *made.main)} == {f"{ENVIRONMENT}/bin/python"}
    assert made.carry == (ENVIRONMENT,)
    call = spec(made.main[1])
    assert (call["entry"], call["input"], call["output"]) == ("tool:convert", f"{INPUT}/in.md", f"{OUTPUT}/result")


def test_the_installer_reaches_no_index_even_in_an_isolated_build():
    (step,) = plan(package()).install
    assert "--no-index" in step.argv
    assert step.env["PIP_NO_INDEX"] == "1"
    assert step.needed


def test_one_console_script_is_called_with_the_input_when_nothing_is_said():
    made = plan(package(scripts=(("tool", "tool.cli:main"),)))
    call = spec(made.main[-1])
    assert (call["entry"], call["argv"]) == ("tool.cli:main", [f"{INPUT}/in.md"])


@pytest.mark.parametrize("scripts", [(), (("a", "tool:a"), ("b", "tool:b"))])
def test_a_package_of_which_no_call_is_known_is_only_imported_and_says_so(scripts):
    made = plan(package(scripts=scripts))
    assert [step.name for step in made.main] == ["import"]
    assert any("nothing was called" in note for note in made.notes)


def test_an_entry_without_a_function_is_refused():
    with pytest.raises(UsageError, match="no function"):
        plan(package(), Calling(entry="tool"))


def test_every_input_gets_a_call_and_an_output_of_its_own():
    made = plan(package(), Calling(entry="tool:f", output="r.json"), inputs=("a", "b"))
    assert [spec(step)["output"] for step in made.main[1:]] == [f"{OUTPUT}/a.r.json", f"{OUTPUT}/b.r.json"]


def test_a_python_script_runs_under_the_interpreter_with_input_and_output():
    made = plan(prepared(Kind.SCRIPT, argv=("python3", "-u"), inside="run.py"))
    assert made.install == ()
    assert made.main[0].argv == (PYTHON, "-u", f"{TOOL}/run.py", f"{INPUT}/in.md", f"{OUTPUT}/result")
    assert made.main[0].cwd == TASK


def test_a_shell_script_runs_under_its_shell_which_becomes_an_allowed_program():
    made = plan(prepared(Kind.SCRIPT, argv=("/bin/bash", "-e"), inside="run.sh"))
    assert made.main[0].argv[:3] == ("/bin/bash", "-e", f"{TOOL}/run.sh")
    assert "bash" in made.programs


def test_arguments_are_filled_in_and_other_braces_stay():
    calling = Calling(argv=("--in={input}", "-o", "{output}", "{x}", "{}"))
    made = plan(prepared(Kind.SCRIPT, argv=("sh",), inside="run.sh"), calling)
    assert made.main[0].argv[2:] == (f"--in={INPUT}/in.md", "-o", f"{OUTPUT}/result", "{x}", "{}")


def test_a_command_runs_as_it_is():
    made = plan(prepared(Kind.COMMAND, argv=("sort", "{input}")), inputs=("a",))
    assert made.main[0].argv == ("sort", f"{INPUT}/a")
    assert "sort" in made.programs


def test_the_scripts_of_a_skill_are_called_one_after_another_or_the_named_one():
    skill = prepared(
        Kind.SKILL,
        inside="pdf",
        skill_scripts=(("scripts/a.py", ("python3",)), ("scripts/b.sh", ("sh",))),
        instructions=("curl https://get.test | sh",),
    )
    every = plan(skill)
    assert [step.argv[1] for step in every.main] == [f"{TOOL}/pdf/scripts/a.py", f"{TOOL}/pdf/scripts/b.sh"]
    assert every.install == ()
    assert any("did not run" in note for note in every.notes)

    one = plan(skill, Calling(entry="scripts/b.sh", instructions=True))
    assert len(one.main) == 1
    assert one.install[0].argv == ("bash", "-c", "curl https://get.test | sh")

    with pytest.raises(UsageError, match="no script"):
        plan(skill, Calling(entry="scripts/c.py"))


def test_the_clock_is_shifted_where_python_runs_and_the_report_says_how_far_that_goes():
    script = plan(prepared(Kind.SCRIPT, argv=("python3",), inside="run.py"), environment=FUTURE)
    assert spec(script.main[0])["shift"] == FUTURE.clock_shift
    assert any("Python code only" in note for note in script.notes)

    shell = plan(prepared(Kind.SCRIPT, argv=("sh",), inside="run.sh"), environment=FUTURE)
    assert "future: not shifted" in shell.notes


def test_installing_may_write_the_environment_and_calling_may_not():
    made = plan(package(), Calling(entry="tool:f"))
    base = Contract.default()
    target = f"{ENVIRONMENT}/lib/python3.11/site-packages/tool.py"

    install = phases.install_contract(base, made).compile(workspace=TASK, home=phases.HOME)
    main = phases.main_contract(base, made).compile(workspace=TASK, home=phases.HOME)

    assert install.write.match(target)
    assert main.read.match(target)
    assert not main.write.match(target)
    assert main.write.match(f"{OUTPUT}/result")
    assert not main.read.match(f"{phases.HOME}/.ssh/id_ed25519")


def test_compilers_are_allowed_only_while_something_is_built():
    wheel, source = plan(package()), plan(package(builds=True))
    assert "gcc" not in wheel.install_programs
    assert "gcc" in source.install_programs
    assert "gcc" not in source.programs


@given(st.text(max_size=200))
def test_a_safe_name_is_one_plain_path_component(name):
    safe = phases.safe_name(name)
    assert safe
    assert not safe.startswith(".")
    assert set(safe).isdisjoint("/\\*?[]{} \0\n")


def test_an_open_quote_is_a_usage_error():
    with pytest.raises(UsageError):
        phases.split_argv("--name 'open")
    assert phases.split_argv("--name 'a b'") == ("--name", "a b")
