#!/usr/bin/env python3
"""Checks the table of limits in docs/configuration.md against the code: each number of a limit is that of a constant, or of a default in
config/deltaq.toml. A row that is not in ROWS is a mistake, too: add it with the constants of its numbers, in their order.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENGINE, TYPES, ADMISSION = "crates/deltaq-engine/src/limits.rs", "crates/deltaq-types/src/terms.rs", "crates/deltaq-service/src/admission/limits.rs"
STREAMS = "src/http/connection/streams.rs"
# The number in the name of the protocol.
HTTP_2 = 2
# A default is a comment without a space.
DEFAULTS = tomllib.loads(re.sub(r"(?m)^#(?=[a-z])", "", (ROOT / "config/deltaq.toml").read_text(encoding="utf-8")))
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "s": 1, "min": 60, "h": 3600, "hours": 3600, "days": 86_400, "": 1}
NUMBER = re.compile(r"(?<![\w.])(\d[\d,]*)(?: (KiB|MiB|GiB|s|min|h|hours|days)\b)?")


def constant(file: str, name: str) -> int:
    """The value of a constant of Rust: a number, a product, a shift, or a duration in seconds."""
    text = (ROOT / file).read_text(encoding="utf-8")
    found = re.search(rf"\bconst {name}: [\w:]+ = ([^;]+);", text)
    if found is None:
        sys.exit(f"limits: {file} has no constant {name}")
    value = found[1].replace("_", "") if "::" not in found[1] else found[1]
    if duration := re.fullmatch(r"Duration::from_(secs|mins|hours)\((.+)\)", value):
        return int(product(duration[2]) * {"secs": 1, "mins": 60, "hours": 3600}[duration[1]])
    return product(value)


def product(text: str) -> int:
    left, *right = text.split(" << ")
    value = 1
    for factor in left.split(" * "):
        value *= int(factor)
    return value << int(right[0]) if right else value


def default(name: str) -> int:
    value = DEFAULTS
    for part in name.split("."):
        value = value[part]
    if isinstance(value, int):
        return value
    number, unit = re.fullmatch(r"(\d+)([a-z]+)", str(value)).groups()  # type: ignore[union-attr]
    return int(number) * {"s": 1, "m": 60, "h": 3600}[unit]


def computations(name: str) -> int:
    text = (ROOT / "src/http/blocking.rs").read_text(encoding="utf-8")
    return int(re.search(rf"static {name}: Computations = Computations::new\((\d+),", text)[1])  # type: ignore[index]


def engine(*names: str) -> list[int]:
    return [constant(ENGINE, name) for name in names]


def admission(*names: str) -> list[int]:
    return [constant(ADMISSION, name) for name in names]


def queue(*names: str) -> list[int]:
    return [default(f"queue_defaults.{name}") for name in names]


# The beginning of a row, and the values of its numbers. A row without a number is left out.
ROWS: dict[str, list[int]] = {
    "a key:": engine("KEY_BYTES_MAX"),
    "JSON nesting:": engine("JSON_DEPTH_MAX"),
    "the name of a queue:": [constant("crates/deltaq-types/src/name.rs", "NAME_BYTES_MAX"), *engine("NAME_BYTES_MAX")],
    "the error text of a nack or reject:": engine("ERROR_BYTES_MAX"),
    "a delay:": [constant(TYPES, "DELAY_MAX")],
    "the path and query of a request:": [constant("src/http/gate/origin.rs", "URI_BYTES_MAX")],
    # hyper reads at most 100 fields.
    "the head of a request:": [default("server.max_header_bytes"), 100],
    "an object:": queue("max_object_bytes"),
    "an NDJSON line without its object:": engine("ENVELOPE_BYTES_MAX"),
    "the schema of a queue:": admission("SCHEMA_BYTES_MAX", "DEFAULTS_BYTES_MAX", "PRUNE_POINTERS_MAX"),
    "series of all queues:": [
        constant("crates/deltaq-service/src/series/kept.rs", "KEPT_HOURS") * 3600,
        constant("crates/deltaq-service/src/memory.rs", "SERIES_BYTES_MAX"),
    ],
    "indexes of a queue:": engine("INDEXES_MAX", "INDEX_NAME_BYTES_MAX"),
    "a value in an index:": engine("INDEX_VALUE_BYTES_MAX", "INDEX_ARRAY_MAX"),
    "subschemas of a schema:": admission("SUBSCHEMAS_MAX", "IN_PLACE_EVALUATIONS_MAX", "IN_PLACE_DEPTH_MAX"),
    "patterns of a schema:": admission("PATTERNS_MAX", "PATTERN_BYTES_MAX", "PATTERNS_BYTES_MAX"),
    "calls whose objects are validated at the same time:": [*admission("ADMISSIONS_MAX"), computations("CHECKS")],
    "reported places where an object violates its schema:": [
        *admission("VIOLATIONS_MAX"),
        1,
        *admission("VIOLATIONS_OBJECT_BYTES_MAX", "VIOLATION_CHARS_MAX", "FAULTS_MAX"),
    ],
    "a body that does not stream:": [default("server.max_body_bytes")],
    "the settings of a queue in a PUT or PATCH:": [
        constant("src/http/request/body.rs", "SETTINGS_BYTES_MAX"),
        constant("src/http/wire/settings.rs", "SETTING_BYTES_MAX"),
        constant("src/http/request/body.rs", "NO_BODY_BYTES_MAX"),
    ],
    "a string in a document of leases or keys:": [
        constant("src/http/request/body/document.rs", "STRING_BYTES_MAX"),
        constant(TYPES, "LABEL_BYTES_MAX"),
    ],
    "text of a caller that an error quotes:": [constant("crates/deltaq-engine/src/excerpt.rs", "EXCERPT_CHARS_MAX")],
    "objects in add, update, delete, deltas:": [default("queues.max_batch")],
    "objects in replace, seed:": [default("queues.max_replace_objects")],
    "keys in a queue, including known keys:": queue("max_keys"),
    "deltas and bytes that wait for one key:": queue("max_deltas_per_key", "max_bytes_per_key"),
    "object bytes in one pop reply:": [default("queues.max_reply_bytes")],
    "Replaces of a queue that run or wait:": engine("REPLACES_MAX"),
    "a version of an object:": [*engine("VERSION_BYTES_MAX"), constant("crates/deltaq-engine/src/decimal.rs", "EXPONENT_DIGITS_MAX")],
    "remembered versions of deleted keys in a queue:": engine("REMEMBERED_VERSIONS_MAX", "REMEMBERED_VERSIONS_BYTES_MAX", "REMEMBERED_VERSIONS_SECS"),
    "sources of a queue with sequence numbers:": engine("SOURCES_MAX"),
    "groups of a queue:": [*engine("GROUPS_MAX"), constant("crates/deltaq-types/src/groups.rs", "GROUP_BYTES_MAX")],
    "keys in forget, promote, redrive, discard; leases in a settle:": [constant("src/http/routes/consume.rs", "SETTLES_MAX")],
    "queues:": [default("queues.max_queues")],
    "followers that one token sets up:": [default("queues.max_followers_per_token"), *engine("FOLLOWERS_MAX")],
    "pops that wait at a queue:": [default("queues.max_waiters")],
    "connections:": [default("server.max_connections")],
    "requests of a connection over HTTP/2 at a time:": [HTTP_2, constant(STREAMS, "STREAMS_MAX")],
    "requests of a connection over HTTP/2 that their client resets in their first second:": [HTTP_2, 2 * constant(STREAMS, "STREAMS_MAX")],
    "bytes of request bodies that a connection over HTTP/2 takes before they are read:": [HTTP_2, constant("src/http/connection.rs", "WINDOW_BYTES")],
    "connections that still read the body of a refused request:": [
        constant("src/http/connection/linger.rs", name) for name in ("CONNECTIONS_MAX", "TIME_MAX", "SILENCE_MAX")
    ],
    "requests in flight:": [
        default("server.max_reads_in_flight"),
        default("server.max_writes_in_flight"),
        default("server.max_writes_in_flight"),
        default("server.max_lists_in_flight"),
        default("server.max_waits_in_flight"),
        constant("src/http/gate/in_flight.rs", "PIECE_BYTES"),
    ],
    "scrapes of the metrics in flight:": [constant("src/http/gate/in_flight.rs", "SCRAPES_MAX")],
    "memory of requests until they are answered:": [
        default("server.max_body_bytes_in_flight"),
        constant("src/http/request/body.rs", "HELD_BYTES_PER_OBJECT"),
    ],
    "replies, and pages of streamed lists and of watches,": [
        constant("src/http/gate/in_flight.rs", "PIECE_BYTES"),
        HTTP_2,
        constant("src/http/gate/in_flight.rs", "MULTIPLEXED_BYTES"),
        default("server.max_reply_bytes_in_flight"),
    ],
    "slowest body:": [default("server.min_body_bytes_per_second"), default("server.min_body_rate_grace")],
    # A part is read until it has 2 MiB; its last row may have as much again.
    "parts of journals that histories and extensions of change feeds have in memory,": [
        2,
        2 * constant("crates/deltaq-service/src/calls/history.rs", "READ_BYTES"),
        constant("crates/deltaq-service/src/queue/feed_readers.rs", "PARTS_MAX"),
    ],
    "bytes of changes that wait for the disk:": [default("storage.max_uncommitted_bytes")],
    "time until the server replies,": [default("server.request_timeout")],
    "wait:": [default("server.max_wait")],
    "ended leases that a queue remembers:": engine("SETTLED_LEASES_MAX", "SETTLED_LEASES_SECS"),
}


def numbers(text: str) -> list[int]:
    return [int(number.replace(",", "")) * UNITS[unit or ""] for number, unit in NUMBER.findall(text)]


def main() -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8").split("\n## Limits\n")[1]
    wrong, seen = [], set()
    for line in page.splitlines():
        if not line.startswith("| ") or line.startswith("| limit |"):
            continue
        limit = re.sub(r"\[([^\]]*)\]\([^)]*\)|`([^`]*)`", r"\1\2", line.split(" | ")[0].removeprefix("| "))
        values = numbers(limit)
        begin = max((begin for begin in ROWS if limit.startswith(begin)), key=len, default=None)
        if begin is None and values:
            wrong.append(f"{limit!r} is not in ROWS of scripts/site/limits.py")
        elif begin is not None:
            seen.add(begin)
            if values != ROWS[begin]:
                wrong.append(f"{limit!r} has {values}, and the code has {ROWS[begin]}")
    wrong += [f"the table has no row {begin!r}" for begin in ROWS if begin not in seen]
    if wrong:
        sys.exit("docs/configuration.md, limits:\n" + "\n".join(wrong))
    print(f"{len(seen)} limits have the numbers of the code")


main()
