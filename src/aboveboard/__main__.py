"""``python -m aboveboard`` is the ``aboveboard`` command."""

from __future__ import annotations

import sys

from aboveboard.cli import main

if __name__ == "__main__":
    sys.exit(main())
