#!/usr/bin/env python3
"""Checks the site in a folder: `check.py FOLDER`.

Each link and each picture of each page leads to a file of the site, and each anchor to an element of that page. Each page is reachable from the
first one. No page loads anything from another server, so the site works without a network. Each Markdown page, and llms.txt, links to files that
are there. Each call of docs/openapi.json is in the table of all calls of the API.
"""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
# What a browser loads by itself, in contrast to a link that a reader may follow.
LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("video", "src")}


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str, str]] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif name in ("href", "src") and value is not None:
                self.links.append((tag, name, value))


def calls() -> set[str]:
    """The calls of the table of all calls, as `POST /pop`."""
    table = (ROOT / "docs/api.md").read_text(encoding="utf-8").split("## All calls")[1]
    found: set[str] = set()
    methods: list[str] = []
    for quoted in re.finditer(r"`(?:([A-Z]+) )?(/[^`]*)`|`([A-Z]+)`|(;|\n|\bof\b)", table):
        method, path, alone, end = quoted.groups()
        if alone:
            methods = [*methods, alone]
        elif path:
            methods = [method] if method else methods
            found |= {f"{method} {path}" for method in methods}
        elif end != "of":
            methods = []
    return found


def missing_calls() -> list[str]:
    paths = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))["paths"]
    listed = calls()
    every = [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]
    return [call for call in every if call.replace("/v1/queues/{queue}/", "/") not in listed]


def main() -> None:
    site = Path(sys.argv[1])
    pages = {path.relative_to(site).as_posix(): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    wrong: list[str] = []
    leads: dict[str, set[str]] = {name: set() for name in pages}
    count = 0
    for name, page in pages.items():
        for tag, attribute, link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if (tag, attribute) in LOADED and parts.scheme != "data":
                    wrong.append(f"{name} loads {link}")
                continue
            count += 1
            file = (site / name).parent.joinpath(unquote(parts.path)).resolve() if parts.path else (site / name).resolve()
            if link.startswith("/") or not file.is_relative_to(site.resolve()) or not file.is_file():
                wrong.append(f"{name}: {link} leads to no file")
                continue
            to = file.relative_to(site.resolve()).as_posix()
            if to not in pages:
                continue
            leads[name].add(to)
            if tag == "a" and unquote(parts.fragment) not in pages[to].anchors:
                wrong.append(f"{name}: {link} leads to no heading")
    found, ahead = {"index.html"}, ["index.html"]
    while ahead:
        more = leads[ahead.pop()] - found
        found |= more
        ahead += more
    # toc.html is the list of the pages for browsers without JavaScript.
    wrong += [f"{name}: no page leads to it" for name in pages if name not in found and name != "toc.html"]
    texts = [*site.rglob("*.md"), site / "llms.txt"]
    for text in texts:
        markdown = re.sub(r"^```.*?^```|`(?:[^`\n]|\n(?!\n))+`", "", text.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^()\s#]+)[^()\s]*\)", markdown):
            if "://" not in link and not (text.parent / link).is_file():
                wrong.append(f"{text.relative_to(site)}: {link} leads to no file")
    wrong += [f"docs/api.md: the table of all calls lacks {call}" for call in missing_calls()]
    if wrong or len(pages) < 50:
        sys.exit("\n".join([*wrong, f"{len(wrong)} mistakes in {len(pages)} pages"]))
    print(f"{len(pages)} pages, {len(texts) - 1} of them as Markdown: {count} links lead to a file and to a heading in it")


main()
