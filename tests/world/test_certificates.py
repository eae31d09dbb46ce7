"""The throw-away authority: clients that trust it accept its leaves, clients that do not refuse them."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from aboveboard.world.certificates import CertificateAuthority

if TYPE_CHECKING:
    from pathlib import Path


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> str:
    """Run a TLS handshake in memory and return the protocol version agreed on."""
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(a, b, server_hostname=name), server.wrap_bio(b, a, server_side=True)]
    for _ in range(10):
        for end in tuple(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            if end in ends:
                ends.remove(end)
                last = end
        if not ends:
            return str(last.version())
    raise AssertionError("the handshake did not finish")


def _contexts(tmp_path: Path, authority: CertificateAuthority, *names: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    (tmp_path / "leaf.pem").write_bytes(authority.leaf(*names))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "leaf.pem")
    client = ssl.create_default_context(cadata=authority.pem().decode())
    # What Python 3.13 and Node apply by default, and the hardest reading of RFC 5280 that a client of ours will meet.
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    return client, server


@pytest.mark.parametrize("name", ["upload.test", "203.0.113.9", "2001:db8::99", "a" * 63 + "." + "b" * 63 + ".test"])
def test_a_client_that_trusts_the_authority_accepts_its_leaf(tmp_path: Path, name: str) -> None:
    client, server = _contexts(tmp_path, CertificateAuthority(), name)
    assert _handshake(client, server, name) == "TLSv1.3"


def test_a_leaf_serves_several_names(tmp_path: Path) -> None:
    client, server = _contexts(tmp_path, CertificateAuthority(), "one.test", "203.0.113.9")
    for name in ("one.test", "203.0.113.9"):
        assert _handshake(client, server, name)


def test_a_leaf_for_another_name_is_refused(tmp_path: Path) -> None:
    client, server = _contexts(tmp_path, CertificateAuthority(), "one.test")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _handshake(client, server, "two.test")


def test_each_world_has_its_own_authority(tmp_path: Path) -> None:
    _, server = _contexts(tmp_path, CertificateAuthority(), "one.test")
    client, _ = _contexts(tmp_path, CertificateAuthority(), "one.test")
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(client, server, "one.test")


def test_names_no_certificate_can_hold_do_not_stop_it(tmp_path: Path) -> None:
    leaf = CertificateAuthority().leaf("\u00fc.test", "a" * 300, "\x00", "")
    (tmp_path / "leaf.pem").write_bytes(leaf)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "leaf.pem")
