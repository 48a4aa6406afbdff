//! The differences from a real API server that are meant. docs/api/kubernetes.md shows this table.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use super::compare::Difference;

/// A difference that is meant.
pub(super) struct Row {
    /// The steps that have it, as `scenario/step`; `*` stands for any text.
    at: &'static [&'static str],
    /// The field that differs; `*` stands for any text.
    field: &'static str,
    /// What this server answers there; `*` stands for any text.
    ours: &'static str,
    /// What an API server does, for the documentation.
    cluster: &'static str,
    /// What this server does, for the documentation.
    deltaq: &'static str,
    why: &'static str,
}

/// All differences that are meant. The first row that fits a difference explains it.
const MEANT: &[Row] = &[
    Row {
        at: &["*"],
        field: "*metadata.generation",
        ours: "absent",
        cluster: "`metadata.generation` counts the changes of an object; managed fields and `selfLink` are made up",
        deltaq: "there are none",
        why: "An object is what its producer sent; its versions count the changes.",
    },
    Row {
        at: &["create/schema*", "get-replace-delete/stock *", "list-selectors/stock *"],
        field: "status",
        ours: "404 NotFound",
        cluster: "a resource can have a schema of its own, the subresource `status` and fields for selectors (`stocks` of the recording)",
        deltaq: "404: there is no such resource; a queue has the setting `schema`, and no subresources",
        why: "Admission is that of the queue, for every producer.",
    },
    Row {
        at: &["discovery/*"],
        field: "*resources[].verbs",
        ours: "7 elements",
        cluster: "DELETE on a collection deletes what a selector selects (verb `deletecollection`)",
        deltaq: "405, and the verb is not in the list",
        why: "A list is deleted by what sent it; a mistyped selector deletes no queue.",
    },
    Row {
        at: &["get-replace-delete/deletecollection*", "errors/403 deletecollection"],
        field: "status",
        ours: "405 MethodNotAllowed",
        cluster: "DELETE on a collection deletes what a selector selects (verb `deletecollection`)",
        deltaq: "405, and the verb is not in the list",
        why: "A list is deleted by what sent it; a mistyped selector deletes no queue.",
    },
    Row {
        at: &["get-replace-delete/list after"],
        field: "items",
        ours: "c1, c2, c3, d-fin",
        cluster: "DELETE on a collection deletes what a selector selects (verb `deletecollection`)",
        deltaq: "405, and the verb is not in the list",
        why: "A list is deleted by what sent it; a mistyped selector deletes no queue.",
    },
    Row {
        at: &[
            "get-replace-delete/delete propagationPolicy=Foreground",
            "get-replace-delete/delete propagationPolicy=Orphan",
            "get-replace-delete/delete with finalizer",
            "get-replace-delete/get after Foreground",
            "get-replace-delete/* while deleting",
            "get-replace-delete/remove the finalizer",
            "get-replace-delete/get after finalizer removed",
        ],
        field: "*",
        ours: "*",
        cluster: "finalizers, also those of the propagation policies Foreground and Orphan, hold an object that is deleted",
        deltaq: "it is deleted at once; finalizers are stored as any member",
        why: "What has to happen before the end of an object is the work of a consumer, which gets the deletion.",
    },
    Row {
        at: &["patch/apply*"],
        field: "status",
        ours: "415 UnsupportedMediaType",
        cluster: "server-side apply",
        deltaq: "415; merge patch and JSON patch are taken",
        why: "An object has one owner, its producer: there are no managed fields.",
    },
    Row {
        at: &[
            "create/content type application/yaml",
            "create/yaml body",
            "create/content type application/vnd.kubernetes.protobuf",
            "list-formats/PartialObjectMetadataList protobuf",
        ],
        field: "status",
        ours: "4*",
        cluster: "YAML and protobuf (JSON with the content type of protobuf ends the connection)",
        deltaq: "415 for bodies and 406 for answers, in JSON",
        why: "Objects are JSON, and every client of the recordings accepts it.",
    },
    Row {
        at: &["list-formats/Accept *", "watch-formats/Accept *"],
        field: "content-type",
        ours: "application/json",
        cluster: "YAML and protobuf (JSON with the content type of protobuf ends the connection)",
        deltaq: "415 for bodies and 406 for answers, in JSON",
        why: "Objects are JSON, and every client of the recordings accepts it.",
    },
    Row {
        at: &[
            "create/with resourceVersion set",
            "get-replace-delete/put resourceVersion garbage",
            "watch-versions/resourceVersion=garbage",
            "watch-versions/resourceVersion=-1",
        ],
        field: "status",
        ours: "400 BadRequest",
        cluster: "500 for a version that is none, and for one in an object that is created",
        deltaq: "400",
        why: "It is a mistake of the client.",
    },
    Row {
        at: &["create/all-namespaces path"],
        field: "status",
        ours: "422 Invalid",
        cluster: "POST on the path of all namespaces is 404",
        deltaq: "422: the namespace is in the path",
        why: "The path is there for lists.",
    },
    Row {
        at: &["create/namespace absent"],
        field: "status",
        ours: "201",
        cluster: "404 for a namespace that does not exist",
        deltaq: "namespaces need not exist",
        why: "A namespace is a part of the key.",
    },
    Row {
        at: &["create/cluster object with namespace"],
        field: "metadata.namespace",
        ours: "\"shop\"",
        cluster: "`metadata.namespace` of an object of cluster scope is dropped, as are unknown members of `metadata`; fieldValidation=Strict refuses the latter",
        deltaq: "both are kept",
        why: "An object is what its producer sent.",
    },
    Row {
        at: &["create/unknown metadata field"],
        field: "metadata.bogus",
        ours: "\"x\"",
        cluster: "`metadata.namespace` of an object of cluster scope is dropped, as are unknown members of `metadata`; fieldValidation=Strict refuses the latter",
        deltaq: "both are kept",
        why: "An object is what its producer sent.",
    },
    Row {
        at: &["create/unknown metadata field Strict"],
        field: "status",
        ours: "201",
        cluster: "`metadata.namespace` of an object of cluster scope is dropped, as are unknown members of `metadata`; fieldValidation=Strict refuses the latter",
        deltaq: "both are kept",
        why: "An object is what its producer sent.",
    },
    Row {
        at: &["create/*"],
        field: "warning",
        ours: "absent",
        cluster: "`Warning` headers",
        deltaq: "there are none",
        why: "What is wrong is refused.",
    },
    Row {
        at: &["create/duplicate member"],
        field: "status",
        ours: "400 BadRequest",
        cluster: "of duplicate members the last counts",
        deltaq: "they are refused",
        why: "Two readers could see two objects in one text.",
    },
    Row {
        at: &["create/numbers: *"],
        field: "spec.*",
        ours: "*",
        cluster: "numbers that are no int64 go through a float",
        deltaq: "they are kept as they are written",
        why: "An object is what its producer sent.",
    },
    Row {
        at: &["create/fieldManager too long"],
        field: "status",
        ours: "201",
        cluster: "`fieldManager` is checked",
        deltaq: "it is ignored",
        why: "There are no managed fields.",
    },
    Row {
        at: &["*"],
        field: "*columnDefinitions",
        ours: "3 elements",
        cluster: "a Table has the columns NAME and AGE",
        deltaq: "it has NAME, STATE and AGE",
        why: "`kubectl get` shows what is being delivered.",
    },
    Row {
        at: &["*"],
        field: "*cells",
        ours: "3 elements",
        cluster: "a Table has the columns NAME and AGE",
        deltaq: "it has NAME, STATE and AGE",
        why: "`kubectl get` shows what is being delivered.",
    },
    Row {
        at: &["list-formats/Table v1beta1"],
        field: "status",
        ours: "406 NotAcceptable",
        cluster: "Tables of v1beta1 as well",
        deltaq: "406",
        why: "Clients ask for v1 first.",
    },
    Row {
        at: &["list-versions/resourceVersion old, *", "expired/exact old version after compact"],
        field: "status",
        ours: "410 Expired",
        cluster: "a list of the past, as long as the version is kept",
        deltaq: "410 Expired unless the version is the present one",
        why: "A queue keeps the newest objects, and readers begin anew as after a compaction.",
    },
    Row {
        at: &[
            "list-versions/resourceVersion 0, match None, limit 2",
            "list-pages/continue and resourceVersion=0",
        ],
        field: "*",
        ours: "*",
        cluster: "`resourceVersion=0` ignores the limit",
        deltaq: "the limit counts",
        why: "There is no cache beside the queue.",
    },
    Row {
        at: &[
            "list-pages/continue used on another resource",
            "list-pages/continue used on another namespace",
        ],
        field: "status",
        ours: "410 Expired",
        cluster: "a continue token goes on in another resource or namespace",
        deltaq: "it belongs to its queue: 410",
        why: "Keys of another queue mean nothing here.",
    },
    Row {
        at: &["list-pages/continue used on all namespaces"],
        field: "*",
        ours: "*",
        cluster: "a continue token goes on in another resource or namespace",
        deltaq: "it belongs to its queue: 410",
        why: "Keys of another queue mean nothing here.",
    },
    Row {
        at: &["expired/page 2 after restart*"],
        field: "metadata.continue",
        ours: "absent",
        cluster: "the 410 of a continue token has another token that goes on with the newest version",
        deltaq: "it has none",
        why: "Such a list misses changes, and its clients start it anew as well.",
    },
    Row {
        at: &["expired/the inconsistent continue", "expired/the page after it"],
        field: "status",
        ours: "400 BadRequest",
        cluster: "the 410 of a continue token has another token that goes on with the newest version",
        deltaq: "it has none",
        why: "Such a list misses changes, and its clients start it anew as well.",
    },
    Row {
        at: &["list-formats/br, deflate"],
        field: "content-encoding",
        ours: "present",
        cluster: "gzip from 128 KiB on, and for watches with initial events",
        deltaq: "gzip, br or zstd by the server's own limits, and no compression of watches",
        why: "The limits are those of all answers.",
    },
    Row {
        at: &["list-formats/gzip on a watch list"],
        field: "content-encoding",
        ours: "absent",
        cluster: "gzip from 128 KiB on, and for watches with initial events",
        deltaq: "gzip, br or zstd by the server's own limits, and no compression of watches",
        why: "The limits are those of all answers.",
    },
    Row {
        at: &["list-formats/gzip on a watch list"],
        field: "frames",
        ours: "ADDED p00, *, BOOKMARK of initial events",
        cluster: "initial events are in the order of the names",
        deltaq: "they are in the order of the versions",
        why: "A reader that loses the connection goes on from the last one.",
    },
    Row {
        at: &["watch-initial-events/*"],
        field: "frames",
        ours: "ADDED p01, ADDED p00*",
        cluster: "initial events are in the order of the names",
        deltaq: "they are in the order of the versions",
        why: "A reader that loses the connection goes on from the last one.",
    },
    Row {
        at: &["expired/watch old version after compact"],
        field: "frames",
        ours: "MODIFIED p04",
        cluster: "a watch from an old version sends every change since",
        deltaq: "it sends the newest state of each key that has changed",
        why: "A reader wants the present; a key that came and went is not sent at all.",
    },
    Row {
        at: &["watch-formats/*"],
        field: "frames",
        ours: "MODIFIED n*",
        cluster: "a watch from an old version sends every change since",
        deltaq: "it sends the newest state of each key that has changed",
        why: "A reader wants the present; a key that came and went is not sent at all.",
    },
    Row {
        at: &["watch-versions/resourceVersion=N (before create)"],
        field: "frames",
        ours: "",
        cluster: "a watch from an old version sends every change since",
        deltaq: "it sends the newest state of each key that has changed",
        why: "A reader wants the present; a key that came and went is not sent at all.",
    },
    Row {
        at: &["*"],
        field: "bookmarks",
        ours: "some",
        cluster: "no bookmark at the end of a watch of less than some seconds",
        deltaq: "a watch with bookmarks ends with one",
        why: "The next watch begins there.",
    },
    Row {
        at: &["watch-initial-events/*resourceVersion future"],
        field: "frames",
        ours: "ERROR 410 Expired",
        cluster: "a version that is ahead is awaited in silence, or 504 in a frame",
        deltaq: "the frame 410 Expired, and the end",
        why: "Such a reader comes from another life of the queue, and would stay wrong.",
    },
    Row {
        at: &["watch-versions/legacy *"],
        field: "status",
        ours: "404 NotFound",
        cluster: "the paths `/apis/GROUP/VERSION/watch/...`, which are deprecated",
        deltaq: "404",
        why: "`watch=1` does the same.",
    },
    Row {
        at: &["watchlist-off/watch sendInitialEvents=*"],
        field: "status",
        ours: "200",
        cluster: "initial events in a watch can be switched off",
        deltaq: "they can't",
        why: "Clients fall back to lists by themselves where they need to.",
    },
    Row {
        at: &["discovery/unknown *", "watch-versions/resource absent"],
        field: "content-type",
        ours: "application/*json",
        cluster: "404 for a path that nothing has is plain text",
        deltaq: "it is a document: a Status below `/apis`, a problem elsewhere",
        why: "All answers are documents.",
    },
    Row {
        at: &["discovery/openapi/v3"],
        field: "content-type",
        ours: "application/json",
        cluster: "`/openapi/v3` is JSON as text/plain",
        deltaq: "it is application/json",
        why: "That is what it is.",
    },
    Row {
        at: &["errors/version as anonymous"],
        field: "status",
        ours: "401 Unauthorized",
        cluster: "a caller without a token is system:anonymous, who may read the version, and gets 403 elsewhere",
        deltaq: "401",
        why: "There are no anonymous users where there are tokens.",
    },
    Row {
        at: &["errors/discovery as nobody"],
        field: "status",
        ours: "404 NotFound",
        cluster: "discovery is the same for all users",
        deltaq: "it has what the caller may see",
        why: "The names of queues are not for all.",
    },
    Row {
        at: &["errors/HEAD /version"],
        field: "status",
        ours: "200",
        cluster: "HEAD of `/version` is 405",
        deltaq: "it is GET without a body",
        why: "HEAD works on every path.",
    },
    Row {
        at: &["patch/merge uid wrong"],
        field: "details.causes",
        ours: "1 elements",
        cluster: "a wrong uid in a patch has its cause twice",
        deltaq: "once",
        why: "Once is enough.",
    },
    Row {
        at: &["list-formats/PartialObjectMetadata (not List) on a list"],
        field: "status",
        ours: "200",
        cluster: "PartialObjectMetadata for a list is 406",
        deltaq: "the list is answered as PartialObjectMetadataList",
        why: "What is meant is clear.",
    },
    Row {
        at: &["errors/404 unknown subresource", "errors/405? POST status *", "discovery/unknown *a/b/c"],
        field: "details.*",
        ours: "absent",
        cluster: "404 below an object names the object",
        deltaq: "it names nothing",
        why: "The object may be there; the path is not.",
    },
    Row {
        at: &[
            "errors/PUT *",
            "errors/PATCH *",
            "errors/POST *apple",
            "create/POST to an object path",
            "get-replace-delete/put on collection",
            "patch/patch on collection",
        ],
        field: "status",
        ours: "405 MethodNotAllowed",
        cluster: "POST to the path of an object creates one; PUT and PATCH of a collection are 400 or 415",
        deltaq: "405",
        why: "No client of the recordings does that.",
    },
    Row {
        at: &["errors/POST /apis/shop.example/v1", "errors/DELETE /apis/shop.example/v1"],
        field: "status",
        ours: "405 MethodNotAllowed",
        cluster: "POST and DELETE of `/apis/GROUP/VERSION` read it",
        deltaq: "405",
        why: "They change nothing there.",
    },
];

