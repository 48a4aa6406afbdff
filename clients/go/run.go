package deltaq

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

const (
	// lastCalls is how long the last calls of a worker that stops may take.
	lastCalls = 5 * time.Second
	// absentFirst and absentMax are the pauses of a worker whose queue does not exist: they double.
	absentFirst = time.Second
	absentMax   = 15 * time.Second
	// extendFirst and extendMax are the longest pauses before an extension is repeated.
	extendFirst = 50 * time.Millisecond
	extendMax   = time.Second
)

// run is a running worker. One goroutine owns its fields; handlers and calls run in others, and report to it by channels.
type run struct {
	worker *Worker
	leases *leases
	// waiting are keys whose handlers have not begun.
	waiting []*held
	// running is the number of handlers that run, with those whose leases are lost.
	running int
	// settles are outcomes that no call has yet.
	settles []Settle

	pop *popping
	// settling are the outcomes of the running settle; nil if none runs.
	settling []Settle

	ended    chan handled
	popped   chan popResult
	settled  chan settleResult
	extended chan extendResult

	extendFailures int
	breaker        *breaker
	// calls is the context of all calls except the waiting pop. Its end is that of the worker.
	calls  context.Context
	cancel context.CancelFunc

	isStopping bool
	err        error
	// end is when a worker that stops no longer waits: first for handlers, then for its last calls.
	end         *time.Timer
	isLastWait  bool
	isAbandoned bool
}

// handled is a handler that has ended, with its outcome.
type handled struct {
	held   *held
	settle Settle
	// isFailure is true for an error that the handler has not chosen, and isPanic if it is a panic, which is logged with its stack.
	isFailure, isPanic bool
	// isStopping and isCanceled say whether the error of the handler is ErrStopping or context.Canceled.
	isStopping, isCanceled bool
}

// outcome reads the error of a handler. That runs code of the application, which may panic, so the goroutine of the handler does it.
func outcome(held *held, err error) handled {
	var nack *Nack
	settle := held.job.settle(err)
	return handled{held: held, settle: settle, isFailure: settle.As == AsNack && !errors.As(err, &nack),
		isStopping: errors.Is(err, ErrStopping), isCanceled: errors.Is(err, context.Canceled)}
}

// popping is a running pop. Its repeats have the same id, and so the same leases.
type popping struct {
	options PopOptions
	cancel  context.CancelFunc
	// isCancelled is true if the worker has stopped: the pop is repeated once, so that the keys that it has leased are released.
	isCancelled bool
}

type popResult struct {
	popped     *Popped
	settles    []Settle
	receivedAt time.Time
	err        error
	// isUnknown is true if the pop has failed, and may have leased keys.
	isUnknown bool
	// dropped are outcomes whose leases have ended because the queue was deleted.
	dropped []Settle
}

type settleResult struct {
	list *SettledList
	err  error
}

type extendResult struct {
	list   *SettledList
	sentAt time.Time
	err    error
}

func newRun(worker *Worker) *run {
	handlers := worker.options.Concurrency
	return &run{
		worker: worker, leases: newLeases(), breaker: newBreaker(worker.options.Breaker),
		ended: make(chan handled, handlers), popped: make(chan popResult, 1), settled: make(chan settleResult, 1), extended: make(chan extendResult, 1),
	}
}

func (r *run) work(ctx context.Context) error {
	// Values of the context, such as a trace, reach the calls and the handlers; its end stops them gently.
	r.calls, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer r.cancel()
	attention := time.NewTimer(time.Hour)
	defer attention.Stop()
	r.end = time.NewTimer(time.Hour)
	r.end.Stop()
	stop := ctx.Done()
	for {
		r.startHandlers()
		r.startCalls()
		if r.isDone() {
			return r.err
		}
		if r.isStopping && r.running == 0 && !r.isLastWait {
			r.isLastWait = true
			r.end.Reset(lastCalls)
		}
		attention.Reset(min(time.Until(earlier(r.leases.next, r.breaker.next(time.Now()))), time.Hour))
		select {
		case <-stop:
			stop = nil
			r.stop(nil)
		case <-attention.C:
			r.attend()
		case ended := <-r.ended:
			r.handled(ended)
			r.handledMore()
		case popped := <-r.popped:
			r.pops(popped)
		case settled := <-r.settled:
			r.settlesEnded(settled)
		case extended := <-r.extended:
			r.extends(extended)
		case <-r.end.C:
			r.endOfWait()
		}
	}
}

