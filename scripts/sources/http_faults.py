"""Faults of lists over HTTP, and of single objects."""
import email.utils
import gzip
import time
import zlib

from sources.real import Reply, abort
from sources.registry import FREE, HIDDEN, PART, THROUGH, fault


def send(meddle, at=0, *, shows=HIDDEN, kinds=("rest",), pages=None, name=None, **options):
    """Registers a fault of the replies. `meddle` gets each of them before it is sent; `at` is the first page that it concerns."""
    def begin(case):
        case.source.web.meddle = lambda request, reply, client: meddle(case, request, reply, client) if request.page >= at else reply
        case.source.web.cut_all()
        yield
    begin.__name__ = name
    fault(*kinds, shows=shows, pages=pages, **options)(begin)


def cut(head=None, body=0.5, length=True, chunked=False, close=abort):
    """Sends a part of a reply and closes the connection."""
    def meddle(_case, _request, reply, client):
        start = reply.head(length)
        if chunked:
            start = start.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\n")
        part = reply.body[:int(len(reply.body) * body)]
        sent = start[:head] if head else start + (b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
        client.sendall(sent)
        if close:
            time.sleep(0.05)
            close(client)
    return meddle


def answer(status, body="", headers=(), keeps=False):
    def meddle(_case, _request, reply, _client):
        if keeps and reply.status != 200:
            return reply
        more = [(name, value() if callable(value) else value) for name, value in headers]
        return Reply(status, reply.body if keeps else body, [*(reply.headers if keeps else []), *more])
    return meddle


def trickle(seconds):
    def meddle(_case, _request, reply, client):
        client.sendall(reply.head())
        for part in range(10):
            size = len(reply.body)
            client.sendall(reply.body[size * part // 10:size * (part + 1) // 10])
            time.sleep(seconds / 10)
    return meddle


def hold(_case, _request, _reply, client):
    client.settimeout(300)
    client.recv(1)


def link(text):
    def meddle(_case, request, reply, _client):
        is_last = not any(name == "link" for name, _ in reply.headers)
        others = [header for header in reply.headers if header[0] != "link"]
        form = text.replace("NEXT", f"?p={request.page + 1}") if not is_last else '</list>; rel="first"'
        return Reply(200, reply.body, [*others, *[("link", value) for value in form.split("\n")]])
    return meddle


def packed(pack, encoding):
    def meddle(_case, _request, reply, _client):
        return Reply(200, pack(reply.body), [*reply.headers, ("content-encoding", encoding)]) if reply.status == 200 else reply
    return meddle


HTML = "<!DOCTYPE html><html><body><form>Sign in</form></body></html>"
MANY = ("link", "cursor", "url", "page", "offset")
WITH_DATA = ("cursor", "url", "offset")
send(cut(head=9), name="reset_in_head")
send(cut(), name="reset_in_body")
send(cut(), at=1, pages=MANY, name="reset_in_page_2")
send(cut(close=None), name="cut_with_content_length")
send(cut(length=False, close=None), name="cut_without_content_length")
send(cut(length=False, close=None, body=0.4), pages=("lines",), name="lines_cut_without_content_length")
send(cut(chunked=True, length=False, close=None), name="cut_within_chunks")
for status in (500, 502, 504):
    send(answer(status, HTML), name=f"status_{status}")
    send(answer(status, HTML), at=1, pages=MANY, name=f"status_{status}_of_page_2")
send(answer(503), name="status_503")
send(answer(503, "", [("retry-after", "1")]), name="status_503_retry_after_seconds")
send(answer(503, "", [("retry-after", "1, 2")]), name="status_503_retry_after_two_values")
send(answer(503, "", [("retry-after", lambda: email.utils.formatdate(time.time() + 2, usegmt=True))]), name="status_503_retry_after_date")
send(answer(429, "", [("retry-after", "1")]), at=2, pages=MANY, name="status_429_of_page_3")
send(answer(404, "{}"), name="status_404")
send(answer(206, keeps=True), name="status_206")
send(answer(202, "{}"), name="status_202")
send(answer(202, '{"data":[]}'), at=1, pages=("page",), name="status_202_of_page_2")
send(answer(200, '{"success":false,"data":[]}'), at=1, pages=("page", "cursor", "offset"), name="no_success_of_page_2")
send(answer(200, '{"message":"slow down"}'), at=1, pages=("page",), name="message_instead_of_page_2")
send(answer(204), name="status_204")
send(answer(304), pages=MANY, name="status_304_unasked")
send(answer(200, HTML, [("content-type", "text/html")]), name="html_page_with_200")
send(answer(200, HTML, [("content-type", "text/html")]), at=1, pages=MANY, name="html_page_with_200_as_page_2")
send(answer(200, keeps=True, headers=[("content-type", "text/plain")]), shows=THROUGH, name="wrong_content_type")
send(answer(200), name="empty_body")
send(answer(200, "null"), name="body_null")
send(answer(200, '{"error":"the database is down"}'), name="error_with_200")
send(packed(gzip.compress, "gzip"), shows=THROUGH, name="gzip_unasked")
send(packed(lambda body: gzip.compress(body)[:-12], "gzip"), name="gzip_cut")
send(packed(zlib.compress, "deflate"), name="deflate_unasked")
send(answer(302, "", [("location", "http://127.0.0.1:1/login")]), name="redirect_to_another_server")
send(lambda _case, request, reply, _client: reply if request.path == "/moved" else Reply(307, "", [("location", request.target.replace("/list", "/moved"))]),
     shows=THROUGH, name="redirect_on_the_server")
send(answer(302, "", [("location", "/list")]), name="redirect_in_a_circle")
send(trickle(0.8), shows=THROUGH, name="slow_trickle")
send(trickle(8), name="trickle_beyond_the_timeout")
send(hold, name="silence")
send(hold, at=1, pages=MANY, name="silence_in_page_2")
for number, text in enumerate(['<NEXT>;rel=next', '</list>; rel="first", <NEXT>; title="a, b; <c>"; rel="prev next"', '<?p=0>; rel=prev\n<NEXT>; REL="Next"']):
    send(link(text), shows=THROUGH, pages=("link",), name=f"link_in_odd_form_{number + 1}")
for number, text in enumerate(["NEXT; rel=next", '<NEXT>; rel="next', "<NEXT; rel=next"]):
    send(link(text), pages=("link",), name=f"link_unreadable_{number + 1}")
send(lambda _case, _request, reply, _client: Reply(200, reply.body.replace(b'"key"', b'"\xff": 1, "key"'), reply.headers) if reply.body else reply,
     name="invalid_utf8")


def edit(name, change, shows=HIDDEN, pages=None, more=None, **options):
    """Registers a fault of the objects of the pages, or of the members beside them."""
    def begin(case):
        case.source.edit, case.source.more = change, more
        yield
    begin.__name__ = name
    fault("rest", shows=shows, pages=pages, **options)(begin)


edit("empty_list_by_mistake", lambda page, items: [])
edit("half_of_the_list_missing", lambda page, items: items[:3])
edit("object_twice", lambda page, items: [*items, *items[:1]], shows=THROUGH)
edit("key_twice", lambda page, items: [*items, *({**item, "n": -1} for item in items[:1])])
edit("object_again_in_page_3", lambda page, items: [*items, {"key": "k000", "n": -1}] if page == 2 else items, pages=MANY)
edit("key_missing_in_most_objects", lambda page, items: [{"n": item["n"]} for item in items])
edit("items_no_objects", lambda page, items: [item["key"] for item in items])
edit("next_is_an_object", None, pages=("cursor",), more=lambda page, more, body: {**body, "meta": {"next": {"page": page + 1}}})
edit("next_under_another_name", None, pages=("cursor",),
     more=lambda page, more, body: {"data": body["data"], "meta": {"next_cursor": body["meta"]["next"]}})
edit("has_more_without_next", None, pages=WITH_DATA, more=lambda page, more, body: {"data": body["data"], "has_more": more})
edit("has_more_unreadable", None, pages=WITH_DATA, more=lambda page, more, body: {"data": body["data"], "has_more": "perhaps"})
edit("total_larger_than_list", None, pages=WITH_DATA, more=lambda page, more, body: {"data": body["data"], "total": 99})
edit("errors_beside_the_list", None, pages=WITH_DATA, more=lambda page, more, body: {**body, "errors": [{"message": "a shard failed"}]})
edit("incomplete_results", None, pages=WITH_DATA, more=lambda page, more, body: {**body, "incomplete_results": True})
edit("page_2_is_partial", lambda page, items: items[:3] if page == 1 else items, pages=("page", *WITH_DATA),
     more=lambda page, more, body: {**body, "partial": page == 1})
edit("end_that_has_more", lambda page, items: items if page == 0 else [], pages=("page",), more=lambda page, more, body: {**body, "has_more": True})
edit("circle_of_pages", None, pages=("cursor", "url"),
     more=lambda page, more, body: {**body, **({"meta": {"next": "1"}, "next": "/list?p=1"} if page else {})})


@fault("rest", "nginx", pages=("page",))
def parameter_of_page_unknown(case):
    """Each page is the first one."""
    case.source.web.handler = lambda request: (request.query.update(page="1"), case.source.reply(request))[1]
    yield
    case.source.web.handler = case.source.reply


@fault("rest", shows=THROUGH, pages=MANY)
def object_missing_in_every_other_list(case):
    """As if a row before it were removed while the pages were read."""
    lists = [0]

    def change(page, items):
        lists[0] += page == 0
        return items[1:] if page == 1 and lists[0] % 2 else items
    case.source.edit = change
    yield


@fault("rest", shows=FREE, pages=MANY)
def every_other_list_cut_short(case):
    lists = [0]

    def change(page, items):
        lists[0] += page == 0
        return items[:6] if lists[0] % 2 else items
    case.source.edit = change
    yield


@fault("rest", "files", "command", shows=THROUGH, quiet=True)
def large_numbers(case):
    case.put("k000", big="@123456789012345678901234567890.12@", id="@9007199254740993@", small="@1e-30@", negative="@-0.10@")
    yield
    case.put("k000", id="@9007199254740992@")


@fault("rest", "files", "command", "sqlite", "sqlite-since", "postgres", "postgres-since", "queue", "kubernetes", shows=PART, up=False)
def object_too_large(case):
    large = "x" * (5_000_000 if case.kind == "kubernetes" else 1_200_000)
    if case.kind == "queue":
        case.source.server.call("PATCH", "from", {"max_object_bytes": 4_000_000})
    key = case.key_of("k001")
    case.kept = {key: case.truth()[key]}
    case.put("k001", note=large)
    yield
    case.put("k001", note="small")


@fault("rest", "kubernetes", shows=PART, up=False)
def half_a_surrogate(case):
    key = case.key_of("k001")
    case.kept = {key: case.truth()[key]}

    def meddle(_request, reply, client):
        reply.body = reply.body.replace(b'"HALF"', b'"\\ud800"')
        if stream := reply.stream:
            def through(_client):
                stream(type("Half", (), {"sendall": lambda self, data: client.sendall(data.replace(b'"HALF"', b'"\\ud800"'))})())
            reply.stream = through
        return reply
    case.source.web.meddle = meddle
    case.source.web.cut_all()
    case.put("k001", note="HALF")
    yield
    case.put("k001", note="whole")


@fault("rest", "sqlite", "sqlite-since", "postgres", "postgres-since", shows=PART, up=False)
def key_null(case):
    """A key that can't be read: the list deletes nothing."""
    victims = [key for key in case.truth() if 10 <= int(key[1:]) < 20]
    case.kept = {"k001": case.truth()["k001"], **{key: case.truth()[key] for key in victims}}
    if case.kind == "rest":
        case.source.edit = lambda page, items: [{**item, "key": None} if item["key"] == "k001" else item for item in items]
    else:
        case.source.run_sql("INSERT INTO shop VALUES (NULL, 1, NULL, 1000)")
    yield
    if case.kind != "rest":
        case.source.run_sql("DELETE FROM shop WHERE key IS NULL")


@fault("rest", "kubernetes")
def token_replaced(case):
    case.source.web.token = "two"
    case.source.web.cut_all()
    yield
    case.source.token.write_text("Authorization: Bearer two\n" if case.kind == "rest" else "two")


@fault("rest", "nginx", "kubernetes", "postgres", "postgres-since", "queue")
@fault("rest", "postgres", "kubernetes", at_start=True)
def connection_refused(case):
    """For a queue that is followed, the client tries for 30 s before that is a failure."""
    proxy = case.source.wire or case.source.web
    proxy.refuse()
    yield
    proxy.listen()
