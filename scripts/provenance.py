#!/usr/bin/env python3
"""Prints the provenance of the files of a release: an in-toto statement with the predicate of SLSA 1, in JSON. It names each file with its SHA-256,
the commit, the files that fix the versions of everything else, and the compiler. It has no time and no number of the run, so the same files and the
same commit give the same text.

    scripts/provenance.py TARGET FILE...
"""
import hashlib
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The project has no address of its own before its first release.
PROJECT = "https://example.com/deltaq"
# What fixes the versions of crates, of the compiler, and the flags.
INPUTS = ("Cargo.lock", "rust-toolchain.toml", ".cargo/config.toml", "scripts/release.sh")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def sha256(path):
    return {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def main():
    target, *files = sys.argv[1:]
    subjects = sorted((path.name, sha256(path)) for path in map(pathlib.Path, files))
    commit = output("git", "rev-parse", "HEAD")
    # A tree with other changes than the commit is not that commit.
    is_changed = output("git", "status", "--porcelain", "--untracked-files=no") != ""
    source = {"uri": f"git+{PROJECT}@{commit}", "digest": {"gitCommit": commit}, "annotations": {"changed": is_changed}}
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": digest} for name, digest in subjects],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{PROJECT}/release/v1",
                "externalParameters": {"target": target, "profile": "dist"},
                "internalParameters": {"rustc": output("rustc", "--version"), "cargo": output("cargo", "--version")},
                "resolvedDependencies": [source, *({"name": name, "digest": sha256(ROOT / name)} for name in INPUTS)],
            },
            "runDetails": {"builder": {"id": f"{PROJECT}/scripts/release.sh"}},
        },
    }
    print(json.dumps(statement, indent=2))


if __name__ == "__main__":
    main()
