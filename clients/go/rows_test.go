package deltaq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// logged is a log that a test reads.
type logged struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (l *logged) Write(text []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(text)
}

// lines returns the lines that have a text.
func (l *logged) lines(text string) []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var found []string
	for _, line := range strings.Split(l.text.String(), "\n") {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// logging returns quick options with a log.
func logging() (*Options, *logged) {
	options, log := quick(), &logged{}
	options.Logger = log.logger()
	return options, log
}

// nowhere returns a queue of a server that does not run.
func nowhere(t *testing.T, options *Options) *Queue {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	client, err := New("http://"+listener.Addr().String(), options)
	if err != nil {
		t.Fatal(err)
	}
	return client.Queue("q")
}

func TestARowOfFailuresIsLoggedOnceAMinute(t *testing.T) {
	log := &logged{}
	rows, now := newRows(log.logger()), time.Unix(0, 0)
	rows.now = func() time.Time { return now }
	pop, other := &call{path: "/v1/queues/q/pop", queue: "q"}, &call{path: "/v1/queues/r/pop", queue: "r"}
	failure := &ConnectionError{Server: "http://localhost:7998", Err: errors.New("connection refused")}
	rows.answered(pop)
	for range 120 {
		rows.failed(pop, "", failure)
		now = now.Add(time.Second)
	}
	if all := log.lines(`can't reach http://localhost:7998; the pop of the queue \"q\" is repeated`); len(all) != 2 || !strings.Contains(all[0], "connection refused") {
		t.Errorf("two minutes of failures are logged as %q", all)
	}
	rows.failed(other, " for up to 2m0s", failure)
	if all := log.lines(`the pop of the queue \"r\" is repeated for up to 2m0s`); len(all) != 1 {
		t.Errorf("another queue has no row of its own: %q", all)
	}
	for range 2 {
		rows.answered(pop)
	}
	if all := log.lines("level=INFO"); len(all) != 1 || !strings.Contains(all[0], `the pop of the queue \"q\"`) {
		t.Errorf("the end of the row is logged as %q", all)
	}
	rows.failed(pop, "", failure)
	if all := log.lines(`queue \"q\" is repeated`); len(all) != 3 {
		t.Errorf("a new row is not logged: %q", all)
	}
	for number := range 3 * rowsMax {
		rows.failed(&call{path: "/v1/queues/-/pop", queue: fmt.Sprint(number)}, "", failure)
	}
	if len(rows.warned) > rowsMax {
		t.Errorf("%d rows are remembered", len(rows.warned))
	}
}

func TestNothingWaitsSilentlyForAServer(t *testing.T) {
	for name, wait := range map[string]func(context.Context, *Queue) error{
		"add": func(ctx context.Context, q *Queue) error { _, err := q.AddKey(ctx, "a", nil); return err },
		"pop": func(ctx context.Context, q *Queue) error {
			return NewWorker(q, func(context.Context, *Job) error { return nil }, nil).Run(ctx)
		},
		"watch": func(ctx context.Context, q *Queue) error { return NewInformer(q, nil).Run(ctx) },
		"GET": func(ctx context.Context, q *Queue) error {
			_, err := NewReflector(q, "s", nil).Replace(ctx, Objects([]any{}))
			return err
		},
	} {
		options, log := logging()
		options.Retry.Attempts = 0
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		_ = wait(ctx, nowhere(t, options))
		cancel()
		limit := ""
		if name == "add" {
			limit = " for up to 2m0s"
		}
		want := name + ` of the queue \"q\" is repeated` + limit + `" queue=q error=`
		if name == "GET" {
			want = "the call " + want
		}
		if all := log.lines("is repeated"); len(all) != 1 || !strings.Contains(all[0], "can't reach http://127.0.0.1:") || !strings.Contains(all[0], want) {
			t.Errorf("%s logs %q, and not %q", name, all, want)
		}
	}
}

func TestTheLogSaysThatTheServerAnswersAgain(t *testing.T) {
	options, log := logging()
	attempts := 0
	q := serve(t, options, func(w http.ResponseWriter, r *http.Request) {
		if attempts++; attempts < 3 {
			panic(http.ErrAbortHandler)
		}
		io.WriteString(w, producedText)
	})
	if _, err := q.AddKey(context.Background(), "a-key", nil); err != nil {
		t.Fatal(err)
	}
	if len(log.lines("no reply from")) != 1 || len(log.lines("answers again")) != 1 || len(log.lines("a-key")) != 0 {
		t.Errorf("the log is %q", log.lines(""))
	}
}

func TestAWorkerThatHasReachedNoServerStopsAtOnce(t *testing.T) {
	options, log := logging()
	options.Retry = RetryOptions{First: time.Hour, Max: time.Hour}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := NewWorker(nowhere(t, options), func(context.Context, *Job) error { return nil }, nil).Run(ctx); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > lastCalls/2 {
		t.Errorf("the worker has stopped after %v: %q", took, log.lines(""))
	}
}

func TestACertificateThatIsNotTrustedIsNoReasonToRepeat(t *testing.T) {
	served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	trusting, plain := httptest.NewUnstartedServer(served), httptest.NewServer(served)
	defer plain.Close()
	trusting.Config.ErrorLog = log.New(io.Discard, "", 0)
	trusting.StartTLS()
	defer trusting.Close()
	for url, hint := range map[string]string{trusting.URL: "Options.TLS", "https" + strings.TrimPrefix(plain.URL, "http"): "begins with http"} {
		options, log := logging()
		options.Retry.Attempts = 0
		client, err := New(url, options)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		var connection *ConnectionError
		if _, err := client.Queue("q").Status(ctx); !errors.As(err, &connection) || ctx.Err() != nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v", url, err)
		}
		cancel()
		// A worker goes on, because certificates are renewed while it runs.
		ctx, cancel = context.WithTimeout(context.Background(), 200*time.Millisecond)
		if err := NewWorker(client.Queue("q"), func(context.Context, *Job) error { return nil }, nil).Run(ctx); err != nil || len(log.lines(hint)) != 1 {
			t.Errorf("%s: %v with the log %q", url, err, log.lines(""))
		}
		cancel()
	}
}

