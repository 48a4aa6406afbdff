package clientgo_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	deltaq "example.com/deltaq/clients/go"
	"example.com/deltaq/clients/go/clientgo"
)

// get takes the next key, which must be this one.
func get(t *testing.T, q *clientgo.Queue, want string) {
	t.Helper()
	if key, isEnd := q.Get(); key != want || isEnd {
		t.Fatalf("got %q, end %v, instead of %q", key, isEnd, want)
	}
}

// until waits until a condition holds, which another process changes.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// state is the state of a key on the server, with its failures; absent without one.
func state(t *testing.T, q *deltaq.Queue, key string) (string, int64) {
	t.Helper()
	item, err := q.Item(contextOf(t), key, nil)
	if errors.Is(err, deltaq.CodeKeyNotFound) {
		return "absent", 0
	}
	if err != nil {
		t.Fatal(err)
	}
	if item.State == nil {
		return "none", item.Failures
	}
	return *item.State, item.Failures
}

func TestTheQueueIsCreatedAndParksNothing(t *testing.T) {
	server := queue(t)
	q := workqueue(t, server, nil)
	q.Add("a")
	get(t, q, "a")
	settings, err := server.Settings(contextOf(t))
	if err != nil || settings.Settings.Mode != deltaq.ModeKeys || *settings.Settings.MaxFailures != 0 {
		t.Error(settings, err)
	}
	if q.Err() != nil {
		t.Error(q.Err())
	}
}

func TestAKeyThatIsAddedWhileItIsHeldIsDeliveredOnceMore(t *testing.T) {
	server := queue(t)
	q := workqueue(t, server, nil)
	q.Add("a")
	get(t, q, "a")
	for range 5 {
		q.Add("a")
	}
	q.Add("b")
	get(t, q, "b")
	if length := q.Len(); length != 0 {
		t.Errorf("%d keys are ready while both are held", length)
	}
	q.Done("b")
	q.Done("a")
	get(t, q, "a")
	q.Done("a")
	q.ShutDownWithDrain()
	if found, _ := state(t, server, "a"); found != "absent" {
		t.Errorf("the key is %s", found)
	}
}

func TestFailuresAreCountedUntilForget(t *testing.T) {
	server := queue(t)
	settings := &deltaq.QueueSettings{RateLimiter: rateLimiter(time.Millisecond, time.Minute)}
	q := workqueue(t, server, &clientgo.Options{Settings: settings})
	q.Add("a")
	for failures := range 4 {
		get(t, q, "a")
		if counted := q.NumRequeues("a"); counted != failures {
			t.Errorf("%d failures instead of %d", counted, failures)
		}
		q.AddRateLimited("a")
		if counted := q.NumRequeues("a"); counted != failures+1 {
			t.Errorf("%d failures instead of %d during the work", counted, failures+1)
		}
		q.Done("a")
		if counted := q.NumRequeues("a"); counted != failures+1 {
			t.Errorf("%d failures instead of %d after Done", counted, failures+1)
		}
	}
	get(t, q, "a")
	q.Forget("a")
	if counted := q.NumRequeues("a"); counted != 0 {
		t.Errorf("%d failures after Forget", counted)
	}
	q.AddRateLimited("a")
	if counted := q.NumRequeues("a"); counted != 1 {
		t.Errorf("%d failures after Forget and another failure", counted)
	}
	q.Done("a")
	if counted := q.NumRequeues("a"); counted != 1 {
		t.Errorf("%d failures after Forget, another failure and Done", counted)
	}
	get(t, q, "a")
	q.Forget("a")
	q.Done("a")
	if counted := q.NumRequeues("a"); counted != 0 {
		t.Errorf("%d failures after Forget and Done", counted)
	}
}

func TestFailuresOfAKeyThatIsNotHeld(t *testing.T) {
	q := workqueue(t, queue(t), &clientgo.Options{Settings: &deltaq.QueueSettings{RateLimiter: rateLimiter(time.Hour, time.Hour)}})
	q.AddRateLimited("a")
	q.AddRateLimited("a")
	if counted := q.NumRequeues("a"); counted != 2 {
		t.Errorf("%d failures instead of 2", counted)
	}
	q.Forget("a")
	q.AddRateLimited("a")
	if counted := q.NumRequeues("a"); counted != 1 {
		t.Errorf("%d failures instead of 1", counted)
	}
	if counted := q.NumRequeues("b"); counted != 0 {
		t.Errorf("%d failures of a key that nobody knows", counted)
	}
	if length := q.Len(); length != 0 {
		t.Errorf("%d keys are ready during the backoff", length)
	}
}

func rateLimiter(base, longest time.Duration) *deltaq.RateLimiter {
	return &deltaq.RateLimiter{ItemExponential: &deltaq.ItemExponential{Base: deltaq.Duration(base), Max: deltaq.Duration(longest)}}
}

