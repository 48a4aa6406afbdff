//! The codes of all problems, with the HTTP status and the page of each.

/// Declares all problems with the texts of their pages, `/problems/{name}`.
macro_rules! codes {
    ($($variant:ident $name:literal $status:literal $retryable:literal $title:literal $help:literal;)*) => {
        /// The code of a problem.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = $title] $variant,)*
        }

        impl Code {
            /// All codes.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The code of this name.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|code| code.name() == name)
            }

            /// The name in JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status),* }
            }

            /// Whether the same request may succeed later.
            #[must_use]
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$variant => $retryable),* }
            }

            /// Whether the same request may succeed when it is sent again, because the server was not ready for it or has failed.
            #[must_use]
            pub const fn may_pass(self) -> bool {
                self.is_retryable() || self.status() >= 500
            }

            /// The problem in a few words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),* }
            }

            /// The meaning of the problem and what to do.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help),* }
            }
        }
    };
}

codes! {
    InvalidJson "invalid-json" 400 false "The body is not valid JSON"
        "The members \"line\" and \"column\" say where the text is wrong; for an NDJSON list, \"line\" does. Nothing of the request was applied. Check quoting, commas, duplicate member names, encoding (UTF-8) and nesting (at most 128 levels).";
    InvalidParameter "invalid-parameter" 400 false "A parameter is wrong"
        "The detail names the parameter of the path or query, its value and the allowed values. Unknown parameters are refused, and the hint names a similar known parameter if there is one.";
    InvalidRequest "invalid-request" 400 false "The request is wrong"
        "The request or its JSON document has an unknown field or a field of a wrong type, lacks a required field, or cannot be read. The detail says what is wrong.";
    Unauthorized "unauthorized" 401 false "A token is needed"
        "Send a token that this server knows and that has not expired: authorization: Bearer TOKEN. If the server asks for client certificates, the connection also needs one. The operators of the server issue tokens.";
    Forbidden "forbidden" 403 false "The token does not allow this"
        "The detail names the verb and the queue for which the token has no grant. The operators of the server can add the grant and reload the tokens.";
    CrossSite "cross-site" 403 false "The request comes from a foreign web page"
        "The header Origin, Referer or Sec-Fetch-Site shows that a browser sent the request for a page of another site. The setting server.allowed_origins lists the origins whose pages may call this server.";
    HostNotAllowed "host-not-allowed" 403 false "Host not allowed"
        "The Host header has a name that is not in the setting server.allowed_hosts. A server without tokens checks the name, because a web page can make its own name resolve to this machine (DNS rebinding). Add the name that you use, such as \"deltaq.example\", \"*.example\" or \"*\". A server with tokens checks no names.";
    NotFound "not-found" 404 false "Unknown path"
        "The API has no such path. /openapi.json lists all paths. A key that contains slashes can also be given as ?key=.";
    QueueNotFound "queue-not-found" 404 false "Unknown queue"
        "Create the queue with PUT /v1/queues/{queue}, or with its first produce call if the setting queues.auto_create is on. No other call creates a queue.";
    KeyNotFound "key-not-found" 404 false "Unknown key"
        "The queue has no delta, lease, parked entry, failure or known object for this key. Check the key's spelling and percent-encoding.";
    IndexNotFound "index-not-found" 404 false "Unknown index"
        "The queue has no index of this name in its setting \"indexes\". GET /v1/queues/{queue}/indexes lists its indexes. A queue without known objects has no indexes.";
    SourceNotFound "source-not-found" 404 false "Unknown source"
        "The queue remembers no call of a source of this name. GET /v1/queues/{queue}/sources lists its sources.";
    MethodNotAllowed "method-not-allowed" 405 false "The path does not have this method"
        "The header Allow lists the methods of the path.";
    NotAcceptable "not-acceptable" 406 false "The reply has none of the accepted types"
        "The header Accept must allow application/json. Lists can also be streamed as application/x-ndjson.";
    RequestTimeout "request-timeout" 408 true "The request came too slowly"
        "The body paused for longer than server.body_read_timeout, or arrived at a lower rate than server.min_body_bytes_per_second. Nothing of the request was applied.";
    LengthRequired "length-required" 411 false "The length of the body must be known"
        "Send Content-Length or chunked encoding.";
    ObjectTooLarge "object-too-large" 413 false "An object or body is too large"
        "The member \"limit\" is the exceeded limit in bytes: the queue's max_object_bytes, server.max_body_bytes, server.max_body_bytes_in_flight, or 100 times the length of a compressed body. Send smaller batches, or send NDJSON to /replace and /seed, which read it as a stream.";
    BatchTooLarge "batch-too-large" 413 false "The list has too many objects"
        "The member \"limit\" is the maximum number of objects in one call: queues.max_batch, or queues.max_replace_objects for replace and seed. Nothing of the request was applied. Send the objects in several calls. But the list of a replace must be complete; for a longer list, raise queues.max_replace_objects.";
    WrongListener "wrong-listener" 421 false "This listener does not have the call"
        "The listener of the setting server.http2_listen has no pop, because HTTP/2 does not tell the server which replies have left it, and keys of a lost reply would wait for their leases to expire. Nothing of the request was applied. Send pops over HTTP/1.1 to the listener of server.listen.";
    PreconditionFailed "precondition-failed" 412 false "The queue has other settings, or another object, than the caller expects"
        "The settings of the queue, or the newest object of the key, have none of the entity tags in If-Match, or do not exist; or they have an entity tag in If-None-Match, where * stands for any; or expected_version is not the version of the newest object of the key. Nothing was changed. Read the settings (GET /v1/queues/{queue}/settings) or the object (GET /v1/queues/{queue}/latest/{key}) again, make the change in what you have read, and send it with the new entity tag or version.";
    UriTooLong "uri-too-long" 414 false "The URI is too long"
        "Shorten the query; a key has at most 1,024 bytes.";
    UnsupportedMediaType "unsupported-media-type" 415 false "The type of the body is not supported"
        "Send application/json or application/x-ndjson, in UTF-8. Bodies with objects may have the content encoding gzip, br or zstd; other bodies must not be compressed. The member \"accept_encoding\" names the encodings that the call accepts.";
    HeadersTooLarge "headers-too-large" 431 false "The headers are too large"
        "The head of a request may have at most server.max_header_bytes bytes and 100 fields, and its Content-Length must be below 2^64 - 2.";
    LeaseLost "lease-lost" 409 false "None of the leases could be settled"
        "The member \"settled\" says how each lease ended: acked, nacked, released, rejected, expired or unknown. Another worker may hold the key by now. Drop the result of the work, or make the work safe to repeat.";
    ImmutableConfig "immutable-config" 409 false "The setting cannot change now"
        "The settings mode, key and known_objects can change only while the queue has no keys. Drain and delete the queue, or use another queue.";
    WouldRemove "would-remove" 409 false "The PUT would remove a setting that it does not name"
        "PUT replaces all settings, and this PUT leaves out settings that define the queue: follow, or a mode other than the default. The member \"fields\" lists them. Nothing was changed. Add them to the PUT, with the values that GET /v1/queues/{queue}/settings shows; or send PATCH, which changes only the settings that it names and removes a setting with null.";
    MassDelete "mass-delete" 409 false "The list would delete too many keys"
        "The Replace changed nothing. Unless the call or the queue sets limits, a list may delete at most half of the keys of its source if the source has 10 or more; an empty list or a single object may delete none. The detail says what would be deleted. If the list is complete and right, repeat the call with max_delete_percent=100 (or allow_empty=true for an empty list), or set max_delete_percent of the queue.";
    NotEmpty "not-empty" 409 false "The queue is not empty"
        "A seed needs a queue without waiting, leased or parked keys. Drain or purge the queue first.";
    CountChanged "count-changed" 409 false "The number of keys has changed"
        "The member \"count\" is the number of keys that the call selects now, which differs from expected_count. Nothing was changed. Look at the keys again, and repeat the call with the current number.";
    NoKnownObjects "no-known-objects" 409 false "The queue stores no known objects"
        "The queue's setting known_objects is false, so there is nothing to seed. The setting can change only while the queue has no keys.";
    Follower "follower" 409 false "The queue follows another queue"
        "The queue takes its objects from the queue that the member \"follows\" names. Send the call to that queue. To give this queue producers of its own, detach it: PATCH it with {\"follow\":null}.";
    Followed "followed" 409 false "Other queues follow the queue"
        "The member \"followers\" has the names of these queues. Detach each of them with PATCH {\"follow\":null}, or repeat the DELETE with force=true, which detaches all of them. They keep their keys.";
    WrongMode "wrong-mode" 409 false "The mode of the queue does not have this call"
        "A queue of mode keys has no objects, and no Delete, Update, Replace, Resync and seed. Only a queue of mode keys has rate_limited.";
    VersionAhead "version-ahead" 409 false "The version is ahead of the queue"
        "The queue has not assigned this version. The version is from another queue, or was assigned after the backup from which this queue was restored. Repeating the request does not help: read the queue again, and continue with the versions in its replies.";
    QueueClosed "queue-closed" 410 false "The queue is closed"
        "No key is ready. Unless the queue was closed with wait_for=none, no key is delayed or leased either. A worker may end now. POST .../reopen opens the queue again.";
    QueueDeleted "queue-deleted" 410 true "The queue was deleted"
        "The queue was deleted while the request waited. A new request goes to the new queue of this name, if there is one.";
    Expired "expired" 410 false "The position has expired"
        "The member \"reason\" says why. too_old: the queue no longer knows which keys were deleted after the version. ahead: the queue does not have the version, for example because it was restored from an older backup. lost: the version or the token belongs to a deleted queue of this name, or was assigned after the backup from which the queue was restored. wrong_list: the token belongs to another list. Request the list again from its beginning; a watch then continues from the version of the new list.";
    NoKey "no-key" 422 false "The object has no key"
        "In the object, a required pointer of the queue's key leads to nothing, to null or to an empty text. The members \"index\", \"line\" and \"pointer\" say where. Nothing of the request was applied.";
    InvalidKey "invalid-key" 422 false "The key is not allowed"
        "A key is a text of 1 to 1,024 bytes without control characters. Its parts are strings or integers. If the queue's key has several pointers, / and % inside a part are encoded as %2F and %25. An explicit key must equal the key in the object.";
    InvalidObject "invalid-object" 422 false "The object is not allowed"
        "An object must be a JSON object and satisfy the queue's schema, if the queue has one. The member \"errors\" lists the places where the object does not: \"pointer\" in the object and \"schema_pointer\" in the schema. Nothing of the request was applied.";
    InvalidConfig "invalid-config" 422 false "The queue's settings are not allowed"
        "The detail names the setting, its value and the values that it takes.";
    DuplicateKey "duplicate-key" 422 false "The list names a key twice"
        "The members \"index\" and \"first_index\" are the positions of two objects with the same key, counted from 0; in NDJSON, \"line\" and \"first_line\" are their lines. A Replace cannot tell which of the two is the current state. Nothing was changed. Send each key once, or add duplicates=last to keep the last object of each key.";
    NotLeased "not-leased" 422 false "The lease has no such delta"
        "The number in \"through\" must be the resource_version of a delta that the lease has delivered. The member \"settled\" has the result of each lease. Nothing was acknowledged.";
    IncompleteList "incomplete-list" 422 false "The list does not declare that it is complete"
        "An NDJSON Replace needs count=N in the query, or a last line {\"$end\":N} after N objects, because a producer that was killed looks like one that has finished. Nothing was changed.";
    QueueFull "queue-full" 429 true "The queue is full"
        "The member \"limit\" is the queue's max_keys (new keys are refused; existing keys still accept deltas) or queues.max_queues. Let workers drain the queue, delete keys, or raise the limit.";
    MemoryFull "memory-full" 429 true "The queues hold too many bytes"
        "The member \"limit\" is the number of bytes that the queues may hold: queues.max_held_bytes, or, if the member \"token\" is present, three quarters of what the queues of other tokens leave. A queue counts for the token that created it. Nothing of the request was applied. Pops, settles, reads of objects and deletions are never refused for this reason. Let workers drain queues, delete keys or queues, or raise the limit. GET /v1/queues/{queue}/status shows the bytes of a queue in \"held_bytes\".";
    KeyFull "key-full" 429 true "The key has too many deltas"
        "A queue of mode events merges no deltas. The member \"field\" names the setting that another delta of the key would exceed, max_deltas_per_key or max_bytes_per_key, and \"limit\" is its value. Nothing of the request was applied. Let workers acknowledge deltas of the key, discard the delta that fails, or raise the limit.";
    TooManyWaiters "too-many-waiters" 429 true "Too many pops wait at the queue"
        "The member \"limit\" is the setting queues.max_waiters. Use fewer pops with a larger max.";
    TooManyRequests "too-many-requests" 429 true "The server is overloaded"
        "The detail names the exceeded limit: of the token, of all callers, or of the queue. Nothing of the request was applied. Repeat the request after the time in Retry-After.";
    TooManySequences "too-many-sequences" 429 false "Too many sources have sequence numbers"
        "The member \"limit\" is the maximum number of sources of a queue whose sequence numbers are remembered. None of these sources is forgotten, because its old calls would be applied again. Nothing of the request was applied. Use the names of sources again, such as one for each producing system, or leave sequence out.";
    Internal "internal" 500 false "The server failed"
        "The server's log has the cause, with the id of the request.";
    Draining "draining" 503 true "The server is shutting down"
        "The server delivers no more keys; settles were still accepted. Repeat the pop later or at another server.";
    TooManyConnections "too-many-connections" 503 true "Too many connections are open"
        "The member \"limit\" is server.max_connections. Each long poll holds a connection. Reuse connections, or raise the limit.";
    NotOwner "not-owner" 503 true "No server owns the queue at present"
        "Several servers share a database, and the owner of the queue is changing. If the owner lost the queue while it handled the request, it is unknown whether the request took effect. Repeat the request after the time in Retry-After.";
    Recovering "recovering" 503 true "The server is still starting"
        "Repeat the request once /readyz replies 200.";
    JournalUnavailable "journal-unavailable" 503 true "The write could not be confirmed"
        "Whether the request took effect is unknown. Repeat the request: settles, and pops with an id, are safe to repeat.";
    JournalBehind "journal-behind" 503 true "The disk takes writes too slowly"
        "The member \"limit\" is storage.max_uncommitted_bytes: that many bytes are waiting to be written. Nothing of the request was applied. Repeat the request after the time in Retry-After, and check the disk of storage.data_dir, or the database of storage.store.";
    QueueReloading "queue-reloading" 503 true "The queue is being loaded again"
        "Changes of the queue could not be committed, and the queue is loaded again without them. The request has changed nothing. Repeat it after the time in Retry-After.";
    IndexBuilding "index-building" 503 true "The index is being built"
        "A new index is built while other calls continue, and so is each index after a restart of the server; a million objects take some seconds. If the detail says that the index waits for memory, the queues hold queues.max_held_bytes, and the server has dropped the indexes of the queue until there is room. Repeat the request, or let it wait with wait=10s. GET /v1/queues/{queue}/indexes shows the state of the index.";
    Timeout "timeout" 504 true "The request took too long"
        "The request exceeded server.request_timeout. Whether it took effect is unknown. Repeat the request: settles, and pops with an id, are safe to repeat.";
    DiskFull "disk-full" 507 true "The disk is full"
        "Whether the request took effect is unknown. Make room on the disk of storage.data_dir, or of the database of storage.store; the server recovers by itself. Then repeat the request: settles, and pops with an id, are safe to repeat.";
}
