"""The client for asyncio, on httpx: `pip install 'deltaq[async]'`. Everything else is in the package `deltaq`."""

try:
    import httpx as httpx
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("deltaq.aio needs httpx: pip install 'deltaq[async]'", name="httpx") from error

from .client import Client, Queue
from .informer import Informer, Registration, wait_for_cache_sync
from .reflector import Reflector, polled
from .worker import Worker

__all__ = ["Client", "Informer", "Queue", "Reflector", "Registration", "Worker", "polled", "wait_for_cache_sync"]