const DOCUMENT: &str = "docs/api/kubernetes.md";
const BEGIN: &str = "<!-- begin: differences -->";
const END: &str = "<!-- end: differences -->";

/// Which rows were differences.
#[derive(Debug)]
pub(super) struct Coverage {
    used: Vec<bool>,
}

impl Default for Coverage {
    fn default() -> Self {
        Self { used: vec![false; MEANT.len()] }
    }
}

impl Coverage {
    /// Whether a row explains the difference.
    pub(super) fn explains(&mut self, difference: &Difference) -> bool {
        let Difference { scenario, step, field, ours, .. } = difference;
        let place = format!("{scenario}/{step}");
        let fits = |row: &Row| {
            row.at.iter().any(|at| is_like(at, &place))
                && is_like(row.field, field)
                && is_like(row.ours, ours)
        };
        let found = MEANT.iter().position(fits);
        if let Some(row) = found {
            self.used[row] = true;
        }
        found.is_some()
    }

    /// The rows that explained nothing.
    pub(super) fn unused(&self) -> Vec<String> {
        let unused = MEANT.iter().zip(&self.used).filter(|(_, used)| !**used);
        unused.map(|(row, _)| format!("{:?} {} {}", row.at, row.field, row.ours)).collect()
    }
}

/// Whether a text fits a pattern in which `*` stands for any text.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(first) else { return false };
    rest.is_empty() || text.char_indices().any(|(at, _)| is_like(rest, &text[at..])) || is_like(rest, "")
}

