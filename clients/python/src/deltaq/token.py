"""The token of the calls."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from .errors import TokenError

#: Returns the token: it is called for each attempt, and once more if the server has refused a token (401).
TokenSource = Callable[[], str | Awaitable[str]]


class Token:
    """A token, the token in a file, or that of a function. It may be replaced while the client runs."""

    def __init__(self, text: str | None, file: str | os.PathLike[str] | None, source: TokenSource | None) -> None:
        if sum(given is not None for given in (text, file, source)) > 1:
            raise ValueError("a client has only one of token, token_file and token_source")
        self._source = source
        self._file = None if file is None else Path(file)
        # The text of a file ends with a line break.
        self._text = (self._file.read_text() if self._file else text or "").strip()

    def header(self) -> str | None:
        """The header `authorization` of an attempt."""
        if self._source is None:
            return _header(self._text)
        token = self._call()
        if inspect.isawaitable(token):
            if inspect.iscoroutine(token):
                token.close()
            raise TypeError("a token_source that is a coroutine needs a client of deltaq.aio")
        return _header(token)

    async def header_async(self) -> str | None:
        """The same for a client of asyncio."""
        if self._source is None:
            return _header(self._text)
        token = self._call()
        if inspect.isawaitable(token):
            try:
                token = await token
            except Exception as error:
                raise TokenError(f"the token: {error}") from error
        return _header(token)

    def refresh(self) -> None:
        """Reads the file again, because the server has refused a header with 401."""
        if self._file is not None:
            # A file may be absent or empty for a moment while it is replaced.
            with suppress(OSError, UnicodeError):
                self._text = self._file.read_text().strip() or self._text

    def _call(self) -> str | Awaitable[str]:
        assert self._source is not None
        try:
            return self._source()
        except Exception as error:
            raise TokenError(f"the token: {error}") from error


def _header(token: str) -> str | None:
    text = token.strip()
    return f"Bearer {text}" if text else None
