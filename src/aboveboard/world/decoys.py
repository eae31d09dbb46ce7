"""The home directory inside a world: ordinary files, and secrets that are worth stealing and worth nothing.

Each secret holds a *canary*: a random text that exists nowhere else, derived from the seed of the world. An open
of such a file is one witness of theft; the canary found in a payload, an argument or an artifact is another,
independent of how the file was read.

What stands where is data: ``data/home.tree``. Its format::

    === KIND MODE AGE PATH     a file (a directory when PATH ends in "/"); KIND "-" is no secret; AGE in days
    text                       its content; ``@file NAME`` takes a file of data/, ``@escapes`` reads \\xNN escapes,
                               ``@ssh TYPE COMMENT`` and ``@sshpub TYPE COMMENT`` make an OpenSSH key
    «alphabet:n»               n random characters; with ``!`` before the alphabet they are a canary
    «name»                     a value shared by the whole tree, declared in the ``=== vars`` section

No file says that it is bait, and no secret is one that an ordinary tool sends to a public registry by itself (so a
permitted ``npm install`` does not look like a leak); ``docs/reference/decoys.md`` lists the exceptions.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import stat
import struct
import time

KINDS = ("ssh", "cloud", "registry", "ai-tool", "browser", "wallet", "env-file", "history", "keyring", "git")
"""Every kind a decoy may have."""

CANARY_CHARACTERS = 32
"""A canary is at most this long: the start of the secret, so that a thief who cuts a long token is still seen."""

_DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
_OPEN, _CLOSE = "«".encode(), "»".encode()
_DIGITS, _LOWER = "0123456789", "abcdefghijklmnopqrstuvwxyz"
_ALNUM = _LOWER.upper() + _LOWER + _DIGITS
_ALPHABETS = {
    "digit": _DIGITS,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "lower": _LOWER + _DIGITS,
    "upper": _LOWER.upper() + "234567",
    "alpha": _LOWER.upper() + _LOWER,
    "alnum": _ALNUM,
    "b64": _ALNUM + "+/",
    "b64u": _ALNUM + "-_",
    "b58": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
}
_TRANSLATE = {name: bytes(ord(chars[i % len(chars)]) for i in range(256)) for name, chars in _ALPHABETS.items()}
_TRANSLATE["bytes"] = bytes(range(256))
# 64 words of the BIP-39 English list: twelve of them are 72 bits.
_WORD_LIST = (
    "abandon access acoustic adjust agree alarm amount ankle april arrest artist aspect autumn balance banner beach "
    "border brave bridge bronze cabin canvas carbon castle cereal cherry citizen clarify copper cotton cradle crystal "
    "dentist desert dinner dolphin dragon eagle elder emerge engine estate fabric falcon fiscal fossil galaxy garlic "
    "ginger glance harvest hazard hidden hockey island jungle kernel lemon marble mirror napkin ocean pepper sunset"
)
_WORDS = _WORD_LIST.split()


class Decoy:
    """A secret planted in a world.

    ``path`` is absolute inside the world, ``kind`` one of :data:`KINDS`, ``canary`` a text that occurs in the bytes of
    the file. A file with several secrets has several decoys.
    """

    __slots__ = ("canary", "kind", "path")

    def __init__(self, path: str, kind: str, canary: str) -> None:
        self.path = path
        self.kind = kind
        self.canary = canary

    def __repr__(self) -> str:
        return f"Decoy(path={self.path!r}, kind={self.kind!r}, canary={self.canary!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Decoy):
            return NotImplemented
        return (self.path, self.kind, self.canary) == (other.path, other.kind, other.canary)

    def __hash__(self) -> int:
        return hash((self.path, self.kind, self.canary))


class _Slot:
    """A place in a template for ``count`` random characters."""

    __slots__ = ("alphabet", "count", "secret")

    def __init__(self, text: str) -> None:
        self.secret = text.startswith("!")
        self.alphabet, _, count = text.lstrip("!").partition(":")
        self.count = int(count)

    def fill(self, random: bytes) -> bytes:
        if self.alphabet == "u8":  # three digits each, so that the length does not depend on the values
            return b",".join(b"%d" % (100 + b % 156) for b in random)
        if self.alphabet == "words":
            return " ".join(_WORDS[b % len(_WORDS)] for b in random).encode()
        return random.translate(_TRANSLATE[self.alphabet])


_Part = bytes | str | _Slot  # literal bytes, the name of a shared value, or a place for random characters


class _File:
    """One entry of the tree, parsed: ``parts`` is None for a directory."""

    __slots__ = ("age", "key", "kind", "mode", "parts", "path", "random_bytes")

    def __init__(self, kind: str, mode: int, age: float, path: str, content: bytes | None) -> None:
        self.kind = kind
        self.mode = mode
        self.age = age
        self.path = _split(path.encode())
        self.key: tuple[str, bool, list[_Part]] | None = None
        self.parts: list[_Part] | None = None
        self.random_bytes = 0
        if content is not None:
            self._read(content)

    def _read(self, content: bytes) -> None:
        first, _, rest = content.partition(b"\n")
        directive, _, argument = first.decode().partition(" ")
        if directive == "@file":
            with open(os.path.join(_DATA, argument), "rb") as f:
                self.parts = _split(f.read())
        elif directive == "@escapes":
            text = rest.removesuffix(b"\n")
            self.parts = [_unescape(p) if isinstance(p, bytes) else p for p in _split(text)]
        elif directive in ("@ssh", "@sshpub"):
            algorithm, _, comment = argument.partition(" ")
            self.key = (algorithm, directive == "@ssh", _split(comment.encode()))
            self.parts = []
        else:
            self.parts = _split(content)
        self.random_bytes = _random_bytes(self.parts)


def _random_bytes(parts: list[_Part]) -> int:
    """How many random bytes :func:`_fill` needs for a template."""
    return sum([part.count for part in parts if isinstance(part, _Slot)])


def _unescape(literal: bytes) -> bytes:
    return literal.decode("unicode_escape").encode("latin-1")


def _split(template: bytes) -> list[_Part]:
    pieces = template.split(_OPEN)
    parts: list[_Part] = [pieces[0]]
    for piece in pieces[1:]:
        inner, _, literal = piece.partition(_CLOSE)
        text = inner.decode()
        if ":" in text:
            slot = _Slot(text)
            # A slot in a database stands padded to the length of its value (data/rebuild.py).
            parts += [slot, literal[len(literal) - len(literal.lstrip(b"\x7f")) :]]
        else:
            parts += [text, literal]
    return [p for p in parts if p != b""]


class _Tree:
    """``data/home.tree``, parsed once a process."""

    def __init__(self, text: str) -> None:
        self.shared: list[tuple[str, str, str]] = []
        self.environ: list[tuple[str, list[_Part]]] = []
        self.files: list[_File] = []
        for section in ("\n" + text).split("\n=== ")[1:]:
            head, _, body = section.partition("\n")
            if head == "vars":
                for line in body.split("\n"):
                    name, _, rule = line.partition(" ")
                    alphabet, _, argument = rule.strip().partition(":")
                    if name:
                        self.shared.append((name, alphabet, argument))
            elif head == "environ":
                for line in body.split("\n"):
                    name, _, value = line.partition("=")
                    if name:
                        self.environ.append((name, _split(value.encode())))
            else:
                kind, mode, age, path = head.split(" ", 3)
                content = None if path.endswith("/") else (body.rstrip("\n") + "\n").encode()
                self.files.append(_File("" if kind == "-" else kind, int(mode, 8), float(age), path, content))


_tree: _Tree | None = None


def _load() -> _Tree:
    # Two threads may both parse it; the results are equal and the last one stays.
    global _tree
    if _tree is None:
        with open(os.path.join(_DATA, "home.tree"), encoding="utf-8") as f:
            _tree = _Tree(f.read())
    return _tree


def _random(seed: bytes, purpose: str, size: int) -> bytes:
    """``size`` bytes that depend on every byte of both arguments (SHAKE-256 as a key derivation function)."""
    return hashlib.shake_256(len(seed).to_bytes(8, "big") + seed + os.fsencode(purpose)).digest(size)


def _shared_values(tree: _Tree, seed: bytes, home: str, user: str, now: float) -> dict[str, bytes]:
    values = {
        "home": os.fsencode(home),
        "user": user.encode(),
        "soon_s": b"%d" % (now + 7 * 86400),
        "soon_ms": b"%d" % ((now + 7 * 86400) * 1000),
        "soon_iso": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + 7 * 86400)).encode(),
        "past_s": b"%d" % (now - 3 * 86400),
        "past_iso": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - 3 * 86400)).encode(),
    }
    for name, alphabet, argument in tree.shared:
        if alphabet == "pick":
            choices = argument.split()
            values[name] = choices[_random(seed, "pick " + name, 1)[0] % len(choices)].encode()
        else:
            values[name] = _random(seed, "shared " + name, int(argument)).translate(_TRANSLATE[alphabet])
    return values


def _fill(parts: list[_Part], random: bytes, values: dict[str, bytes]) -> tuple[bytes, list[str]]:
    """The bytes of a template, and the canaries in them."""
    out: list[bytes] = []
    canaries: list[str] = []
    position = 0
    for part in parts:
        if isinstance(part, bytes):
            out.append(part)
        elif isinstance(part, str):
            out.append(values[part])
        else:
            end = position + part.count
            text = part.fill(random[position:end])
            position = end
            out.append(text)
            if part.secret:
                canaries.append(text[:CANARY_CHARACTERS].decode("ascii").rstrip(", "))
    return b"".join(out), canaries


# --- OpenSSH keys (PROTOCOL.key in the OpenSSH source) ---------------------------------------------------


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _mpint(size: int, random: bytes) -> bytes:
    """A positive odd number of ``size`` bytes with its top bit set, hence with the leading zero of an mpint."""
    return _string(b"\0" + bytes([random[0] | 0x80]) + random[1 : size - 1] + bytes([random[size - 1] | 1]))


def _ssh_key(algorithm: str, seed: bytes, comment: bytes, private: bool) -> tuple[bytes, list[str]]:
    """A key file with random numbers in the right places: every tool can read it, no server would take it."""
    random = _random(seed, "ssh " + algorithm, 2000)
    if algorithm == "ed25519":
        name = b"ssh-ed25519"
        public = _string(name) + _string(random[:32])
        before, secret, after = _string(name) + _string(random[:32]) + struct.pack(">I", 64), random[32:64], random[:32]
    elif algorithm == "rsa":  # 3,072 bits
        name = b"ssh-rsa"
        n, e = _mpint(384, random[:384]), _string(b"\1\0\1")
        public = _string(name) + e + n
        d = _mpint(384, random[384:768])
        before, secret = _string(name) + n + e + d[:5], d[5:]
        after = _mpint(192, random[768:960]) + _mpint(192, random[960:1152]) + _mpint(192, random[1152:1344])
    else:
        raise ValueError(f"no SSH key of type {algorithm!r} in data/home.tree; use ed25519 or rsa")
    if not private:
        return name + b" " + binascii.b2a_base64(public, newline=False) + b" " + comment + b"\n", []
    head = b"openssh-key-v1\0" + _string(b"none") + _string(b"none") + _string(b"") + struct.pack(">I", 1)
    check = random[1996:2000]
    inner = check + check + before + secret + after + _string(comment)
    inner += bytes(range(1, 9))[: -len(inner) % 8]
    outer = head + _string(public)
    blob = outer + _string(inner)
    encoded = binascii.b2a_base64(blob, newline=False)
    start = len(outer) + 4 + len(check) * 2 + len(before)
    # Characters that encode secret bytes only, then the longest piece of them on one line of 70.
    first, last = -(-start // 3) * 4, (start + len(secret)) // 3 * 4
    lines = [(max(first, a), min(last, a + 70)) for a in range(0, len(encoded), 70)]
    begin, end = max(lines, key=lambda span: span[1] - span[0])
    canary = encoded[begin : min(end, begin + CANARY_CHARACTERS)].decode()
    body = b"\n".join(encoded[a : a + 70] for a in range(0, len(encoded), 70))
    return (
        b"-----BEGIN OPENSSH PRIVATE KEY-----\n" + body + b"\n-----END OPENSSH PRIVATE KEY-----\n",
        [canary],
    )


# --- the public functions ------------------------------------------------------------------------------------


def load_templates() -> None:
    """Read the template tree now, so that processes forked later share it."""
    _load()


def plant(
    root: int | str | os.PathLike[str],
    home: str = "/home/dev",
    user: str = "dev",
    *,
    seed: bytes,
    now: float | None = None,
) -> list[Decoy]:
    """Write the home directory and a few system files under the directory ``root`` (a path or a descriptor).

    Args:
        root: an existing directory that nobody else writes to; nothing planted may exist in it yet.
        home: absolute path of the home directory inside the world.
        user: name of the user inside.
        seed: secret of this world, 16 bytes or more. The same seed gives the same values.
        now: the moment, in seconds since the epoch, from which ages count back (default: the clock).

    Returns:
        The secrets. Files are owned by the caller, with the modes an ordinary system gives them.

    Raises:
        ValueError: ``home`` is not an absolute, normal path, or ``seed`` is too short.
        OSError: a file exists already, or cannot be written.
    """
    if len(seed) < 16:
        raise ValueError(f"the seed has {len(seed)} bytes; give at least 16 random bytes (os.urandom(16))")
    if not home.startswith("/") or home == "/" or os.path.normpath(home) != home:
        raise ValueError(f"home is {home!r}; give an absolute path without '..' or a '/' at its end")
    tree = _load()
    moment = time.time() if now is None else now
    values = _shared_values(tree, seed, home, user, moment)
    root_fd = os.dup(root) if isinstance(root, int) else os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _write(tree, root_fd, home, seed, values, moment)
    finally:
        os.close(root_fd)


def _write(tree: _Tree, root: int, home: str, seed: bytes, values: dict[str, bytes], now: float) -> list[Decoy]:
    decoys: list[Decoy] = []
    directories: dict[str, float] = {"": 0.0}  # path from the root -> age in days
    modes: dict[str, int] = {}
    jitter = _random(seed, "ages", 2 * len(tree.files))
    umask: int | None = None
    for index, file in enumerate(tree.files):
        where, _ = _fill(file.path, b"", values)
        path = os.fsdecode(where)
        path = home[1:] + path[1:] if path.startswith("~") else path[1:]
        age = file.age * (0.9 + int.from_bytes(jitter[2 * index : 2 * index + 2], "big") / 327680)
        if file.parts is None:
            path = path[:-1]
            _make_directories(root, path, directories, modes, age, file.mode)
            directories[path] = age
            continue
        parent = path.rpartition("/")[0]
        _make_directories(root, parent, directories, modes, age, 0o700 if file.kind else 0o755)
        directories[parent] = min(directories[parent], age)
        if file.key:
            algorithm, private, comment = file.key
            note, _ = _fill(comment, b"", values)
            # The halves of a pair stand in two files; the comment tells pairs apart.
            content, canaries = _ssh_key(algorithm, seed + note, note, private)
        else:
            random = _random(seed, path, file.random_bytes) if file.random_bytes else b""
            content, canaries = _fill(file.parts, random, values)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, file.mode, dir_fd=root)
        try:
            if umask is None and file.mode & 0o044:
                umask = file.mode & ~stat.S_IMODE(os.fstat(fd).st_mode)
            if umask and file.mode & 0o077:
                os.fchmod(fd, file.mode)
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
            moment = int((now - age * 86400) * 1e9)
            os.utime(fd, ns=(moment, moment))
        finally:
            os.close(fd)
        decoys += [Decoy("/" + path, file.kind, canary) for canary in canaries]
    for path in reversed(directories):
        if path:
            if path in modes and umask and modes[path] & 0o077:
                os.chmod(path, modes[path], dir_fd=root)
            moment = int((now - directories[path] * 86400) * 1e9)
            os.utime(path, ns=(moment, moment), dir_fd=root, follow_symlinks=False)
    return decoys


def _make_directories(
    root: int, path: str, directories: dict[str, float], modes: dict[str, int], age: float, mode: int
) -> None:
    """``mkdir -p``; a parent that is not listed in the tree itself is an ordinary directory."""
    if path in directories:
        return
    parent = path.rpartition("/")[0]
    _make_directories(root, parent, directories, modes, age, 0o755)
    try:
        os.mkdir(path, mode, dir_fd=root)
    except FileExistsError:  # a mount point or a home that the caller made
        if not stat.S_ISDIR(os.stat(path, dir_fd=root, follow_symlinks=False).st_mode):
            raise
    directories[path] = age
    modes[path] = mode


class EnvironmentCanary:
    """A secret in the environment: variable ``name``, and the ``canary`` text in its value."""

    __slots__ = ("canary", "name")

    def __init__(self, name: str, canary: str) -> None:
        self.name = name
        self.canary = canary

    def __repr__(self) -> str:
        return f"EnvironmentCanary(name={self.name!r}, canary={self.canary!r})"


def _environment(seed: bytes) -> list[tuple[str, str, list[str]]]:
    tree = _load()
    values = _shared_values(tree, seed, "/", "", 0.0)
    result = []
    for name, parts in tree.environ:
        random = _random(seed, "environ " + name, _random_bytes(parts))
        value, canaries = _fill(parts, random, values)
        result.append((name, value.decode(), canaries))
    return result


def environ(seed: bytes, home: str = "/home/dev", user: str = "dev") -> dict[str, str]:
    """The environment of a developer's shell: ordinary variables, and secrets with canaries. ``PATH`` is not in it."""
    ordinary = {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash"}
    return ordinary | {name: value for name, value, _ in _environment(seed)}


def environ_canaries(seed: bytes) -> list[EnvironmentCanary]:
    """The canaries in :func:`environ` of the same seed."""
    return [EnvironmentCanary(name, c) for name, _, canaries in _environment(seed) for c in canaries]


def etc_files(
    user: str = "dev",
    hostname: str = "thinkpad",
    *,
    seed: bytes,
    home: str = "/home/dev",
    uid: int = 1000,
    nameserver: str = "192.0.2.53",
) -> dict[str, bytes]:
    """Files of ``/etc`` that name the user and the machine, by absolute path; the rest of ``/etc`` is the host's.

    They keep the names of the host's own users out of the world, and give a world that runs as root outside a
    passwd entry inside. ``nsswitch.conf`` asks files and DNS only, so that no host daemon is needed.
    """
    account = f"{user}:x:{uid}:{uid}:{user.capitalize()},,,:{home}:/bin/bash\n"
    passwd = "".join(f"{n}:x:{i}:{g}:{c}:{h}:{s}\n" for n, i, g, c, h, s in _ACCOUNTS) + account
    members = {"adm": user, "sudo": user, "plugdev": user}
    group = "".join(f"{n}:x:{i}:{members.get(n, '')}\n" for n, i in _GROUPS) + f"{user}:x:{uid}:\n"
    hosts = (
        f"127.0.0.1\tlocalhost\n127.0.1.1\t{hostname}\n\n"
        "::1     localhost ip6-localhost ip6-loopback\nff02::1 ip6-allnodes\nff02::2 ip6-allrouters\n"
    )
    nsswitch = (
        "passwd:         files\ngroup:          files\nshadow:         files\n\n"
        "hosts:          files dns\nnetworks:       files\n\n"
        "protocols:      db files\nservices:       db files\nethers:         db files\nrpc:            db files\n"
    )
    return {
        "/etc/passwd": passwd.encode(),
        "/etc/group": group.encode(),
        "/etc/hosts": hosts.encode(),
        "/etc/hostname": hostname.encode() + b"\n",
        "/etc/resolv.conf": f"nameserver {nameserver}\n".encode(),
        "/etc/nsswitch.conf": nsswitch.encode(),
        "/etc/machine-id": _random(seed, "machine-id", 16).hex().encode() + b"\n",
    }


_NOLOGIN = "/usr/sbin/nologin"
_ACCOUNTS = (
    ("root", 0, 0, "root", "/root", "/bin/bash"),
    ("daemon", 1, 1, "daemon", "/usr/sbin", _NOLOGIN),
    ("bin", 2, 2, "bin", "/bin", _NOLOGIN),
    ("sys", 3, 3, "sys", "/dev", _NOLOGIN),
    ("man", 6, 12, "man", "/var/cache/man", _NOLOGIN),
    ("mail", 8, 8, "mail", "/var/mail", _NOLOGIN),
    ("www-data", 33, 33, "www-data", "/var/www", _NOLOGIN),
    ("nobody", 65534, 65534, "nobody", "/nonexistent", _NOLOGIN),
    ("systemd-network", 998, 998, "systemd Network Management", "/", _NOLOGIN),
    ("messagebus", 100, 107, "", "/nonexistent", _NOLOGIN),
    ("avahi", 101, 108, "Avahi mDNS daemon,,,", "/run/avahi-daemon", _NOLOGIN),
    ("gdm", 102, 109, "Gnome Display Manager", "/var/lib/gdm3", "/bin/false"),
)
_GROUPS = (
    ("root", 0), ("daemon", 1), ("bin", 2), ("sys", 3), ("adm", 4), ("tty", 5), ("disk", 6), ("mail", 8), ("man", 12),
    ("sudo", 27), ("audio", 29), ("www-data", 33), ("shadow", 42), ("video", 44), ("plugdev", 46), ("staff", 50),
    ("users", 100), ("messagebus", 107), ("avahi", 108), ("gdm", 109), ("systemd-network", 998), ("nogroup", 65534),
)  # fmt: skip
