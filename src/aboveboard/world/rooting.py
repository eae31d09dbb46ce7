"""Build the world's root: namespaces, copy-on-write overlays, devices, synthetic ``/etc`` and home.

Runs in the supervisor, once, before the candidate exists. Nothing of the host is written: all changes land on a
tmpfs that only the supervisor holds descriptors of, which is the persistent-change witness.
"""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from . import _linux as linux
from .view import ETC_ENTRIES, HOME, HOSTNAME, SYS_ENTRIES, UID, USER, Mount, View

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_STAGE = ("/sys", "/mnt", "/media", "/srv")
_SKELETON = (
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/tmp", 0o1777),
    ("var/lib", 0o755),
    ("var/cache", 0o755),
    ("var/log", 0o755),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("run/user", 0o755),
    (f"run/user/{UID}", 0o700),
    ("dev", 0o755),
    ("dev/pts", 0o755),
    ("dev/shm", 0o1777),
    ("proc", 0o555),
    ("sys", 0o555),
    ("sys/fs", 0o555),
    ("sys/fs/cgroup", 0o555),
    ("etc", 0o755),
    ("home", 0o755),
    (HOME[1:], 0o755),
    ("mnt", 0o755),
    ("srv", 0o755),
    ("root", 0o700),
)


class StepFailed(Exception):
    """A step of building the world failed; ``step`` names it for ``doctor``."""

    def __init__(self, step: str, error: OSError) -> None:
        super().__init__(f"{step}: {error.strerror or error}")
        self.step = step
        self.error = error


@dataclass
class Layer:
    """One overlay: where it is mounted inside, descriptors of its upper and lower directories, and the mode its root
    was given (the lower's, but for a directory that is not the user's to write in)."""

    target: str
    upper: int
    lower: int
    mode: int = 0o755


@dataclass
class Root:
    """A built root. ``layers`` are the persistent-change witness; descriptors stay valid after the pivot."""

    layers: list[Layer] = field(default_factory=list)
    made: set[str] = field(default_factory=set)
    """Directories and files made inside a layer to mount on: no change of the candidate's."""
    scratch: int = -1


def step(name: str, action: Callable[[], object]) -> None:
    """Run one step; an OSError becomes ``StepFailed`` with the step's name."""
    try:
        action()
    except OSError as e:
        raise StepFailed(name, e) from e


def enter_namespaces() -> None:
    """unshare(2) everything but the pid namespace and map one id: the caller's becomes 1000 inside."""
    uid, gid = os.geteuid(), os.getegid()
    step(
        "unshare(CLONE_NEWUSER)",
        lambda: linux.unshare(linux.CLONE_NEWUSER),
    )

    def write_map(name: str, text: str) -> Callable[[], None]:
        def write() -> None:
            fd = os.open(f"/proc/self/{name}", os.O_WRONLY)
            try:
                os.write(fd, text.encode())
            finally:
                os.close(fd)

        return write

    try:
        write_map("setgroups", "deny")()
    except OSError:
        pass  # kernels before 3.19 have no such file
    step("write uid_map", write_map("uid_map", f"{UID} {uid} 1\n"))
    step("write gid_map", write_map("gid_map", f"{UID} {gid} 1\n"))
    step(
        "unshare(mount, network, ipc, uts)",
        lambda: linux.unshare(
            linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS | linux.CLONE_NEWCGROUP
        ),
    )


def _makedirs(path: str) -> None:
    os.makedirs(path, mode=0o755, exist_ok=True)


def _write_file(path: str, data: bytes, mode: int = 0o644) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def _copy_etc(skeleton: str, synthetic: dict[str, bytes]) -> list[str]:
    """Copy small files and links of ``ETC_ENTRIES``; return the directories and large files to bind instead."""
    binds = []
    for entry in ETC_ENTRIES:
        source, target = f"/etc/{entry}", f"{skeleton}/etc/{entry}"
        try:
            info = os.lstat(source)
        except OSError:
            continue
        if "/" in entry:
            _makedirs(os.path.dirname(target))
        if stat.S_ISLNK(info.st_mode):
            os.symlink(os.readlink(source), target)
        elif stat.S_ISREG(info.st_mode) and info.st_size <= 1 << 18:
            try:
                with open(source, "rb") as f:
                    _write_file(target, f.read())
            except PermissionError:
                continue
        elif stat.S_ISDIR(info.st_mode):
            os.mkdir(target)
            binds.append(source)
    for path, data in synthetic.items():
        _write_file(skeleton + path, data)
    return binds