// popOf replies to the first pop with keys, and then that the queue is closed. It settles each nack and reject as parked.
func popOf(keys ...string) http.HandlerFunc {
	var pops atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.HasSuffix(r.URL.Path, "/settle"):
			var results []string
			for _, key := range keys {
				if strings.Contains(string(body), `"l-`+key+`"`) {
					results = append(results, fmt.Sprintf(`{"lease_id":"l-%s","as":"nack","result":"ok","outcome":null,"failures":3,"parked":%v}`, key, key != "late"))
				}
			}
			fmt.Fprintf(w, `{"settled":[%s],"stale":0}`, strings.Join(results, ","))
		case pops.Add(1) == 1:
			var items []string
			for _, key := range keys {
				items = append(items, fmt.Sprintf(`{"key":%q,"lease":{"id":"l-%s","token":1,"worker":"w","expires_at":"2026-11-28T00:00:00.000Z","expires_in_ms":30000},
					"attempt":3,"failures":2,"is_in_initial_list":false,"deltas":[]}`, key, key))
			}
			fmt.Fprintf(w, `{"items":[%s],"settled":[],"closed":false,"paused":false}`, strings.Join(items, ","))
		default:
			time.Sleep(20 * time.Millisecond)
			refuse(w, 409, CodeQueueClosed, "")
		}
	}
}

func TestFailuresOfHandlersAndParkedKeysAreLogged(t *testing.T) {
	options, log := logging()
	q := serve(t, options, popOf("fails", "panics", "late"))
	worker := NewWorker(q, func(_ context.Context, job *Job) error {
		switch job.Key {
		case "panics":
			panic("boom")
		case "late":
			return &Nack{Err: errors.New("chosen"), Delay: time.Second}
		}
		return errors.New("the webhook is down")
	}, &WorkerOptions{Batch: 3})
	if err := worker.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	for text, count := range map[string]int{
		`a handler has failed" queue=q key=fails attempt=3 error="the webhook is down"`: 1,
		`a handler panicked" queue=q key=panics attempt=3 panic=boom`:                   1,
		"a handler has failed":                  1,
		"is parked":                             2,
		`redriven" queue=q key=fails attempt=3`: 1,
		"chosen":                                0,
		"l-fails":                               0,
	} {
		if found := log.lines(text); len(found) != count {
			t.Errorf("%d lines have %q: %q", len(found), text, log.lines(""))
		}
	}
}

func TestAListAfterAnExpiredVersionIsNoWarning(t *testing.T) {
	options, log := logging()
	var watches []string
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q := serve(t, options, func(w http.ResponseWriter, r *http.Request) {
		watches = append(watches, r.URL.Query().Get("resource_version"))
		switch len(watches) {
		case 1:
			io.WriteString(w, `{"type":"Bookmark","resource_version":2,"initial_events_end":true}`+"\n")
		case 2:
			refuse(w, 410, CodeExpired, "")
		default:
			stop()
		}
	})
	if err := NewInformer(q, nil).Run(ctx); err != nil || len(watches) != 3 || watches[1] != "2" || watches[2] != "0" {
		t.Errorf("the watches are %q (%v)", watches, err)
	}
	if all := log.lines(""); len(all) != 1 {
		t.Errorf("the log is %q", all)
	}
}

