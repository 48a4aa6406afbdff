package clientgo_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	deltaq "example.com/deltaq/clients/go"
	"example.com/deltaq/clients/go/clientgo"
	"example.com/deltaq/clients/go/deltaqtest"
)

func TestAServerMayRestartInTheMiddle(t *testing.T) {
	queue(t)
	folder := t.TempDir()
	server := deltaqtest.Start(t, &deltaqtest.Options{DataDir: folder})
	client := server.Client().Queue("q")
	q := workqueue(t, client, nil)
	for _, key := range []string{"failed", "done", "held"} {
		q.Add(key)
		get(t, q, key)
	}
	taken := make(chan string)
	go func() {
		key, _ := q.Get()
		taken <- key
	}()
	until(t, "a pop waits", func() bool { return status(t, client).Waiters == 1 })
	server.Kill()
	q.AddRateLimited("failed")
	q.Done("failed")
	q.Forget("done")
	q.Done("done")
	q.Add("held")
	q.Add("new")
	until(t, "the queue knows that the server is away", func() bool { return q.Err() != nil })
	deltaqtest.Start(t, &deltaqtest.Options{DataDir: folder, Listen: strings.TrimPrefix(server.URL, "http://")})
	seen := map[string]bool{<-taken: true}
	q.Done("held")
	for len(seen) < 3 {
		key, _ := q.Get()
		seen[key] = true
		q.Done(key)
	}
	if !seen["failed"] || !seen["held"] || !seen["new"] {
		t.Error(seen)
	}
	if counted := q.NumRequeues("failed"); counted != 1 {
		t.Errorf("%d failures", counted)
	}
	until(t, "the queue works", func() bool { return q.Err() == nil })
}

// blocking lets the calls of a path wait until they are released.
type blocking struct {
	next     http.RoundTripper
	path     string
	released chan struct{}
}

func (b *blocking) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, b.path) {
		<-b.released
	}
	return b.next.RoundTrip(request)
}

func TestALeaseEndsAfterTheAddsBeforeItsDone(t *testing.T) {
	server := queue(t)
	transport := &blocking{path: "/add", released: make(chan struct{})}
	client, err := deltaq.New(url, &deltaq.Options{WrapTransport: func(next http.RoundTripper) http.RoundTripper {
		transport.next = next
		return transport
	}})
	if err != nil {
		t.Fatal(err)
	}
	q := workqueue(t, client.Queue(server.Name()), nil)
	q.Add("failed")
	get(t, q, "failed")
	q.Add("done")
	get(t, q, "done")
	q.AddRateLimited("failed")
	q.Done("failed")
	q.Done("done")
	until(t, "the other lease has ended", func() bool { found, _ := state(t, server, "done"); return found == "absent" })
	// If the process ended now, the key would be delivered again.
	if found, _ := state(t, server, "failed"); found != "leased" {
		t.Errorf("the key is %s before the server has its add", found)
	}
	close(transport.released)
	get(t, q, "failed")
	if counted := q.NumRequeues("failed"); counted != 1 {
		t.Errorf("%d failures", counted)
	}
}

// lose ends the lease of a key, as an operator or a clock might. The key is ready then.
func lose(t *testing.T, server *deltaq.Queue, key string) {
	t.Helper()
	item, err := server.Item(contextOf(t), key, nil)
	if err != nil || item.Lease == nil {
		t.Fatal(item, err)
	}
	if _, err := server.Release(contextOf(t), item.Lease.ID); err != nil {
		t.Fatal(err)
	}
}

