"""``python -m soakd.dashboards DIR``: write the dashboards; ``--check`` only says whether those there are in step."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from soakd.dashboards.generate import documents
from soakd.metrics import catalogue


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soakd.dashboards", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not up to date")
    options = parser.parse_args()
    stale = 0
    for name, text in documents(catalogue()).items():
        path = options.directory / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if options.check:
            print(f"{path} is not up to date", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print(path)
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
