"""A machine that allows less, made of this one: a process whose own seccomp filter refuses some system calls."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from aboveboard.world import _linux as linux

if TYPE_CHECKING:
    from collections.abc import Sequence

_LD, _JEQ, _JSET, _RET = 0x20, 0x15, 0x45, 0x06


class Refusal(NamedTuple):
    """A system call that fails with ``errno``, if ``bits`` is not 0 only when argument ``argument`` has one of them."""

    name: str
    errno: int
    argument: int = 0
    bits: int = 0


def filter_of(refusals: Sequence[Refusal]) -> bytes:
    """The seccomp filter."""
    code = [(_LD, 0, 0, 0)]
    allow = (_RET, 0, 0, linux.SECCOMP_RET_ALLOW)
    for refusal in refusals:
        body = [(_RET, 0, 0, linux.SECCOMP_RET_ERRNO | refusal.errno)]
        if refusal.bits:
            body = [(_LD, 0, 0, 16 + 8 * refusal.argument), (_JSET, 0, 1, refusal.bits), *body, allow]
        code += [(_JEQ, 0, len(body), linux.NUMBERS[refusal.name]), *body]
    code.append(allow)
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def run_confined(
    script: str, refusals: Sequence[Refusal], *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a Python script in a process that is refused these calls, and so is everything it starts."""
    prelude = (
        "from aboveboard.world import _linux as linux\n"
        "linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)\n"
        f"linux.install_filter({filter_of(refusals)!r}, listener=False)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", prelude + script, *arguments],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
