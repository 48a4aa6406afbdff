package deltaq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	deltaq "example.com/deltaq/clients/go"
)

// product is an object of the tests.
type product struct {
	Key   string  `json:"key"`
	Price float64 `json:"price,omitempty"`
}

func products(count int) []product {
	var list []product
	for number := range count {
		list = append(list, product{Key: fmt.Sprintf("k%03d", number), Price: 1})
	}
	return list
}

// fill adds objects to a queue, and closes it, so that a worker ends behind them.
func fill(t *testing.T, q *deltaq.Queue, objects any) {
	t.Helper()
	ctx := contextOf(t)
	if _, err := q.Add(ctx, objects, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Close(ctx, nil); err != nil {
		t.Fatal(err)
	}
}

func TestEachKeyIsHandledOnce(t *testing.T) {
	q := queue(t)
	fill(t, q, products(300))
	var running, most atomic.Int64
	var handled sync.Map
	worker := deltaq.NewWorker(q, func(_ context.Context, job *deltaq.Job) error {
		for now := running.Add(1); now > most.Load(); {
			most.Store(now)
		}
		defer running.Add(-1)
		if _, wasHandled := handled.LoadOrStore(job.Key, job.Token()); wasHandled {
			t.Errorf("%s is handled twice", job.Key)
		}
		found, err := deltaq.Decode[product](job.Object())
		if err != nil || found.Key != job.Key {
			t.Errorf("the object is %v (%v)", found, err)
		}
		runtime.Gosched()
		return nil
	}, &deltaq.WorkerOptions{Concurrency: 8, Batch: 20})
	if err := worker.Run(contextOf(t)); err != nil {
		t.Fatal(err)
	}
	if stats := worker.Stats(); stats != (deltaq.WorkerStats{Acknowledged: 300}) || most.Load() > 8 {
		t.Errorf("%+v with up to %d handlers", stats, most.Load())
	}
}

func TestObjectsComeBackAsTheyWere(t *testing.T) {
	q := queue(t)
	text := `{"key":"a","n":9007199254740993,"price":1.10,"html":"<&>","e":1E2,"s":"\u00e4"}`
	fill(t, q, object(text))
	worker := deltaq.NewWorker(q, func(_ context.Context, job *deltaq.Job) error {
		if string(job.Object()) != text {
			t.Errorf("%s\nhas become\n%s", text, job.Object())
		}
		return nil
	}, nil)
	if err := worker.Run(contextOf(t)); err != nil {
		t.Fatal(err)
	}
}

func TestAHandlerThatDoesNotReturnIsAFailure(t *testing.T) {
	q := queue(t)
	ctx := contextOf(t)
	settings := deltaq.QueueSettings{MaxFailures: deltaq.Ptr(int64(1))}
	if _, err := q.PutSettings(ctx, settings, nil); err != nil {
		t.Fatal(err)
	}
	fill(t, q, products(4))
	worker := deltaq.NewWorker(q, func(_ context.Context, job *deltaq.Job) error {
		switch job.Key {
		case "k000":
			panic("boom")
		case "k001":
			runtime.Goexit()
		case "k002":
			var nothing *product
			_ = nothing.Price
		}
		return nil
	}, &deltaq.WorkerOptions{Concurrency: 2, Batch: 4})
	if err := worker.Run(ctx); err != nil {
		t.Fatal(err)
	}
	var errs []string
	for item, err := range q.Items(ctx, &deltaq.ItemsOptions{States: []string{"parked"}}) {
		if err != nil {
			t.Fatal(err)
		}
		errs = append(errs, *item.LastError)
	}
	if stats := worker.Stats(); stats.Panics != 2 || stats.Nacked != 3 || stats.Acknowledged != 1 || len(errs) != 3 ||
		errs[0] != "panic: boom" || !strings.Contains(errs[1], "Goexit") || !strings.Contains(errs[2], "nil pointer") {
		t.Errorf("%+v %q", stats, errs)
	}
}

func TestAWorkerThatStopsFinishesItsHandlersAndReleasesTheRest(t *testing.T) {
	q := queue(t)
	if _, err := q.Add(contextOf(t), products(10), nil); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	began := make(chan struct{}, 10)
	finish := make(chan struct{})
	worker := deltaq.NewWorker(q, func(ctx context.Context, _ *deltaq.Job) error {
		began <- struct{}{}
		<-finish
		return ctx.Err()
	}, &deltaq.WorkerOptions{Concurrency: 2, Batch: 10})
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()
	<-began
	<-began
	stop()
	select {
	case err := <-ended:
		t.Fatalf("the worker does not wait for its handlers: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(finish)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if stats := worker.Stats(); stats != (deltaq.WorkerStats{Acknowledged: 2, Released: 8}) {
		t.Errorf("%+v", stats)
	}
	checkStatus(t, q, func(status *deltaq.QueueStatus) bool { return status.Leased == 0 && status.Ready == 8 })
}

func checkStatus(t *testing.T, q *deltaq.Queue, check func(*deltaq.QueueStatus) bool) {
	t.Helper()
	status, err := q.Status(contextOf(t))
	if err != nil || !check(status) {
		t.Errorf("the status is %+v (%v)", status, err)
	}
}

func TestAHandlerIsNotWaitedForForEver(t *testing.T) {
	q := queue(t)
	if _, err := q.Add(contextOf(t), products(1), nil); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var cause error
	worker := deltaq.NewWorker(q, func(ctx context.Context, _ *deltaq.Job) error {
		stop()
		<-ctx.Done()
		cause = context.Cause(ctx)
		return ctx.Err()
	}, &deltaq.WorkerOptions{Grace: time.Millisecond})
	if err := worker.Run(ctx); err != nil {
		t.Fatal(err)
	}
	// The worker has ended the handler, which is no failure of the key.
	if stats := worker.Stats(); !errors.Is(cause, deltaq.ErrStopping) || stats != (deltaq.WorkerStats{Released: 1}) {
		t.Errorf("the cause is %v: %+v", cause, stats)
	}
	checkStatus(t, q, func(status *deltaq.QueueStatus) bool { return status.Ready == 1 })
}

func TestAHandlerHearsThatItsLeaseIsLost(t *testing.T) {
	q := queue(t)
	ctx := contextOf(t)
	settings := deltaq.QueueSettings{Lease: deltaq.Duration(3 * time.Second)}
	if _, err := q.PutSettings(ctx, settings, nil); err != nil {
		t.Fatal(err)
	}
	fill(t, q, products(1))
	var causes []error
	worker := deltaq.NewWorker(q, func(ctx context.Context, job *deltaq.Job) error {
		if job.Attempt > 1 {
			return nil
		}
		if _, err := q.Release(ctx, job.Lease.ID); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		causes = append(causes, context.Cause(ctx))
		return nil
	}, nil)
	if err := worker.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if stats := worker.Stats(); len(causes) != 1 || !errors.Is(causes[0], deltaq.ErrLeaseLost) || stats != (deltaq.WorkerStats{Acknowledged: 1, Lost: 1}) {
		t.Errorf("the causes are %v: %+v", causes, stats)
	}
}

// failing fails the calls whose path ends so.
type failing struct {
	next http.RoundTripper
	path string
	left atomic.Int64
}

func (f *failing) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, f.path) && f.left.Add(-1) >= 0 {
		response, err := f.next.RoundTrip(request)
		if err == nil {
			response.Body.Close()
		}
		return nil, errors.New("the reply is lost")
	}
	return f.next.RoundTrip(request)
}