// isDone reports whether a worker that stops waits for nothing any more.
func (r *run) isDone() bool {
	isIdle := r.running == 0 && r.pop == nil && r.settling == nil && len(r.settles) == 0
	return r.isStopping && (isIdle || r.isAbandoned)
}

func (r *run) startHandlers() {
	for r.running < r.worker.options.Concurrency && len(r.waiting) > 0 && r.breaker.mayStart(time.Now()) {
		next := r.waiting[0]
		r.waiting[0] = nil
		r.waiting = r.waiting[1:]
		if r.leases.held[next.job.Lease.ID] != next {
			continue
		}
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.calls))
		next.cancel = cancel
		r.running++
		r.breaker.started(next.job.Lease.ID)
		go func() {
			// Also runs if the handler ends its goroutine.
			ended := outcome(next, errors.New("the handler has called runtime.Goexit"))
			defer func() { r.ended <- ended }()
			ended = r.worker.handle(ctx, next)
		}()
	}
}

// handle runs the handler. A panic is an error with its message, also if it comes from the error that the handler has returned, such as a nil pointer.
func (w *Worker) handle(ctx context.Context, held *held) (ended handled) {
	job := held.job
	defer func() {
		if reason := recover(); reason != nil {
			w.panics.Add(1)
			w.queue.client.log.Error("deltaq: a handler panicked", "queue", w.queue.name, "key", job.Key, "attempt", job.Attempt, "panic", reason,
				"stack", string(debug.Stack()))
			ended = outcome(held, fmt.Errorf("panic: %v", reason))
			ended.isPanic = true
		}
	}()
	return outcome(held, w.handler(ctx, job))
}

// startCalls pops if a handler is free for its keys. Outcomes are sent with the pop, or else alone.
func (r *run) startCalls() {
	isFree := r.running < r.worker.options.Concurrency && r.breaker.mayStart(time.Now())
	if !r.isStopping && r.pop == nil && len(r.waiting) == 0 && isFree {
		r.startPop()
	}
	if r.settling == nil && len(r.settles) > 0 {
		r.settling = r.nextSettles()
		go func(settles []Settle) {
			list, err := r.worker.settle(r.calls, settles)
			r.settled <- settleResult{list, err}
		}(r.settling)
	}
}

func (r *run) nextSettles() []Settle {
	count := min(len(r.settles), batchMax)
	next := r.settles[:count:count]
	r.settles = r.settles[count:]
	return next
}

func (r *run) startPop() {
	options := r.worker.options
	if r.breaker.isPaused() {
		options.Batch = 1
	}
	ctx, cancel := context.WithCancel(r.calls)
	r.pop = &popping{cancel: cancel, options: PopOptions{
		Wait: options.Wait, Max: options.Batch, LeaseDuration: options.LeaseDuration, Worker: options.Name, ID: newID(),
		Group: options.Group, WithKnown: options.WithKnown, WithDiff: options.WithDiff, Settle: r.nextSettles(),
	}}
	r.sendPop(ctx)
}

func (r *run) sendPop(ctx context.Context) {
	options := r.pop.options
	go func() { r.popped <- r.worker.pop(ctx, options) }()
}

// handledMore takes the ends of other handlers, so that their outcomes go into the same call.
func (r *run) handledMore() {
	for {
		select {
		case ended := <-r.ended:
			r.handled(ended)
		default:
			return
		}
	}
}

