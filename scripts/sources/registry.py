"""The list of the faults."""

# Longest waits in seconds: for what a fault must show, and for a queue to be in step again.
SHOWS_MAX, STEP_MAX = 60, 90
# What the queue has during a fault: nothing new; all changes; all but `kept`, with a problem; at least all keys, with a problem; nothing new, and
# nobody can know that; the server of the queue is down.
HIDDEN, THROUGH, PART, FREE, STALE, DOWN = "hidden", "through", "part", "free", "stale", "down"
FAULTS = []


def fault(*kinds, shows=HIDDEN, pages=None, **options):
    """Registers a generator, which begins the fault, yields, and ends it."""
    def register(function):
        FAULTS.extend((kind, function, shows, pages, options) for kind in kinds)
        return function
    return register
