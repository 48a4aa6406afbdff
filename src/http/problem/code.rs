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

            /// Whether a new request may succeed although nothing else of it changes: the server was not ready for it, or has failed.
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
        "line and column (or the line of an NDJSON list) say where. Nothing of the request was applied. Check quoting, commas, duplicate member names, encoding (UTF-8) and nesting (at most 128 levels).";
    InvalidParameter "invalid-parameter" 400 false "A parameter is wrong"
        "The detail names the parameter of the path or query, its value and the allowed values. Unknown parameters are refused, with the nearest known one.";
    InvalidRequest "invalid-request" 400 false "The request is wrong"
        "The request or its JSON document has an unknown or missing field, or one of a wrong type, or cannot be read. The detail names it.";
    Unauthorized "unauthorized" 401 false "A token is needed"
        "Send a token that is known here and has not expired: authorization: Bearer TOKEN. Where the server asks for client certificates, the connection needs one, too. The operators of the server issue tokens.";
    Forbidden "forbidden" 403 false "The token does not allow this"
        "The detail names the verb and the queue that the token has no grant for. The operators of the server can add the grant and reload the tokens.";
    CrossSite "cross-site" 403 false "The request comes from a foreign web page"
        "A browser's Origin, Referer or Sec-Fetch-Site names another site, so that site's page would reach this server. server.allowed_origins lists the origins whose pages may call it.";
    HostNotAllowed "host-not-allowed" 403 false "Host not allowed"
        "The Host header has a name that is not in the setting server.allowed_hosts. A server without tokens on loopback checks the name, because a web page can make its own name resolve to this machine (DNS rebinding). Add the name that you use, such as \"deltaq.example\", \"*.example\" or \"*\". A server with tokens, or with --insecure, checks no names.";
    NotFound "not-found" 404 false "Unknown path"
        "The API does not have the path. /openapi.json lists all routes. A key with slashes can also be given as ?key=.";
    QueueNotFound "queue-not-found" 404 false "Unknown queue"
        "Create it with PUT /v1/queues/{queue}, or by the first produce call where queues.auto_create is on. Nothing else creates a queue.";
    KeyNotFound "key-not-found" 404 false "Unknown key"
        "The queue has no delta, lease, parked entry, failure or known object of the key. Check the key's spelling and percent-encoding.";
    IndexNotFound "index-not-found" 404 false "Unknown index"
        "The setting indexes of the queue has no index of this name. GET /v1/queues/{queue}/indexes lists them. A queue without known objects has none.";
    MethodNotAllowed "method-not-allowed" 405 false "The path does not have this method"
        "The header Allow lists the methods of the path.";
    NotAcceptable "not-acceptable" 406 false "The reply has none of the accepted types"
        "Accept must allow application/json; lists also stream as application/x-ndjson.";
    RequestTimeout "request-timeout" 408 true "The request came too slowly"
        "The body paused for longer than server.body_read_timeout, or came slower than server.min_body_bytes_per_second. Nothing of it was applied.";
    LengthRequired "length-required" 411 false "The length of the body must be known"
        "Send Content-Length or chunked encoding.";
    ObjectTooLarge "object-too-large" 413 false "An object or body is too large"
        "limit is the exceeded limit in bytes: the queue's max_object_bytes, server.max_body_bytes, server.max_body_bytes_in_flight, or 100 times the length of a compressed body. Send smaller batches, or NDJSON to /replace and /seed, which stream.";
    BatchTooLarge "batch-too-large" 413 false "The list has too many objects"
        "limit is the most objects of one call: queues.max_batch, or queues.max_replace_objects for replace and seed. Nothing of the request was applied. Send the objects in several calls, except those of a replace, whose list must be complete: raise queues.max_replace_objects.";
    PreconditionFailed "precondition-failed" 412 false "The settings are not those that the caller expects"
        "If-Match names entity tags that the settings of the queue do not have, or the queue does not exist; or If-None-Match names one that they have (* any). Nothing was changed. GET /v1/queues/{queue}/settings again, make the change there, and send it with the new etag.";
    UriTooLong "uri-too-long" 414 false "The URI is too long"
        "Shorten the query; a key has at most 1,024 bytes.";
    UnsupportedMediaType "unsupported-media-type" 415 false "The type of the body is not supported"
        "Send application/json or application/x-ndjson, in UTF-8. Bodies with objects may have the content encoding gzip, br or zstd; other bodies have none. accept_encoding names the encodings that the call accepts.";
    HeadersTooLarge "headers-too-large" 431 false "The headers are too large"
        "server.max_header_bytes bounds the request's head, 100 fields are the most, and a Content-Length must be below 2^64 - 2.";
    LeaseLost "lease-lost" 409 false "None of the leases could be settled"
        "settled says how each lease ended: acked, nacked, released, rejected, expired or unknown. Another worker may hold the key: drop the result of the work, or make the work safe to repeat.";
    ImmutableConfig "immutable-config" 409 false "The setting cannot change now"
        "mode, key and known_objects can change only while the queue has no keys. Drain and delete the queue, or use another.";
    WouldRemove "would-remove" 409 false "The PUT would remove a setting that it does not name"
        "PUT replaces all settings. fields has those that make the queue what it is, that the queue has, and that the PUT leaves out: follow, or a mode other than the default. Nothing was changed. Name them in the PUT as GET /v1/queues/{queue}/settings shows them, or send PATCH, which changes only what it names and removes a setting with null.";
    MassDelete "mass-delete" 409 false "The list would delete too many keys"
        "The Replace changed nothing. Without limits of the call or the queue, a list may delete at most half of 10 or more keys of its source, and an empty list or a single object may delete none. The detail says what would be deleted. If the list is complete and right, repeat the call with max_delete_percent=100 (or allow_empty=true for an empty list), or set max_delete_percent of the queue.";
    NotEmpty "not-empty" 409 false "The queue is not empty"
        "A seed needs a queue without waiting, leased and parked keys. Drain or purge the queue first.";
    CountChanged "count-changed" 409 false "The number of keys has changed"
        "count is the number of keys that the call selects now, and it is not expected_count. Nothing was changed. Look at the keys again, and repeat the call with the present number.";
    NoKnownObjects "no-known-objects" 409 false "The queue stores no known objects"
        "known_objects of the queue is false, so there is nothing to seed. The setting can change while the queue has no keys.";
    Follower "follower" 409 false "The queue follows another queue"
        "The queue takes its objects from the queue in the field follows. Send the call to that queue. To give this queue producers of its own, detach it: PATCH it with {\"follow\":null}.";
    Followed "followed" 409 false "Other queues follow the queue"
        "followers has their names. Detach each with PATCH {\"follow\":null}, or repeat the DELETE with force=true, which detaches all of them. Their keys stay.";
    WrongMode "wrong-mode" 409 false "The mode of the queue does not have this call"
        "A queue of mode keys has no objects, and no Delete, Update, Replace, Resync and seed. Only a queue of mode keys has rate_limited.";
    VersionAhead "version-ahead" 409 false "The version is ahead of the queue"
        "The queue has never given out this version, so it comes from a time that was lost (a backup was restored) or from another queue. Repeating the request does not help: read the queue again, and go on with the versions that its replies have.";
    QueueClosed "queue-closed" 410 false "The queue is closed"
        "No key is ready, and none is delayed or leased unless the call said wait_for=none. A worker may end now. POST .../reopen opens the queue again.";
    QueueDeleted "queue-deleted" 410 true "The queue was deleted"
        "The queue was deleted while the request waited. A new request uses a new queue of the name, if there is one.";
    Expired "expired" 410 false "The position has expired"
        "reason says why. too_old: the queue no longer knows which keys were deleted after the version. ahead: the queue does not have the version, for example because a restored backup is older. lost: the version or the token is of a deleted queue. wrong_list: the token belongs to another list. Start the list again; a watch goes on from the version of that list.";
    NoKey "no-key" 422 false "The object has no key"
        "A required pointer of the queue's key leads nowhere, to null or to an empty text. index, line and pointer say where. Nothing of the request was applied.";
    InvalidKey "invalid-key" 422 false "The key is not allowed"
        "A key is 1 to 1,024 bytes of text without control characters, made of strings or integers; with several pointers / and % inside a part are encoded as %2F and %25; an explicit key must equal the object's own.";
    InvalidObject "invalid-object" 422 false "The object is not allowed"
        "Objects are JSON objects, and satisfy the queue's schema if it has one: errors says at which places this one does not, pointer in the object and schema_pointer in the schema. Nothing of the request was applied.";
    InvalidConfig "invalid-config" 422 false "The queue's settings are not allowed"
        "The detail names the field, its value and what it takes.";
    DuplicateKey "duplicate-key" 422 false "The list names a key twice"
        "index and first_index are the places of two objects with the same key, from 0; line and first_line in NDJSON. A Replace could not tell which of them is the present state. Nothing was changed. Send each key once, or add duplicates=last to keep the last object of each key.";
    IncompleteList "incomplete-list" 422 false "The list does not declare that it is complete"
        "An NDJSON Replace needs count=N in the query or a last line {\"$end\":N}, and N objects before it: a producer that was killed looks like one that has finished. Nothing was changed.";
    QueueFull "queue-full" 429 true "The queue is full"
        "limit is the queue's max_keys (new keys are refused; existing keys still accept deltas) or queues.max_queues. Let workers drain the queue, delete keys, or raise the limit.";
    KeyFull "key-full" 429 true "The key has too many deltas"
        "A queue of mode events merges no deltas: field is the setting that another delta of the key would exceed, max_deltas_per_key or max_bytes_per_key, and limit its value. Nothing of the request was applied. Let workers acknowledge deltas of the key, discard the delta that fails, or raise the limit.";
    TooManyWaiters "too-many-waiters" 429 true "Too many pops wait at the queue"
        "limit is queues.max_waiters. Use fewer pops with a larger max.";
    TooManyRequests "too-many-requests" 429 true "The server is overloaded"
        "The detail names the exceeded limit: of the token, of all callers, or of the queue. Nothing of the request was applied. Repeat it after Retry-After.";
    TooManySequences "too-many-sequences" 429 false "Too many sources have sequence numbers"
        "limit is the most sources of a queue whose sequence numbers are remembered. None of them is forgotten, because the old calls of that source would be applied again. Nothing of the request was applied. Use the names of sources again, such as one per producing system, or leave sequence out.";
    Internal "internal" 500 false "The server failed"
        "The log of the server has the cause under the request id.";
    Draining "draining" 503 true "The server is shutting down"
        "No key is delivered any more; settles were still accepted. Repeat the pop elsewhere or later.";
    TooManyConnections "too-many-connections" 503 true "Too many connections are open"
        "limit is server.max_connections. Each long poll holds one. Reuse connections, or raise the limit.";
    NotOwner "not-owner" 503 true "No server owns the queue at present"
        "Several servers share a database, and the owner of the queue is changing. Whether the request took effect is unknown if the owner lost the queue meanwhile. Repeat it after the time in Retry-After.";
    Recovering "recovering" 503 true "The server is still starting"
        "Repeat the request once /readyz replies 200.";
    JournalUnavailable "journal-unavailable" 503 true "The write could not be confirmed"
        "Whether the request took effect is unknown. Repeat it: settles and pops with an id are safe to repeat.";
    JournalBehind "journal-behind" 503 true "The disk takes writes too slowly"
        "limit is storage.max_uncommitted_bytes: that many bytes wait to be written. Nothing of the request was applied. Repeat it after Retry-After, and check the disk of storage.data_dir, or the database of storage.store.";
    IndexBuilding "index-building" 503 true "The index is being built"
        "A new index, and each index after a restart of the server, is built while other calls go on; about a million objects take some seconds. Repeat the request, or let it wait with wait=10s. GET /v1/queues/{queue}/indexes shows the state.";
    Timeout "timeout" 504 true "The request took too long"
        "The request exceeded server.request_timeout. Whether it took effect is unknown. Repeat it: settles and pops with an id are safe to repeat.";
    DiskFull "disk-full" 507 true "The disk is full"
        "Whether the request took effect is unknown. Make room on the disk of storage.data_dir, or of the database of storage.store; the server recovers by itself. Then repeat the request: settles and pops with an id are safe to repeat.";
}