func (r *run) handled(ended handled) {
	r.running--
	held, id := ended.held, ended.held.job.Lease.ID
	wasAbandoned := ended.isStopping || (r.isLastWait && ended.isCanceled)
	held.cancel(nil)
	if ended.isFailure && !ended.isPanic && !wasAbandoned {
		r.worker.queue.client.log.Warn("deltaq: a handler has failed", "queue", r.worker.queue.name, "key", held.job.Key, "attempt", held.job.Attempt,
			"error", ended.settle.Error)
	}
	if r.leases.held[id] != held {
		r.attendBreaker(held, Settle{As: AsRelease})
		return
	}
	held.isEnded = true
	if wasAbandoned {
		// The worker has ended the handler, so the key has not failed.
		ended.settle = held.job.settle(&Release{})
	}
	r.settles = append(r.settles, ended.settle)
	r.attendBreaker(held, ended.settle)
}

// attendBreaker notes how a handler has ended. If the worker pauses, it returns the keys whose handlers have not begun.
func (r *run) attendBreaker(held *held, settle Settle) {
	begins, goesOn := r.breaker.ended(time.Now(), held.job.Lease.ID, held.job.Key, settle.As)
	log, queue := r.worker.queue.client.log, r.worker.queue.name
	switch {
	case begins:
		r.worker.pauses.Add(1)
		r.releaseWaiting(0)
		log.Warn("deltaq: the worker pauses, because keys in a row have failed", "queue", queue, "worker", r.worker.options.Name,
			"failures", r.breaker.failures, "pause", r.breaker.pause, "error", settle.Error)
	case goesOn:
		log.Warn("deltaq: the worker goes on, because a key has succeeded", "queue", queue, "worker", r.worker.options.Name)
	}
}

// forget removes the leases that a call has settled, and counts the results.
func (r *run) forget(settles []Settle, results []Settled) {
	for index := range results {
		r.worker.count(&results[index])
		r.warnParked(&results[index])
	}
	for _, entry := range settles {
		r.leases.remove(entry.LeaseID)
	}
}

// warnParked logs a key that a settle has parked.
func (r *run) warnParked(settled *Settled) {
	held := r.leases.held[settled.LeaseID]
	if held == nil || settled.Parked == nil || !*settled.Parked {
		return
	}
	r.worker.queue.client.log.Warn("deltaq: a key is parked: it is not delivered until it changes or is redriven", "queue", r.worker.queue.name,
		"key", held.job.Key, "attempt", held.job.Attempt, "as", settled.As)
}

func (r *run) pops(result popResult) {
	pop := r.pop
	pop.cancel()
	r.forget(result.dropped, nil)
	wasCancelled := r.isStopping && !pop.isCancelled && result.err != nil && errors.Is(result.err, context.Canceled)
	if wasCancelled && result.isUnknown {
		// The worker has cancelled this pop. Its repeat returns the keys that it has leased, without waiting for others.
		pop.isCancelled, pop.options.Wait, pop.options.Settle = true, 0, result.settles
		ctx, cancel := context.WithTimeout(r.calls, lastCalls)
		pop.cancel = cancel
		r.sendPop(ctx)
		return
	}
	r.pop = nil
	if wasCancelled {
		// No server has received this pop, so it has leased nothing, and settled nothing.
		r.settles = append(result.settles, r.settles...)
		return
	}
	if result.err != nil {
		r.popFailed(result)
		return
	}
	r.forget(result.settles, result.popped.Settled)
	for index := range result.popped.Items {
		job := &Job{PoppedItem: result.popped.Items[index], queue: r.worker.queue.name}
		r.waiting = append(r.waiting, r.leases.take(job, result.receivedAt))
	}
	switch {
	case r.isStopping:
		r.releaseWaiting(0)
	case !r.breaker.isPaused():
	case r.breaker.mayStart(time.Now()):
		r.releaseWaiting(1)
	default:
		// The pop has begun before the pause.
		r.releaseWaiting(0)
	}
}

