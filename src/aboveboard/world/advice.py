"""What to do when a step of making a world fails: one table, used by errors and by ``aboveboard doctor``."""

from __future__ import annotations

import errno
import os
import sys

APPARMOR_SWITCH = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
YAMA_SWITCH = "/proc/sys/kernel/yama/ptrace_scope"
_MAX_NAMESPACES = "/proc/sys/user/max_user_namespaces"
_CLONE_SWITCH = "/proc/sys/kernel/unprivileged_userns_clone"


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return ""


def in_container() -> bool:
    """True in what looks like a Docker, Podman or Kubernetes container."""
    return (
        os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv") or "KUBERNETES_SERVICE_HOST" in os.environ
    )


ELSEWHERE = "use a Linux machine, a virtual machine, or WSL 2"


def unsuitable() -> str:
    """Why no world of any tier can be made on this machine, whatever is configured; "" when one might."""
    if sys.platform != "linux":
        return f"worlds need Linux, this is {sys.platform}"
    if os.uname().release.endswith("-Microsoft"):
        return "WSL 1 is no Linux kernel: it has neither namespaces nor seccomp"
    if os.uname().machine not in ("x86_64", "aarch64"):
        return f"the system calls of {os.uname().machine} are not known"
    return ""


def userns_restricted() -> bool:
    """True where AppArmor keeps user namespaces from programs that have no profile (Ubuntu 23.10 and later)."""
    return _read(APPARMOR_SWITCH) == "1" and os.geteuid() != 0


def advice_for(step: str, number: int) -> str:
    """The narrowest fix known for a failing step, for this machine."""
    if (
        step.startswith(("unshare", "write uid_map", "write gid_map", "fork PID 1"))
        or "overlay" in step
        or "mount" in step
    ):
        if userns_restricted():
            return (
                "AppArmor restricts user namespaces here (Ubuntu 23.10 and later). Allow them for this interpreter "
                "only: write a profile that says `userns,` for it (aboveboard doctor prints one), or for all programs: "
                "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
            )
        if _read(_MAX_NAMESPACES) == "0":
            return "user namespaces are switched off: sudo sysctl user.max_user_namespaces=15000"
        if _read(_CLONE_SWITCH) == "0":
            return "unprivileged user namespaces are switched off: sudo sysctl kernel.unprivileged_userns_clone=1"
        if in_container() and step == "mount proc":
            return (
                "the container hides parts of /proc, and the kernel then grants no new one: run with "
                "--security-opt systempaths=unconfined"
            )
        if in_container():
            return (
                "the container's profile forbids it: run with --security-opt seccomp=unconfined --security-opt "
                "apparmor=unconfined (or --privileged), or use --tier N"
            )
        if number == errno.ENOSPC:
            return "the limit of namespaces is reached: close other worlds, or raise user.max_*_namespaces"
    if step == "fanotify_init":
        return "tier R needs root with CAP_SYS_ADMIN in the initial user namespace; without --tier R, tier U is used"
    if step == "landlock":
        return (
            "tiers N and P need Landlock (Linux 5.13): add landlock to the lsm= parameter of the kernel, or allow its "
            "system calls in the container"
        )
    if step.startswith(("copy ", "make a private copy")):
        return "start in a smaller directory, or name one as the workspace; tier U needs no copy"
    if step.startswith("ptrace") or step == "seccomp user notification":
        if _read(YAMA_SWITCH) not in ("", "0", "1"):
            return "Yama forbids looking at one's own child processes: sudo sysctl kernel.yama.ptrace_scope=1"
        if in_container():
            return (
                "the container's profile forbids it: run with --cap-add SYS_PTRACE or --security-opt seccomp=unconfined"
            )
        if step.startswith("seccomp"):
            return "Linux 5.14 or newer is needed for it; --tier P works with ptrace, with less assurance"
    if number == errno.ENOSYS:
        return "the kernel is too old or lacks the feature: Linux 5.14 or newer is needed"
    return "run `aboveboard doctor` to see every step; --tier N works without namespaces, with less assurance"
