"""One stream connection, understood and answered, without any I/O: bytes in, bytes out, facts kept.

A conversation is a small stack of layers. The outermost sees the wire; a layer that unwraps something (TLS, a CONNECT
tunnel) hands the inner bytes to a new layer. Whatever a layer cannot understand it still keeps: understanding is a help
to the reader of the evidence, the bytes are the evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from .protocols import (
    ClientHello,
    HttpRequest,
    ProtocolError,
    RequestReader,
    client_hello,
    http_answer,
    looks_like_http,
    tls_alert,
)

if TYPE_CHECKING:
    import ssl

__all__ = ["BANNERS", "Conversation", "Interceptor", "Keeper"]

_MOST_REQUESTS = 32
_MOST_LAYERS = 6
_MOST_UNFINISHED = 262_144
_MOST_LINE = 4_096


class Keeper(Protocol):
    """Where a conversation puts what it read."""

    def keep(self, data: bytes) -> None:
        """The next bytes at the innermost layer that could be read: they are hashed, stored and scanned."""

    def scan(self, data: bytes) -> None:
        """Bytes that are only to be searched for canaries: a view of the stream that :meth:`keep` cannot have."""


class Interceptor(Protocol):
    """Makes the server side of a TLS connection that shall be read."""

    def context(self, hello: ClientHello) -> ssl.SSLContext | None:
        """A server context whose certificate the client can be expected to trust; None to leave the connection
        unread."""


class _Layer(Protocol):
    def receive(self, data: bytes) -> bytes: ...
    def finish(self) -> bytes: ...
    def silence(self) -> bytes: ...


# Protocols in which the server speaks first, and what keeps their clients talking. A verb that is not listed gets the
# reply of "".
_Dialogue = Mapping[str, str]
_SMTP: _Dialogue = {
    "banner": "220 mail.invalid ESMTP Postfix",
    "EHLO": "250-mail.invalid\r\n250-SIZE 52428800\r\n250-AUTH PLAIN LOGIN\r\n250 8BITMIME",
    "AUTH": "235 2.7.0 Authentication successful",
    "DATA": "354 End data with <CR><LF>.<CR><LF>",
    "STARTTLS": "454 4.7.0 TLS not available",
    "QUIT": "221 2.0.0 Bye",
    "": "250 2.0.0 Ok",
}
_FTP: _Dialogue = {
    "banner": "220 FTP server ready",
    "USER": "331 Please specify the password",
    "PASS": "230 Login successful",
    "AUTH": "502 Command not implemented",
    "SYST": "215 UNIX Type: L8",
    "PWD": '257 "/" is the current directory',
    "SIZE": "550 Could not get file size",
    "FEAT": "211-Features:\r\n EPSV\r\n PASV\r\n UTF8\r\n211 End",
    "EPSV": "229 Entering Extended Passive Mode (|||50021|)",
    "STOR": "150 Ok to send data\r\n226 Transfer complete",
    "APPE": "150 Ok to send data\r\n226 Transfer complete",
    "LIST": "150 Here comes the directory listing\r\n226 Directory send OK",
    "QUIT": "221 Goodbye",
    "": "200 Ok",
}
_POP3: _Dialogue = {"banner": "+OK POP3 ready", "QUIT": "+OK Bye", "": "+OK"}
_IMAP: _Dialogue = {"banner": "* OK [CAPABILITY IMAP4rev1] IMAP4 ready", "": "{tag} OK done"}

BANNERS: Mapping[int, _Dialogue] = {21: _FTP, 25: _SMTP, 587: _SMTP, 110: _POP3, 143: _IMAP}
"""Dialogues by port, for the protocols whose client waits for the server's greeting before it says anything."""


