#!/usr/bin/env python3
"""Runs the scenarios of README.md against the scenario program of one client."""

from __future__ import annotations

import argparse
import os
import random
import shlex
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import informer_scenarios  # noqa: F401
import produce_scenarios  # noqa: F401
import read_scenarios  # noqa: F401
import servers_scenarios  # noqa: F401
import worker_scenarios  # noqa: F401
from harness import Failed, Scenario
from registry import SCENARIOS

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PYTHON = ROOT / "clients/python"
# scripts/python-client.sh makes it, with what the asyncio client needs.
OWN_INTERPRETER = ROOT / "target/python-client/bin/python"
INTERPRETER = str(OWN_INTERPRETER) if OWN_INTERPRETER.exists() else sys.executable

JAVA = TARGET / "java/deltaq-scenarios"
# Many short programs run at once, so each has few threads of its own, and reads no certificates, which is a quarter of its start.
# The archive of classes is made by scripts/java-client.sh; it is not needed, and one of another build is ignored.
JVM = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable", "-Djavax.net.ssl.trustStore=NONE", f"-XX:SharedArchiveFile={TARGET}/java/scenarios.jsa"]
# The command of each client's scenario program, and its environment.
CLIENTS: dict[str, tuple[list[str], dict[str, str]]] = {
    "python": ([INTERPRETER, str(PYTHON / "scenarios/program.py")], {"PYTHONPATH": str(PYTHON / "src")}),
    "python-async": ([INTERPRETER, str(PYTHON / "scenarios/program_async.py")], {"PYTHONPATH": str(PYTHON / "src")}),
    "go": ([str(TARGET / "go/scenarios")], {}),
    "java": (["java", *JVM, "-cp", f"{JAVA}/scenarios.jar:{JAVA}/lib/*", "example.deltaq.scenarios.Program"], {}),
    "rust": ([str(TARGET / "debug/examples/scenarios")], {}),
    "typescript": (["node", str(TARGET / "typescript/build/scenarios/program.js")], {}),
}

# What a client does not have: the beginnings of the names of its scenarios.
MISSING: dict[str, tuple[str, ...]] = {"typescript": ("reflector",)}


def run(name: str, options: argparse.Namespace) -> str | None:
    """Runs a scenario. Its result is None, or the description of the fault."""
    function, settings = SCENARIOS[name]
    began = time.monotonic()
    fault = None
    with Scenario(name, options, settings) as scenario:
        try:
            scenario.server.start()
            scenario.proxy.server_port = scenario.server.port
            function(scenario)
            scenario.check_faults()
        except Failed as failed:
            fault = f"{failed}\n{scenario.logs()}"
        except Exception:
            fault = f"{traceback.format_exc()}{scenario.logs()}"
    seconds = time.monotonic() - began
    print(f"{'FAILED' if fault else 'passed'}  {name} ({seconds:.1f} s)" + (f": {fault}" if fault else ""), flush=True)
    return fault


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=CLIENTS)
    parser.add_argument("--program", metavar="COMMAND")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, metavar="NAME")
    parser.add_argument("--server", metavar="PATH", default=os.environ.get("DELTAQ_BIN", str(TARGET / "debug/deltaq")))
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for name, (function, _) in SCENARIOS.items():
            print(f"{name}: {function.__doc__}")
        return 0
    if not options.client and not options.program:
        parser.error("--client or --program is missing")
    options.command, options.environment = CLIENTS[options.client] if options.client else ([], {})
    if options.program:
        options.command = shlex.split(options.program)
    names = options.scenario or list(SCENARIOS)
    names = [name for name in names if not name.startswith(MISSING.get(options.client, ()))]
    with ThreadPoolExecutor(options.jobs) as pool:
        faults = [fault for fault in pool.map(lambda name: run(name, options), names) if fault]
    if faults:
        print(f"the seed was {options.seed}")
    print(f"{len(names) - len(faults)} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
