"""The list of scenarios."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness import Scenario

    Function = Callable[[Scenario], None]

# Added to versions and tokens, which are below 2^49 for decades, it makes them almost as large as the API allows: below 2^53.
LARGE_OFFSET = 2**53 - 2**49

# By name: the function, and settings of its server as environment variables.
SCENARIOS: dict[str, tuple[Function, dict[str, str]]] = {}


def scenario_with(**settings: str) -> Callable[[Function], Function]:
    """Registers a scenario whose server has these variables. Its name is the function's, with hyphens."""

    def register(function: Function) -> Function:
        SCENARIOS[function.__name__.replace("_", "-")] = (function, settings)
        return function

    return register


scenario = scenario_with()
