package clientgo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	deltaq "example.com/deltaq/clients/go"
)

const (
	// flushMax is how long ShutDown waits until the server has what the queue was given, and Len and NumRequeues for the same and for their reply.
	flushMax = 5 * time.Second
	// delayMax is the longest delay of a key, which the server permits.
	delayMax = 366 * 24 * time.Hour
)

// Options are options of a [Queue]. The zero value of each field is its default.
type Options struct {
	// Settings are those of the queue if it does not exist yet. Its mode is keys in any case. Nil means the defaults of the server, without a limit of
	// failures, because a workqueue never gives up a key.
	Settings *deltaq.QueueSettings
	// LeaseDuration is the length of the leases. Zero means the setting of the queue. A lease is extended each time a third of it has passed.
	LeaseDuration time.Duration
	// Name is the name of the worker, shown with its leases. Empty means the host, the process and a random part.
	Name string
	// Exclusive is true if no other process uses the queue. Then ShutDown closes it, and behaves as that of client-go: adds are ignored, and Get returns
	// the keys that are ready before it reports the end. NewQueue opens it again.
	Exclusive bool
}

// Queue is a workqueue over a queue of deltaq of mode keys.
//
// Adds are collected and sent in batches, and repeated until the server has them. Get leases a key; the lease is extended until Done, and ends after the
// server has all adds of the key that came before Done. While the server is away, Get waits, and everything else goes on: see [Queue.Err].
//
// ShutDown ends only the work of this process: Get returns no further keys, which stay in the queue for other processes or for the next start. Adds are
// still sent, so that a key whose work has failed is not lost. [Options].Exclusive changes both.
type Queue struct {
	// queue makes one attempt a call. The loops of this package repeat them, and log each failure.
	queue   *deltaq.Queue
	log     *slog.Logger
	options Options
	ctx     context.Context
	// taking is the context of waiting pops. Its end is that of ctx, or ShutDown.
	taking     context.Context
	stopTaking context.CancelFunc

	mutex sync.Mutex
	// changed is signalled to all after each change of the fields below.
	changed *sync.Cond

	// held are the keys that Get has returned, until Done.
	held map[string]*held
	// leases are all leases of this process, by their ids: those of held keys, of keys that no Get has taken yet, and of done keys that are not settled.
	leases map[string]*held
	// delivered are the keys that no Get has taken yet, in their order.
	delivered []*held
	// waiting is the number of calls of Get that wait, and asked the number of keys that running pops may bring.
	waiting, asked int
	// begun counts the pops, and refused is the number of the newest one that the closed queue has refused.
	begun, refused int

	// pending are the changes of keys that no call has yet, in the order of names; sending are those of the running calls.
	pending map[string]*pending
	names   []string
	sending map[string]*pending
	// ended are leases to settle.
	ended []*held
	// clock numbers the changes and the ends of leases, so that a call can wait for those before it.
	clock uint64

	isSending, isSettling, isKeeping bool
	isPrepared                       bool
	isShuttingDown, isDraining       bool
	// isServerClosed is true once ShutDown of an exclusive queue has closed it.
	isServerClosed bool
	// failures are the reasons why calls of each kind fail at present.
	failures map[string]error
	// kept wakes the goroutine that extends leases.
	kept chan struct{}
}

var _ workqueue.TypedRateLimitingInterface[string] = (*Queue)(nil)

// NewQueue returns a workqueue over a queue, which is created with the mode keys if it does not exist. Nothing is sent before the first call of Get or of an add.
//
// When the context ends, all calls and waits end at once, and Get reports the end. Keys that are held then are delivered again when their leases expire.
// To stop gently, call ShutDown or ShutDownWithDrain before.
func NewQueue(ctx context.Context, queue *deltaq.Queue, options *Options) *Queue {
	given := Options{}
	if options != nil {
		given = *options
	}
	if given.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "go"
		}
		given.Name = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), newID()[:6])
	}
	q := &Queue{
		queue:   queue.Client().WithRetry(deltaq.RetryOptions{Attempts: 1}).Queue(queue.Name()),
		log:     queue.Client().Logger().With("queue", queue.Name()),
		options: given, ctx: ctx,
		held: map[string]*held{}, leases: map[string]*held{}, pending: map[string]*pending{}, sending: map[string]*pending{},
		failures: map[string]error{}, kept: make(chan struct{}, 1),
	}
	q.changed = sync.NewCond(&q.mutex)
	q.taking, q.stopTaking = context.WithCancel(ctx)
	context.AfterFunc(ctx, func() {
		q.mutex.Lock()
		defer q.mutex.Unlock()
		q.changed.Broadcast()
	})
	return q
}

