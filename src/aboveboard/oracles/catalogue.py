"""The facts the process oracle judges by: effect kinds, witnesses, places and look-alikes. Data, no decisions.

Kinds 1-30 and their benign twins follow the effect catalogue of the design study; ``docs/reference/effects.md`` shows
them for people.
"""

from __future__ import annotations

from typing import NamedTuple

# Classes of effects a world watches. A verdict of "clean" needs each of them complete.
READ = "read"
CHANGE = "change"
TRANSMISSION = "transmission"
PROCESS = "process"
SECRET = "secret"
ESCAPE = "escape"
CLASSES = (READ, CHANGE, TRANSMISSION, PROCESS, SECRET, ESCAPE)

#: Where an effect can be seen: by the operating system, or not at all from there.
OS = "os"
PARTLY = "partly"
OUT_OF_REACH = "out-of-reach"


class Kind(NamedTuple):
    """One kind of effect: what it is, who must see it, what it usually means and what looks like it."""

    number: int
    name: str
    title: str
    channel: str
    witnesses: tuple[str, ...]
    disposition: str
    twin: str
    reach: str = OS
    why: str = ""


KINDS: tuple[Kind, ...] = (
    Kind(
        1,
        "http-post",
        "HTTP(S) request to a host the contract does not name",
        TRANSMISSION,
        ("sink", "packets", "notify"),
        "forbidden",
        "a licence or update check of a host the contract names",
    ),
    Kind(
        2,
        "dns-exfiltration",
        "DNS query for a name the contract does not cover",
        TRANSMISSION,
        ("sink", "packets"),
        "forbidden",
        "one look-up of a host the contract names",
    ),
    Kind(
        3,
        "raw-transmission",
        "UDP, ICMP or other TCP traffic the contract does not name",
        TRANSMISSION,
        ("sink", "packets", "notify"),
        "forbidden",
        "a time query to a server the contract names",
    ),
    Kind(
        4,
        "trusted-host-exfiltration",
        "secret or input content sent to a host the contract names",
        TRANSMISSION,
        ("sink", "canary"),
        "forbidden",
        "a crash report without user data; input sent to a host in share_input",
    ),
    Kind(
        5,
        "covert-channel",
        "secret or input content in the headers, path or query of an allowed request",
        TRANSMISSION,
        ("sink", "canary"),
        "forbidden",
        "ordinary headers",
    ),
    Kind(
        6,
        "listener",
        "a port opened to others",
        TRANSMISSION,
        ("notify",),
        "forbidden",
        "a loopback server of the program's own test or event loop",
    ),
    Kind(
        7,
        "environment-theft",
        "secret environment variables read wholesale or carried off",
        SECRET,
        ("notify", "canary"),
        "forbidden",
        "reading PATH or HOME",
        PARTLY,
        "a getenv inside the process is no system call; the value is seen when it leaves or is written",
    ),
    Kind(
        8,
        "credential-read",
        "a credential file opened",
        READ,
        ("notify",),
        "forbidden",
        "a tool opening its own, non-secret configuration",
    ),
    Kind(
        9,
        "workspace-sweep",
        "many files read that the contract does not name",
        READ,
        ("notify",),
        "forbidden",
        "a walk over the input folder only",
    ),
    Kind(
        10,
        "unrelated-read",
        "a file read that the contract does not name",
        READ,
        ("notify",),
        "forbidden",
        "a sibling data file the contract names",
    ),
    Kind(
        11,
        "agent-socket",
        "connection to a desktop, agent or daemon socket",
        TRANSMISSION,
        ("notify",),
        "forbidden",
        "a socket of the program's own workers",
    ),
    Kind(
        12,
        "out-of-scope-write",
        "a file written where the contract allows none",
        CHANGE,
        ("overlay", "notify"),
        "forbidden",
        "a temporary file renamed into place in scope",
    ),
    Kind(
        13,
        "persistence",
        "a file left where something will run or obey it later",
        CHANGE,
        ("overlay", "notify"),
        "forbidden",
        "a tool writing its own configuration folder",
    ),
    Kind(
        14,
        "tool-tampering",
        "runtime, installed packages, the candidate's own code or a PATH program changed",
        CHANGE,
        ("overlay", "notify"),
        "forbidden",
        "an installation that was asked for; Python's bytecode cache",
    ),
    Kind(
        15,
        "input-tampering",
        "a declared input or another output changed",
        CHANGE,
        ("overlay", "notify"),
        "forbidden",
        "line ends normalised in a file the contract lets be written",
    ),
    Kind(
        16,
        "metadata-change",
        "mode, owner, times or extended attributes changed",
        CHANGE,
        ("overlay", "notify"),
        "forbidden",
        "times preserved on a file the contract names under metadata",
    ),
    Kind(
        17,
        "destruction",
        "files out of scope deleted or overwritten",
        CHANGE,
        ("overlay", "notify"),
        "forbidden",
        "removal of the program's own temporary files",
    ),
    Kind(
        18,
        "child-program",
        "a program started that the contract does not name",
        PROCESS,
        ("notify", "pidns"),
        "forbidden",
        "git --version where git is allowed; ldconfig run by ctypes.util.find_library",
    ),
    Kind(
        19,
        "dropper",
        "a file made during the run, or no file at all, executed",
        PROCESS,
        ("notify", "overlay"),
        "forbidden",
        "a program of the package itself, allowed by digest",
    ),
    Kind(
        20,
        "dynamic-code",
        "code executed that came over the network or never was a file",
        PROCESS,
        ("notify", "sink", "overlay"),
        "forbidden",
        "a template engine compiling its template",
        PARTLY,
        "exec(), marshal, mapping a file to be executed and writable-executable memory are no traced system calls",
    ),
    Kind(
        21,
        "lingering-process",
        "a process that outlives the run",
        PROCESS,
        ("pidns", "notify"),
        "forbidden",
        "a worker pool joined before exit",
    ),
    Kind(
        22,
        "resource-abuse",
        "a resource bound reached",
        PROCESS,
        ("notify", "pidns"),
        "noted",
        "heavy work within the bounds",
    ),
    Kind(
        23,
        "escape-attempt",
        "a call that reaches for more privilege or for other processes",
        ESCAPE,
        ("escape", "notify"),
        "forbidden",
        "a run-time library probing io_uring or clone3",
    ),
    Kind(
        24,
        "evasion-probe",
        "a look for tracers, containers or virtual machines",
        ESCAPE,
        ("notify", "escape"),
        "noted",
        "a system information tool",
        PARTLY,
        "uname, sysinfo, cpuid and timing need no traced call",
    ),
    Kind(
        25,
        "host-fingerprint",
        "host identifiers read",
        READ,
        ("notify", "canary"),
        "noted",
        "a platform banner",
        PARTLY,
        "uname and getuid need no traced call",
    ),
    Kind(
        26,
        "conditional-behaviour",
        "effects that appear in some environments only",
        PROCESS,
        ("notify",),
        "noted",
        "locale-aware output",
        PARTLY,
        "a gate shows only when runs in several environments are compared; one run cannot tell",
    ),
    Kind(
        27,
        "argument-leak",
        "a secret on a command line",
        SECRET,
        ("canary", "notify"),
        "forbidden",
        "a child given the name of a file that holds the secret",
    ),
    Kind(
        28,
        "artefact-leak",
        "a secret hidden in a file left behind",
        SECRET,
        ("canary", "overlay"),
        "forbidden",
        "metadata that was asked for",
    ),
    Kind(
        29,
        "candidate-interference",
        "another candidate or a shared cache changed",
        CHANGE,
        ("overlay", "notify"),
        "forbidden",
        "a shared cache read",
    ),
    Kind(
        30,
        "oracle-tampering",
        "an attack on the observer or on processes that are not its own",
        ESCAPE,
        ("notify", "escape"),
        "forbidden",
        "a program ending its own children",
    ),
)

