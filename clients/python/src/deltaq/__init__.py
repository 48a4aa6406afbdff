"""Client of deltaq: keyed queues that keep one system in step with another."""

from .cache import DeletedFinalStateUnknown, Store
from .client import Client, Queue
from .errors import BadReply, Cancelled, ConnectionLost, Error, LeaseLost, NotJson, Problem, QueueDeleted, QueueRestored
from .handlers import Handler
from .informer import Informer, Registration, wait_for_cache_sync
from .leases import Context
from .models import Delta, Item, Lease, Page, Popped, Produced, Replaced, Settings, Settled, Synced, ViewObject
from .outcomes import Ack, Done, Nack, Outcome, Reject, Release
from .reflecting import Change, Replace
from .reflector import Reflector, polled
from .retry import RetryPolicy
from .worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "BadReply",
    "Cancelled",
    "Change",
    "Client",
    "ConnectionLost",
    "Context",
    "DeletedFinalStateUnknown",
    "Delta",
    "Done",
    "Error",
    "Handler",
    "Informer",
    "Item",
    "Lease",
    "LeaseLost",
    "Nack",
    "NotJson",
    "Outcome",
    "Page",
    "Popped",
    "Problem",
    "Produced",
    "Queue",
    "QueueDeleted",
    "QueueRestored",
    "Reflector",
    "Registration",
    "Reject",
    "Release",
    "Replace",
    "Replaced",
    "RetryPolicy",
    "Settings",
    "Settled",
    "Store",
    "Synced",
    "ViewObject",
    "Worker",
    "polled",
    "wait_for_cache_sync",
]