func newID() string {
	var bytes [16]byte
	// It never fails.
	_, _ = rand.Read(bytes[:])
	return hex.EncodeToString(bytes[:])
}

// Add adds a key. A key that is ready already is not added twice; a key that is held is delivered once more after its Done.
func (q *Queue) Add(key string) { q.add(key, pending{add: true}) }

// AddAfter adds a key after a time, which begins now. Of several times the earliest counts.
func (q *Queue) AddAfter(key string, duration time.Duration) {
	if duration <= 0 {
		q.Add(key)
		return
	}
	q.add(key, pending{due: time.Now().Add(min(duration, delayMax))})
}

// AddRateLimited adds a key after the backoff of its failures, of which this is one more. The rate limiter is that of the queue, see
// [deltaq.QueueSettings].
func (q *Queue) AddRateLimited(key string) {
	change := pending{limited: 1}
	q.mutex.Lock()
	if held := q.held[key]; held != nil {
		if held.isForgotten {
			// Done would forget this failure, too.
			held.isForgotten, held.failures, change.forget = false, 0, true
		}
		held.failures++
	}
	q.addLocked(key, change)
	q.mutex.Unlock()
}

// Forget forgets the failures of a key. If the lease of a held key is lost, Forget does nothing: the failures are those of another worker.
func (q *Queue) Forget(key string) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	held := q.held[key]
	switch {
	case held == nil:
		q.addLocked(key, pending{forget: true})
	case !held.isLost:
		held.isForgotten = true
	}
}

// NumRequeues returns the number of failures of a key. For a key that is not held, it asks the server, and returns 0 if there is no reply within 5 s.
func (q *Queue) NumRequeues(key string) int {
	q.mutex.Lock()
	held := q.held[key]
	if held != nil {
		defer q.mutex.Unlock()
		if held.isForgotten {
			return 0
		}
		return held.failures
	}
	q.mutex.Unlock()
	return q.failuresOf(key)
}

// Len returns the number of keys that are ready, for whatever process. If the server does not reply within 5 s, it is the number of keys that were not sent.
func (q *Queue) Len() int { return q.ready() }

// Get waits for a key and leases it. The caller must call Done. shutdown is true if there is no further key, because of ShutDown or the end of the context.
func (q *Queue) Get() (key string, shutdown bool) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.waiting++
	defer func() { q.waiting-- }()
	// A pop that began before this call may have been refused before a Done made its key ready again.
	begun := q.begun
	for {
		if q.ctx.Err() != nil || (q.isShuttingDown && !q.options.Exclusive) {
			return "", true
		}
		if held := q.take(); held != nil {
			return held.key, false
		}
		switch {
		case !q.isShuttingDown || q.refused <= begun:
			q.startPop()
		case q.asked == 0:
			return "", true
		}
		// Otherwise an earlier pop may still bring a key.
		q.changed.Wait()
	}
}

// Done says that the work on a key has ended. It settles the lease of the key, unless the lease is lost, as soon as the server has the adds of the key that
// came before. A key that was added since Get is delivered again. After ShutDown, Done waits for all this, but at most 5 s, because the process may end next.
func (q *Queue) Done(key string) {
	q.mutex.Lock()
	held := q.held[key]
	if held == nil {
		q.mutex.Unlock()
		return
	}
	delete(q.held, key)
	held.cancel(nil)
	q.clock++
	held.isDone, held.endedAt = true, q.clock
	switch {
	case held.isLost:
	case q.pending[key] != nil:
		q.pending[key].ends = append(q.pending[key].ends, held)
	case q.sending[key] != nil:
		q.sending[key].ends = append(q.sending[key].ends, held)
	default:
		q.end(held)
	}
	q.changed.Broadcast()
	isShuttingDown := q.isShuttingDown
	q.mutex.Unlock()
	if isShuttingDown {
		q.flush(flushMax)
	}
}