KIND = {kind.number: kind for kind in KINDS}

#: Per tier, the witnesses each class needs. A tier that is not listed here can prove nothing.
REQUIRED: dict[str, dict[str, tuple[str, ...]]] = {
    "U": {
        READ: ("notify",),
        CHANGE: ("overlay",),
        TRANSMISSION: ("sink", "packets"),
        PROCESS: ("pidns", "notify"),
        SECRET: ("canary",),
        ESCAPE: ("escape",),
    },
    "R": {
        READ: ("notify", "fanotify"),
        CHANGE: ("overlay",),
        TRANSMISSION: ("sink", "packets"),
        PROCESS: ("pidns", "notify"),
        SECRET: ("canary",),
        ESCAPE: ("escape",),
    },
    # Lower tiers do with what is left; a contract accepts them by minimum_tier only.
    "N": {
        READ: ("notify",),
        CHANGE: ("walk",),
        TRANSMISSION: ("notify", "sink"),
        PROCESS: ("notify",),
        SECRET: ("canary",),
        ESCAPE: ("escape",),
    },
    "P": {
        READ: ("ptrace",),
        CHANGE: ("walk",),
        TRANSMISSION: ("ptrace", "sink"),
        PROCESS: ("ptrace",),
        SECRET: ("canary",),
        ESCAPE: ("ptrace",),
    },
}

