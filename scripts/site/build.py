#!/usr/bin/env python3
"""Builds the site of the documents with mdBook: `build.py MDBOOK FOLDER`.

The pages are those of docs/, and the README files beside the code to which they link. docs/README.md is the only list: its tables are the parts
of the site, in their order, and so are the descriptions of llms.txt; pages beside the code that it does not have are the last part. The pages of a
folder, such as docs/api/, are below the page with its name, docs/api.md, in the order in which that page links to them. Files that a page links to
are copied. FOLDER gets the pages as HTML, the same pages as Markdown, and llms.txt.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = "docs/README.md"
# Pages that are read before and after those of the list.
FIRST, LAST = "README.md", ["CHANGELOG.md", "CONTRIBUTING.md"]
# What scripts/simulator.sh has built, and the mark of a page on which it stands; without it, the page has only its text.
SIMULATOR = ROOT / "target/simulator"
MARK = "<!-- simulator -->"
# A link, or code, in which nothing is a link.
LINK = re.compile(r"^```.*?^```|`(?:[^`\n]|\n(?!\n))+`|\]\(([^()\s]+)\)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| \[([^\]]+)\]\(([^)\s]+)\) \| (.*) \|$")


@dataclass
class Page:
    title: str
    path: str  # in the repository
    about: str = ""
    below: list[Page] = field(default_factory=list)


@dataclass
class Part:
    title: str
    pages: list[Page] = field(default_factory=list)


def fail(message: str) -> None:
    sys.exit(f"site: {message}")


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def on_site(path: str) -> str:
    """The place of a file of the repository on the site."""
    if path == LIST:
        return "contents.md"
    path = path.removeprefix("docs/")
    return f"{path.removesuffix('README.md')}index.md" if posixpath.basename(path) == "README.md" else path


def target(page: str, link: str) -> str:
    """The file of the repository to which a link of a page leads."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def text_of(markdown: str) -> str:
    """A text without its links and marks."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown).replace("**", "").replace("\\|", "|")


def below(page: str) -> list[Page]:
    """The pages of the folder with the name of a page, in the order of its links; the link may follow a number, as in `[0001](...) Title`."""
    folder = Path(page.removesuffix(".md"))
    if not page.endswith(".md") or not (ROOT / folder).is_dir():
        return []
    pages: dict[str, Page] = {}
    for line in read(page).splitlines():
        for found in re.finditer(r"\[([^\]]+)\]\(([^)#\s]+\.md)\)([^\[]*)", line):
            path = target(page, found[2])
            if Path(path).parent != folder or path in pages:
                continue
            row = ROW.match(line)
            title = f"{found[1]}{found[3].rstrip()}" if found[1].isdigit() else found[1]
            pages[path] = Page(title, path, text_of(row[3]) if row else "")
    return list(pages.values())


def parts() -> list[Part]:
    """The parts of the site: what stands before the first table of the list, and each table."""
    result = [Part("")]
    for line in read(LIST).splitlines():
        if head := re.match(r"^\| ([a-z][^|]*) \| \|$", line):
            result.append(Part(head[1].capitalize()))
        elif row := ROW.match(line):
            path = target(LIST, row[2])
            result[-1].pages.append(Page(row[1], path, text_of(row[3]), below(path)))
        elif len(result) == 1:
            for title, link in re.findall(r"\[([^\]]+)\]\(([^)\s]+\.md)\)", line):
                result[0].pages.append(Page(title[0].upper() + title[1:], target(LIST, link), text_of(line)))
    return result


def all_pages(pages: list[Page]) -> list[Page]:
    return [found for page in pages for found in [page, *all_pages(page.below)]]


def unlisted(known: set[str]) -> list[Page]:
    """The pages outside docs/ that other pages link to and the list does not have, such as the README of a new client. Adds them to those known."""
    found, ahead = [], sorted(known)
    while ahead:
        path = ahead.pop()
        for link in LINK.findall(read(path)):
            file = target(path, link.partition("#")[0])
            if file.endswith(".md") and not file.startswith("docs/") and file not in known and (ROOT / file).is_file():
                known.add(file)
                ahead.append(file)
                found.append(Page(read(file).splitlines()[0].removeprefix("# "), file))
    return sorted(found, key=lambda page: page.path)


def relinked(path: str, text: str, known: set[str], files: set[str]) -> str:
    """The text of a page with its links as they are on the site. Adds the files to which it links."""

    def replace(found: re.Match[str]) -> str:
        link, _, anchor = (found[1] or "").partition("#")
        if "://" in link or link.startswith("mailto:") or not link:
            return found[0]
        file = target(path, link)
        if not (ROOT / file).is_file():
            fail(f"{path} links to {link}, which is not a file")
        if file not in known:
            if file.endswith(".md"):
                fail(f"{path} links to {link}, which is not in {LIST}: add it there")
            files.add(file)
        here = posixpath.dirname(on_site(path))
        place = posixpath.relpath(on_site(file), here or ".")
        return f"]({place}{'#' + anchor if anchor else ''})"

    return LINK.sub(replace, text)


def framed(path: str, text: str) -> str:
    """A text of a page with the simulator at its mark. Small screens get a link instead of a page in a page."""
    here = posixpath.dirname(on_site(path))
    page = posixpath.relpath("simulator/index.html", here or ".")
    frame = f'<p class="simulator"><a href="{page}">Open the simulator</a></p>\n<iframe class="simulator" title="Simulator" loading="lazy" src="{page}"></iframe>'
    return text.replace(MARK, frame) if SIMULATOR.is_dir() else text


def rules() -> str:
    """A list of all rules, by the first lines of their scripts."""
    lines = []
    for script in sorted((ROOT / "docs/rules").glob("*.txt")):
        about = script.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        run = f' <a href="../simulator/index.html?rule={script.stem}">Run it</a>' if SIMULATOR.is_dir() else ""
        lines.append(f"- [{script.stem.replace('-', ' ')}]({script.name}): {about}{run}")
    return "\n## All rules\n\n" + "\n".join(lines) + "\n"


def entry(page: Page, depth: int) -> str:
    lines = [f"{'  ' * depth}- [{page.title}]({on_site(page.path)})"]
    return "\n".join(lines + [entry(below, depth + 1) for below in page.below])


def summary(sections: list[Part]) -> str:
    lines = ["# Summary", "", f"[deltaq]({on_site(FIRST)})", f"[All documents]({on_site(LIST)})"]
    for part in sections:
        lines += ["", f"# {part.title}" if part.title else "", ""]
        lines += [entry(page, 0) for page in part.pages if page.path.endswith(".md")]
    titles = {"CHANGELOG.md": "Changelog", "CONTRIBUTING.md": "Contributing"}
    return "\n".join([*lines, "", "# The project", "", *[f"- [{titles[path]}]({path})" for path in LAST], ""])


def llms(sections: list[Part]) -> str:
    """https://llmstxt.org: what deltaq is, and each page as Markdown with its description."""
    intro = read(FIRST).split("\n\n")[1].replace("\n", " ")
    lines = ["# deltaq", "", f"> {intro}", "", "## Start", "", f"- [deltaq]({on_site(FIRST)}): what it does, and how to try it in two minutes"]
    for part in sections:
        if part.title:
            lines += ["", f"## {part.title}", ""]
        for page in all_pages(part.pages):
            lines.append(f"- [{page.title}]({on_site(page.path)})" + (f": {page.about}" if page.about else ""))
    return "\n".join([*lines, ""])


