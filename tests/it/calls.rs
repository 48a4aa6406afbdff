//! The calls of the API that are sent with a body, as method and the path behind `/v1/queues/q`.

/// Calls whose body has objects.
pub(crate) const OBJECTS: [(&str, &str); 6] = [
    ("POST", "/add"),
    ("POST", "/update"),
    ("POST", "/delete"),
    ("POST", "/replace?source=s&count=1"),
    ("POST", "/deltas"),
    ("POST", "/seed"),
];

/// Calls whose body is a document of known fields.
pub(crate) const DOCUMENTS: [(&str, &str); 13] = [
    ("PUT", ""),
    ("POST", "/forget"),
    ("POST", "/pop"),
    ("POST", "/settle"),
    ("POST", "/ack"),
    ("POST", "/done"),
    ("POST", "/nack"),
    ("POST", "/release"),
    ("POST", "/reject"),
    ("POST", "/extend"),
    ("POST", "/delayed/promote"),
    ("POST", "/parked/redrive"),
    ("POST", "/parked/discard"),
];

/// Calls whose body is empty.
pub(crate) const EMPTY: [(&str, &str); 6] = [
    ("POST", "/pause"),
    ("POST", "/resume"),
    ("POST", "/close"),
    ("POST", "/reopen"),
    ("POST", "/purge"),
    ("POST", "/resync"),
];
