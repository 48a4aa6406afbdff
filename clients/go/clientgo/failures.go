package clientgo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	deltaq "example.com/deltaq/clients/go"
)

const (
	// pauseFirst and pauseMax are the longest pauses before the first and before any repeat of a call.
	pauseFirst = 250 * time.Millisecond
	pauseMax   = 15 * time.Second
	// askedMax is the longest pause that a queue grants to a server.
	askedMax = time.Minute
)

// errWrongMode is the error of a queue of another mode.
var errWrongMode = errors.New("a workqueue needs one of mode keys")

// pause notes and logs a failure, and waits before the repeat, which is not sent if pause returns false.
func (q *Queue) pause(ctx context.Context, kind string, failures int, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	if errors.Is(err, deltaq.CodeQueueNotFound) || errors.Is(err, deltaq.CodeWrongMode) {
		q.mutex.Lock()
		q.isPrepared = false
		q.mutex.Unlock()
	}
	limit := pauseMax
	if errors.Is(err, deltaq.CodeQueueFull) {
		// There is room after the next Done.
		limit = time.Second
	}
	pause := backoff(pauseFirst, limit, failures) + retryAfter(err)
	q.failed(kind, err, pause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (q *Queue) failed(kind string, err error, pause time.Duration) {
	q.note(kind, err)
	q.log.Warn("deltaq: a call of a workqueue is repeated", "call", kind, "error", err, "pause", pause)
}

// note remembers why calls of a kind fail; nil if they do not.
func (q *Queue) note(kind string, err error) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.failures[kind] = err
}

func retryAfter(err error) time.Duration {
	var problem *deltaq.Problem
	if errors.As(err, &problem) {
		return min(problem.RetryAfter(), askedMax)
	}
	return 0
}

// prepare creates the queue, unless it exists, and checks its mode. It does so before the first call, and again after the queue was deleted.
func (q *Queue) prepare() error {
	q.mutex.Lock()
	isPrepared, isShuttingDown := q.isPrepared, q.isShuttingDown
	q.mutex.Unlock()
	if isPrepared {
		return nil
	}
	document, err := q.queue.Get(q.ctx)
	var problem *deltaq.Problem
	switch {
	case errors.Is(err, deltaq.CodeQueueNotFound):
		err := q.create()
		if errors.Is(err, deltaq.CodePreconditionFailed) {
			// Another process has just created it.
			return q.prepare()
		}
		if err != nil {
			return err
		}
	case errors.As(err, &problem) && problem.Status == http.StatusForbidden:
		// The token may not read the queue. Every call refuses a queue that does not exist or has another mode.
	case err != nil:
		return err
	case document.Settings.Mode != deltaq.ModeKeys:
		return fmt.Errorf("deltaq: the queue %s has the mode %s: %w", q.queue.Name(), document.Settings.Mode, errWrongMode)
	case document.Status.Closed && q.options.Exclusive && !isShuttingDown:
		if _, err := q.queue.Reopen(q.ctx); err != nil {
			return err
		}
	}
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.isPrepared = true
	return nil
}

func (q *Queue) create() error {
	settings := deltaq.QueueSettings{MaxFailures: deltaq.Ptr(int64(0))}
	if q.options.Settings != nil {
		settings = *q.options.Settings
	}
	settings.Mode = deltaq.ModeKeys
	_, err := q.queue.PutSettings(q.ctx, settings, &deltaq.PutOptions{IfAbsent: true})
	return err
}
