package example.deltaq;

/** The codes of problems. docs/api/problems.md says when each occurs. A newer server may have more. */
public final class Codes {
    /** The problem {@code invalid-json}. */
    public static final String INVALID_JSON = "invalid-json";
    /** The problem {@code invalid-parameter}. */
    public static final String INVALID_PARAMETER = "invalid-parameter";
    /** The problem {@code invalid-request}. */
    public static final String INVALID_REQUEST = "invalid-request";
    /** The problem {@code unauthorized}. */
    public static final String UNAUTHORIZED = "unauthorized";
    /** The problem {@code forbidden}. */
    public static final String FORBIDDEN = "forbidden";
    /** The problem {@code cross-site}. */
    public static final String CROSS_SITE = "cross-site";
    /** The problem {@code host-not-allowed}. */
    public static final String HOST_NOT_ALLOWED = "host-not-allowed";
    /** The problem {@code not-found}. */
    public static final String NOT_FOUND = "not-found";
    /** The problem {@code queue-not-found}. */
    public static final String QUEUE_NOT_FOUND = "queue-not-found";
    /** The problem {@code key-not-found}. */
    public static final String KEY_NOT_FOUND = "key-not-found";
    /** The problem {@code index-not-found}. */
    public static final String INDEX_NOT_FOUND = "index-not-found";
    /** The problem {@code source-not-found}. */
    public static final String SOURCE_NOT_FOUND = "source-not-found";
    /** The problem {@code method-not-allowed}. */
    public static final String METHOD_NOT_ALLOWED = "method-not-allowed";
    /** The problem {@code not-acceptable}. */
    public static final String NOT_ACCEPTABLE = "not-acceptable";
    /** The problem {@code request-timeout}. */
    public static final String REQUEST_TIMEOUT = "request-timeout";
    /** The problem {@code length-required}. */
    public static final String LENGTH_REQUIRED = "length-required";
    /** The problem {@code object-too-large}. */
    public static final String OBJECT_TOO_LARGE = "object-too-large";
    /** The problem {@code batch-too-large}. */
    public static final String BATCH_TOO_LARGE = "batch-too-large";
    /** The problem {@code wrong-listener}. */
    public static final String WRONG_LISTENER = "wrong-listener";
    /** The problem {@code precondition-failed}. */
    public static final String PRECONDITION_FAILED = "precondition-failed";
    /** The problem {@code uri-too-long}. */
    public static final String URI_TOO_LONG = "uri-too-long";
    /** The problem {@code unsupported-media-type}. */
    public static final String UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type";
    /** The problem {@code headers-too-large}. */
    public static final String HEADERS_TOO_LARGE = "headers-too-large";
    /** The problem {@code lease-lost}. */
    public static final String LEASE_LOST = "lease-lost";
    /** The problem {@code immutable-config}. */
    public static final String IMMUTABLE_CONFIG = "immutable-config";
    /** The problem {@code would-remove}. */
    public static final String WOULD_REMOVE = "would-remove";
    /** The problem {@code mass-delete}. */
    public static final String MASS_DELETE = "mass-delete";
    /** The problem {@code not-empty}. */
    public static final String NOT_EMPTY = "not-empty";
    /** The problem {@code count-changed}. */
    public static final String COUNT_CHANGED = "count-changed";
    /** The problem {@code no-known-objects}. */
    public static final String NO_KNOWN_OBJECTS = "no-known-objects";
    /** The problem {@code follower}. */
    public static final String FOLLOWER = "follower";
    /** The problem {@code followed}. */
    public static final String FOLLOWED = "followed";
    /** The problem {@code wrong-mode}. */
    public static final String WRONG_MODE = "wrong-mode";
    /** The problem {@code version-ahead}. */
    public static final String VERSION_AHEAD = "version-ahead";
    /** The problem {@code queue-closed}. */
    public static final String QUEUE_CLOSED = "queue-closed";
    /** The problem {@code queue-deleted}. */
    public static final String QUEUE_DELETED = "queue-deleted";
    /** The problem {@code expired}. */
    public static final String EXPIRED = "expired";
    /** The problem {@code no-key}. */
    public static final String NO_KEY = "no-key";
    /** The problem {@code invalid-key}. */
    public static final String INVALID_KEY = "invalid-key";
    /** The problem {@code invalid-object}. */
    public static final String INVALID_OBJECT = "invalid-object";
    /** The problem {@code invalid-config}. */
    public static final String INVALID_CONFIG = "invalid-config";
    /** The problem {@code duplicate-key}. */
    public static final String DUPLICATE_KEY = "duplicate-key";
    /** The problem {@code not-leased}. */
    public static final String NOT_LEASED = "not-leased";
    /** The problem {@code incomplete-list}. */
    public static final String INCOMPLETE_LIST = "incomplete-list";
    /** The problem {@code queue-full}. */
    public static final String QUEUE_FULL = "queue-full";
    /** The problem {@code memory-full}. */
    public static final String MEMORY_FULL = "memory-full";
    /** The problem {@code key-full}. */
    public static final String KEY_FULL = "key-full";
    /** The problem {@code too-many-waiters}. */
    public static final String TOO_MANY_WAITERS = "too-many-waiters";
    /** The problem {@code too-many-requests}. */
    public static final String TOO_MANY_REQUESTS = "too-many-requests";
    /** The problem {@code too-many-sequences}. */
    public static final String TOO_MANY_SEQUENCES = "too-many-sequences";
    /** The problem {@code internal}. */
    public static final String INTERNAL = "internal";
    /** The problem {@code draining}. */
    public static final String DRAINING = "draining";
    /** The problem {@code too-many-connections}. */
    public static final String TOO_MANY_CONNECTIONS = "too-many-connections";
    /** The problem {@code not-owner}. */
    public static final String NOT_OWNER = "not-owner";
    /** The problem {@code recovering}. */
    public static final String RECOVERING = "recovering";
    /** The problem {@code journal-unavailable}. */
    public static final String JOURNAL_UNAVAILABLE = "journal-unavailable";
    /** The problem {@code journal-behind}. */
    public static final String JOURNAL_BEHIND = "journal-behind";
    /** The problem {@code queue-reloading}. */
    public static final String QUEUE_RELOADING = "queue-reloading";
    /** The problem {@code index-building}. */
    public static final String INDEX_BUILDING = "index-building";
    /** The problem {@code timeout}. */
    public static final String TIMEOUT = "timeout";
    /** The problem {@code disk-full}. */
    public static final String DISK_FULL = "disk-full";

    private Codes() {}
}
