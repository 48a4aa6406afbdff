package deltaq

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// Handler works on a key. Its error says how the lease of the key ends: nil is an acknowledgement, and any error a failure with its text, except
// [*Nack], [*Reject], [*Done] and [*Release], which errors.As finds in it. A panic is a failure. Failures are logged with the key and the attempt, except a
// [*Nack], which the handler has chosen; so is a key that is parked.
//
// The context ends with the cause [ErrLeaseLost] when the lease is lost: another worker may hold the key, so the handler must write nothing more, and its
// outcome has no effect. It ends with [ErrStopping] when the worker no longer waits for the handler. The end of the context of [Worker.Run] does not end it.
type Handler func(ctx context.Context, job *Job) error

// Job is a key on which a handler works, with its lease and its changes.
type Job struct {
	PoppedItem
	queue         string
	pendingDeltas atomic.Int64
	isObsolete    atomic.Bool
}

// Queue returns the name of the queue.
func (job *Job) Queue() string { return job.queue }

// Token returns the fencing token, which grows with every lease of the queue: a store that remembers the highest token of a key can refuse a late worker.
func (job *Job) Token() int64 { return job.Lease.Token }

// PendingDeltas returns the number of changes that have arrived during the lease, as of the last extension, and whether the newest is a deletion.
func (job *Job) PendingDeltas() (count int64, isDeleted bool) {
	return job.pendingDeltas.Load(), job.isObsolete.Load()
}

// Outcome returns how the lease ends if the handler returns this error.
func (job *Job) Outcome(err error) SettleAs { return job.settle(err).As }

// note remembers the result of an extension.
func (job *Job) note(settled *Settled) {
	if settled.PendingDeltas != nil {
		job.pendingDeltas.Store(*settled.PendingDeltas)
	}
	if settled.Deleted != nil {
		job.isObsolete.Store(*settled.Deleted)
	}
}

// WorkerOptions are options of a worker. The zero value of each field is its default.
type WorkerOptions struct {
	// Name is the name of the worker, shown with its leases. Empty means the host, the process and a random part.
	Name string
	// Concurrency is the number of handlers that run at once. Zero means 1.
	Concurrency int
	// Batch is the largest number of keys of one pop, up to 1,000. Keys that wait for a handler are leased, too. Zero means Concurrency.
	Batch int
	// LeaseDuration is the length of the leases. Zero means the setting of the queue. A lease is extended each time a third of it has passed.
	LeaseDuration time.Duration
	// Wait is how long a pop waits for keys, at most 55 s. Zero means 20 s.
	Wait time.Duration
	// Grace is how long a worker that stops waits for running handlers. Zero means 30 s, and a negative time not at all.
	Grace time.Duration
	// Breaker is the number of failures in a row, of different keys, that pause the worker: up to 1,000. A nack is a failure, also by an error or a panic;
	// a key that is done or rejected ends the row. After a pause of 1 s the worker tries one key; each further failure doubles the pause, up to 1 minute,
	// and a success ends it. Zero means that nothing pauses the worker.
	Breaker int
	// Middleware are functions around the handler. The first is the outermost.
	Middleware []func(next Handler) Handler
	// Group is the only group whose keys are taken, outside its turns. The empty name is that of the group without a name.
	Group *string
	// WithKnown adds the object that was acknowledged last to each job.
	WithKnown bool
	// WithDiff adds the difference from that object to the newest one to each job.
	WithDiff bool
}

// WorkerStats is what a worker has done.
type WorkerStats struct {
	// Acknowledged, Nacked, Rejected and Released count the leases that were settled in these ways; Acknowledged has those that are done.
	Acknowledged, Nacked, Rejected, Released int64
	// Lost counts leases that were lost before their handlers ended, or that had ended before they were settled.
	Lost int64
	// Panics counts handlers that panicked.
	Panics int64
	// Pauses counts pauses by WorkerOptions.Breaker.
	Pauses int64
}

// Worker takes keys from a queue, and runs a handler for each.
type Worker struct {
	queue   *Queue
	handler Handler
	options WorkerOptions

	acknowledged, nacked, rejected, released, lost, panics, pauses atomic.Int64
}

// NewWorker returns a worker of a queue. Nothing is sent before [Worker.Run]. It panics without a queue or a handler, and if a number of the options is
// negative, except Grace.
func NewWorker(queue *Queue, handler Handler, options *WorkerOptions) *Worker {
	must(queue != nil, "NewWorker: queue is nil; it must be a queue, such as client.Queue(\"orders\")")
	must(handler != nil, "NewWorker: handler is nil; it must be a function")
	given := copied(options)
	mustNotBeNegative("WorkerOptions", named{"LeaseDuration", given.LeaseDuration}, named{"Wait", given.Wait},
		named{"Concurrency", time.Duration(given.Concurrency)}, named{"Batch", time.Duration(given.Batch)}, named{"Breaker", time.Duration(given.Breaker)})
	given.Concurrency = max(given.Concurrency, 1)
	given.Batch = min(or(given.Batch, given.Concurrency), batchMax)
	given.Breaker = min(given.Breaker, breakerLimitMax)
	given.Wait = or(given.Wait, 20*time.Second)
	given.Grace = max(or(given.Grace, 30*time.Second), 0)
	if given.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "go"
		}
		given.Name = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), newID()[:6])
	}
	return &Worker{queue: queue, handler: wrap(handler, given.Middleware), options: given}
}

// Name returns the name of the worker.
func (w *Worker) Name() string { return w.options.Name }

// Stats returns what the worker has done so far.
func (w *Worker) Stats() WorkerStats {
	return WorkerStats{
		Acknowledged: w.acknowledged.Load(),
		Nacked:       w.nacked.Load(),
		Rejected:     w.rejected.Load(),
		Released:     w.released.Load(),
		Lost:         w.lost.Load(),
		Panics:       w.panics.Load(),
		Pauses:       w.pauses.Load(),
	}
}

// Run works until the context ends, or until the queue is closed and drained; both return nil. Calls with errors that may pass, and pops from a queue that
// does not exist yet, are repeated without limit. A final error, such as that of an unknown token, is returned.
//
// At the end no handler begins. Keys whose handlers have not begun are released. Running handlers may finish within [WorkerOptions].Grace, and their
// leases are extended in the meantime.
func (w *Worker) Run(ctx context.Context) error {
	return newRun(w).work(ctx)
}