func TestADelayDuringTheWorkAddsTheKeyAgain(t *testing.T) {
	server := queue(t)
	q := workqueue(t, server, nil)
	q.Add("a")
	get(t, q, "a")
	q.AddAfter("a", 20*time.Millisecond)
	// An add that comes later neither ends the delay nor counts twice.
	q.AddAfter("a", time.Hour)
	q.Forget("a")
	q.Done("a")
	get(t, q, "a")
	q.AddAfter("b", -time.Second)
	get(t, q, "b")
	q.AddAfter("a", 1000*24*time.Hour)
	q.Done("a")
	q.Done("b")
	q.ShutDownWithDrain()
	item, err := server.Item(contextOf(t), "a", nil)
	if err != nil || *item.State != "delayed" || item.DueAt == nil || time.Until(*item.DueAt) > 367*24*time.Hour {
		t.Errorf("%+v %v", item, err)
	}
}

func TestShutDownLeavesKeysForOtherProcesses(t *testing.T) {
	server := queue(t)
	first, second := workqueue(t, server, nil), workqueue(t, server, nil)
	first.Add("a")
	get(t, first, "a")
	ended := make(chan bool)
	go func() {
		_, isEnd := first.Get()
		ended <- isEnd
	}()
	until(t, "a pop waits", func() bool { return status(t, server).Waiters == 1 })
	first.ShutDown()
	if !<-ended || !first.ShuttingDown() {
		t.Error("Get does not report the end")
	}
	// The work has failed: the key must not be lost.
	first.AddRateLimited("a")
	first.Done("a")
	first.Add("b")
	keys := map[string]bool{}
	for range 2 {
		key, isEnd := second.Get()
		keys[key] = !isEnd
		second.Done(key)
	}
	if !keys["a"] || !keys["b"] {
		t.Error(keys)
	}
	if leased := status(t, server).Waiters; leased != 0 {
		t.Errorf("%d pops wait", leased)
	}
}

func status(t *testing.T, q *deltaq.Queue) *deltaq.QueueStatus {
	t.Helper()
	status, err := q.Status(contextOf(t))
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func TestADrainWaitsForHeldKeys(t *testing.T) {
	server := queue(t)
	q := workqueue(t, server, nil)
	q.Add("a")
	get(t, q, "a")
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		q.ShutDownWithDrain()
	}()
	until(t, "the drain has begun", q.ShuttingDown)
	if _, isEnd := q.Get(); !isEnd {
		t.Error("Get does not report the end")
	}
	select {
	case <-drained:
		t.Error("the drain has not waited")
	default:
	}
	q.Done("a")
	<-drained
	if found, _ := state(t, server, "a"); found != "absent" {
		t.Errorf("after the drain the key is %s", found)
	}
}

func TestShutDownAndTheContextEndADrain(t *testing.T) {
	for _, isShutDown := range []bool{true, false} {
		ctx, cancel := context.WithCancel(contextOf(t))
		server := queue(t)
		releaseAtEnd(t, server)
		q := clientgo.NewQueue(ctx, server, nil)
		q.Add("a")
		get(t, q, "a")
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			q.ShutDownWithDrain()
		}()
		until(t, "the drain has begun", q.ShuttingDown)
		if isShutDown {
			q.ShutDown()
		} else {
			cancel()
		}
		<-drained
		q.Done("a")
		cancel()
	}
}

