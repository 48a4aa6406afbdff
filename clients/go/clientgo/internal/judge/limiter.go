package judge

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"

	deltaq "example.com/deltaq/clients/go"
)

// Limiter is the rate limiter of a queue. Its waits are those of rate-limited adds.
type Limiter struct {
	settings deltaq.RateLimiter
	queue    *deltaq.Queue
}

var _ workqueue.TypedRateLimiter[any] = (*Limiter)(nil)

func newLimiter(settings deltaq.RateLimiter) *Limiter {
	settings.Jitter = deltaq.Ptr(0.0)
	queue := newQueue()
	_, err := queue.PutSettings(running, deltaq.QueueSettings{Mode: deltaq.ModeKeys, RateLimiter: &settings}, nil)
	check(err)
	return &Limiter{settings, queue}
}

// NewItemExponentialFailureRateLimiter returns a limiter whose waits double.
func NewItemExponentialFailureRateLimiter(base, longest time.Duration) *Limiter {
	return newLimiter(deltaq.RateLimiter{
		ItemExponential: &deltaq.ItemExponential{Base: deltaq.Duration(base), Max: deltaq.Duration(longest)},
		MaxWait:         deltaq.Duration(longest),
	})
}

// NewItemFastSlowRateLimiter returns a limiter with short waits at first.
func NewItemFastSlowRateLimiter(fast, slow time.Duration, maxFast int) *Limiter {
	return newLimiter(deltaq.RateLimiter{
		ItemFastSlow: &deltaq.ItemFastSlow{Fast: deltaq.Duration(fast), Slow: deltaq.Duration(slow), MaxFast: int64(maxFast)},
		MaxWait:      deltaq.Duration(slow),
	})
}

// NewMaxOfRateLimiter returns a limiter with the longest waits of others.
func NewMaxOfRateLimiter(limiters ...*Limiter) *Limiter {
	var settings deltaq.RateLimiter
	for _, limiter := range limiters {
		if limiter.settings.ItemExponential != nil {
			settings.ItemExponential = limiter.settings.ItemExponential
		}
		if limiter.settings.ItemFastSlow != nil {
			settings.ItemFastSlow = limiter.settings.ItemFastSlow
		}
		settings.MaxWait = max(settings.MaxWait, limiter.settings.MaxWait)
	}
	return newLimiter(settings)
}

// When adds an item after its wait, and returns the wait.
func (l *Limiter) When(item any) time.Duration {
	key := fmt.Sprint(item)
	_, err := l.queue.AddKey(running, key, &deltaq.ProduceOptions{RateLimited: true})
	check(err)
	for event, err := range l.queue.History(running, key, &deltaq.ListOptions{Limit: 10}) {
		check(err)
		// The event before it may be the end of a wait.
		if event.Event == "queued" {
			return event.DueAt.Sub(event.At)
		}
	}
	check(fmt.Errorf("the history lacks the add of %s", key))
	return 0
}

// Forget forgets the failures of an item.
func (l *Limiter) Forget(item any) {
	_, err := l.queue.Forget(running, fmt.Sprint(item))
	check(err)
}

// NumRequeues returns the failures of an item.
func (l *Limiter) NumRequeues(item any) int {
	found, err := l.queue.Item(running, fmt.Sprint(item), nil)
	if errors.Is(err, deltaq.CodeKeyNotFound) {
		return 0
	}
	check(err)
	return int(found.Failures)
}