def main() -> None:
    mdbook, folder = sys.argv[1], Path(sys.argv[2])
    sections = parts()
    listed = [page.path for page in all_pages([page for part in sections for page in part.pages])]
    known = {FIRST, LIST, *LAST, *(path for path in listed if path.endswith(".md"))}
    if twice := {path for path in listed if listed.count(path) > 1}:
        fail(f"listed twice: {', '.join(sorted(twice))}")
    more = unlisted(known)
    if more:
        sections.append(Part("More", more))
    missing = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")) if str(path.relative_to(ROOT)) not in known]
    if missing:
        fail(f"not in {LIST} or the page of their folder: {', '.join(missing)}")

    shutil.rmtree(folder, ignore_errors=True)
    work = folder.with_name(f"{folder.name}.book")
    shutil.rmtree(work, ignore_errors=True)
    pages = work / "pages"
    files = {path for path in listed if not path.endswith(".md")}
    files |= {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*") if path.is_file() and path.suffix != ".md"}
    for path in sorted(known):
        text = relinked(path, read(path), known, files)
        place = pages / on_site(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(framed(path, text) + (rules() if path == "docs/rules/README.md" else ""), encoding="utf-8")
    for path in sorted(files):
        place = pages / on_site(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, place)
    (pages / "SUMMARY.md").write_text(summary(sections), encoding="utf-8")
    for name in ("book.toml", "site.css"):
        shutil.copyfile(ROOT / "scripts/site" / name, work / name)
    subprocess.run([mdbook, "build", str(work)], check=True)
    shutil.move(work / "html", folder)
    if SIMULATOR.is_dir():
        shutil.copytree(SIMULATOR, folder / "simulator")
        page = folder / "simulator/index.html"
        links = '<p><a href="../contents.html">All documents</a> · <a href="../rules/index.html">The commands of a script</a></p>'
        page.write_text(page.read_text(encoding="utf-8").replace("<!-- links -->", links), encoding="utf-8")
    for path in known:
        place = folder / on_site(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(pages / on_site(path), place)
    (folder / "llms.txt").write_text(llms(sections), encoding="utf-8")
    shutil.rmtree(work)


main()
