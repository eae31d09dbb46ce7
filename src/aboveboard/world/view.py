"""What of the host a world shows: a plan made before anything is mounted.

Only what is listed is visible; the rest of the host (homes, ``/etc`` secrets, sockets, other mounts) does not exist
inside. The plan is a list of ``Mount``; the classes of the event record's ``roots`` come from it, so that the judge
knows which paths are the runtime's, fixed before the candidate runs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

SYSTEM_TREES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix")
"""Trees of the operating system, shown copy-on-write where they exist."""

ETC_ENTRIES = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "default/locale",
    "environment",
    "fonts",
    "gai.conf",
    "gnutls",
    "groff",
    "gss",
    "host.conf",
    "inputrc",
    "issue",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "locale.gen",
    "localtime",
    "login.defs",
    "lsb-release",
    "magic",
    "mailcap",
    "mime.types",
    "os-release",
    "perl",
    "pki",
    "profile",
    "protocols",
    "python3",
    "python3.11",
    "python3.12",
    "python3.13",
    "rpc",
    "services",
    "sgml",
    "shells",
    "skel",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssl/cert.pem",
    "terminfo",
    "timezone",
    "vim",
    "xattr.conf",
    "xdg",
    "xml",
]
"""Entries of ``/etc`` that hold no secret and that programs need. All else in ``/etc`` is synthetic or absent."""

if os.path.isdir("/etc"):  # Debian keeps what a Java runtime cannot start without in /etc/java-17-openjdk and the like
    ETC_ENTRIES += sorted(name for name in os.listdir("/etc") if name.startswith("java-"))

SYS_ENTRIES = ("/sys/devices/system/cpu", "/sys/kernel/mm/transparent_hugepage")
"""Parts of sysfs that runtimes read to size their pools."""

HOME = "/home/dev"
USER = "dev"
UID = 1000
HOSTNAME = "dev-laptop"
CA_BUNDLE = "/etc/ssl/ca-bundle.pem"
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO")
"""Where clients of the common TLS libraries are told to find the trust store of a company's network."""


@dataclass(frozen=True)
class Mount:
    """A host directory or file shown inside a world.

    ``mode`` is ``cow`` (copy-on-write: changes go to the witness layer, the host is untouched) or ``ro``.
    """

    source: str
    target: str
    mode: str = "cow"


@dataclass
class View:
    """The mount plan of one world and the classes of paths it yields."""

    mounts: list[Mount] = field(default_factory=list)
    symlinks: dict[str, str] = field(default_factory=dict)
    runtime: list[str] = field(default_factory=list)
    path: str = ""

    def add(self, mount: Mount) -> None:
        """Add a mount unless its target already shows the same source."""
        if mount not in self.mounts and not self._covered(mount):
            self.mounts.append(mount)

    def _covered(self, mount: Mount) -> bool:
        if mount.source != mount.target:
            return False
        return any(
            m.source == m.target and m.mode == mount.mode and _inside(mount.target, m.target) for m in self.mounts
        )


def _inside(path: str, tree: str) -> bool:
    return path == tree or path.startswith(tree.rstrip("/") + "/")


def find_program(name: str, search: str | None, cwd: str | None = None) -> str | None:
    """The path a shell would run for ``name`` on the host, or None."""
    if "/" in name:
        path = os.path.normpath(os.path.join(cwd or os.getcwd(), name))
        return path if os.path.exists(path) else None
    for directory in (search or os.defpath).split(":"):
        path = os.path.join(directory or ".", name)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return os.path.abspath(path)
    return None


def _link_chain(path: str) -> list[str]:
    """``path`` and every path its symbolic links lead through, ending in the real one."""
    seen: list[str] = []
    while path not in seen and len(seen) < 40:
        seen.append(path)
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    real = os.path.realpath(path)
    if real not in seen:
        seen.append(real)
    return seen


