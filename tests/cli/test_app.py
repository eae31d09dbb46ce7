"""However a command ends, its exit code and its last words say what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from aboveboard.cli import COMMANDS, app, main
from aboveboard.errors import TargetError


def aboveboard(*words: str, **settings: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aboveboard", *words], capture_output=True, text=True, check=False, **settings
    )  # type: ignore[call-overload, no-any-return]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> object:
    """Replaces ``aboveboard doctor`` by a command that does what the test says."""

    def install(run: object) -> None:
        import aboveboard.cli.doctor as module

        monkeypatch.setattr(module, "run", run)

    return install


def test_without_a_command_the_help_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert all(name in shown.err for name in COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from aboveboard import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"aboveboard {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_and_its_exit_codes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"aboveboard {name}" in shown
    assert app.EXIT_CODES.strip() in shown


def test_a_misspelt_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tarce", "--json"]) == 2
    assert "did you mean 'trace'?" in capsys.readouterr().err


def test_an_unknown_option_is_a_usage_error_and_never_an_abbreviation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "--js", "evidence"]) == 2
    assert "--js" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["trace"], "no command is given"),
        (["trace", "--"], "no command is given"),
        (["trace", "--", ""], "name is empty"),
        (["trace", "--block", "--", "true"], "--block has nothing to go by"),
        (["trace", "--timeout", "-1", "true"], "not between 0 and a week"),
        (["trace", "--timeout", "nan", "true"], "not between 0 and a week"),
        (["trace", "--out", "", "true"], "--out names no folder"),
        (["trace", "--contract", "missing.toml", "true"], "missing.toml"),
        (["judge", "missing"], "missing"),
        (["judge"], "DIR"),
    ],
)
def test_a_mistake_gets_a_sentence_and_a_next_step(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert reason in shown.err
    assert "Traceback" not in shown.err
    assert "internal error" not in shown.err


def test_evidence_is_never_written_into_a_folder_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("precious")
    assert main(["trace", "--out", str(tmp_path), "true"]) == 2
    assert "not empty" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_file_is_no_folder_for_evidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["trace", "--out", str(tmp_path / "file"), "true"]) == 2
    assert "not a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["trace", "--json", "--", "ls", "--json"], ["ls", "--json"]),
        (["trace", "ls", "-l", "--json"], ["ls", "-l", "--json"]),
        (["trace", "env", "--", "x", "--", "y"], ["env", "--", "x", "--", "y"]),
        (["trace", "--", "--strange"], ["--strange"]),
    ],
)
def test_a_traced_command_keeps_its_own_options(
    words: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import aboveboard.cli.trace as module

    seen: list[list[str]] = []
    monkeypatch.setattr(module, "run", lambda arguments: seen.append(module._command(arguments)) or 0)
    assert main(words) == 0
    assert seen == [expected]


def test_a_deliberate_error_shows_message_and_advice_with_hostile_names_disarmed(
    command: object, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise TargetError("'a\x1b[2Jb.whl' is unreadable", advice="Give\nanother.")

    command(fail)  # type: ignore[operator]
    assert main(["doctor"]) == 2
    assert capsys.readouterr().err == ("aboveboard: error: 'a\\x1b[2Jb.whl' is unreadable\n  Next: Give\\nanother.\n")


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (OSError(28, "No space left on device", "/somewhere/x"), "No space left on device: '/somewhere/x'"),
        (PermissionError(13, "Permission denied", "/somewhere/y"), "Permission denied: '/somewhere/y'"),
        (RecursionError(), "nested too deeply"),
    ],
)
def test_trouble_of_the_system_is_told_without_a_traceback(
    problem: Exception, said: str, command: object, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise problem

    command(fail)  # type: ignore[operator]
    assert main(["doctor"]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "Next: " in shown
    assert "Traceback" not in shown


def test_a_bug_is_never_taken_for_a_verdict(
    command: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> int:
        raise ZeroDivisionError("oops")

    command(fail)  # type: ignore[operator]
    monkeypatch.delenv("ABOVEBOARD_DEBUG", raising=False)
    assert main(["doctor"]) == 2
    shown = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in shown
    assert "test_app.py:" in shown
    assert "Traceback" not in shown
    monkeypatch.setenv("ABOVEBOARD_DEBUG", "1")
    assert main(["doctor"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["--version"], ["trace", "--help"]])
def test_output_that_cannot_be_written_is_an_error(words: list[str], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "aboveboard", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            check=False,
        )
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_went_away_ends_the_command_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "aboveboard", "trace", "--help"],
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_ctrl_c_ends_the_command_cleanly(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys, time
        import aboveboard.cli.doctor as module
        from aboveboard.cli import main
        def run(arguments):
            print("waiting", flush=True)
            time.sleep(60)
        module.run = run
        sys.exit(main(["doctor"]))
    """)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "aboveboard: interrupted\n")