/// The table as Markdown. Rows that say the same are one line.
fn markdown() -> String {
    let mut lines = String::from("\n| An API server | deltaq | Why |\n|---|---|---|\n");
    let mut last = "";
    for row in MEANT {
        if row.cluster != last {
            let _ = writeln!(lines, "| {} | {} | {} |", row.cluster, row.deltaq, row.why);
        }
        last = row.cluster;
    }
    lines
}

#[test]
fn the_page_lists_the_differences() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    let document = fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = document.split_once(BEGIN).expect("the place of the beginning");
    let (_, after) = rest.split_once(END).expect("the place of the end");
    let wanted = format!("{before}{BEGIN}\n{}\n{END}{after}", markdown());
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting of the server")]
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &wanted).expect("the document can be written");
    } else {
        assert!(
            document == wanted,
            "run `UPDATE_DOCS=1 cargo test -p deltaq --test it kubernetes::` to update {DOCUMENT}"
        );
    }
}

#[test]
fn patterns_have_any_text_where_a_star_is() {
    assert!(is_like("a*c", "abbc") && is_like("*", "") && is_like("*b*", "abc") && is_like("a", "a"));
    assert!(is_like("*c", "abcc") && is_like("a*", "a") && !is_like("a*c", "ab") && !is_like("a", "ab"));
}
