"""The kernel's wall in tiers N and P: Landlock rulesets for the supervisor and for the candidate.

Landlock says what may be changed, run and (tier P) read below which directories, and cannot be taken back. It knows
nothing of modes, owners, times and attributes; those calls are carried out by the supervisor only. Source:
``linux/landlock.h``, ``Documentation/userspace-api/landlock.rst``.
"""

from __future__ import annotations

import os
import stat
import struct
from ctypes import c_char_p
from typing import TYPE_CHECKING

from . import _linux as linux

if TYPE_CHECKING:
    from collections.abc import Iterable

_NET_BIND_TCP, _NET_CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_UNIX, _SCOPE_SIGNAL = 1, 2


def changes(abi: int) -> int:
    """The rights that change a file or a directory, as far as this kernel handles them."""
    rights = linux.LANDLOCK_WRITE_FILE | linux.LANDLOCK_REMOVE_DIR | linux.LANDLOCK_REMOVE_FILE | linux.LANDLOCK_MAKE
    if abi >= 2:
        rights |= linux.LANDLOCK_REFER
    if abi >= 3:
        rights |= linux.LANDLOCK_TRUNCATE
    return rights


def ruleset(
    abi: int,
    handled: int,
    rules: Iterable[tuple[str | int, int]],
    *,
    isolate: bool = False,
) -> int:
    """A ruleset that forbids ``handled`` but for ``rules``: (path or descriptor, rights under it).

    Paths that are missing are left out.

    ``isolate`` adds what this kernel can keep apart beside files: TCP (ABI 4: no connect and no bind of its own), and
    abstract sockets and signals beyond the processes under the ruleset (ABI 6). Raises OSError.
    """
    attributes = [handled]
    if abi >= 4:
        attributes.append(_NET_BIND_TCP | _NET_CONNECT_TCP if isolate else 0)
    if abi >= 6:
        attributes.append(_SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL if isolate else 0)
    packed = struct.pack(f"={len(attributes)}Q", *attributes)
    made = linux.syscall("landlock_create_ruleset", c_char_p(packed), len(packed), 0)
    for place, rights in rules:
        try:
            fd = place if isinstance(place, int) else os.open(place, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            allowed = rights & handled
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                allowed &= linux.LANDLOCK_OF_FILES
            if allowed:
                linux.syscall("landlock_add_rule", made, 1, c_char_p(struct.pack("=Qi", allowed, fd)), 0)
        finally:
            if fd is not place:
                os.close(fd)
    return made
