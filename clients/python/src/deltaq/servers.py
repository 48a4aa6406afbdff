"""Which of several servers gets the next call: the nodes of one cluster, any of which accepts any call. No I/O."""

from __future__ import annotations

from urllib.parse import urlsplit

from .arguments import check_text

#: Timeout for connecting, in seconds, if there is another server.
CONNECT_SECONDS_MAX = 2.0
#: If there is another server: a server that was silent for so long, in seconds, while a call waits for it is asked whether it is alive.
SILENCE_SECONDS = 3.0
#: The target of this question. It needs no token, and any answer counts.
ALIVE_TARGET = "/livez"
#: How long the answer may take, in seconds.
ALIVE_SECONDS_MAX = 2.0
#: Statuses of a server that can't answer at present, or of a proxy whose server can't.
UNAVAILABLE = (502, 503, 504)
#: Queues whose owner is remembered.
OWNERS_MAX = 10_000
PORTS = {"http": 80, "https": 443}


class Servers:
    """The servers of a client. It stays with one of them until a call fails there."""

    def __init__(self, url: str) -> None:
        check_text(url, "the URL of the server", "http://localhost:7070")
        self.urls = list(dict.fromkeys(_read(part.strip()) for part in url.split(",")))
        self._present = 0
        # The owners of queues, as servers have named them. Only a server of this client counts: the token goes to no other.
        self._owners: dict[str, int] = {}

    @property
    def are_several(self) -> bool:
        return len(self.urls) > 1

    def next(self, target: str) -> int:
        """The index of the server for the next call with this target."""
        return self._owners.get(_queue(target), self._present) if self._owners else self._present

    def leave(self, index: int, target: str) -> None:
        """Records that a call has failed at a server: the next call goes to the server after it."""
        self._owners.pop(_queue(target), None)
        if self._present == index:
            self._present = (index + 1) % len(self.urls)

    def answered(self, index: int, target: str, status: int, owner: str | None) -> None:
        """Records a reply. `owner` is its header `deltaq-owner`."""
        if not self.are_several:
            return
        if status in UNAVAILABLE:
            self.leave(index, target)
        elif owner is not None and (queue := _queue(target)):
            if len(self._owners) >= OWNERS_MAX:
                self._owners.clear()
            try:
                self._owners[queue] = self.urls.index(_read(owner))
            except ValueError:
                self._owners.pop(queue, None)


def _read(url: str) -> str:
    """A URL in the form in which equal ones are equal texts."""
    # `urlsplit` drops some characters that no URL has.
    has_only_graphic = all("!" <= letter <= "~" for letter in url)
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or not has_only_graphic or parts.scheme not in PORTS or parts.query or parts.fragment or "@" in parts.netloc:
        # The URL may have a password.
        raise ValueError("the URL of a server is written like http://localhost:7070, without a user, and those of several nodes with commas between them")
    named = f"[{host}]" if ":" in host else host
    suffix = "" if port in (None, PORTS[parts.scheme]) else f":{port}"
    return f"{parts.scheme}://{named}{suffix}{parts.path.rstrip('/')}"


def shown(url: str) -> str:
    """A URL of a server with its port, so that one who has forgotten the port sees which one was used."""
    parts = urlsplit(url)
    return url if parts.port is not None else f"{parts.scheme}://{parts.netloc}:{PORTS[parts.scheme]}{parts.path}"


def _queue(target: str) -> str:
    """The name of the queue in a target, still encoded; empty for other targets."""
    parts = target.partition("?")[0].split("/")
    return parts[3] if parts[1:3] == ["v1", "queues"] and len(parts) > 3 else ""
