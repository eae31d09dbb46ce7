"""A throw-away certificate authority, so that what a candidate sends over HTTPS can be read.

Each world has its own authority; its certificate is planted in the world's trust bundle, its key never leaves the
supervisor's memory and dies with the world. It protects nothing: the only party that ever trusts it is the code under
observation. That is why the arithmetic may be plain Python (not constant-time), and why a few milliseconds of it are
preferred to the import of a cryptography library; see
``docs/explanation/decisions/0004-certificates-without-library.md``.

Formats: RFC 5280 (X.509), RFC 5480 and RFC 5915 (elliptic-curve keys), FIPS 186-5 (ECDSA, curve P-256).
"""

from __future__ import annotations

import binascii
import hashlib
import os
import socket
import time

__all__ = ["CertificateAuthority"]

_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)

_Jacobian = tuple[int, int, int]
_INFINITY: _Jacobian = (1, 1, 0)


def _double(point: _Jacobian) -> _Jacobian:
    x, y, z = point
    if not z or not y:
        return _INFINITY
    zz = z * z % _P
    yy = y * y % _P
    s = 4 * x * yy % _P
    m = 3 * (x - zz) * (x + zz) % _P
    nx = (m * m - 2 * s) % _P
    return nx, (m * (s - nx) - 8 * yy * yy) % _P, 2 * y * z % _P


def _add_affine(point: _Jacobian, other: tuple[int, int]) -> _Jacobian:
    x1, y1, z1 = point
    if not z1:
        return other[0], other[1], 1
    zz = z1 * z1 % _P
    h = (other[0] * zz - x1) % _P
    r = (other[1] * zz * z1 - y1) % _P
    if not h:
        return _INFINITY if r else _double(point)
    hh = h * h % _P
    hhh = h * hh % _P
    v = x1 * hh % _P
    nx = (r * r - hhh - 2 * v) % _P
    return nx, (r * (v - nx) - y1 * hhh) % _P, z1 * h % _P


def _multiply_base(scalar: int) -> tuple[int, int]:
    point = _INFINITY
    for bit in bin(scalar)[2:]:
        point = _double(point)
        if bit == "1":
            point = _add_affine(point, _G)
    inverse = pow(point[2], -1, _P)
    square = inverse * inverse % _P
    return point[0] * square % _P, point[1] * square * inverse % _P


def _random_scalar() -> int:
    # 64 bits more than the order make the bias of the remainder negligible; the `secrets` module would do the same at
    # the price of importing `random` at every start of a world.
    return 1 + int.from_bytes(os.urandom(40), "big") % (_N - 1)


def _der(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    if len(body) < 128:
        return bytes((tag, len(body))) + body
    size = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(size))) + size + body


def _sequence(*parts: bytes) -> bytes:
    return _der(0x30, *parts)