class _Bytes:
    """Bytes nobody understands: kept, never answered."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def receive(self, data: bytes) -> bytes:
        self._keeper.keep(data)
        return b""

    def finish(self) -> bytes:
        return b""

    def silence(self) -> bytes:
        return b""


class _Lines:
    """A line dialogue (SMTP, FTP, POP3, IMAP), just good enough that a client hands over its credentials and its
    message."""

    def __init__(self, talk: Conversation, dialogue: _Dialogue) -> None:
        self._talk = talk
        self._dialogue = dialogue
        self._line = bytearray()
        self._message = False

    def receive(self, data: bytes) -> bytes:
        self._talk.keeper.keep(data)
        out = []
        for line in data.splitlines(keepends=True):
            # Only the start of a long line is looked at; all of it has been kept.
            self._line += line[: _MOST_LINE - len(self._line)]
            if line.endswith(b"\n"):
                out.append(self._reply(bytes(self._line).strip(b"\r\n")))
                self._line.clear()
        return b"".join(out)

    def _reply(self, line: bytes) -> bytes:
        if self._message:
            if line != b".":
                return b""
            self._message = False
            return b"250 2.0.0 Ok: queued\r\n"
        words = line.decode("ascii", "replace").split()
        if self._dialogue is _IMAP:
            return (
                self._dialogue[""].replace("{tag}", words[0][:32] if words else "*").encode("ascii", "replace")
                + b"\r\n"
            )
        verb = words[0].upper() if words else ""
        if verb == "DATA" and self._dialogue is _SMTP:
            self._message = True
        if verb == "PASV":
            host = self._talk.address.replace(".", ",") if ":" not in self._talk.address else "127,0,0,1"
            return f"227 Entering Passive Mode ({host},195,101).\r\n".encode()
        if verb == "QUIT":
            self._talk.closing = True
        reply = self._dialogue.get(verb) if verb != "banner" else None
        return (reply or self._dialogue[""]).encode() + b"\r\n"

    def finish(self) -> bytes:
        return b""

    def silence(self) -> bytes:
        return b""


class _Http:
    """HTTP/1 requests, each answered when it is complete."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self._reader = RequestReader()
        self._request: HttpRequest | None = None
        self._entry: dict[str, object] | None = None
        self._inner: _Layer | None = None

    def receive(self, data: bytes) -> bytes:
        if self._inner is not None:
            return self._inner.receive(data)
        # Behind a CONNECT head the bytes belong to the inner layer, which keeps them itself (or keeps what it
        # decrypts).
        out = []
        tunnel: list[bytes] = []
        plain = len(data)
        for kind, value in self._reader.feed(data):
            if kind == "head" and isinstance(value, HttpRequest):
                self._request = value
                self._entry = self._talk.note_request(value)
                if value.expects_continue and value.length != 0:
                    out.append(b"HTTP/1.1 100 Continue\r\n\r\n")
                if value.method == "CONNECT":
                    out.append(http_answer(value))
                    self._inner = self._talk.layer()
            elif kind == "body" and isinstance(value, bytes) and self._request is not None:
                if self._entry is not None:
                    self._entry["body_len"] = int(str(self._entry["body_len"])) + len(value)
                if self._request.length is None:
                    # A canary cut in two by a chunk header is whole only here.
                    self._talk.keeper.scan(value)
            elif kind == "end" and self._request is not None:
                out.append(http_answer(self._request))
                if self._request.closes:
                    self._talk.closing = True
            elif kind == "rest" and isinstance(value, bytes) and self._inner is not None:
                tunnel.append(value)
                plain -= len(value)
        if plain:
            self._talk.keeper.keep(data[:plain])
        if self._inner is not None and tunnel:
            out.append(self._inner.receive(b"".join(tunnel)))
        return b"".join(out)

    def finish(self) -> bytes:
        return self._inner.finish() if self._inner is not None else b""

    def silence(self) -> bytes:
        return self._inner.silence() if self._inner is not None else b""


