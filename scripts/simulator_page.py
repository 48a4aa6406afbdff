#!/usr/bin/env python3
"""Puts the simulator together: `simulator_page.py MODULE FOLDER`. FOLDER gets the page, the rule scripts and the module, as files of a browser that has
no server: it fetches nothing from files, so the module is text in a script.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BYTES_MAX = 2_000_000


def main() -> None:
    module, folder = Path(sys.argv[1]), Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "simulator/page", folder)
    rules = [{"name": path.stem, "source": path.read_text(encoding="utf-8")} for path in sorted((ROOT / "docs/rules").glob("*.txt"))]
    # One script a line, so that a difference of two builds is readable.
    lines = ",\n".join(json.dumps(rule, ensure_ascii=False) for rule in rules)
    (folder / "scripts.js").write_text(f'"use strict";\n\nsimulator.scripts = [\n{lines}\n];\n', encoding="utf-8")
    text = base64.b64encode(module.read_bytes()).decode()
    (folder / "wasm.js").write_text(f'"use strict";\n\nsimulator.wasm = "{text}";\n', encoding="utf-8")
    size = sum(path.stat().st_size for path in folder.iterdir())
    if size > BYTES_MAX:
        sys.exit(f"the simulator has {size:,} bytes, at most {BYTES_MAX:,}")
    print(f"{folder}: {len(rules)} scripts, {size:,} bytes, of which the module has {module.stat().st_size:,}")


main()
