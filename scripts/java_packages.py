#!/usr/bin/env python3
"""Packs the Java client into a Maven repository as a folder: deltaq-java-VERSION.zip.

    scripts/java_packages.py VERSION FOLDER

Until Cargo.toml names a repository, the group and the packages are named GROUP. Then they are those that its owner may use: io.github.OWNER for a
repository https://github.com/OWNER/NAME, else the host backwards with the owner. Packages have _ for a hyphen. The same commit gives the same file. Prints
its path."""
import re, subprocess, sys, tempfile, tomllib, zipfile
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
# The group, and the beginning of all packages and modules, in the sources.
GROUP = "example.deltaq"
MODULES = ("deltaq", "deltaq-test", "deltaq-spring")


def group():
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())
    repository = cargo.get("workspace", {}).get("package", {}).get("repository") or cargo.get("package", {}).get("repository")
    if not isinstance(repository, str):
        return GROUP
    url = urlsplit(repository)
    host = "github.io" if url.hostname == "github.com" else url.hostname
    owner = url.path.strip("/").split("/")[0].lower()
    return ".".join([*reversed(host.split(".")), owner, "deltaq"])


def main():
    version, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    owned = group()
    name = re.sub("[^a-z0-9.]", "_", owned)
    tracked = subprocess.run(["git", "ls-files", "-z", "clients/java", "LICENSE"], cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")[:-1]
    with tempfile.TemporaryDirectory() as work:
        sources, built = Path(work, "clients/java"), Path(work, "repository")
        for path in tracked:
            to = Path(work, path.replace(GROUP.replace(".", "/"), name.replace(".", "/")))
            to.parent.mkdir(parents=True, exist_ok=True)
            text = (ROOT / path).read_text().replace(f"<groupId>{GROUP}</groupId>", f"<groupId>{owned}</groupId>").replace(GROUP, name)
            if to.name == "Client.java":
                text = re.sub('(String VERSION = ")[^"]+', rf"\g<1>{version}", text)
            if to.name == "pom.xml":
                text = re.sub(r"(<artifactId>deltaq-parent</artifactId>\s*<version>)[^<]+", rf"\g<1>{version}", text)
            to.write_text(text)
        command = ["mvn", "--batch-mode", "--quiet", "--no-transfer-progress", "-Pall", "-DskipTests", f"-DaltDeploymentRepository=file::file://{built}"]
        projects = ",".join([".", *MODULES])
        done = subprocess.run([*command, "--projects", projects, "deploy"], cwd=sources, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        file = folder / f"deltaq-java-{version}.zip"
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for path in sorted(path for path in built.rglob("*") if path.is_file() and not path.name.startswith("maven-metadata")):
                entry = zipfile.ZipInfo(str(path.relative_to(built)), (1980, 1, 1, 0, 0, 0))
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
                archive.writestr(entry, path.read_bytes())
    print(file)


main()
