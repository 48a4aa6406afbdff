"""The list of scenarios."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness import Scenario

# By name: the function, and settings of its server as environment variables.
SCENARIOS: dict[str, tuple[Callable[[Scenario], None], dict[str, str]]] = {}


def scenario(function: Any = None, **settings: str) -> Any:
    """Registers a scenario. Its name is the function's, with hyphens; `settings` are variables of its server."""

    def register(function: Callable[[Scenario], None]) -> Callable[[Scenario], None]:
        SCENARIOS[function.__name__.replace("_", "-")] = (function, settings)
        return function

    return register(function) if function else register