// Lease returns the context and the fencing token of a key that Get has returned. The context ends with the cause [deltaq.ErrLeaseLost] if the lease is lost:
// another worker may hold the key, so the work on it must write nothing more, and Done has no effect on the server. For a key that is not held, the context
// has ended.
func (q *Queue) Lease(key string) (ctx context.Context, token int64) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if held := q.held[key]; held != nil {
		return held.ctx, held.token
	}
	ended, cancel := context.WithCancel(q.ctx)
	cancel()
	return ended, 0
}

// ShutDown ends the work of this process: Get reports the end, and a waiting ShutDownWithDrain returns. It returns once the server has what the queue was
// given before, or after 5 s; the rest is then sent later. Keys that are held are still extended, and settled by their Done.
func (q *Queue) ShutDown() {
	q.mutex.Lock()
	q.isDraining = false
	q.shutDown()
	q.mutex.Unlock()
	q.flush(flushMax)
}

// ShutDownWithDrain is ShutDown, but returns only once all keys that are held are done and settled. [Queue.ShutDown] and the end of the context end this wait.
func (q *Queue) ShutDownWithDrain() {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.isDraining = true
	q.shutDown()
	for q.isDraining && q.ctx.Err() == nil && len(q.held) > 0 {
		q.changed.Wait()
	}
	clock := q.clock
	for q.isDraining && q.ctx.Err() == nil && !q.isFlushed(clock) {
		q.changed.Wait()
	}
}

func (q *Queue) shutDown() {
	q.isShuttingDown = true
	if q.options.Exclusive {
		q.startSending()
	} else {
		q.stopTaking()
		for _, held := range q.delivered {
			held.isReleased = true
			q.end(held)
		}
		q.delivered = nil
	}
	q.changed.Broadcast()
}

// ShuttingDown reports whether ShutDown or ShutDownWithDrain was called, or the context has ended.
func (q *Queue) ShuttingDown() bool {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return q.isShuttingDown || q.ctx.Err() != nil
}

// Check creates the queue if it does not exist, and returns nil once it can be used. It waits while the server is away, until the context ends. A queue of
// another mode is an error at once. Calls of Check are not necessary: the queue does the same before its first call.
func (q *Queue) Check(ctx context.Context) error {
	for failures := 1; ; failures++ {
		err := q.prepare()
		if err == nil || errors.Is(err, errWrongMode) {
			return err
		}
		if !q.pause(ctx, "check", failures, err) {
			return fmt.Errorf("deltaq: the queue %s can't be used: %w; before that: %w", q.queue.Name(), context.Cause(ctx), err)
		}
		q.note("check", nil)
	}
}

// Err returns why the queue does not work at present, such as a server that is away, or a queue that has another mode; nil while it works.
func (q *Queue) Err() error {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	for _, kind := range []string{"pop", "add", "settle", "extend"} {
		if err := q.failures[kind]; err != nil {
			return err
		}
	}
	return nil
}

// isFlushed reports whether the server has everything that the queue was given up to a number of the clock, except the Done of held keys.
func (q *Queue) isFlushed(clock uint64) bool {
	if q.isShuttingDown && q.options.Exclusive && !q.isServerClosed {
		return false
	}
	for _, changes := range q.pending {
		if changes.since <= clock {
			return false
		}
	}
	for _, changes := range q.sending {
		if changes.since <= clock {
			return false
		}
	}
	for _, leased := range q.ended {
		if leased.endedAt <= clock {
			return false
		}
	}
	return true
}

// flush waits until the server has everything that the queue was given so far, but not longer than the limit.
func (q *Queue) flush(limit time.Duration) {
	q.mutex.Lock()
	clock := q.clock
	q.mutex.Unlock()
	q.waitUntil(limit, func() bool { return q.isFlushed(clock) })
}

// waitUntil waits until a condition holds, but not longer than the context or the limit.
func (q *Queue) waitUntil(limit time.Duration, holds func() bool) {
	end := time.Now().Add(limit)
	timer := time.AfterFunc(limit, func() {
		q.mutex.Lock()
		defer q.mutex.Unlock()
		q.changed.Broadcast()
	})
	defer timer.Stop()
	q.mutex.Lock()
	defer q.mutex.Unlock()
	for !holds() && q.ctx.Err() == nil && time.Now().Before(end) {
		q.changed.Wait()
	}
}
