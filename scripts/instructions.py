#!/usr/bin/env python3
"""Counts the instructions of the engine for an add, pop and ack of a key, with callgrind, and compares them with the committed figures.

    scripts/instructions.py            fails if a figure has grown by more than 3 %
    scripts/instructions.py --update   writes the figures to crates/deltaq-engine/benches/instructions.txt

Only instructions in the binary count: those of libc and of its allocator depend on the machine. The figures are those of the toolchain of
rust-toolchain.toml. A commit that makes the engine slower on purpose updates them and says why; so does one that makes it faster."""
import json, os, re, subprocess, sys, tempfile

FIGURES = "crates/deltaq-engine/benches/instructions.txt"
KEYS = 20_000
MARGIN = 1.03
WORKLOADS = ("cycle", "fill_drain")


def build():
    command = ["cargo", "bench", "--locked", "-p", "deltaq-engine", "--bench", "instructions", "--no-run", "--message-format", "json"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    artifacts = (json.loads(line) for line in lines)
    return next(a["executable"] for a in artifacts if a.get("executable") and a["target"]["name"] == "instructions")


def count(binary, workload):
    """The instructions of a workload per key."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        subprocess.run(["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect=instructions::{workload}",
                        f"--callgrind-out-file={out}", binary], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(out) as lines:
            return own_instructions(lines, os.path.realpath(binary)) / KEYS


def own_instructions(lines, binary):
    """Sums the instructions of the functions of a binary in a file of callgrind. The line after `calls=` has those of the called
    function, which has lines of its own."""
    names, in_binary, is_call, total = {}, False, False, 0
    for line in lines:
        name = re.match(r"(ob|cob)=\((\d+)\)(?: (.*))?", line)
        if name:
            kind, number, path = name.groups()
            if path:
                names[number] = path.strip()
            if kind == "ob":
                in_binary = os.path.realpath(names[number]) == binary
        elif line.startswith("calls="):
            is_call = True
        elif re.match(r"[\d+*-]", line):
            if in_binary and not is_call:
                total += int(line.split()[1])
            is_call = False
    return total


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    binary = build()
    found = {workload: round(count(binary, workload)) for workload in WORKLOADS}
    if not all(figure > 100 for figure in found.values()):
        sys.exit(f"the instructions were not counted: {found}")
    if sys.argv[1:] == ["--update"]:
        with open(FIGURES, "w") as file:
            file.writelines(f"{workload} {figure}\n" for workload, figure in found.items())
    with open(FIGURES) as file:
        committed = {workload: int(figure) for workload, figure in (line.split() for line in file)}
    slower = 0
    for workload in WORKLOADS:
        ratio = found[workload] / committed[workload]
        slower += ratio > MARGIN
        print(f"{workload}: {found[workload]} instructions per key, {ratio:.3f} of the committed {committed[workload]}")
    if slower:
        sys.exit("the engine takes more instructions than committed. If that is meant: scripts/instructions.py --update, and say why in the commit")


main()
