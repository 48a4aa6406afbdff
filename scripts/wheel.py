#!/usr/bin/env python3
"""Packs a program into a wheel: deltaq_server-VERSION-py3-none-PLATFORM.whl.

    scripts/wheel.py BINARY FOLDER

The wheel has the program, its manual page and its completions. A static program fits every Linux of its architecture, so its wheel can be
published; another program fits this machine. The same program gives the same wheel. Prints the path of the wheel."""
import base64, hashlib, os, platform, subprocess, sys, zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The level of compression: less in tests, which pack a large program.
LEVEL = int(os.environ.get("PACKAGE_LEVEL", "9"))


def main():
    binary, folder = sys.argv[1:]
    output = lambda *arguments: subprocess.run([binary, *arguments], check=True, capture_output=True).stdout
    version = output("--version").decode().split()[1]
    machine = platform.machine()
    is_static = "=>" not in subprocess.run(["ldd", binary], capture_output=True, text=True).stdout
    platforms = [f"manylinux2014_{machine}", f"manylinux_2_17_{machine}", f"musllinux_1_1_{machine}"] if is_static else [f"linux_{machine}"]

    info, data = f"deltaq_server-{version}.dist-info", f"deltaq_server-{version}.data"
    files = {f"deltaq_server/{name}.py": (ROOT / f"packages/pypi/deltaq_server/{name}.py").read_bytes() for name in ("__init__", "__main__")}
    files[f"{data}/scripts/deltaq"] = Path(binary).read_bytes()
    share = f"{data}/data/share"
    files[f"{share}/man/man1/deltaq.1"] = output("man")
    for shell, path in (("bash", "bash-completion/completions/deltaq"), ("zsh", "zsh/site-functions/_deltaq"), ("fish", "fish/vendor_completions.d/deltaq.fish")):
        files[f"{share}/{path}"] = output("completion", shell)
    readme = (ROOT / "packages/pypi/README.md").read_text()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.4\nName: deltaq-server\nVersion: {version}\nSummary: A keyed, event-sourced queue service over HTTP: the server and its command line\n"
        "License-Expression: Apache-2.0\nLicense-File: LICENSE\nRequires-Python: >=3.10\nClassifier: Operating System :: POSIX :: Linux\n"
        f"Classifier: Programming Language :: Rust\nDescription-Content-Type: text/markdown\n\n{readme}"
    ).encode()
    tags = "".join(f"Tag: py3-none-{name}\n" for name in platforms)
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: deltaq\nRoot-Is-Purelib: false\n{tags}".encode()
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    digest = lambda content: base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    record = "".join(f"{path},sha256={digest(content)},{len(content)}\n" for path, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()

    wheel = Path(folder) / f"deltaq_server-{version}-py3-none-{'.'.join(platforms)}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if path == f"{data}/scripts/deltaq" else 0o100644) << 16
            archive.writestr(entry, content)
    print(wheel)


main()
