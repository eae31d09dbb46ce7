"""Run a piece of a test in a child that has its own user and network namespace, as an ordinary user or as root.

The body runs in a forked child; what it returns comes back pickled, what it raises comes back as a failed assertion
with its traceback. The child is killed after ``seconds``: a hanging sink is a failed test, not a hanging suite.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import traceback
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def enter_namespaces() -> None:
    """New user namespace with the caller mapped to 1000 (as the product maps it), new network namespace, all
    capabilities."""
    uid, gid = os.getuid(), os.getgid()
    if _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWUSER | CLONE_NEWNET)")
    for name, text in (("setgroups", "deny"), ("uid_map", f"1000 {uid} 1"), ("gid_map", f"1000 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def in_namespace(body: Callable[[], T], seconds: float = 30.0) -> T:
    """Run ``body`` in a child with its own namespaces and return its (picklable) result."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()
        try:
            try:
                enter_namespaces()
            except OSError as error:
                answer: tuple[str, object] = ("skip", f"this machine forbids user namespaces: {error}")
            else:
                answer = ("ok", body())
        except BaseException:
            answer = ("failed", traceback.format_exc())
        try:
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(pickle.dumps(answer))
        finally:
            os._exit(0)
    os.close(writer)
    parts: list[bytes] = []
    try:
        while select.select([reader], [], [], seconds)[0]:
            part = os.read(reader, 1 << 20)
            if not part:
                break
            parts.append(part)
        else:
            pytest.fail(f"the child did not finish within {seconds} s")
    finally:
        os.close(reader)
        # The child leads its own session: helpers it forked go with it.
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(child, 0)
    kind, value = pickle.loads(b"".join(parts)) if parts else ("failed", "the child died without an answer")
    if kind == "skip":
        pytest.skip(str(value))
    assert kind == "ok", value
    return value  # type: ignore[no-any-return]