#: Witnesses of tier U that a lower tier has not, or has in a weaker form only. These classes are never complete there,
#: which is no reason against "clean" for a contract that accepts the tier.
LACKING: dict[str, dict[str, tuple[str, ...]]] = {
    "N": {TRANSMISSION: ("packets",), PROCESS: ("pidns",)},
    # What is opened or run can be another file than the one that was looked at.
    "P": {READ: ("notify",), TRANSMISSION: ("packets",), PROCESS: ("pidns", "notify")},
}

#: What a witness of tier U is called where a lower tier has another in its place.
STANDS_IN: dict[str, dict[str, str]] = {
    "N": {"overlay": "walk", "pidns": "notify"},
    "P": {"overlay": "walk", "pidns": "ptrace", "notify": "ptrace", "escape": "ptrace"},
}

#: Which events a witness contributes; with the witness switched off they are not looked at.
WITNESS_EVENTS: dict[str, frozenset[str]] = {
    "notify": frozenset({"open", "exec", "hash", "fs", "meta", "net", "signal", "probe", "proc", "gone"}),
    "ptrace": frozenset({"open", "exec", "hash", "fs", "meta", "net", "signal", "probe", "proc", "gone", "escape"}),
    "overlay": frozenset({"change"}),
    "walk": frozenset({"change"}),
    "sink": frozenset({"flow"}),
    "packets": frozenset({"packets"}),
    "pidns": frozenset({"pids", "survivor"}),
    "escape": frozenset({"escape"}),
    "fanotify": frozenset({"fanotify"}),
    "canary": frozenset(),
}

#: Where a world answers queries for names.
NAMESERVER = "10.0.2.3"

# ---- places --------------------------------------------------------------------------------------------------------

#: System files every program may look at, whatever the world's ``runtime`` roots say.
RUNTIME_PATHS = frozenset(
    f"/etc/{name}"
    for name in (
        "adjtime", "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "debian_version",
        "default", "environment", "fonts", "gai.conf", "gitconfig", "group", "host.conf", "hosts", "inputrc",
        "issue", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "locale.alias", "locale.conf",
        "localtime", "login.defs", "mailcap", "mime.types", "mke2fs.conf", "networks", "nsswitch.conf", "os-release",
        "lsb-release", "passwd", "pip.conf", "pki", "profile", "profile.d", "protocols", "python3", "resolv.conf",
        "rpc", "sensors3.conf", "services", "shells", "ssl", "terminfo", "timezone", "xdg", "apache2/mime.types",
        "httpd/mime.types", "npmrc", "crypto-policies", "selinux", "wgetrc", "odbc.ini", "magic", "magic.mime",
    )
)  # fmt: skip

#: Endings of paths that hold secrets whether or not the world planted something there. ``/`` anchors a component.
CREDENTIAL_ENDINGS = (
    "/.netrc", "/_netrc", "/.pypirc", "/.npmrc", "/.yarnrc.yml", "/.git-credentials", "/.pgpass", "/.my.cnf",
    "/.env", "/.env.local", "/.env.production", "/.aws/credentials", "/.aws/config", "/.azure/accessTokens.json",
    "/.azure/msal_token_cache.json", "/.config/gcloud/application_default_credentials.json",
    "/.config/gcloud/credentials.db", "/.kube/config", "/.docker/config.json", "/.config/gh/hosts.yml",
    "/.cargo/credentials", "/.cargo/credentials.toml", "/.gem/credentials", "/.huggingface/token",
    "/.cache/huggingface/token", "/.config/huggingface/token", "/.openai/auth.json", "/.codex/auth.json",
    "/.claude.json", "/.claude/.credentials.json", "/.anthropic/api_key", "/.config/opencode/auth.json",
    "/.local/share/opencode/auth.json", "/.gemini/oauth_creds.json", "/.vault-token", "/.terraformrc",
    "/.terraform.d/credentials.tfrc.json", "/.bash_history", "/.zsh_history", "/.python_history", "/.psql_history",
    "/.mysql_history", "/.git/config", "/wallet.dat", "/Login Data", "/logins.json", "/key4.db", "/Cookies",
    "/cookies.sqlite", "/etc/shadow", "/etc/gshadow", "/etc/sudoers",
)  # fmt: skip