class _Tls:
    """The server side of TLS. Until the handshake is complete, all the client said is held, to be kept if it comes
    to nothing."""

    def __init__(self, talk: Conversation, context: ssl.SSLContext) -> None:
        import ssl

        self._talk = talk
        self._want = ssl.SSLWantReadError
        self._closed = (ssl.SSLZeroReturnError, ssl.SSLEOFError)
        self._error = ssl.SSLError
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._engine = context.wrap_bio(self._in, self._out, server_side=True)
        self._held: bytearray | None = bytearray()
        self._inner: _Layer | None = None
        self._failed = False

    def receive(self, data: bytes) -> bytes:
        if self._failed:
            self._talk.keeper.keep(data)
            return b""
        if self._held is not None:
            self._held += data
        self._in.write(data)
        try:
            if self._inner is None:
                if self._held is not None and len(self._held) > _MOST_UNFINISHED:
                    return self._fail(data, "a handshake of more than 256 KiB")
                self._engine.do_handshake()
                # The ClientHello can carry data too (session id, padding): it is searched, though not part of the
                # transcript.
                self._talk.keeper.scan(bytes(self._held or b""))
                self._held = None
                self._talk.note_tls(
                    {"decrypted": True, "version": (self._engine.version() or "").replace("TLSv", "TLS ")}
                )
                self._inner = self._talk.layer()
            while True:
                plain = self._engine.read(65_536)
                if not plain:
                    self._talk.ended = True
                    break
                self._send(self._inner.receive(plain))
        except self._want:
            pass
        except self._closed:
            self._talk.ended = True
        except (self._error, OSError) as error:
            return self._fail(data, getattr(error, "reason", None) or str(error))
        return self._out.read()

    def _send(self, reply: bytes) -> None:
        if reply:
            self._engine.write(reply)

    def _fail(self, data: bytes, reason: str) -> bytes:
        self._failed = True
        self._talk.note_tls({"error": reason.lower().replace("_", " ")[:200]})
        self._talk.keeper.keep(bytes(self._held) if self._held is not None else data)
        self._held = None
        self._talk.closing = True
        return self._out.read()

    def finish(self) -> bytes:
        if self._failed:
            return b""
        if self._inner is None:
            return self._fail(b"", "the client left during the handshake")
        return self._reply(self._inner.finish())

    def silence(self) -> bytes:
        return self._reply(self._inner.silence()) if self._inner is not None and not self._failed else b""

    def _reply(self, reply: bytes) -> bytes:
        try:
            self._send(reply)
        except (self._error, OSError):
            return b""
        return self._out.read()

    def goodbye(self) -> bytes:
        """A close_notify, so that a client that reads to the end sees a proper one."""
        if self._inner is None or self._failed:
            return b""
        try:
            self._engine.unwrap()
        except (self._error, OSError):
            pass
        return self._out.read()