func TestWhatIsWrongIsRefusedWhenItIsMade(t *testing.T) {
	client, err := New("http://localhost:7070", nil)
	if err != nil {
		t.Fatal(err)
	}
	q, handle := client.Queue("q"), func(context.Context, *Job) error { return nil }
	none := func(context.Context) ([]any, error) { return nil, nil }
	for want, make := range map[string]func(){
		"NewWorker: queue is nil":                     func() { NewWorker(nil, handle, nil) },
		"NewWorker: handler is nil":                   func() { NewWorker(q, nil, nil) },
		"WorkerOptions.LeaseDuration must not be neg": func() { NewWorker(q, handle, &WorkerOptions{LeaseDuration: -1}) },
		"WorkerOptions.Wait must not be negative":     func() { NewWorker(q, handle, &WorkerOptions{Wait: -1}) },
		"WorkerOptions.Concurrency must not be neg":   func() { NewWorker(q, handle, &WorkerOptions{Concurrency: -1}) },
		"WorkerOptions.Batch must not be negative":    func() { NewWorker(q, handle, &WorkerOptions{Batch: -1}) },
		"NewInformer: queue is nil":                   func() { NewInformer(nil, nil) },
		"InformerOptions.Resync must not be negative": func() { NewInformer(q, &InformerOptions{Resync: -1}) },
		"NewReflector: queue is nil":                  func() { NewReflector(nil, "s", nil) },
		"NewReflector: source is empty":               func() { NewReflector(q, "", nil) },
		"Poll: interval must be positive":             func() { Poll(context.Background(), 0, none) },
		"Poll: list is nil":                           func() { Poll[any](context.Background(), 1, nil) },
		"RetryOptions.Total must not be negative":     func() { client.WithRetry(RetryOptions{Total: -1}) },
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "deltaq: "+want) {
					t.Errorf("%q is not refused: %s", want, text)
				}
			}()
			make()
		}()
	}
	for want, options := range map[string]*Options{
		"Options.ReplyTimeout must":    {ReplyTimeout: -1},
		"Options.IdleConnections must": {IdleConnections: -1},
		"RetryOptions.First must":      {Retry: RetryOptions{First: -1}},
		"RetryOptions.Attempts must":   {Retry: RetryOptions{Attempts: -1}},
	} {
		if _, err := New("http://localhost:7070", options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if _, err := New("", nil); err == nil || !strings.Contains(err.Error(), "the URL of a server is empty") {
		t.Error(err)
	}
	for _, call := range []func(q *Queue) error{
		func(q *Queue) error { _, err := q.Status(context.Background()); return err },
		func(q *Queue) error { return NewWorker(q, handle, nil).Run(context.Background()) },
		func(q *Queue) error { return NewInformer(q, nil).Run(context.Background()) },
	} {
		if err := call(nowhere(t, nil).client.Queue("")); err == nil || !strings.Contains(err.Error(), "the name of the queue is empty") {
			t.Error(err)
		}
	}
}

func TestAnObjectThatCannotBeSentIsNamed(t *testing.T) {
	q := serve(t, quick(), func(http.ResponseWriter, *http.Request) { t.Error("a call is sent") })
	ctx := context.Background()
	type row struct {
		Key   string `json:"key"`
		Price any    `json:"price"`
	}
	good, bad := row{"a", 1}, row{"b", math.NaN()}
	add := func(objects any) error { _, err := q.Add(ctx, objects, nil); return err }
	replace := func(objects ...any) error { _, err := q.Replace(ctx, Objects(objects), nil); return err }
	deltas := func(objects ...any) error {
		var all []DeltaCall
		for _, object := range objects {
			all = append(all, DeltaCall{Type: Added, Object: object})
		}
		_, err := q.Deltas(ctx, all, nil)
		return err
	}
	_, seeded := q.Seed(ctx, []SeedCall{{Object: good}, {Object: bad}})
	_, keyed := q.AddKey(ctx, "", nil)
	for _, each := range []struct {
		err  error
		want string
	}{
		{add(bad), "deltaq: not sent: json: unsupported value: NaN"},
		{add([]row{good, bad}), "object 1: json: unsupported value: NaN"},
		{add(&[]any{good, good, make(chan int)}), "object 2: json: unsupported type: chan int"},
		{add(nil), "there is no object"},
		{add((*row)(nil)), "there is no object"},
		{add(json.RawMessage("null")), "there is no object"},
		{add(Ptr[any](nil)), "there is no object"},
		{add([]byte(`{"key":"a"}`)), "json.RawMessage"},
		{replace(good, bad), "object 1: json: unsupported value: NaN"},
		{deltas(good, bad), "object 1: json: unsupported value: NaN"},
		{seeded, "object 1: json: unsupported value: NaN"},
		{keyed, "the key is empty"},
	} {
		if each.err == nil || !strings.Contains(each.err.Error(), each.want) {
			t.Errorf("%v is not %q", each.err, each.want)
		}
	}
}

func TestANilSliceIsAnEmptyList(t *testing.T) {
	var bodies []string
	q := serve(t, quick(), func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		io.WriteString(w, producedText)
	})
	if _, err := q.Add(context.Background(), []string(nil), nil); err != nil || len(bodies) != 1 || bodies[0] != "[]" {
		t.Errorf("%q: %v", bodies, err)
	}
}