def _bind_readonly(source: str, target: str, *, recursive: bool = False) -> None:
    linux.mount(source, target, flags=linux.MS_BIND | (linux.MS_REC if recursive else 0))
    flags = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID
    try:
        linux.mount("", target, flags=flags)
    except OSError:
        # Flags of a mount inherited from the host are locked: repeat the ones it has.
        locked = os.statvfs(target).f_flag & (linux.MS_NODEV | linux.MS_NOEXEC)
        linux.mount("", target, flags=flags | locked)


def _overlay(root: Root, stage: str, target: str, lower: str) -> None:
    number = len(root.layers)
    upper, work = f"{stage}/up/{number}", f"{stage}/work/{number}"
    lower_fd = os.open(lower, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    mode = stat.S_IMODE(os.fstat(lower_fd).st_mode)
    os.mkdir(upper, 0o755)
    # The merged root takes the upper's mode and owner: keep a host directory that is not the user's unwritable.
    os.chmod(upper, mode | 0o700 if os.access(lower, os.W_OK) else mode & ~0o222 | 0o500)
    os.mkdir(work, 0o700)
    options = f"lowerdir=/proc/self/fd/{lower_fd},upperdir={upper},workdir={work},userxattr"
    step(f"mount overlay on {target}", lambda: linux.mount("overlay", f"{stage}/root{target}", "overlay", data=options))
    upper_fd = os.open(upper, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    root.layers.append(Layer(target, upper_fd, lower_fd, stat.S_IMODE(os.fstat(upper_fd).st_mode)))


def build_root(
    view: View,
    *,
    disk_bytes: int,
    plant: Callable[[str], None],
    etc: dict[str, bytes],
) -> Root:
    """Mount everything and pivot into it. ``plant(directory)`` writes the home (a path below the skeleton root).

    Raises ``StepFailed``.
    """
    step("make mounts private", lambda: linux.mount("", "/", flags=linux.MS_REC | linux.MS_PRIVATE))
    stage = next(d for d in _STAGE if os.path.isdir(d))
    view_sys = {entry: os.open(entry, os.O_PATH) for entry in SYS_ENTRIES if os.path.isdir(entry)}
    old_umask = os.umask(0)
    step(
        "mount tmpfs",
        lambda: linux.mount(
            "tmpfs",
            stage,
            "tmpfs",
            linux.MS_NOSUID | linux.MS_NODEV,
            f"size={disk_bytes},mode=700,nr_inodes={max(10_000, disk_bytes >> 12)}",
        ),
    )
    root = Root(scratch=os.open(stage, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    skeleton = f"{stage}/skel"
    for name in ("skel", "up", "work", "root"):
        os.mkdir(f"{stage}/{name}", 0o755)
    for name, mode in _SKELETON:
        os.mkdir(f"{skeleton}/{name}", mode)
    etc_binds = _copy_etc(skeleton, etc)
    plant(skeleton)
    for path, target in view.symlinks.items():
        os.symlink(target, skeleton + path)
    for name in DEVICES:
        _write_file(f"{skeleton}/dev/{name}", b"")
    for name, target in (
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ):
        os.symlink(target, f"{skeleton}/dev/{name}")
    for entry in view_sys:
        _makedirs(skeleton + entry)
    for mount in view.mounts:
        if not any(mount.target.startswith(m.target.rstrip("/") + "/") for m in view.mounts if m is not mount):
            _mount_point(skeleton, mount)
    _overlay(root, stage, "/", skeleton)
    inside = f"{stage}/root"
    for mount in view.mounts:
        if os.path.isdir(mount.source) and mount.mode == "cow":
            root.made.update(_mount_point(inside, mount))
            _overlay(root, stage, mount.target, mount.source)
        else:
            root.made.update(_mount_point(inside, mount))
            step(
                f"bind {mount.target}",
                partial(_bind_readonly, mount.source, inside + mount.target, recursive=os.path.isdir(mount.source)),
            )
    for source in etc_binds:
        step(f"bind {source}", partial(_bind_readonly, source, inside + source))
    for entry, fd in view_sys.items():
        try:
            _bind_readonly(f"/proc/self/fd/{fd}", inside + entry)
        except OSError:
            pass  # some hosts lock parts of sysfs; runtimes then use their defaults
        os.close(fd)
    for name in DEVICES:
        step(
            f"bind /dev/{name}",
            # Read-only: opening a device for writing still works, changing the host's node does not.
            partial(_bind_readonly, f"/dev/{name}", f"{inside}/dev/{name}"),
        )
    step(
        "mount devpts",
        lambda: linux.mount(
            "devpts", f"{inside}/dev/pts", "devpts", linux.MS_NOSUID | linux.MS_NOEXEC, "newinstance,ptmxmode=0666"
        ),
    )
    os.umask(old_umask)
    return root


def pivot(stage_root: Root) -> None:
    """Make the built tree the root of this mount namespace and detach the host's."""
    inside = f"/proc/self/fd/{stage_root.scratch}/root"
    os.chdir(inside)
    step("pivot_root", lambda: linux.pivot_root(".", "."))
    step("detach the host's root", lambda: linux.umount(".", linux.MNT_DETACH))
    os.chdir("/")


def _mount_point(base: str, mount: Mount) -> list[str]:
    """Create the mount point below ``base`` if it is not there; return what was made, as paths inside."""
    made = []
    path = mount.target
    while path != "/" and not os.path.lexists(base + path):
        made.append(path)
        path = os.path.dirname(path)
    if made and os.path.isdir(mount.source):
        _makedirs(base + mount.target)
    elif made:
        _makedirs(os.path.dirname(base + mount.target))
        _write_file(base + mount.target, b"")
    return made


def set_hostname() -> None:
    """An ordinary name: malware looks for sandbox names (ossf/package-analysis#252)."""
    step("sethostname", lambda: socket.sethostname(HOSTNAME))


def mount_proc(stage_root: Root, *, root_uid: bool) -> None:
    """Mount ``/proc`` of the new pid namespace (called by its PID 1, before the pivot: the kernel grants a new
    procfs only where a whole one is still visible).

    When the world's one user is root outside, the kernel would take it for the owner of ``/proc/sys`` and the
    like (it compares the global id), so these are made read-only or hidden.
    """
    base = f"/proc/self/fd/{stage_root.scratch}/root/proc"
    real = os.readlink(f"/proc/self/fd/{stage_root.scratch}") + "/root/proc"
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    step("mount proc", lambda: linux.mount("proc", base, "proc", flags))
    if not root_uid:
        return
    for name in ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr"):
        path = f"{real}/{name}"
        if os.path.exists(path):
            step(f"make /proc/{name} read-only", partial(_bind_readonly, path, path))
    for name in ("kcore", "keys", "kmsg", "timer_list", "kallsyms"):
        path = f"{real}/{name}"
        if os.path.exists(path):
            step(f"hide /proc/{name}", partial(_bind_readonly, "/dev/null", path))


def passwd_entries() -> dict[str, bytes]:
    """The accounts every world has when no decoys are planted."""
    return {
        "/etc/passwd": f"root:x:0:0:root:/root:/bin/bash\n{USER}:x:{UID}:{UID}:Dev:{HOME}:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n".encode(),
        "/etc/group": f"root:x:0:\n{USER}:x:{UID}:\nnogroup:x:65534:\n".encode(),
        "/etc/hosts": f"127.0.0.1\tlocalhost\n127.0.1.1\t{HOSTNAME}\n::1\tlocalhost ip6-localhost\n".encode(),
        "/etc/hostname": f"{HOSTNAME}\n".encode(),
        "/etc/resolv.conf": b"nameserver 10.0.2.3\n",
        "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\n",
    }