CREDENTIAL_DIRECTORIES = ("/.ssh/", "/.gnupg/", "/.password-store/", "/.local/share/keyrings/", "/.electrum/wallets/")
#: Nothing secret lives under these names in the directories above.
CREDENTIAL_HARMLESS = frozenset({"known_hosts", "known_hosts.old", "authorized_keys"})

#: (program, endings): configuration a tool reads on every start; no theft when it is that tool, unmodified.
OWN_CONFIGURATION: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("git", ("/.git/config", "/.gitconfig")),
    ("ssh", ("/.ssh/config",)),
    ("curl", ("/.netrc", "/.curlrc")),
    ("bash", ("/.bash_history",)),
)

#: Paths, or endings of paths, in the home or workspace where something is run or obeyed later.
PERSISTENCE_NAMES = frozenset(
    {
        ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile",
        ".zlogin", ".kshrc", ".xinitrc", ".xprofile", ".xsession", ".pam_environment", ".inputrc", ".vimrc",
        "sitecustomize.py", "usercustomize.py", "CLAUDE.md", "AGENTS.md", "GEMINI.md", ".cursorrules",
        ".windsurfrules", ".clinerules", "SKILL.md", ".mcp.json", ".gitlab-ci.yml", ".travis.yml", "Jenkinsfile",
        "azure-pipelines.yml", ".pre-commit-config.yaml", ".envrc", "crontab", "authorized_keys",
    }
)  # fmt: skip

PERSISTENCE_PARTS = (
    "/.config/autostart/", "/.config/systemd/", "/.local/share/systemd/", "/etc/systemd/", "/etc/init.d/",
    "/etc/cron", "/var/spool/cron/", "/var/spool/at/", "/etc/profile.d/", "/etc/xdg/autostart/", "/.git/hooks/",
    "/.githooks/", "/.husky/", "/.github/workflows/", "/.circleci/", "/.claude/", "/.codex/", "/.cursor/",
    "/.gemini/", "/.opencode/", "/.config/opencode/", "/.openclaw/", "/.vscode/", "/.idea/runConfigurations/",
    "/.local/share/applications/", "/.config/fish/", "/.ipython/profile_default/startup/", "/.bashrc.d/",
    "/.config/environment.d/", "/etc/ld.so.preload", "/.local/share/dbus-1/services/", "/.ssh/config",
    "/.config/git/", "/.gitconfig",
)  # fmt: skip

#: A ``.pth`` line that starts with ``import`` runs at every interpreter start (site module).
PERSISTENCE_ENDINGS = (".pth",)

#: Parts of a path that make a file an installed tool wherever it lies.
TOOL_PARTS = ("/site-packages/", "/dist-packages/", "/node_modules/")
TOOL_DIRECTORIES = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/opt/", "/etc/")
HOME_TOOL_DIRECTORIES = ("/.local/bin/", "/bin/", "/.cargo/bin/", "/go/bin/", "/.npm-global/bin/", "/.local/lib/")

#: Endings that keep a file in such a place from taking effect: git runs no hook called NAME.sample.
PERSISTENCE_INERT = (".sample",)

#: In the home: what well-behaved libraries write without being asked.
HOME_CACHES = (
    "/.cache/", "/.config/", "/.local/share/", "/.local/state/", "/.npm/", "/.node-gyp/", "/.matplotlib/",
    "/.fontconfig/", "/.nv/", "/.keras/", "/.ipython/", "/.jupyter/", "/.bun/", "/.yarn/", "/.cargo/registry/",
    "/.java/", "/.pki/", "/.dbus-keyrings/", "/.astropy/", "/.mplconfig/", "/.triton/",
)  # fmt: skip
HOME_CACHE_FILES = (
    "/.wget-hsts", "/.lesshst", "/.python_history", "/.node_repl_history", "/.sqlite_history", "/.rnd", "/.viminfo",
)  # fmt: skip
#: Outside the home: indexes that system libraries renew by themselves in whatever program uses them.
SYSTEM_CACHES = ("/var/cache/fontconfig/",)