func TestTheContextEndsAllWaits(t *testing.T) {
	ctx, cancel := context.WithCancel(contextOf(t))
	// Nothing listens there.
	client, err := deltaq.New("http://127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	q := clientgo.NewQueue(ctx, client.Queue("q"), nil)
	q.Add("a")
	ended := make(chan bool)
	go func() {
		_, isEnd := q.Get()
		ended <- isEnd
	}()
	go func() { ended <- q.Len() == 1 }()
	go func() { ended <- q.NumRequeues("a") == 0 }()
	go func() {
		q.ShutDownWithDrain()
		ended <- true
	}()
	until(t, "the queue knows that the server is away", func() bool { return q.Err() != nil })
	cancel()
	for range 4 {
		if !<-ended {
			t.Error("a wait has not ended as it should")
		}
	}
	q.Add("b")
	if !q.ShuttingDown() {
		t.Error("the queue does not shut down")
	}
}

func TestAQueueOfAnotherModeIsRefused(t *testing.T) {
	server := queue(t)
	if _, err := server.Add(contextOf(t), map[string]string{"key": "a"}, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(contextOf(t))
	defer cancel()
	q := clientgo.NewQueue(ctx, server, nil)
	q.Add("b")
	until(t, "the queue says why", func() bool { return q.Err() != nil })
	if text := q.Err().Error(); text != fmt.Sprintf("deltaq: the queue %s has the mode delta: a workqueue needs one of mode keys", server.Name()) {
		t.Error(text)
	}
	if err := q.Check(contextOf(t)); err == nil || err.Error() != q.Err().Error() {
		t.Error(err)
	}
	if err := workqueue(t, queue(t), nil).Check(contextOf(t)); err != nil {
		t.Error(err)
	}
	away, err := deltaq.New("http://127.0.0.1:1", nil)
	if err != nil {
		t.Fatal(err)
	}
	absent := clientgo.NewQueue(ctx, away.Queue("q"), nil)
	limited, end := context.WithCancel(ctx)
	go func() {
		until(t, "the server is away", func() bool { return absent.Checked() != nil })
		end()
	}()
	var connection *deltaq.ConnectionError
	if err := absent.Check(limited); !errors.Is(err, context.Canceled) || !errors.As(err, &connection) {
		t.Error(err)
	}
}

func TestAKeyThatTheServerRefusesDoesNotStopOthers(t *testing.T) {
	q := workqueue(t, queue(t), nil)
	for _, key := range []string{"a", "", string(make([]byte, 2000)), "b"} {
		q.Add(key)
		q.AddAfter(key, time.Hour)
	}
	q.AddRateLimited("")
	q.Forget("")
	keys := map[string]bool{}
	for range 2 {
		key, _ := q.Get()
		keys[key] = true
	}
	if !keys["a"] || !keys["b"] || q.Err() != nil {
		t.Error(keys, q.Err())
	}
}

func TestAFullQueueTakesTheEndsOfItsKeys(t *testing.T) {
	server := queue(t)
	q := workqueue(t, server, &clientgo.Options{Settings: &deltaq.QueueSettings{MaxKeys: deltaq.Ptr(int64(1))}})
	q.Add("a")
	get(t, q, "a")
	// There is no room for these keys until a is done. That needs the add of a, which comes after them.
	q.Add("b")
	q.Add("c")
	until(t, "the queue is full", func() bool { return q.Err() != nil })
	q.Add("a")
	q.Done("a")
	seen := map[string]int{}
	for range 3 {
		key, _ := q.Get()
		seen[key]++
		q.Done(key)
	}
	if seen["a"] != 1 || seen["b"] != 1 || seen["c"] != 1 {
		t.Error(seen)
	}
}

func TestAnExclusiveQueueEndsAsThatOfClientGo(t *testing.T) {
	server := queue(t)
	q := workqueue(t, server, &clientgo.Options{Exclusive: true})
	q.Add("a")
	q.Add("b")
	get(t, q, "a")
	q.Add("a")
	q.ShutDown()
	q.Add("c")
	get(t, q, "b")
	q.Done("b")
	if key, isEnd := q.Get(); !isEnd {
		t.Errorf("got %q after the last key that is ready", key)
	}
	q.Done("a")
	get(t, q, "a")
	q.Done("a")
	if key, isEnd := q.Get(); !isEnd {
		t.Errorf("got %q after the last key", key)
	}
	again := workqueue(t, server, &clientgo.Options{Exclusive: true})
	again.Add("d")
	get(t, again, "d")
}

// late holds back the reply to the first pop.
type late struct {
	next      http.RoundTripper
	isHeld    atomic.Bool
	isReplied atomic.Bool
	released  chan struct{}
}

func (l *late) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	if strings.HasSuffix(request.URL.Path, "/pop") && !l.isHeld.Swap(true) {
		l.isReplied.Store(true)
		<-l.released
	}
	return response, err
}

func TestTheEndWaitsForEarlierPops(t *testing.T) {
	server := queue(t)
	transport := &late{released: make(chan struct{})}
	client, err := deltaq.New(url, &deltaq.Options{WrapTransport: func(next http.RoundTripper) http.RoundTripper {
		transport.next = next
		return transport
	}})
	if err != nil {
		t.Fatal(err)
	}
	q := workqueue(t, client.Queue(server.Name()), &clientgo.Options{Exclusive: true})
	q.Add("a")
	type result struct {
		key        string
		isShutDown bool
	}
	results := make(chan result, 2)
	take := func() {
		key, isShutDown := q.Get()
		results <- result{key, isShutDown}
	}
	go take()
	until(t, "the first pop has its reply", transport.isReplied.Load)
	q.ShutDown()
	go take()
	until(t, "the closed queue has refused the second pop", func() bool { return q.Refused() == 2 })
	close(transport.released)
	found := map[result]bool{<-results: true, <-results: true}
	if !found[result{"a", false}] || !found[result{"", true}] {
		t.Error(found)
	}
	q.Done("a")
}