def _interpreter(path: str, search: str | None) -> str | None:
    """The interpreter that a ``#!`` line names."""
    try:
        with open(path, "rb") as f:
            line = f.readline(256)
    except OSError:
        return None
    if not line.startswith(b"#!"):
        return None
    words = os.fsdecode(line[2:]).split()
    if not words:
        return None
    if os.path.basename(words[0]) == "env":
        names = [w for w in words[1:] if not w.startswith("-") and "=" not in w]
        return find_program(names[0], search) if names else None
    return words[0]


def program_trees(program: str, search: str | None, home: str) -> list[str]:
    """Host directories outside the system trees that ``program`` needs to run: its installation prefix,
    that of the interpreter it names, and the base of a Python virtual environment."""
    trees: list[str] = []
    pending = [program]
    seen: set[str] = set()
    while pending and len(seen) < 64:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        for hop in _link_chain(path):
            interpreter = _interpreter(hop, search)
            if interpreter:
                pending.append(interpreter)
            if any(_inside(hop, tree) for tree in SYSTEM_TREES):
                continue
            directory = os.path.dirname(hop)
            if os.path.basename(directory) not in {"bin", "sbin"}:
                trees.append(hop)
                continue
            prefix = os.path.dirname(directory)
            if prefix in {"/", home} or os.path.basename(prefix) == ".local":
                trees += [os.path.join(prefix, part) for part in ("bin", "lib") if prefix != "/"]
                continue
            trees.append(prefix)
            real = os.path.realpath(prefix)
            if real != prefix:
                trees.append(real)
            try:
                with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8", errors="replace") as f:
                    for line in f:
                        key, _, value = line.partition("=")
                        if key.strip() == "home":
                            pending.append(os.path.join(value.strip(), "python3"))
            except OSError:
                pass
    return [t for t in dict.fromkeys(trees) if os.path.exists(t)]


def _submounts(trees: list[str]) -> list[str]:
    """Mount points below ``trees``: an overlay does not show them, so each needs a mount of its own."""
    found = []
    try:
        with open("/proc/self/mountinfo", "rb") as f:
            for line in f:
                fields = line.split()
                point = os.fsdecode(fields[4].decode("unicode_escape").encode("latin-1"))
                if any(point != t and _inside(point, t) for t in trees) and os.path.isdir(point):
                    found.append(point)
    except OSError:
        pass
    return found


def plan_view(
    programs: list[str],
    *,
    workspace: str | None,
    mounts: list[Mount],
    search: str | None = None,
    home: str | None = None,
) -> View:
    """Plan what a world shows.

    ``programs`` are the programs known beforehand (names or paths); their installations are shown. ``search`` is the
    host's ``PATH``. Raises ValueError when the workspace is the home directory or the root.
    """
    home = home or os.path.expanduser("~")
    search = search if search is not None else os.environ.get("PATH", os.defpath)
    view = View()
    for tree in SYSTEM_TREES:
        if os.path.islink(tree):
            view.symlinks[tree] = os.readlink(tree)
            view.runtime.append(tree)
        elif os.path.isdir(tree):
            view.add(Mount(tree, tree))
            view.runtime.append(tree)
    for name in programs:
        program = find_program(name, search, workspace)
        if program is None:
            continue
        for tree in program_trees(program, search, home):
            if workspace and _inside(tree, workspace):
                continue
            view.add(Mount(tree, tree, "cow" if os.path.isdir(tree) else "ro"))
            view.runtime.append(tree)
    if workspace:
        real = os.path.realpath(workspace)
        if real in {"/", os.path.realpath(home)}:
            raise ValueError(f"{workspace} as a whole cannot be the workspace")
        view.add(Mount(workspace, workspace))
    for point in _submounts([m.source for m in view.mounts if m.source == m.target]):
        view.mounts.append(Mount(point, point))
    for mount in mounts:
        view.mounts.append(mount)
    view.mounts.sort(key=lambda m: m.target.count("/"))
    visible = [m.target for m in view.mounts] + list(view.symlinks)
    parts = [p for p in search.split(":") if p and any(_inside(p, v) for v in visible)]
    parts += [p for p in ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin") if p not in parts]
    view.path = ":".join(dict.fromkeys(parts))
    return view
