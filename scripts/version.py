#!/usr/bin/env python3
"""The version of the project is that of the package in Cargo.toml. Checks that every other file names the same one, or writes another one into all.
scripts/package.sh, wheel.py, npm-packages.sh and release.sh have theirs from the program that they pack.

    scripts/version.py              # check
    scripts/version.py 0.2.0        # write; `cargo metadata` then updates Cargo.lock
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATE = (r'(?m)^version = "([^"]+)"$', r'(?m)^deltaq-\w+ = \{ path = .*\bversion = "([^"]+)"')
# Files, and the patterns whose group is the version.
PLACES = {
    "Cargo.toml": CRATE,
    "crates/*/Cargo.toml": CRATE,
    "clients/go/client.go": (r'(?m)^const Version = "([^"]+)"$',),
    "clients/java/pom.xml": (r"(?m)^  <version>([^<]+)</version>$",),
    "clients/java/*/pom.xml": (r"<artifactId>deltaq-parent</artifactId>\n    <version>([^<]+)</version>",),
    "clients/java/deltaq/src/main/java/example/deltaq/Client.java": (r'String VERSION = "([^"]+)"',),
    "clients/java/README.md": (r"<version>([^<]+)</version>",),
    "clients/python/src/deltaq/__init__.py": (r'(?m)^__version__ = "([^"]+)"$',),
    "clients/typescript/package.json": (r'(?m)^  "version": "([^"]+)"',),
    "clients/typescript/package-lock.json": (r'(?m)^(?:  |      )"version": "([^"]+)",\n(?=  "lockfileVersion|      "license": "Apache)',),
    "clients/typescript/README.md": (r"deltaq-([^/ ]+)\.tgz",),
    "Dockerfile": (r'DELTAQ_VERSION="([^ ]+) \(',),
    "deploy/helm/deltaq/Chart.yaml": (r"(?m)^(?:version|appVersion): (\S+)$",),
    "deploy/kubernetes/base/statefulset.yaml": (r"image: deltaq:(\S+)",),
    "deploy/kubernetes/overlays/*/kustomization.yaml": (r"(?:newTag: |/deltaq:)([^ }]+)",),
    "docs/openapi.json": (r'\A[\s\S]{0,2000}?\n    "version": "([^"]+)"',),
    "README.md": (r"deltaq_([^_ ]+)_amd64\.deb", r"deltaq-([0-9.]+)-x86_64"),
    "docs/how-to/run-as-a-service.md": (r"deltaq_([^_ ]+)_amd64\.deb",),
}


def main():
    version = re.search(CRATE[0], (ROOT / "Cargo.toml").read_text())[1]
    wrong = []
    for places, patterns in PLACES.items():
        paths = sorted(ROOT.glob(places))
        found = [sum(len(re.findall(pattern, path.read_text())) for path in paths) for pattern in patterns]
        # A pattern that finds nothing checks nothing.
        if not all(found):
            wrong.append(f"{places}: no version is where it was")
        for path in paths:
            text = path.read_text()
            for pattern in patterns:
                for match in re.finditer(pattern, text):
                    if match[1] != version:
                        line = text.count("\n", 0, match.start(1)) + 1
                        wrong.append(f"{path.relative_to(ROOT)}:{line}: {match[1]} instead of {version}, the version in Cargo.toml")
    if len(sys.argv) == 1 or wrong:
        sys.exit("\n".join(wrong) if wrong else 0)
    for places, patterns in PLACES.items():
        for path in sorted(ROOT.glob(places)):
            text = path.read_text()
            for pattern in patterns:
                text = re.sub(pattern, lambda match: match[0].replace(match[1], sys.argv[1]), text)
            path.write_text(text)


if __name__ == "__main__":
    main()
