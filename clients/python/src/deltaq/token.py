"""The token of the calls."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class Token:
    """A token, or the token in a file, which may be replaced while the client runs."""

    def __init__(self, text: str | None, file: str | os.PathLike[str] | None) -> None:
        if text is not None and file is not None:
            raise ValueError("a client has a token or a token_file, and not both")
        self._file = None if file is None else Path(file)
        # The text of a file ends with a line break.
        self._text = (self._file.read_text() if self._file else text or "").strip()

    @property
    def header(self) -> str | None:
        """The header `authorization`."""
        return f"Bearer {self._text}" if self._text else None

    def is_replaced(self, refused: str | None) -> bool:
        """Reads the file again, because the server has refused a header with 401. Returns whether there is another header now."""
        # A file may be absent or empty for a moment while it is replaced.
        with suppress(OSError, UnicodeError):
            self._text = (self._file.read_text().strip() if self._file else "") or self._text
        return self.header != refused
