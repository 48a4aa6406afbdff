package deltaq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const producedText = `{"resource_version":1,"queued":1,"merged":0,"ignored":0,"stale":0,"duplicate":false,"sequence":null,
	"incarnation":"i","life":"l","keys":null,"invalid":0,"invalid_objects":[]}`

// quick are options without long pauses.
func quick() *Options {
	return &Options{Retry: RetryOptions{First: time.Millisecond, Max: time.Millisecond, Attempts: 4}}
}

// serve starts a server, and returns a queue of it.
func serve(t *testing.T, options *Options, handler http.HandlerFunc) *Queue {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client, err := New(server.URL, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client.Queue("q")
}

func refuse(w http.ResponseWriter, status int, code Code, members string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"type":"t","title":"t","status":%d,"detail":"d","code":%q,"retryable":%v,"request_id":"r"%s}`, status, code, status == 429 || status == 503, members)
}

func TestARepeatSendsTheSameBody(t *testing.T) {
	var bodies []string
	q := serve(t, quick(), func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, r.URL.String()+" "+string(body))
		if len(bodies) < 3 {
			refuse(w, 503, CodeJournalBehind, `,"retry_after_ms":1`)
			return
		}
		io.WriteString(w, producedText)
	})
	text := json.RawMessage(`{"key":"a<b>&","n":9007199254740993,"price":1.10}`)
	if _, err := q.Update(context.Background(), text, &ProduceOptions{Source: "erp", Sequence: 7, Delay: 90 * time.Second, HeadStart: Ptr(-time.Minute)}); err != nil {
		t.Fatal(err)
	}
	want := "/v1/queues/q/update?delay=1m30s&head_start=-1m0s&sequence=7&source=erp " + string(text)
	for _, body := range bodies {
		if body != want {
			t.Errorf("%s\ninstead of\n%s", body, want)
		}
	}
	if len(bodies) != 3 {
		t.Errorf("%d attempts", len(bodies))
	}
}

func TestRequestsCanBeSentAgainByTheTransport(t *testing.T) {
	client, _ := New("localhost:1", nil)
	request, err := client.request(context.Background(), &call{method: "POST", path: "/", body: []byte("abc")}, client.servers.all[0], "")
	if err != nil || request.GetBody == nil || request.ContentLength != 3 {
		t.Errorf("a body without GetBody (%v)", err)
	}
}

func TestAnswersAreReadToTheirEndSoThatConnectionsAreUsedAgain(t *testing.T) {
	for _, size := range []int{1 << 10, 60 << 10, 10 << 20} {
		var connections, requests atomic.Int64
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if requests.Add(1) < 4 {
				w.WriteHeader(502)
				io.WriteString(w, strings.Repeat("x", size))
				return
			}
			io.WriteString(w, producedText)
		}))
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		}
		server.Start()
		client, _ := New(server.URL, &Options{Retry: RetryOptions{First: 20 * time.Millisecond}})
		_, err := client.Queue("q").Add(context.Background(), json.RawMessage(`{}`), nil)
		// The transport may need a moment until a connection can be used again.
		if isShort := size < drainedMax; err != nil || (connections.Load() < requests.Load()) != isShort {
			t.Errorf("%d bytes: %d connections for %d requests (%v)", size, connections.Load(), requests.Load(), err)
		}
		client.Close()
		server.Close()
	}
}

func TestErrorsSayWhatHasHappened(t *testing.T) {
	var problem *Problem
	var reply *ReplyError
	var connection *ConnectionError
	var encoding *EncodeError
	ctx := context.Background()
	options := &Options{Retry: RetryOptions{Attempts: 1}}

	q := serve(t, options, func(w http.ResponseWriter, _ *http.Request) { refuse(w, 422, CodeNoKey, `,"hint":"add one","index":3`) })
	_, err := q.Add(ctx, json.RawMessage(`{}`), nil)
	if !errors.As(err, &problem) || !errors.Is(err, CodeNoKey) || errors.Is(err, CodeInvalidKey) || *problem.Index != 3 || !strings.Contains(err.Error(), "add one") {
		t.Errorf("a problem: %v", err)
	}
	q = serve(t, options, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/login")
		w.WriteHeader(http.StatusFound)
	})
	if _, err = q.Get(ctx); !errors.As(err, &reply) || reply.Status != http.StatusFound {
		t.Errorf("a redirect: %v", err)
	}
	for _, text := range []string{"<html>", `{"ok":true}`, "", "null", "[]"} {
		q = serve(t, options, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) })
		if _, err = q.Pop(ctx, nil); !errors.As(err, &reply) || reply.Status != 200 {
			t.Errorf("the reply %q: %v", text, err)
		}
	}
	q = serve(t, options, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, `{"items":[]`)
	})
	if _, err = q.Pop(ctx, nil); !errors.As(err, &connection) || !connection.Sent || !isOutcomeUnknown(err) {
		t.Errorf("half a reply: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	client, _ := New(listener.Addr().String(), options)
	if _, err = client.Queue("q").DeleteKey(ctx, "secret", nil); !errors.As(err, &connection) || connection.Sent || strings.Contains(err.Error(), "secret") {
		t.Errorf("no server: %v", err)
	}
	if _, err = q.Add(ctx, map[string]float64{"n": math.NaN()}, nil); !errors.As(err, &encoding) {
		t.Errorf("a value that is no JSON: %v", err)
	}
	for _, name := range []string{"", ".", "..", "a/../b", "a//b"} {
		if _, err = client.Queue(name).Get(ctx); err == nil || errors.As(err, new(*ConnectionError)) {
			t.Errorf("the name %q: %v", name, err)
		}
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	var attempts atomic.Int64
	q := serve(t, &Options{Retry: RetryOptions{First: time.Millisecond, Max: time.Millisecond}}, func(w http.ResponseWriter, r *http.Request) {
		if attempts.Add(1) == 1 {
			refuse(w, 429, CodeQueueFull, "")
			return
		}
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for attempts.Load() < 2 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	_, err := q.Add(ctx, json.RawMessage(`{}`), nil)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, CodeQueueFull) || IsRetryable(err) && attempts.Load() > 2 {
		t.Errorf("a cause is lost: %v", err)
	}
}

func TestAReplyThatDoesNotComeIsNotWaitedForForEver(t *testing.T) {
	q := serve(t, &Options{ReplyTimeout: 50 * time.Millisecond, Retry: RetryOptions{Attempts: 1}}, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-time.After(200 * time.Millisecond):
			if r.URL.Query().Get("wait") != "" {
				io.WriteString(w, `{"items":[],"settled":[],"closed":false,"paused":false}`)
			}
		}
	})
	var connection *ConnectionError
	if _, err := q.Pop(context.Background(), nil); !errors.As(err, &connection) || !connection.Sent || !errors.Is(err, errSilence) {
		t.Errorf("the attempt has no end: %v", err)
	}
	if _, err := q.Pop(context.Background(), &PopOptions{Wait: time.Minute}); err != nil {
		t.Errorf("a long poll is cut: %v", err)
	}
}

func TestAStreamThatDoesNotBeginAndAListWithoutAReplyEnd(t *testing.T) {
	ended := make(chan struct{})
	q := serve(t, &Options{ReplyTimeout: 50 * time.Millisecond, Retry: RetryOptions{Attempts: 1}}, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-ended
	})
	// Before the server is closed, which waits for its handlers.
	t.Cleanup(func() { close(ended) })
	q.client.listWait = 0
	for _, err := range q.Watch(context.Background(), nil) {
		if !errors.Is(err, errSilence) {
			t.Errorf("a watch without a reply: %v", err)
		}
	}
	long := strings.Repeat("x", bufferedMax)
	for _, list := range [][]string{{"short"}, {long, long}} {
		if _, err := q.Replace(context.Background(), Objects(list), nil); !errors.Is(err, errSilence) {
			t.Errorf("a list without a reply: %v", err)
		}
	}
}

func TestAStreamThatHasBegunHasNoTimeLimit(t *testing.T) {
	q := serve(t, &Options{ReplyTimeout: 50 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(200 * time.Millisecond):
			io.WriteString(w, "{\"type\":\"Bookmark\",\"resource_version\":1,\"initial_events_end\":true}\n")
		}
	})
	rows := 0
	for _, err := range q.Watch(context.Background(), nil) {
		if err != nil {
			t.Error(err)
		}
		rows++
	}
	if rows != 1 {
		t.Errorf("%d rows", rows)
	}
}

func TestTheTokenIsReadAgainWhenItIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var present atomic.Value
	present.Store("one")
	var requests atomic.Int64
	check := func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("Authorization") != "Bearer "+present.Load().(string) {
			refuse(w, 401, CodeUnauthorized, "")
			return
		}
		io.WriteString(w, producedText)
	}
	write("one\n")
	byFile := serve(t, &Options{TokenFile: file}, check)
	bySource := serve(t, &Options{TokenSource: func(context.Context) (string, error) { return present.Load().(string), nil }}, check)
	for _, token := range []string{"one", "two"} {
		present.Store(token)
		write(token + "\n")
		for _, q := range []*Queue{byFile, bySource} {
			if _, err := q.Resync(context.Background()); err != nil {
				t.Errorf("%s: %v", token, err)
			}
		}
	}
	write("")
	present.Store("three")
	requests.Store(0)
	if _, err := byFile.Resync(context.Background()); !errors.Is(err, CodeUnauthorized) || requests.Load() != 1 {
		t.Errorf("%d requests with a token that was refused: %v", requests.Load(), err)
	}
	if _, err := New("localhost", &Options{Token: "a", TokenFile: file}); err == nil {
		t.Error("two tokens")
	}
}

func TestURLs(t *testing.T) {
	for text, want := range map[string]string{
		"localhost:7070":                  "http://localhost:7070",
		"https://Queues.example:443/":     "https://queues.example",
		"https://proxy.example/deltaq/":   "https://proxy.example/deltaq",
		"http://[::1]:7070":               "http://[::1]:7070",
		"http://a:80, http://a ,http://b": "http://a http://b",
	} {
		all, err := newServers(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var bases []string
		for _, server := range all.all {
			bases = append(bases, server.base)
		}
		if got := strings.Join(bases, " "); got != want {
			t.Errorf("%s is %s", text, got)
		}
	}
	for _, text := range []string{"", "ftp://a", "http://", "http://a?b", "http://a?", "http://a#", "http://user:secret@a", "a b", "a,", "a\nb"} {
		if _, err := newServers(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAnOwnerIsCalledDirectlyAndAFailureLeadsToTheNextServer(t *testing.T) {
	all, err := newServers("a:1,b:2,https://c/deltaq")
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := all.all[0], all.all[1], all.all[2]
	check := func(want *server, queue, why string) {
		t.Helper()
		if all.next(queue) != want {
			t.Errorf("%s: the next server is %s", why, all.next(queue).base)
		}
	}
	all.leave(b, "")
	check(a, "", "another call has failed elsewhere")
	all.leave(a, "")
	all.leave(a, "")
	check(b, "q", "two calls that fail together go on at one server")
	all.noteOwner("q", "https://c:443/deltaq")
	check(c, "q", "the owner is called")
	check(b, "r", "another queue has another owner")
	for _, other := range []string{"http://d:4", "http://c/deltaq", "https://c/other"} {
		all.noteOwner("r", other)
		check(b, "r", "no call goes to a server that the client was not given")
	}
	all.leave(c, "q")
	check(b, "q", "the owner has failed")
}

func TestASilentServerIsLeftIfThereAreOthers(t *testing.T) {
	ended := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}))
	defer silent.Close()
	defer close(ended)
	var asked atomic.Int64
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/livez" {
			asked.Add(1)
			return
		}
		// It is asked several times in this time, and says that it is alive.
		for asked.Load() < 2 {
			time.Sleep(time.Millisecond)
		}
		io.WriteString(w, `{"items":[],"settled":[],"closed":false,"paused":false}`)
	}))
	defer slow.Close()
	client, err := New(silent.URL+","+slow.URL, &Options{Retry: RetryOptions{First: time.Millisecond, Max: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	client.silence, client.answer = 20*time.Millisecond, time.Second
	if _, err := client.Queue("q").Pop(context.Background(), nil); err != nil {
		t.Error(err)
	}
}

func TestALongListIsReadOnceForEachAttempt(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	var received []int
	q := serve(t, quick(), func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		received = append(received, len(body))
		if !strings.HasSuffix(string(body), "\n{\"$end\":9}\n") {
			t.Errorf("the list ends with %q", body[len(body)-40:])
		}
		if len(received) == 1 {
			refuse(w, 503, CodeJournalUnavailable, "")
			return
		}
		io.WriteString(w, strings.Replace(producedText, "{", `{"replaced":9,"deleted":0,"unchanged":0,"skipped":0,"taken_over":0,`, 1))
	})
	broken := errors.New("the source broke")
	reads, isBroken := 0, false
	list := func(yield func(any, error) bool) {
		reads++
		for number := range 9 {
			if isBroken && number == 8 {
				yield(nil, broken)
				return
			}
			if !yield(map[string]any{"key": number, "text": long}, nil) {
				return
			}
		}
	}
	reply, err := q.Replace(context.Background(), list, nil)
	// The first reading ends when the list is too long to be kept.
	if err != nil || reply.Replaced != 9 || reads != 3 || len(received) != 2 || received[0] != received[1] {
		t.Errorf("%d readings, %v received: %v", reads, received, err)
	}
	isBroken, reads = true, 0
	if _, err := q.Replace(context.Background(), list, nil); !errors.Is(err, broken) || reads != 2 || len(received) != 2 {
		t.Errorf("a list that breaks off is read %d times, %v received: %v", reads, received, err)
	}
}
func TestATokenThatNoHeaderMayHaveIsNoReasonToRepeat(t *testing.T) {
	options := quick()
	options.Token = "secret\nsecond"
	q := serve(t, options, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, producedText) })
	var connection *ConnectionError
	_, err := q.Add(context.Background(), json.RawMessage(`{}`), nil)
	if err == nil || errors.As(err, &connection) || IsRetryable(err) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a token with a line break: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var readers, most atomic.Int64
	_, err = q.Replace(ctx, slow(&readers, &most), nil)
	if err == nil || ctx.Err() != nil || readers.Load() != 0 {
		t.Errorf("a long list with this token: %v, with %d readers", err, readers.Load())
	}
}

func TestAWorkerOutlivesAnErrorOfItsTokenSource(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	absent := errors.New("the identity provider does not answer")
	var asked atomic.Int64
	options := quick()
	options.TokenSource = func(context.Context) (string, error) {
		if asked.Add(1)%2 == 1 {
			return "", absent
		}
		return "t", nil
	}
	q := serve(t, options, func(w http.ResponseWriter, _ *http.Request) { refuse(w, 410, CodeQueueClosed, "") })
	var connection *ConnectionError
	if err := NewWorker(q, func(context.Context, *Job) error { return nil }, nil).Run(ctx); err != nil || asked.Load() != 2 {
		t.Errorf("a worker without a token for a moment: %v", err)
	}
	// A call leaves it to its caller.
	if _, err := q.Get(ctx); !errors.Is(err, absent) || errors.As(err, &connection) || asked.Load() != 3 {
		t.Errorf("a call without a token: %v", err)
	}
}
