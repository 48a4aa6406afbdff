#!/usr/bin/env python3
"""Checks an SBOM of deltaq on stdin against the schema of CycloneDX, and against `cargo tree`.

    scripts/sbom.py TARGET | scripts/sbom_check.py TARGET
"""
import json
import re
import subprocess
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

text = sys.stdin.read()
errors = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
assert errors is None, errors

document = json.loads(text)
listed = [(part["name"], part["version"]) for part in [document["metadata"]["component"], *document["components"]]]
command = "cargo tree --locked --package deltaq --edges normal,no-proc-macro --prefix none --format {p} --target".split() + sys.argv[1:]
crates = {tuple(line.split(" v")) for line in re.findall(r"^\S+ v[^ \n]+", subprocess.check_output(command, text=True), re.M)}
libraries = {name for name, _ in set(listed) - crates}
assert libraries == {"mimalloc", "sqlite", "zstd"}, libraries
assert crates <= set(listed) and len(listed) == len(set(listed)), crates - set(listed)
assert all(re.fullmatch(r"\d+\.\d+\.\d+\S*", version) for _, version in listed), listed
refs = {part["bom-ref"] for part in [document["metadata"]["component"], *document["components"]]}
edges = {entry["ref"]: entry["dependsOn"] for entry in document["dependencies"]}
reached, open_refs = set(), [document["metadata"]["component"]["bom-ref"]]
while open_refs:
    ref = open_refs.pop()
    if ref not in reached:
        reached.add(ref)
        open_refs.extend(edges.get(ref, []))
assert reached == refs, reached ^ refs
print(f"{len(crates)} crates and {len(libraries)} C libraries")
