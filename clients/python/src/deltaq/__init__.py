"""Client of deltaq: keyed queues that keep one system in step with another."""

from .cache import DeletedFinalStateUnknown, Store
from .calls import Call
from .client import Client, Queue
from .errors import BadReply, Cancelled, ConnectionLost, Error, LeaseLost, NotJson, Problem, QueueDeleted, QueueRestored, TokenError
from .handlers import Handler
from .informer import Informer, Registration, wait_for_cache_sync
from .leases import Context
from .models import (
    Delta,
    Item,
    Lease,
    ListedItem,
    Page,
    Popped,
    Produced,
    PushTest,
    QueueDocument,
    QueueSettings,
    Replaced,
    Settings,
    SettingsPlan,
    Settled,
    Status,
    Synced,
    TaggedObject,
    ViewObject,
)
from .outcomes import Ack, Done, Nack, Outcome, Reject, Release
from .reflecting import Change, Replace
from .reflector import Reflector, polled
from .retry import RetryOptions
from .worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Ack",
    "BadReply",
    "Call",
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
    "ListedItem",
    "Nack",
    "NotJson",
    "Outcome",
    "Page",
    "Popped",
    "Problem",
    "Produced",
    "PushTest",
    "Queue",
    "QueueDeleted",
    "QueueDocument",
    "QueueRestored",
    "QueueSettings",
    "Reflector",
    "Registration",
    "Reject",
    "Release",
    "Replace",
    "Replaced",
    "RetryOptions",
    "Settings",
    "SettingsPlan",
    "Settled",
    "Status",
    "Store",
    "Synced",
    "TaggedObject",
    "TokenError",
    "ViewObject",
    "Worker",
    "polled",
    "wait_for_cache_sync",
]
