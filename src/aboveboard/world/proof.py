"""The canary actions that prove each witness at the start of a world.

``act`` runs inside, under the same filter as every command; the supervisor compares what its witnesses reported.
Configuration is no proof: filters have been installed whose supervisor could not read them, and sandboxes fell back to
nothing without a word (canyonroad/agentsh#188, openai/codex#9292).
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from . import _linux as linux

if TYPE_CHECKING:
    from .wire import Message

ADDRESS = "198.51.100.23"
PORT = 4460
READ = "/etc/hostname"


def act(message: Message, launch: int) -> None:
    """Do one small thing for each witness. Failures are seen by the supervisor as a missing report."""
    token = str(message["token"])
    try:
        fd = os.open(READ, os.O_RDONLY)
        os.read(fd, 64)
        os.close(fd)
    except OSError:
        pass
    path = f"{message['scratch']}/.{token}"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, token.encode())
        os.close(fd)
        os.write(launch, b"w")  # the supervisor looks at the upper layer now
        os.read(launch, 1)
        os.unlink(path)
    except OSError:
        pass
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
            s.settimeout(0.5)
            s.connect((ADDRESS, PORT))
            s.sendall(str(message["payload"]).encode())
    except OSError:
        pass
    try:
        linux.syscall("ptrace", 0, 0, 0, 0)
    except OSError:
        pass
    try:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    except OSError:
        pass
