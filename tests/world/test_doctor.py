"""Doctor says what works, which step does not, and what to do about it; checked on machines that allow less."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time

import pytest

from aboveboard.errors import EnvironmentProblem
from aboveboard.world import World, advice, doctor, rooting
from aboveboard.world import _linux as linux
from aboveboard.world import world as world_module
from aboveboard.world.doctor import Finding, Report, Step, TierFinding, apparmor_profile, attempt

from .confined import Refusal, run_confined

REPORT = """
import json, sys
from aboveboard.world.doctor import report
print(json.dumps(report(sys.argv[1:] or ("U", "N", "P")).to_dict()))
"""
NO_LISTENER = Refusal("seccomp", errno.EPERM, 1, linux.SECCOMP_FILTER_FLAG_NEW_LISTENER)
NESTED = f"""
import os
from aboveboard.world import _linux as linux
uid, gid = os.geteuid(), os.getegid()
linux.unshare(linux.CLONE_NEWUSER)
for name, text in (("setgroups", "deny"), ("uid_map", f"1000 {{uid}} 1"), ("gid_map", f"1000 {{gid}} 1")):
    open(f"/proc/self/{{name}}", "w").write(text)
open("/proc/sys/user/max_user_namespaces", "w").write("0")
{REPORT}
"""


def found(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, object]]:
    """The steps of a report by name, and the tiers by letter."""
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    return {s["name"].strip(): s for s in report["steps"]} | {t["tier"]: t for t in report["tiers"]} | {"": report}


@pytest.fixture(scope="module")
def here(world_available: None) -> Report:
    return doctor.report()


def test_where_worlds_work_every_step_they_need_works(here: Report) -> None:
    assert here.ok
    assert here.tier in ("R", "U")
    assert [s.name for s in here.steps if not s.ok and "U" in s.needed] == []
    assert all(t.ok and all(t.witnesses.values()) for t in here.tiers if t.tier == here.tier)


def test_the_report_is_plain_data_and_readable_text(here: Report) -> None:
    assert json.loads(json.dumps(here.to_dict())) == here.to_dict()
    lines = str(here).split("\n")
    steps = [line for line in lines if line[:5] in ("ok   ", "FAIL ", "no   ")]
    assert len(steps) == len(here.steps)
    column = {line.index(s.detail) for line, s in zip(steps, here.steps, strict=True) if s.detail}
    assert len(column) == 1
    assert lines[-1] == f"Worlds of full assurance work here: tier {here.tier}."


def test_what_a_step_has_started_does_not_outlive_it() -> None:
    def start() -> str:
        pid = os.fork()
        if pid == 0:
            os.execv("/bin/sleep", ["sleep", "60"])
        return str(pid)

    started = time.monotonic()
    ok, pid, _, _ = attempt(start)
    assert ok
    while alive(int(pid)) and time.monotonic() < started + 5:
        os.sched_yield()
    assert not alive(int(pid))
    assert time.monotonic() - started < 5


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def test_where_user_namespaces_are_switched_off_the_switch_is_named(world_available: None) -> None:
    done = subprocess.run([sys.executable, "-c", NESTED], capture_output=True, text=True, check=False, timeout=60)
    things = found(done)
    assert things[""]["ok"] is False
    assert things["user namespace"]["ok"] is False
    assert "sudo sysctl user.max_user_namespaces=" in str(things["user namespace"]["advice"])
    assert "unshare(CLONE_NEWUSER)" in str(things["U"]["detail"])
    assert things["seccomp user notification"]["ok"]
    assert things["N"]["ok"], things["N"]


def test_where_notification_is_refused_tier_p_is_what_is_left(world_available: None) -> None:
    things = found(run_confined(REPORT, [NO_LISTENER]))
    assert things["seccomp user notification"]["ok"] is False
    assert "install a filter with a listener" in str(things["seccomp user notification"]["detail"])
    assert things["user namespace"]["ok"]
    assert [things[t]["ok"] for t in ("U", "N", "P")] == [False, False, True], things


@pytest.mark.parametrize(
    ("refusal", "step", "tiers"),
    [
        (Refusal("landlock_create_ruleset", errno.ENOSYS), "Landlock", ("N", "P")),
        (Refusal("ptrace", errno.EPERM), "ptrace", ("P",)),
        (Refusal("pidfd_getfd", errno.EPERM), "seccomp user notification", ("U", "N")),
        (Refusal("mount", errno.EPERM), "overlay on tmpfs (userxattr)", ("U",)),
        (Refusal("process_vm_readv", errno.EPERM), "seccomp user notification", ()),
    ],
)
def test_the_step_that_is_refused_is_the_one_that_fails(
    world_available: None, refusal: Refusal, step: str, tiers: tuple[str, ...]
) -> None:
    things = found(run_confined(REPORT, [refusal], *(tiers or "P")))
    assert things[step]["ok"] is False
    assert things[step]["advice"]
    assert not any(things[tier]["ok"] for tier in tiers)


def test_the_command_exits_2_where_full_assurance_is_not_to_be_had(world_available: None) -> None:
    script = "from aboveboard.cli.app import main; import sys; sys.exit(main(['doctor']))"
    done = run_confined(script, [Refusal("unshare", errno.EPERM)])
    assert done.returncode == 2, done
    assert "FAIL user namespace" in done.stdout
    assert "--tier N" in done.stdout
    done = run_confined(script, [])
    assert done.returncode == 0, done


def test_apparmor_gets_a_profile_for_this_interpreter_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> str:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(advice, "userns_restricted", lambda: True)
    monkeypatch.setattr(doctor, "steps", lambda: (Step("user namespace", refused, ("U", "R"), "unshare"),))
    report = doctor.report(tiers=())
    interpreter = os.path.realpath(sys.executable)
    assert f'"{interpreter}" flags=(unconfined)' in report.apparmor_profile
    assert "  userns,\n" in report.apparmor_profile
    assert report.apparmor_profile in str(report)
    assert "AppArmor restricts user namespaces here" in report.steps[0].advice


def test_a_profile_is_only_printed_where_it_would_help(here: Report) -> None:
    assert here.apparmor_profile == ""


def test_a_profile_quotes_the_path() -> None:
    assert 'profile aboveboard-python3 "/opt/my python/python3"' in apparmor_profile("/opt/my python/python3")


@pytest.mark.parametrize(
    ("platform", "release", "machine", "reason"),
    [
        ("darwin", "23.0", "arm64", "worlds need Linux, this is darwin"),
        ("win32", "10", "AMD64", "worlds need Linux"),
        ("linux", "4.4.0-19041-Microsoft", "x86_64", "WSL 1"),
        ("linux", "6.1.0", "riscv64", "riscv64"),
    ],
)
def test_on_a_machine_that_cannot_nothing_is_run(
    monkeypatch: pytest.MonkeyPatch, platform: str, release: str, machine: str, reason: str
) -> None:
    real = os.uname()
    monkeypatch.setattr(advice.sys, "platform", platform)
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*real[:2], release, real[3], machine)))
    monkeypatch.setattr(doctor, "try_tier", lambda _: pytest.fail("a world was started"))
    monkeypatch.setattr(doctor, "attempt", lambda *_: pytest.fail("a step was tried"))
    report = doctor.report()
    assert not report.ok
    assert reason in report.steps[0].detail
    assert "nothing untrusted is run" in str(report)


def test_a_world_on_such_a_machine_is_refused_before_anything_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "unsuitable", lambda: "WSL 1 is no Linux kernel")
    monkeypatch.setattr(world_module.SPAWNER, "spawn", lambda *_: pytest.fail("a supervisor was started"))
    with pytest.raises(EnvironmentProblem, match="WSL 1") as caught:
        World().start()
    assert caught.value.advice


def test_wsl_2_is_a_linux_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.uname()
    release = "5.15.153.1-microsoft-standard-WSL2"
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*real[:2], release, *real[3:])))
    assert advice.unsuitable() == ""
    assert "WSL 2" in doctor.machine()["inside"]


def test_a_step_that_hangs_or_dies_is_a_finding() -> None:
    start = time.monotonic()
    ok, detail, number, _ = attempt(lambda: str(os.read(os.pipe()[0], 1)), seconds=0.2)
    assert (ok, number) == (False, errno.ETIMEDOUT)
    assert time.monotonic() - start < 5
    assert not attempt(lambda: str(os.kill(os.getpid(), 9)))[0]
    assert detail


def test_what_a_step_says_is_passed_on_with_its_errno_and_the_part_that_failed() -> None:
    def part() -> str:
        raise rooting.StepFailed("mount proc", OSError(errno.EACCES, "no"))

    def surprise() -> str:
        raise ValueError("odd")

    def refused() -> str:
        raise OSError(errno.EPERM, "not here")

    assert attempt(lambda: "fine") == (True, "fine", 0, "")
    assert attempt(part) == (False, "no", errno.EACCES, "mount proc")
    assert attempt(refused) == (False, "not here", errno.EPERM, "")
    assert attempt(surprise) == (False, "ValueError: odd", 0, "")


def test_text_from_elsewhere_cannot_rewrite_the_screen() -> None:
    report = Report(
        {"kernel": "Linux \x1b[2J"},
        (Finding("step", False, "\x1b]0;x\x07", ("U",), ""),),
        (TierFinding("U", False, {}, "bad\r\n"),),
    )
    assert not any(c in str(report) for c in "\x1b\x07\r")


def test_what_starts_without_all_its_witnesses_is_not_called_working() -> None:
    blind = TierFinding("U", False, {"sink": True, "overlay": False})
    report = Report({}, (), (blind,))
    assert not report.ok
    assert "did not see its canary: overlay" in str(report)