func TestALostLeaseDoesNotSettleThatOfAnotherWorker(t *testing.T) {
	for _, isNoticed := range []bool{false, true} {
		server := queue(t)
		options := &clientgo.Options{LeaseDuration: time.Hour, Settings: &deltaq.QueueSettings{RateLimiter: rateLimiter(time.Millisecond, time.Millisecond)}}
		if isNoticed {
			options.LeaseDuration = time.Second
		}
		first, second := workqueue(t, server, options), workqueue(t, server, nil)
		first.AddRateLimited("a")
		get(t, first, "a")
		lease, token := first.Lease("a")
		lose(t, server, "a")
		get(t, second, "a")
		if isNoticed {
			<-lease.Done()
			if !errors.Is(context.Cause(lease), deltaq.ErrLeaseLost) {
				t.Error(context.Cause(lease))
			}
		}
		first.Forget("a")
		first.Done("a")
		// This waits until the server has the Done.
		first.ShutDownWithDrain()
		if found, failures := state(t, server, "a"); found != "leased" || failures != 1 {
			t.Errorf("the key is %s with %d failures", found, failures)
		}
		if _, later := second.Lease("a"); later <= token {
			t.Errorf("the token is %d after %d", later, token)
		}
		second.Forget("a")
		second.Done("a")
		second.ShutDownWithDrain()
		if found, _ := state(t, server, "a"); found != "absent" {
			t.Errorf("the key is %s", found)
		}
		if lease, _ := second.Lease("a"); lease.Err() == nil {
			t.Error("the context of a key that is done has not ended")
		}
	}
}

func TestTwoWorkersOfAProcessNeverHoldAKeyAtOnce(t *testing.T) {
	server := queue(t)
	q := workqueue(t, server, &clientgo.Options{LeaseDuration: time.Second})
	q.Add("a")
	get(t, q, "a")
	lease, _ := q.Lease("a")
	lose(t, server, "a")
	taken := make(chan string)
	go func() {
		key, _ := q.Get()
		taken <- key
	}()
	<-lease.Done()
	until(t, "the process has the next lease", func() bool { found, _ := state(t, server, "a"); return found == "leased" })
	q.Add("b")
	if key := <-taken; key != "b" {
		t.Errorf("got %q while it is held", key)
	}
	q.Done("a")
	get(t, q, "a")
	if lease, _ := q.Lease("a"); lease.Err() != nil {
		t.Error("the next lease has ended")
	}
}

func TestLeasesAreExtended(t *testing.T) {
	server := queue(t)
	q := workqueue(t, server, &clientgo.Options{LeaseDuration: time.Second})
	q.Add("a")
	get(t, q, "a")
	first, err := server.Item(contextOf(t), "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the lease is extended twice", func() bool {
		item, err := server.Item(contextOf(t), "a", nil)
		return err == nil && item.Lease != nil && item.Lease.ID == first.Lease.ID && item.Lease.ExpiresAt.Sub(first.Lease.ExpiresAt) > 600*time.Millisecond
	})
	q.Done("a")
	q.ShutDownWithDrain()
	if _, failures := state(t, server, "a"); failures != 0 {
		t.Errorf("%d failures", failures)
	}
}

// absent is a transport without a server. It counts the attempts of each call.
type absent struct {
	mutex    sync.Mutex
	attempts map[string]int
}

func (a *absent) RoundTrip(request *http.Request) (*http.Response, error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.attempts[request.Method+" "+request.URL.Path]++
	return nil, errors.New("the server is away")
}

// pauses records the pauses that a queue logs.
type pauses struct {
	slog.Handler
	mutex sync.Mutex
	of    map[string][]time.Duration
}

func (p *pauses) Enabled(context.Context, slog.Level) bool { return true }

func (p *pauses) WithAttrs([]slog.Attr) slog.Handler { return p }

func (p *pauses) Handle(_ context.Context, record slog.Record) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	var call string
	record.Attrs(func(attribute slog.Attr) bool {
		switch attribute.Key {
		case "call":
			call = attribute.Value.String()
		case "pause":
			p.of[call] = append(p.of[call], attribute.Value.Duration())
		}
		return true
	})
	return nil
}

func (p *pauses) count(call string) int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return len(p.of[call])
}

