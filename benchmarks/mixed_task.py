"""The mixed task: what an ordinary command-line program in Python does, the same one for every rival.

It imports a good part of the standard library, writes and reads fifty small files, has a child process and cleans up.
Not a micro-benchmark: most of its system calls are none that a supervisor is asked about.
"""

from __future__ import annotations

import argparse  # noqa: F401
import asyncio  # noqa: F401
import base64  # noqa: F401
import concurrent.futures  # noqa: F401
import configparser  # noqa: F401
import csv
import decimal  # noqa: F401
import difflib  # noqa: F401
import email.message  # noqa: F401
import http.client
import http.server  # noqa: F401
import json
import logging  # noqa: F401
import os
import shutil
import sqlite3
import subprocess
import tarfile  # noqa: F401
import tempfile
import unittest  # noqa: F401
import urllib.request  # noqa: F401
import xml.dom.minidom  # noqa: F401
import zipfile

FILES = 50


def main() -> None:
    directory = tempfile.mkdtemp(prefix="mixed-")
    try:
        for number in range(FILES):
            with open(os.path.join(directory, f"{number}.json"), "w", encoding="ascii") as file:
                json.dump({"number": number, "text": "x" * 1000}, file)
        total = 0
        for number in range(FILES):
            with open(os.path.join(directory, f"{number}.json"), encoding="ascii") as file:
                total += json.load(file)["number"]
        with open(os.path.join(directory, "table.csv"), "w", encoding="ascii", newline="") as file:
            csv.writer(file).writerows([n, n * n] for n in range(100))
        with zipfile.ZipFile(os.path.join(directory, "archive.zip"), "w") as archive:
            archive.write(os.path.join(directory, "table.csv"), "table.csv")
        connection = sqlite3.connect(os.path.join(directory, "rows.db"))
        with connection:
            connection.execute("create table squares (n integer, square integer)")
            connection.executemany("insert into squares values (?, ?)", [(n, n * n) for n in range(100)])
        (rows,) = connection.execute("select count(*) from squares").fetchone()
        connection.close()
        child = subprocess.run(["/bin/echo", "child"], capture_output=True, text=True, check=True)
        print(total, rows, child.stdout.strip())
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