#: Where a temporary file belongs.
TEMPORARY = ("/tmp/", "/var/tmp/", "/dev/shm/", "/run/user/")

FINGERPRINT_PATHS = frozenset(
    {
        "/etc/machine-id", "/var/lib/dbus/machine-id", "/etc/hostid", "/proc/sys/kernel/random/boot_id",
        "/proc/sys/kernel/hostname", "/proc/sys/kernel/osrelease", "/proc/version", "/proc/cmdline",
        "/proc/net/arp", "/proc/net/route", "/etc/hostname", "/proc/mounts", "/proc/self/mounts",
    }
)  # fmt: skip
FINGERPRINT_PREFIXES = ("/sys/class/dmi/", "/sys/devices/virtual/dmi/", "/sys/firmware/", "/dev/disk/by-")
FINGERPRINT_SUFFIXES = ("/address",)  # under /sys/class/net/*: the MAC address

EVASION_PATHS = frozenset(
    {"/.dockerenv", "/run/.containerenv", "/proc/1/cgroup", "/proc/1/sched", "/proc/uptime", "/proc/modules",
     "/proc/kallsyms", "/proc/sys/kernel/yama/ptrace_scope", "/sys/hypervisor/type"}
)  # fmt: skip
#: Files of ``/proc/PID/`` that only tell whether, or by what, a process is watched or confined.
EVASION_PROC_FILES = frozenset({"status", "cgroup", "wchan", "syscall", "mountinfo", "sched", "stack"})

#: Opening these, where it works, gives the whole machine away.
ESCAPE_PATHS = frozenset(
    {"/proc/kcore", "/proc/kmem", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/proc/sysrq-trigger",
     "/sys/kernel/uevent_helper", "/proc/sys/kernel/core_pattern", "/sys/kernel/debug"}
)  # fmt: skip
#: Files of ``/proc/PID/`` no ordinary program writes; ``mem`` is none it reads either.
ESCAPE_PROC_FILES = frozenset({"mem", "uid_map", "gid_map", "setgroups"})

#: Names only the observer's own files bear.
OBSERVER_NAMES = frozenset({"events.jsonl"})
OBSERVER_PARTS = ("/aboveboard/evidence/", "/.aboveboard/")

#: (substring, what it is) of AF_UNIX addresses that lend somebody else's authority.
AGENT_SOCKETS: tuple[tuple[str, str], ...] = (
    ("/tmp/ssh-", "SSH agent"), ("ssh-agent", "SSH agent"), ("S.gpg-agent", "GnuPG agent"),
    ("/keyring", "keyring"), ("dbus/system_bus_socket", "D-Bus"), ("/run/user/", "session socket"),
    ("/tmp/dbus-", "D-Bus"), ("/.X11-unix/", "X11"), ("/wayland-", "Wayland"), ("docker.sock", "Docker"),
    ("containerd", "containerd"), ("podman", "Podman"), ("/pulse/", "PulseAudio"), ("pipewire", "PipeWire"),
    ("/.vscode", "editor"), ("vscode-ipc", "editor"), ("/tmux-", "tmux"), ("/screen/", "screen"),
    ("systemd/private", "systemd"), ("snapd.socket", "snapd"), ("libvirt", "libvirt"), ("agent.sock", "agent"),
    ("1password", "password manager"), ("bitwarden", "password manager"), ("/.gnupg/", "GnuPG agent"),
)  # fmt: skip

# ---- calls and programs --------------------------------------------------------------------------------------------

#: Refused calls that run-time libraries try and do without; everything else refused is an attempt at something.
HARMLESS_CALLS = frozenset(
    {"io_uring_setup", "io_uring_enter", "io_uring_register", "clone3", "rseq", "set_robust_list", "membarrier",
     "set_mempolicy", "get_mempolicy", "mbind", "move_pages", "migrate_pages", "personality",
     "cachestat", "map_shadow_stack", "futex_waitv", "futex_wake", "futex_wait", "futex_requeue", "pkey_alloc",
     "mseal", "statmount", "listmount", "lsm_get_self_attr", "lsm_list_modules",
     "ioprio_set", "sched_setattr", "memfd_secret"}
)  # fmt: skip
#: Signals that end or disturb nobody.
HARMLESS_SIGNALS = frozenset({0, 17, 18, 23, 28})


