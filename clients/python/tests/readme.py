"""Runs the Python examples of a page in one program each, against a server, and compares what they print with the `text` block behind them.

It needs no packages: usage: readme.py PAGE URL.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# Longest time for an example, in seconds.
EXAMPLE_SECONDS = 60


def main() -> int:
    page, url = sys.argv[1:]
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", Path(page).read_text(), re.MULTILINE | re.DOTALL)
    compared = 0
    for number, (language, code) in enumerate(blocks):
        if language != "python":
            continue
        ended = subprocess.run(
            [sys.executable, "-c", code.replace("http://localhost:7070", url)], capture_output=True, text=True, timeout=EXAMPLE_SECONDS, check=False
        )
        expected = blocks[number + 1][1] if number + 1 < len(blocks) and blocks[number + 1][0] == "text" else ""
        if ended.returncode != 0 or ended.stdout != expected:
            print(f"{page}: this example printed {ended.stdout!r} instead of {expected!r}, and {ended.stderr}:\n{code}")
            return 1
        compared += bool(expected)
    if not compared:
        print(f"{page} has no examples")
    return 0 if compared else 1


if __name__ == "__main__":
    sys.exit(main())
