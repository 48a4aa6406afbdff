#!/usr/bin/env python3
"""Copies the documents into FOLDER for readers of a package: README.md, CHANGELOG.md, docs/, and every file of this repository to which they or the
copied pages link, at its path here. So every link leads somewhere.

    scripts/documents.py FOLDER
"""
import pathlib
import re
import shutil
import sys

root = pathlib.Path(__file__).resolve().parent.parent


def linked(page):
    """The files of the repository to which a page links. A link to a folder is one to each file in it."""
    text = re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^) ]+)\)", text):
        path, _, _ = target.partition("#")
        if path and "://" not in target:
            found = (page.parent / path).resolve()
            yield from files(found) if found.is_dir() else [found]


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def main(folder):
    found, left = set(), [root / "README.md", root / "CHANGELOG.md", *files(root / "docs")]
    while left:
        path = left.pop()
        if path in found:
            continue
        if not path.is_file() or root not in path.parents:
            sys.exit(f"{path} is linked, and is no file of this repository")
        found.add(path)
        if path.suffix == ".md":
            left.extend(linked(path))
    for path in sorted(found):
        copy = folder / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        copy.chmod(0o644)
        for parent in copy.relative_to(folder).parents:
            (folder / parent).chmod(0o755)


main(pathlib.Path(sys.argv[1]))