func TestLostRepliesRepeatNothing(t *testing.T) {
	for _, path := range []string{"/pop", "/settle"} {
		q := queue(t)
		lost := &failing{path: path}
		lost.left.Store(3)
		options := &deltaq.Options{
			Retry:         deltaq.RetryOptions{First: time.Millisecond, Max: time.Millisecond},
			WrapTransport: func(next http.RoundTripper) http.RoundTripper { lost.next = next; return lost },
		}
		client, err := deltaq.New(shared.URL, options)
		if err != nil {
			t.Fatal(err)
		}
		mine := client.Queue(q.Name() + strings.ReplaceAll(path, "/", "-"))
		fill(t, mine, products(30))
		worker := deltaq.NewWorker(mine, func(_ context.Context, job *deltaq.Job) error {
			if job.Attempt > 1 {
				t.Errorf("%s: %s is delivered again", path, job.Key)
			}
			return nil
		}, &deltaq.WorkerOptions{Concurrency: 3})
		if err := worker.Run(contextOf(t)); err != nil {
			t.Fatal(err)
		}
		if stats := worker.Stats(); stats != (deltaq.WorkerStats{Acknowledged: 30}) || lost.left.Load() > 0 {
			t.Errorf("%s: %+v, and %d replies were not lost", path, stats, lost.left.Load())
		}
	}
}

func TestAWorkerEndsWithAFinalError(t *testing.T) {
	q := queue(t)
	client, err := deltaq.New(shared.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.PutSettings(contextOf(t), deltaq.QueueSettings{}, nil); err != nil {
		t.Fatal(err)
	}
	worker := deltaq.NewWorker(client.Queue(q.Name()), func(context.Context, *deltaq.Job) error { return nil }, &deltaq.WorkerOptions{Wait: time.Hour})
	if err := worker.Run(contextOf(t)); !errors.Is(err, deltaq.CodeInvalidParameter) {
		t.Errorf("a pop that waits for an hour: %v", err)
	}
}

func TestDecode(t *testing.T) {
	if found, err := deltaq.Decode[map[string]json.Number](object(`{"n":9007199254740993}`)); err != nil || found["n"] != "9007199254740993" {
		t.Errorf("%v %v", found, err)
	}
	for _, text := range []string{"", "[]", `{"key":1}`} {
		if found, err := deltaq.Decode[product](object(text)); err == nil {
			t.Errorf("%q is %v", text, found)
		}
	}
}