class _Opening:
    """Decides by the first bytes what a stream is, then steps aside."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self._held = bytearray()
        self._layer: _Layer | None = None

    def receive(self, data: bytes) -> bytes:
        if self._layer is not None:
            return self._layer.receive(data)
        self._held += data
        layer, reply = self._decide()
        if layer is None:
            return reply
        self._layer = layer
        held, self._held = bytes(self._held), bytearray()
        return reply + layer.receive(held)

    def _decide(self) -> tuple[_Layer | None, bytes]:
        talk = self._talk
        if talk.port == 53 and talk.dns is not None:
            return _Dns(talk, talk.dns), b""
        if self._held[0] == 0x16:
            try:
                hello = client_hello(bytes(self._held))
            except ProtocolError:
                return _Bytes(talk.keeper), b""
            if hello is None:
                return None, b""
            talk.note_tls({"sni": hello.sni, "alpn": list(hello.alpn), "version": hello.version, "decrypted": False})
            if hello.ech:
                talk.note_tls({"ech": True})
            if talk.passive:
                return _Bytes(talk.keeper), b""
            context = talk.interceptor.context(hello) if talk.interceptor is not None else None
            if context is None:
                talk.closing = True
                return _Bytes(talk.keeper), tls_alert()
            tls = _Tls(talk, context)
            talk.secured.append(tls)
            return tls, b""
        if talk.port in BANNERS and not talk.passive:
            return _Lines(talk, BANNERS[talk.port]), b""
        if looks_like_http(bytes(self._held[:32])):
            return _Http(talk), b""
        return _Bytes(talk.keeper), b""

    def finish(self) -> bytes:
        if self._layer is not None:
            return self._layer.finish()
        if self._held:
            self._talk.keeper.keep(bytes(self._held))
            self._held.clear()
        return b""

    def silence(self) -> bytes:
        if self._layer is not None:
            return self._layer.silence()
        talk = self._talk
        if not self._held and talk.port in BANNERS and not talk.passive:
            self._layer = _Lines(talk, BANNERS[talk.port])
            return BANNERS[talk.port]["banner"].encode() + b"\r\n"
        return b""


class _Dns:
    """DNS over TCP: two bytes of length before each message (RFC 7766)."""

    def __init__(self, talk: Conversation, answer: Callable[[bytes], bytes | None]) -> None:
        self._talk = talk
        self._answer = answer
        self._buffer = bytearray()

    def receive(self, data: bytes) -> bytes:
        self._talk.keeper.keep(data)
        self._buffer += data
        out = []
        position = 0
        while len(self._buffer) >= position + 2:
            end = position + 2 + int.from_bytes(self._buffer[position : position + 2], "big")
            if len(self._buffer) < end:
                break
            reply = self._answer(bytes(self._buffer[position + 2 : end]))
            if reply is not None:
                out.append(len(reply).to_bytes(2, "big") + reply)
            position = end
        del self._buffer[:position]
        return b"".join(out)

    def finish(self) -> bytes:
        return b""

    def silence(self) -> bytes:
        return b""


class Conversation:
    """The server side of one stream connection to (``address``, ``port``).

    Call :meth:`receive` with what came, :meth:`finish` once at the end of the client's half, :meth:`silence` when the
    client has been quiet for a while; each returns the bytes to send. Afterwards :attr:`closing` says that a polite
    server would now close its own half, :attr:`ended` that the client said goodbye inside the encryption. ``passive``
    conversations are only understood (they are another server's), never answered and never decrypted. ``dns`` answers
    one DNS message; None leaves DNS unread.
    """

    def __init__(
        self,
        address: str,
        port: int,
        keeper: Keeper,
        *,
        interceptor: Interceptor | None = None,
        dns: Callable[[bytes], bytes | None] | None = None,
        passive: bool = False,
    ) -> None:
        self.address = address
        self.port = port
        self.keeper = keeper
        self.interceptor = interceptor
        self.dns = dns
        self.passive = passive
        self.closing = False
        self.ended = False
        self.secured: list[_Tls] = []
        self._depth = 0
        self._requests: list[dict[str, object]] = []
        self._count = 0
        self._tunnel = ""
        self._tls: dict[str, object] = {}
        self._outer = self.layer()

    def layer(self) -> _Layer:
        """A new layer for inner bytes; beyond a fixed depth they are only kept."""
        self._depth += 1
        return _Opening(self) if self._depth <= _MOST_LAYERS else _Bytes(self.keeper)

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the client; return what to send."""
        return self._mute(self._outer.receive(data)) if data else b""

    def finish(self) -> bytes:
        """The client's half has ended; return what to send before closing."""
        return self._mute(self._outer.finish())

    def silence(self) -> bytes:
        """The client is waiting for something; return a greeting if its protocol has one."""
        return self._mute(self._outer.silence())

    def goodbye(self) -> bytes:
        """What to send right before the server closes its half (close_notify of the outermost TLS)."""
        return self._mute(self.secured[0].goodbye()) if self.secured else b""

    def _mute(self, reply: bytes) -> bytes:
        return b"" if self.passive else reply

    def note_request(self, request: HttpRequest) -> dict[str, object] | None:
        """Remember a request; the returned entry's ``body_len`` grows with the body. None when there are too many
        to remember."""
        if request.method == "CONNECT":
            self._tunnel = self._tunnel or request.path
        self._count += 1
        if len(self._requests) >= _MOST_REQUESTS:
            return None
        entry: dict[str, object] = {
            "method": request.method,
            "path": request.path,
            "host": request.host,
            "headers": request.headers,
            "body_len": 0,
        }
        self._requests.append(entry)
        return entry

    def note_tls(self, facts: Mapping[str, object]) -> None:
        """Remember what was learnt about the outermost TLS that said anything."""
        for key, value in facts.items():
            if len(self.secured) <= 1 or key not in self._tls:
                self._tls[key] = value

    def facts(self) -> dict[str, object]:
        """The fields of a ``flow`` event this conversation knows: ``http``, ``more``, ``requests``, ``tunnel``,
        ``tls``."""
        facts: dict[str, object] = {}
        if self._requests:
            # The request inside a tunnel says more than the one that opened it; that one is still told by `tunnel`.
            inner = [entry for entry in self._requests if entry["method"] != "CONNECT"] or self._requests
            facts["http"] = inner[0]
            if len(inner) > 1:
                facts["more"] = inner[1:]
            if self._count > 1:
                facts["requests"] = self._count
        if self._tunnel:
            facts["tunnel"] = self._tunnel
        if self._tls:
            facts["tls"] = self._tls
        return facts
