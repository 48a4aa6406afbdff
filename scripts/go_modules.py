#!/usr/bin/env python3
"""Packs the Go modules of clients/go into a folder that the go command reads as a proxy: deltaq-go-VERSION.zip.

    scripts/go_modules.py VERSION FOLDER

Until Cargo.toml names a repository, the modules have the path MODULE. Then they have that of the repository. The same commit gives the same file.
Prints its path."""
import io, json, re, subprocess, sys, tomllib, zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The path of the first module in the sources. Those of the others begin with it.
MODULE = "example.com/deltaq/clients/go"


def main():
    version, folder = "v" + sys.argv[1], Path(sys.argv[2])
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())
    repository = cargo.get("workspace", {}).get("package", {}).get("repository") or cargo.get("package", {}).get("repository")
    path = MODULE if not isinstance(repository, str) else re.sub(r"^https?://|\.git$|/$", "", repository) + "/clients/go"
    tracked = subprocess.run(["git", "ls-files", "-z", "clients/go"], cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")[:-1]
    roots = sorted((str(Path(name).parent) for name in tracked if name.endswith("/go.mod")), reverse=True)
    contents = {root: {} for root in roots}
    for name in tracked:
        # A file belongs to the module with the longest path.
        root = next(root for root in roots if name.startswith(root + "/"))
        contents[root][name[len(root) + 1 :]] = (ROOT / name).read_bytes().replace(MODULE.encode(), path.encode())

    tree = {}
    for root, files in sorted(contents.items()):
        module = path + root[len("clients/go") :]
        mod = re.sub(r"\n(//[^\n]*\n)?replace (\([^)]*\)|[^\n]*)\n", "\n", files["go.mod"].decode())
        mod = re.sub(rf"({re.escape(path)}\S*) v0\.0\.0\b", rf"\1 {version}", mod).rstrip() + "\n"
        files = {**files, "go.mod": mod.encode(), "LICENSE": (ROOT / "LICENSE").read_bytes()}
        # The go command writes capital letters in this way.
        at = re.sub("[A-Z]", lambda letter: "!" + letter[0].lower(), module) + "/@v/"
        tree[at + "list"] = (version + "\n").encode()
        tree[f"{at}{version}.info"] = json.dumps({"Version": version}).encode()
        tree[f"{at}{version}.mod"] = files["go.mod"]
        tree[f"{at}{version}.zip"] = packed({f"{module}@{version}/{name}": text for name, text in sorted(files.items())})
    file = folder / f"deltaq-go-{version[1:]}.zip"
    file.write_bytes(packed(tree))
    print(file)


def packed(files):
    """A zip archive with fixed times."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            archive.writestr(entry, content)
    return out.getvalue()


main()
