#!/usr/bin/env python3
"""Prints the SBOM of deltaq for a target, as CycloneDX 1.6 in JSON: every crate that is linked into the binary, with license, checksum and
dependencies, and the C libraries that crates bring along.

    scripts/sbom.py TARGET        # for example x86_64-unknown-linux-musl

SOURCE_DATE_EPOCH is the time of the document; without it the document has none. Crates that only builds or tests need are not in it.
"""
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

# Crates with the source of a C library: its name, the header with its version, and where the numbers are in it.
BUNDLED = {
    "libmimalloc-sys": ("mimalloc", "c_src/mimalloc/v2/include/mimalloc.h", r"#define MI_MALLOC_VERSION +(\d+)(\d\d)(\d\d)\b"),
    "libsqlite3-sys": ("sqlite", "sqlite3/sqlite3.h", r'#define SQLITE_VERSION +"(\d+)\.(\d+)\.(\d+)"'),
    "zstd-sys": ("zstd", "zstd/lib/zstd.h", r"#define ZSTD_VERSION_(?:MAJOR|MINOR|RELEASE) +(\d+)"),
}


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments, "--locked"], check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(target):
    """The packages that are linked into the binary, by name and version, each with those that it depends on.

    `cargo tree` knows the features of a build of deltaq alone; `cargo metadata` unites them with those of the tests.
    """
    tree = cargo("tree", "--package", "deltaq", "--edges", "normal,no-proc-macro", "--target", target, "--prefix", "depth")
    found, path = {}, []
    for depth, name, version in re.findall(r"^(\d+)(\S+) v(\S+)", tree, re.M):
        package = (name, version)
        del path[int(depth) :]
        if path:
            found[path[-1]].add(package)
        path.append(package)
        found.setdefault(package, set())
    return found


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums):
    described = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
        # Some crates still separate alternatives by a slash.
        "licenses": [{"expression": package["license"].replace("/", " OR ")}],
    }
    if checksum := checksums.get((package["name"], package["version"])):
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        described["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return described


def bundled(package):
    """The C library in a crate."""
    name, header, pattern = BUNDLED[package["name"]]
    text = (pathlib.Path(package["manifest_path"]).parent / header).read_text()
    numbers = [number for match in re.finditer(pattern, text) for number in match.groups()]
    version = ".".join(str(int(number)) for number in numbers)
    purl = f"pkg:generic/{name}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def main():
    target = sys.argv[1]
    metadata = json.loads(cargo("metadata", "--format-version", "1"))
    packages = {(package["name"], package["version"]): package for package in metadata["packages"]}
    lock = tomllib.loads((pathlib.Path(metadata["workspace_root"]) / "Cargo.lock").read_text())
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}
    graph = linked(target)
    (root,) = (package for package in graph if package[0] == "deltaq")

    components, dependencies = [], []
    for name in sorted(graph):
        package = packages[name]
        needed = [reference(packages[dependency]) for dependency in graph[name]]
        if name != root:
            components.append(component(package, checksums))
        if package["name"] in BUNDLED:
            library = bundled(package)
            components.append(library)
            needed.append(library["bom-ref"])
        dependencies.append({"ref": reference(package), "dependsOn": sorted(needed)})

    about = {"component": component(packages[root], checksums) | {"type": "application"}}
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        about["timestamp"] = datetime.datetime.fromtimestamp(int(epoch), datetime.UTC).isoformat()
    about["properties"] = [{"name": "deltaq:target", "value": target}]
    json.dump(
        {
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": about,
            "components": components,
            "dependencies": dependencies,
        },
        sys.stdout,
        indent=2,
    )
    print()


if __name__ == "__main__":
    main()
