package deltaq

import "time"

const (
	// breakerFirst and breakerMax are the pauses of a worker whose keys fail: they double with each key that fails after a pause.
	breakerFirst = time.Second
	breakerMax   = time.Minute
	// breakerLimitMax is the largest number of failures in a row: their keys are remembered.
	breakerLimitMax = 1000
)

// breaker pauses a worker when different keys fail in a row: the target of the handlers is probably down, and the keys are fine. After a pause, the
// worker tries one key. It has no clock, and belongs to one goroutine.
//
// A nack is a failure; ack, done and reject are successes; a release is neither. Failures of one key count once.
type breaker struct {
	// limit is how many failures in a row pause the worker. Zero means that nothing does.
	limit int
	// keys are those that have failed since the last success. While the worker is not paused, there are fewer than the limit.
	keys map[string]struct{}
	// pause is the present pause; zero while the worker is not paused.
	pause time.Duration
	// until is the end of the pause. Then one key is tried.
	until time.Time
	// probe is the lease of the key that is tried; empty while none is.
	probe string
	// failures counts failures since the last success.
	failures int
}

func newBreaker(limit int) *breaker {
	return &breaker{limit: limit, keys: map[string]struct{}{}, until: far}
}

// isPaused reports whether the worker may run at most one handler more: that of the key that is tried.
func (b *breaker) isPaused() bool { return b.pause > 0 }

// mayStart reports whether a handler may begin.
func (b *breaker) mayStart(now time.Time) bool {
	return !b.isPaused() || (b.probe == "" && !now.Before(b.until))
}

// next is when a key may be tried; far if the worker does not wait for that time.
func (b *breaker) next(now time.Time) time.Time {
	if b.isPaused() && now.Before(b.until) {
		return b.until
	}
	return far
}

// started notes that a handler has begun, which mayStart has allowed.
func (b *breaker) started(leaseID string) {
	if b.isPaused() {
		b.probe, b.until = leaseID, far
	}
}

// ended notes the outcome of a handler, and reports whether a pause begins or the worker goes on. A lost lease counts as a release.
func (b *breaker) ended(now time.Time, leaseID, key string, as SettleAs) (begins, goesOn bool) {
	if b.limit == 0 || (b.isPaused() && leaseID != b.probe) {
		// The handlers that began before the pause don't end it.
		return false, false
	}
	isProbe := b.isPaused()
	switch {
	case as == AsNack:
		b.failures++
		b.keys[key] = struct{}{}
		if !isProbe && len(b.keys) < b.limit {
			return false, false
		}
		b.pauseFor(now, min(max(2*b.pause, breakerFirst), breakerMax))
		return true, false
	case as == AsRelease && isProbe:
		b.pauseFor(now, b.pause)
		return false, false
	case as == AsRelease:
		return false, false
	}
	*b = *newBreaker(b.limit)
	return false, isProbe
}

func (b *breaker) pauseFor(now time.Time, pause time.Duration) {
	clear(b.keys)
	b.pause, b.until, b.probe = pause, now.Add(pause), ""
}