func (r *run) popFailed(result popResult) {
	var problem *Problem
	if errors.As(result.err, &problem) && problem.Settled != nil {
		r.forget(result.settles, problem.Settled)
	} else {
		// Whether they took effect is unknown; a repeat has the same effect.
		r.settles = append(result.settles, r.settles...)
	}
	switch {
	case errors.Is(result.err, CodeQueueClosed):
		r.stop(nil)
	case r.pop == nil && r.isStopping:
		r.worker.queue.client.log.Warn("deltaq: the last pop of a worker has failed; keys that it has leased are delivered again when their leases expire",
			"queue", r.worker.queue.name, "error", result.err)
	default:
		r.stop(result.err)
	}
}

func (r *run) settlesEnded(result settleResult) {
	settles := r.settling
	r.settling = nil
	if result.err != nil {
		// Their leases expire.
		r.forget(settles, nil)
		r.stop(result.err)
		return
	}
	r.forget(settles, result.list.Settled)
}

// attend extends the leases that are due, and ends the handlers of those that are lost.
func (r *run) attend() {
	lost, extend, patience := r.leases.attend(time.Now())
	r.lose(lost, "no extension has succeeded in time")
	if len(extend) > 0 {
		go func() { r.extended <- r.worker.extend(r.calls, extend, patience) }()
	}
}

func (r *run) lose(lost []*held, reason string) {
	for _, held := range lost {
		r.worker.lost.Add(1)
		r.worker.queue.client.log.Warn("deltaq: a lease is lost", "queue", r.worker.queue.name, "key", held.job.Key, "lease", held.job.Lease.ID, "reason", reason)
		if held.cancel != nil {
			held.cancel(ErrLeaseLost)
		}
	}
}

func (r *run) extends(result extendResult) {
	if result.err == nil {
		r.extendFailures = 0
		r.worker.queue.client.rows.answered(extensionOf(r.worker.queue))
		r.lose(r.leases.extended(result.list, result.sentAt), "the server has ended it")
		return
	}
	r.extendFailures++
	pause := backoff(extendFirst, extendMax, r.extendFailures) + min(retryAfter(result.err), askedMax)
	r.leases.notExtended(time.Now().Add(pause))
	if r.calls.Err() != nil {
		return
	}
	r.worker.queue.client.rows.failed(extensionOf(r.worker.queue), "", result.err)
	// If the queue was deleted, its leases are lost.
	if !isTemporary(result.err) && !errors.Is(result.err, CodeQueueNotFound) {
		r.stop(result.err)
	}
}

// extensionOf is the call of the extensions of a queue, for the log.
func extensionOf(queue *Queue) *call { return &call{path: "/v1/queues/-/extend", queue: queue.name} }

// stop begins the end: no handler begins, and waiting keys are released, with those of a pop whose reply has not arrived.
func (r *run) stop(err error) {
	if r.err == nil {
		r.err = err
	}
	if r.isStopping {
		return
	}
	r.isStopping = true
	r.end.Reset(r.worker.options.Grace)
	r.releaseWaiting(0)
	if r.pop != nil {
		r.pop.cancel()
	}
}

// releaseWaiting returns the keys whose handlers have not begun, except some.
func (r *run) releaseWaiting(kept int) {
	kept = min(kept, len(r.waiting))
	for _, held := range r.waiting[kept:] {
		if id := held.job.Lease.ID; r.leases.held[id] == held {
			held.isEnded = true
			r.settles = append(r.settles, held.job.settle(&Release{}))
		}
	}
	r.waiting = slices.Clone(r.waiting[:kept])
}

// endOfWait ends the contexts of the handlers that still run. A handler that does not return then is not waited for: its lease expires.
func (r *run) endOfWait() {
	if r.isLastWait {
		r.isAbandoned = true
		r.worker.queue.client.log.Warn("deltaq: the worker has stopped without a reply to its last calls, or without the end of a handler; the leases end by themselves",
			"queue", r.worker.queue.name, "worker", r.worker.options.Name, "handlers", r.running)
		return
	}
	r.isLastWait = true
	r.end.Reset(lastCalls)
	for _, held := range r.leases.held {
		if held.cancel != nil {
			held.cancel(ErrStopping)
		}
	}
}
