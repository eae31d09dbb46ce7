"""Build the database templates (``*.db``) beside this file from their SQL, and the PDF documents.

Run ``python src/aboveboard/world/data/rebuild.py`` after changing a ``.sql`` file. The results are committed, so that
a world needs neither sqlite3 nor this program at start. A slot such as ``«!b64:48»`` is stored padded with DEL to
the length of its value: the database pages keep their layout when the value is written over it.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

HERE = Path(__file__).parent
SLOT = re.compile("«!?[a-z0-9A-Z]+:([0-9]+)»")


def padded(sql: str) -> str:
    """``sql`` with each slot stretched to as many UTF-8 bytes as the value that will replace it."""

    def stretch(match: re.Match[str]) -> str:
        missing = int(match[1]) - len(match[0].encode())
        if missing < 0:
            raise ValueError(f"{match[0]} is longer than its value; use a slot of at least {len(match[0]) + 2} bytes")
        return match[0] + "\x7f" * missing

    return SLOT.sub(stretch, sql)


def database(sql: str) -> bytes:
    """The bytes of a new database made by the statements of ``sql`` (4,096-byte pages)."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript("PRAGMA page_size = 4096;" + padded(sql))
        return connection.serialize()
    finally:
        connection.close()


def pdf(lines: list[str]) -> bytes:
    """A one-page PDF 1.4 document that shows ``lines``."""
    shown = " T* ".join(f"({line}) Tj" for line in lines)
    stream = f"BT /F1 11 Tf 14 TL 72 760 Td {shown} ET"
    bodies = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        (
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R "
            "/Resources << /Font << /F1 5 0 R >> >> >>"
        ),
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(bodies, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    size = len(bodies) + 1
    return (
        out
        + f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
        f"startxref\n{len(out)}\n%%EOF\n".encode("latin-1")
    )


DOCUMENTS = {
    "lease.pdf": [
        "Residential lease",
        "",
        "Apartment 3b, second floor, 64 square metres, cellar 12.",
        "Monthly rent 1,240.00 excluding heating, due on the third working day.",
        "Notice period three months to the end of a month.",
    ],
    "invoice.pdf": [
        "Invoice 20418",
        "",
        "Consulting, 12 hours at 95.00            1,140.00",
        "Value added tax 19 %                       216.60",
        "Total                                    1,356.60",
    ],
}


def main() -> None:
    """Write every template."""
    for source in sorted(HERE.glob("*.sql")):
        source.with_suffix(".db").write_bytes(database(source.read_text(encoding="utf-8")))
    for name, lines in DOCUMENTS.items():
        (HERE / name).write_bytes(pdf(lines))


if __name__ == "__main__":
    main()
