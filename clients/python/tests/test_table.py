"""Compares docs/clients.md, which has the names and defaults of all clients, with this client."""

from __future__ import annotations

import inspect
import re
import unittest
import unittest.mock
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import deltaq
import deltaq.otel
from deltaq import Nack, Queue, Worker, aio, popping, watching

PAGE = Path(__file__).resolve().parents[3] / "docs/clients.md"


def rows(columns: int) -> Iterator[list[str]]:
    """The cells of the rows with this number of columns, without headings."""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == columns and cells[0] and not cells[0].startswith("---"):
            yield cells


def named() -> Iterator[tuple[str, str | None, list[str]]]:
    """The label of each row, its default, and its names in Rust, Python, TypeScript, Go and Java."""
    for label, *names in rows(6):
        yield label, None, names
    for label, default, *names in rows(7):
        yield label, default, names


def duration(seconds: float) -> str:
    if seconds >= 60:
        return f"{seconds / 60:g}m"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def pops(**options: Any) -> str:
    """The number of keys that a worker asks for."""
    worker = Worker(Queue(unittest.mock.Mock(), "q"), lambda item, context: None, **options)
    return parse_qs(urlsplit(worker.settings.pop("q", "id", []).target).query)["max"][0]


def text_of(name: str, value: object) -> str:
    """A default as the page writes it."""
    if name == "Worker(batch)":
        follows = [pops(concurrency=count) for count in (3, 7)] == ["3", "7"]
        return "concurrency" if follows else pops()
    if name == "Worker(name)":
        names = {Worker(Queue(unittest.mock.Mock(), "q"), lambda item, context: None).settings.name for _ in range(9)}
        return "unique" if len(names) == 9 else "none"
    if name == "Informer(bookmark)":
        return duration(watching.silence_seconds(None) / watching.SILENT_BOOKMARKS)
    if value in (None, ()) or (value == 0 and not isinstance(value, bool)):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    is_duration = name.startswith("RetryOptions(") or name in ("Worker(wait)", "Worker(grace)", "Client(reply_timeout)")
    return duration(float(value)) if is_duration and isinstance(value, (int, float)) else str(value)


@unittest.skipUnless(PAGE.exists(), "the page is in the repository")
class Table(unittest.TestCase):
    def test_this_client_has_the_names_and_defaults_of_the_page(self) -> None:
        compared = 0
        for label, default, names in named():
            name = names[1].strip("`")
            if name == "-":
                continue
            path, parameter = re.fullmatch(r"([\w.]+)(?:\((\w+)\))?", name).groups()  # type: ignore[union-attr]
            for module in (deltaq, aio):
                found: Any = module if hasattr(module, path.split(".", maxsplit=1)[0]) else deltaq
                for part in path.split("."):
                    found = getattr(found, part)
                if parameter is None:
                    continue
                shown = inspect.signature(found).parameters[parameter].default
                with self.subTest(label, module=module.__name__):
                    self.assertEqual(text_of(name, shown), default)
            compared += 1
        self.assertGreater(compared, 90)

    def test_what_has_no_option_has_the_value_of_the_page(self) -> None:
        values = {
            "longest error of a failed key, of which the end is kept": f"{len((Nack('x' * 9999).error or '').encode())} bytes",
            "first pause while the queue of a worker does not exist": duration(popping.ABSENT.backoff(1)),
            "longest pause while the queue of a worker does not exist": duration(popping.ABSENT.backoff(99)),
            "time for the last calls of a worker that stops": duration(popping.LAST_CALLS_SECONDS),
        }
        self.assertEqual(values, dict(rows(2)))

    def test_the_names_of_a_row_differ_only_in_their_case(self) -> None:
        for label, _, names in named():
            words = {
                re.split(r"::|\.|\(", re.sub(r"[`)]", "", name))[-1].replace("_", "").lower() for name in names if name != "-" and not name.startswith("not ")
            }
            # A page of a list in Go; an index of a builder in Rust.
            words = {re.sub("page$", "", word) for word in words}
            with self.subTest(label):
                self.assertEqual(len(words - {"index"} if "indexes" in words else words), 1, words)


if __name__ == "__main__":
    unittest.main()