func TestAQueueDoesNotSpinWhileTheServerIsAway(t *testing.T) {
	transport, log := &absent{attempts: map[string]int{}}, &pauses{of: map[string][]time.Duration{}}
	client, err := deltaq.New("http://127.0.0.1:1", &deltaq.Options{
		WrapTransport: func(http.RoundTripper) http.RoundTripper { return transport }, Logger: slog.New(log),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(contextOf(t))
	defer cancel()
	q := clientgo.NewQueue(ctx, client.Queue("q"), nil)
	began := time.Now()
	go q.Get()
	q.Add("a")
	until(t, "both calls have failed three times", func() bool { return log.count("pop") >= 3 && log.count("add") >= 3 })
	log.mutex.Lock()
	defer log.mutex.Unlock()
	elapsed := time.Since(began)
	isRandom := false
	for call, all := range log.of {
		var waited time.Duration
		for _, pause := range all[:len(all)-1] {
			waited += pause
			isRandom = isRandom || pause != all[len(all)-1]
		}
		if waited > elapsed {
			t.Errorf("%s has waited %v in %v", call, waited, elapsed)
		}
	}
	transport.mutex.Lock()
	defer transport.mutex.Unlock()
	attempts := 0
	for _, count := range transport.attempts {
		attempts += count
	}
	if logged := len(log.of["pop"]) + len(log.of["add"]); attempts > logged+2 || !isRandom {
		t.Errorf("%d attempts, and %d in the log (%v)", attempts, logged, log.of)
	}
}

func TestMemoryIsBoundedByTheKeys(t *testing.T) {
	client, err := deltaq.New("http://127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(contextOf(t))
	defer cancel()
	away := clientgo.NewQueue(ctx, client.Queue("q"), nil)
	for number := range 10_000 {
		key := fmt.Sprint(number % 7)
		away.Add(key)
		away.AddAfter(key, time.Hour)
		away.AddRateLimited(key)
		away.Forget(key)
	}
	if changes, _ := away.Sizes(); changes > 14 {
		t.Errorf("changes of %d keys", changes)
	}

	q := workqueue(t, queue(t), nil)
	for number := range 100 {
		q.Add(fmt.Sprint(number))
	}
	for range 100 {
		key, _ := q.Get()
		if _, leases := q.Sizes(); leases == 0 {
			t.Error("a held key has no lease")
		}
		q.Done(key)
	}
	q.ShutDownWithDrain()
	if changes, leases := q.Sizes(); changes != 0 || leases != 0 {
		t.Errorf("changes of %d keys and %d leases are left", changes, leases)
	}
}

func TestGetTakesNoMoreKeysThanItReturns(t *testing.T) {
	server := queue(t)
	q := workqueue(t, server, nil)
	for number := range 50 {
		q.Add(fmt.Sprint(number))
	}
	get(t, q, "0")
	get(t, q, "1")
	if length, found := q.Len(), status(t, server); length != 48 || found.Leased != 2 {
		t.Errorf("%d keys are ready, and %d leased", length, found.Leased)
	}
}

func TestChangesOfAKeyAreMerged(t *testing.T) {
	origin := time.Now()
	random := rand.New(rand.NewSource(1))
	for range 10_000 {
		var calls bytes.Buffer
		for range random.Intn(10) {
			calls.WriteByte("fr+379"[random.Intn(6)])
		}
		early, forget, limited, due, add := clientgo.Merged(calls.String(), origin)
		text := calls.String()
		before, after, isForgotten := strings.Cut(reversed(text), "f")
		if !isForgotten {
			before, after = reversed(text), ""
		}
		wantDue := time.Time{}
		if at := strings.IndexAny(sorted(text), "379"); at >= 0 {
			wantDue = origin.Add(time.Duration(sorted(text)[at]-'0') * time.Second)
		}
		if limited != strings.Count(before, "r") || forget != isForgotten || early != strings.Contains(after, "r") || add != strings.Contains(text, "+") || due != wantDue {
			t.Fatalf("%q: early %v, forget %v, %d limited, due %v, add %v", text, early, forget, limited, due.Sub(origin), add)
		}
	}
}

func reversed(text string) string {
	turned := []byte(text)
	for left, right := 0, len(turned)-1; left < right; left, right = left+1, right-1 {
		turned[left], turned[right] = turned[right], turned[left]
	}
	return string(turned)
}

func sorted(text string) string {
	var out strings.Builder
	for _, letter := range "+379fr" {
		out.WriteString(strings.Repeat(string(letter), strings.Count(text, string(letter))))
	}
	return out.String()
}
