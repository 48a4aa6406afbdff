package deltaq

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryOptions says how often, and for how long, a failed call is repeated. The pause before the n-th repetition is a random part of
// First * 2^(n-1), or of Max if that is less (full jitter), in addition to the time for which the server asks.
type RetryOptions struct {
	// First is the longest pause before the first repetition. Zero means 250 ms.
	First time.Duration
	// Max is the longest pause before any repetition. Zero means 10 s.
	Max time.Duration
	// Attempts is the number of attempts, including the first. Zero means that only Total limits them.
	Attempts int
	// Total is the time after the first attempt within which another one may begin. Zero means 2 minutes. The end of the context ends a call in any case.
	Total time.Duration
}

const (
	// askedMax is the longest pause that the client grants to a server.
	askedMax = 24 * time.Hour
	// movingMax is the longest random pause while a queue moves to another node, which takes seconds and is no overload.
	movingMax = time.Second
	// unreadableMax is the number of replies in a row that are JSON and can't be read, after which an endless loop ends.
	unreadableMax = 8
)

// check refuses negative numbers.
func (options RetryOptions) check() error {
	return notNegative("RetryOptions", named{"First", options.First}, named{"Max", options.Max}, named{"Total", options.Total},
		named{"Attempts", time.Duration(options.Attempts)})
}

// limit says for how long calls are repeated.
func (options RetryOptions) limit() string {
	text := " for up to " + options.Total.String()
	if options.Attempts > 0 {
		text += fmt.Sprintf(" and %d attempts", options.Attempts)
	}
	return text
}

func (options RetryOptions) withDefaults() RetryOptions {
	options.First = or(options.First, 250*time.Millisecond)
	options.Max = max(or(options.Max, 10*time.Second), options.First)
	options.Total = or(options.Total, 2*time.Minute)
	return options
}

// or returns the first value that is not zero.
func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// attempts counts the attempts of one call. An endless loop has no limits, and goes on after defects of the server or of a proxy. The exception is JSON
// that can't be read, which may be the same each time.
type attempts struct {
	options    RetryOptions
	isEndless  bool
	began      time.Time
	failures   int
	unreadable int
	// last is the error of the last attempt.
	last error
	// isUnknown is true once an attempt may have been applied.
	isUnknown bool
}

func newAttempts(options RetryOptions, isEndless bool) *attempts {
	return &attempts{options: options, isEndless: isEndless, began: time.Now()}
}

// pauseAfter returns the pause before the next attempt, and false if there is none.
func (a *attempts) pauseAfter(err error, isOnce bool) (time.Duration, bool) {
	a.failures++
	var reply *ReplyError
	if errors.As(err, &reply) && reply.isJSON {
		a.unreadable++
	} else {
		a.unreadable = 0
	}
	if a.isEndless {
		if !isTemporary(err) || a.unreadable >= or(a.options.Attempts, unreadableMax) {
			return 0, false
		}
	} else if !IsRetryable(err) || isCertificate(err) || (isOnce && isOutcomeUnknown(err)) || (a.options.Attempts > 0 && a.failures >= a.options.Attempts) {
		return 0, false
	}
	limit := a.options.Max
	if errors.Is(err, CodeNotOwner) {
		limit = min(limit, movingMax)
	}
	pause := backoff(a.options.First, limit, a.failures) + min(retryAfter(err), askedMax)
	if !a.isEndless && time.Since(a.began)+pause > a.options.Total {
		return 0, false
	}
	return pause, true
}

// backoff returns a random part of first * 2^(failures-1), or of limit if that is less.
func backoff(first, limit time.Duration, failures int) time.Duration {
	longest := limit
	// A longer shift would overflow.
	if shift := failures - 1; shift < 32 && first <= limit>>shift {
		longest = first << shift
	}
	return time.Duration(rand.Int64N(int64(longest) + 1))
}

// sleep waits. If the context ends first, the error has the cause of the context and the failure before the wait, if there was one.
func sleep(ctx context.Context, pause time.Duration, failure error) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ended(ctx, failure)
	}
}

// ended is the error of a call whose context has ended. errors.Is and errors.As find both causes.
func ended(ctx context.Context, failure error) error {
	cause := context.Cause(ctx)
	if err := ctx.Err(); !errors.Is(cause, err) {
		cause = fmt.Errorf("%w: %w", err, cause)
	}
	return after(fmt.Errorf("deltaq: %w", cause), failure)
}

// after adds to an error the failure before it, if there was one.
func after(err, failure error) error {
	if failure == nil {
		return err
	}
	return fmt.Errorf("%w; before that: %w", err, failure)
}

// readRetryAfter reads the header Retry-After: seconds, or a date.
func readRetryAfter(header http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(header.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if text = strings.TrimLeft(text, "0"); strings.Trim(text, "0123456789") == "" {
		if text == "" {
			return 0
		}
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds > int64(askedMax/time.Second) {
			return askedMax
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(strings.TrimSpace(header.Get("Retry-After")))
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), askedMax)
}

// milliseconds converts a number of milliseconds without an overflow.
func milliseconds(number int64) time.Duration {
	return time.Duration(min(max(number, 0), int64(askedMax/time.Millisecond))) * time.Millisecond
}