class LookAlike(NamedTuple):
    """A child that a standard library starts for a harmless look: programs, what their arguments may be, and why."""

    programs: frozenset[str]
    #: Every argument after the program must start with one of these; an empty tuple allows no arguments.
    arguments: tuple[str, ...]
    why: str


LOOK_ALIKES: tuple[LookAlike, ...] = (
    LookAlike(frozenset({"ldconfig", "ldconfig.real"}), ("-p",), "ctypes.util.find_library asks for the loader cache"),
    LookAlike(
        frozenset({"gcc", "cc", "ld"}),
        ("-Wl,-t", "-t", "-o", "/tmp/", "/var/tmp/", "/dev/null", "-l"),
        "ctypes.util.find_library asks the linker",
    ),
    LookAlike(frozenset({"objdump"}), ("-p", "-j", ".dynamic", "/usr/lib", "/lib", "lib"), "ctypes.util asks a soname"),
    LookAlike(frozenset({"uname"}), ("-p", "-m", "-r", "-s", "-a", "-n", "-v"), "platform asks for the processor"),
    LookAlike(frozenset({"file"}), ("-b", "--", "/usr/", "/lib"), "platform.architecture looks at the interpreter"),
    LookAlike(frozenset({"lscpu"}), ("-p", "--parse"), "joblib counts physical cores"),
    LookAlike(frozenset({"lsb_release"}), ("-a",), "distro asks for the distribution"),
    LookAlike(frozenset({"stty"}), ("size", "-a"), "asks for the size of the terminal"),
    LookAlike(frozenset({"locale"}), ("-a", "charmap"), "asks for the locales"),
    LookAlike(
        frozenset({"fc-list"}),
        ("--format=", "-f", "%{", "--help", "--version", "--quiet"),
        "matplotlib lists the fonts",
    ),
    LookAlike(
        frozenset({"fc-cache"}),
        ("-f", "-s", "-v", "-r", "--force", "--system-only", "--verbose", "--really-force", "--version"),
        "fontconfig renews its index of fonts",
    ),
    LookAlike(frozenset({"getconf"}), ("GNU_LIBC_VERSION", "_NPROCESSORS", "PAGE"), "asks for a system constant"),
)

#: ``sh -c TEXT`` with one of these texts is the look-alike it names (platform, ctypes.util, older Python).
LOOK_ALIKE_SHELL = ("uname -p", "uname -m", "uname -r", "/sbin/ldconfig -p", "ldconfig -p")
SHELLS = frozenset({"sh", "dash", "bash"})

#: Programs that only replace themselves by another one.
LAUNCHERS = frozenset({"env", "nice", "nohup", "setsid", "stdbuf", "timeout", "time"})

#: Helpers a compiler driver of a look-alike starts.
COMPILER_HELPERS = frozenset({"collect2", "ld", "ld.bfd", "ld.gold", "lto-wrapper", "as"})
COMPILER_HELPERS_PREFIX = ("x86_64-linux-gnu-", "aarch64-linux-gnu-")

#: Exec of these arranges for something to run later.
SCHEDULERS = frozenset({"at", "batch", "crontab", "systemd-run", "systemctl"})

#: Errors of a call that was refused because of what it reached for. Other errors (nothing there, exists already, not
#: empty ...) are the ordinary course of a program: looking for a file that is not there is no attempt at anything.
BLOCKED = frozenset({"EACCES", "EPERM", "EROFS", "denied"})

#: What the name of a shared library has in it: ``.so``, ``.so.1``, ``.cpython-311-x86_64-linux-gnu.so``.
LIBRARY_NAME = ".so"
#: First bytes of an ELF file in hex, and where its byte order and its type stand (elf(5)); type 3 is a shared object.
ELF_MAGIC = "7f454c46"
ELF_DATA = 5
ELF_TYPE = 16
ELF_SHARED = 3

#: First four bytes of a Python bytecode file end in this (importlib, PEP 552).
PYC_MAGIC_TAIL = "0d0a"