def _integer(value: int) -> bytes:
    return _der(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(value: bytes, unused: int = 0) -> bytes:
    return _der(0x03, bytes((unused,)), value)


def _oid(text: str) -> bytes:
    first, second, *rest = (int(part) for part in text.split("."))
    out = bytearray((first * 40 + second,))
    for number in rest:
        septets = [number & 0x7F]
        while number := number >> 7:
            septets.append(0x80 | (number & 0x7F))
        out += bytes(reversed(septets))
    return _der(0x06, bytes(out))


def _extension(oid: str, value: bytes, critical: bool = False) -> bytes:
    return _sequence(_oid(oid), _der(0x01, b"\xff") if critical else b"", _der(0x04, value))


def _name(common: str, organisation: str = "") -> bytes:
    parts = []
    if organisation:
        parts.append(_der(0x31, _sequence(_oid("2.5.4.10"), _der(0x0C, organisation.encode()))))
    parts.append(_der(0x31, _sequence(_oid("2.5.4.3"), _der(0x0C, common.encode()))))
    return _sequence(*parts)


def _moment(seconds: float) -> bytes:
    moment = time.gmtime(seconds)
    if moment.tm_year < 2050:
        return _der(0x17, time.strftime("%y%m%d%H%M%SZ", moment).encode())
    return _der(0x18, time.strftime("%Y%m%d%H%M%SZ", moment).encode())


def _pem(label: str, der: bytes) -> bytes:
    text = binascii.b2a_base64(der, newline=False).decode()
    lines = [text[i : i + 64] for i in range(0, len(text), 64)]
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", "")).encode()


_SIGNATURE_ALGORITHM = _sequence(_oid("1.2.840.10045.4.3.2"))  # ecdsa-with-SHA256
_KEY_ALGORITHM = _sequence(_oid("1.2.840.10045.2.1"), _oid("1.2.840.10045.3.1.7"))  # id-ecPublicKey, prime256v1
_DAY = 86_400.0


class _Key:
    """One P-256 key pair."""

    def __init__(self) -> None:
        self._secret = _random_scalar()
        x, y = _multiply_base(self._secret)
        self._point = b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")
        self.public = _sequence(_KEY_ALGORITHM, _bits(self._point))
        self.identifier = hashlib.sha1(self._point, usedforsecurity=False).digest()

    def sign(self, message: bytes) -> bytes:
        digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
        while True:
            nonce = _random_scalar()
            r = _multiply_base(nonce)[0] % _N
            s = pow(nonce, -1, _N) * (digest + r * self._secret) % _N
            if r and s:
                return _sequence(_integer(r), _integer(s))

    def pem(self) -> bytes:
        curve = _der(0xA0, _oid("1.2.840.10045.3.1.7"))
        secret = _der(0x04, self._secret.to_bytes(32, "big"))
        return _pem("EC PRIVATE KEY", _sequence(_integer(1), secret, curve, _der(0xA1, _bits(self._point))))


class CertificateAuthority:
    """An authority that signs one server certificate per name. All leaves share one key; nothing depends on its
    secrecy."""

    def __init__(self) -> None:
        self._key = _Key()
        self._leaf_key: _Key | None = None
        self._subject = _name("Local Network Root CA", "Local Network")
        # Programs under test may run with a shifted clock; a wide window keeps their HTTPS working.
        now = time.time()
        extensions = (
            _extension("2.5.29.19", _sequence(_der(0x01, b"\xff")), critical=True),  # basicConstraints CA:TRUE
            _extension("2.5.29.15", _bits(b"\x06", 1), critical=True),  # keyUsage keyCertSign, cRLSign
            _extension("2.5.29.14", _der(0x04, self._key.identifier)),
        )
        self._pem = self._certificate(self._subject, self._key, now - 730 * _DAY, now + 3650 * _DAY, extensions)

    def pem(self) -> bytes:
        """The authority's certificate, to be appended to a trust bundle."""
        return self._pem

    def leaf(self, *names: str) -> bytes:
        """A server certificate for DNS names and IP addresses, followed by its key, in PEM, as ``load_cert_chain``
        wants it.

        Names that do not fit in a certificate (not ASCII, over 253 characters) are left out; with none left the
        certificate is for ``invalid``. An IPv6 address may be written in any form.
        """
        if self._leaf_key is None:
            self._leaf_key = _Key()
        alternatives = []
        common = ""
        for name in names:
            for family in (socket.AF_INET, socket.AF_INET6):
                try:
                    alternatives.append(_der(0x87, socket.inet_pton(family, name)))
                    break
                except (OSError, ValueError):
                    continue
            else:
                if not name.isascii() or not name.isprintable() or not 0 < len(name) <= 253:
                    continue
                alternatives.append(_der(0x82, name.encode()))
            common = common or name
        if not alternatives:
            alternatives.append(_der(0x82, b"invalid"))
        now = time.time()
        extensions = (
            _extension("2.5.29.19", _sequence(), critical=True),
            _extension("2.5.29.15", _bits(b"\x80", 7), critical=True),  # keyUsage digitalSignature
            _extension("2.5.29.37", _sequence(_oid("1.3.6.1.5.5.7.3.1"))),  # extendedKeyUsage serverAuth
            _extension("2.5.29.17", _sequence(*alternatives)),
            _extension("2.5.29.14", _der(0x04, self._leaf_key.identifier)),
            _extension("2.5.29.35", _sequence(_der(0x80, self._key.identifier))),
        )
        subject = _name((common or "invalid")[:64])  # RFC 5280 ub-common-name
        pem = self._certificate(subject, self._leaf_key, now - 30 * _DAY, now + 365 * _DAY, extensions)
        return pem + self._leaf_key.pem()

    def _certificate(self, subject: bytes, key: _Key, start: float, end: float, extensions: tuple[bytes, ...]) -> bytes:
        body = _sequence(
            _der(0xA0, _integer(2)),
            _integer(1 + int.from_bytes(os.urandom(15), "big")),
            _SIGNATURE_ALGORITHM,
            self._subject,
            _sequence(_moment(start), _moment(end)),
            subject,
            key.public,
            _der(0xA3, _sequence(*extensions)),
        )
        return _pem("CERTIFICATE", _sequence(body, _SIGNATURE_ALGORITHM, _bits(self._key.sign(body))))


_shared: CertificateAuthority | None = None


def shared_authority() -> CertificateAuthority:
    """The authority of this process and of the worlds forked from it; its key never leaves their supervisors."""
    global _shared
    if _shared is None:
        _shared = CertificateAuthority()
    return _shared
