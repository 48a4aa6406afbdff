package deltaq

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

func TestRetryAfterIsBounded(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"000":                           0,
		" 7 ":                           7 * time.Second,
		"-7":                            0,
		"1.5":                           0,
		"soon":                          0,
		"86401":                         askedMax,
		"9223372036854775807":           askedMax,
		"99999999999999999999999999999": askedMax,
		"Sat, 28 Nov 2026 12:00:30 GMT": 30 * time.Second,
		"Sat, 28 Nov 2026 11:00:00 GMT": 0,
		"Sat, 28 Nov 2099 12:00:00 GMT": askedMax,
	} {
		if got := readRetryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("Retry-After %q is %v instead of %v", text, got, want)
		}
	}
	for number, want := range map[int64]time.Duration{-1: 0, 0: 0, 300: 300 * time.Millisecond, 1 << 62: askedMax} {
		if got := milliseconds(number); got != want {
			t.Errorf("%d ms are %v instead of %v", number, got, want)
		}
	}
}

func TestBackoffDoublesUpToItsLimit(t *testing.T) {
	for failures, limit := range map[int]time.Duration{1: 100, 2: 200, 5: 1600, 6: 3000, 31: 3000, 64: 3000, 1 << 40: 3000} {
		longest := time.Duration(0)
		for range 2000 {
			longest = max(longest, backoff(100, 3000, failures))
		}
		if longest > limit || longest < limit/2 {
			t.Errorf("after %d failures the longest of 2,000 pauses is %d, with a limit of %d", failures, longest, limit)
		}
	}
}

func problemOf(status int, code Code, isRetryable bool) *Problem {
	return &Problem{ProblemDocument: ProblemDocument{Status: status, Code: code, Retryable: isRetryable}}
}

func TestWhatIsRepeated(t *testing.T) {
	page := &ReplyError{Status: 502}
	notJSON, isJSON := &ReplyError{Status: 200, Err: errors.New("x")}, &ReplyError{Status: 200, Err: errors.New("x"), isJSON: true}
	for _, row := range []struct {
		name                    string
		err                     error
		isRepeated, once, never bool
	}{
		{"full", problemOf(429, CodeQueueFull, true), true, true, true},
		{"draining", problemOf(503, CodeDraining, true), true, true, true},
		{"unavailable journal", problemOf(503, CodeJournalUnavailable, true), true, false, true},
		{"a bug", problemOf(500, CodeInternal, false), false, false, true},
		{"no key", problemOf(422, CodeNoKey, false), false, false, false},
		{"not connected", &ConnectionError{}, true, true, true},
		{"no reply", &ConnectionError{Sent: true}, true, false, true},
		{"a page of a proxy", page, true, false, true},
		{"a page to sign in", notJSON, false, false, true},
		{"another JSON", isJSON, false, false, true},
		{"not found by a proxy", &ReplyError{Status: 404}, false, false, false},
		{"not JSON", &EncodeError{errors.New("NaN")}, false, false, false},
		{"the end of the context", ended(cancelled(), nil), false, false, false},
	} {
		policy := RetryOptions{}.withDefaults()
		_, isRepeated := newAttempts(policy, false).pauseAfter(row.err, false)
		_, once := newAttempts(policy, false).pauseAfter(row.err, true)
		_, never := newAttempts(policy, true).pauseAfter(row.err, false)
		if isRepeated != row.isRepeated || once != row.once || never != row.never {
			t.Errorf("%s: repeated %v, of a call that counts %v, in an endless loop %v", row.name, isRepeated, once, never)
		}
	}
	endless := newAttempts(RetryOptions{}.withDefaults(), true)
	for attempt := 1; ; attempt++ {
		if _, again := endless.pauseAfter(isJSON, false); !again {
			if attempt != unreadableMax {
				t.Errorf("an endless loop ends after %d replies that can't be read", attempt)
			}
			break
		}
	}
	_, again := newAttempts(RetryOptions{Attempts: 1}.withDefaults(), false).pauseAfter(&ConnectionError{}, false)
	late := newAttempts(RetryOptions{Total: time.Second}.withDefaults(), false)
	late.began = time.Now().Add(-time.Second)
	if _, isLate := late.pauseAfter(&ConnectionError{}, false); again || isLate {
		t.Error("the number of attempts or their time is not limited")
	}
	full := problemOf(429, CodeQueueFull, true)
	full.retryAfter = 7 * time.Second
	if pause, _ := newAttempts(RetryOptions{}.withDefaults(), false).pauseAfter(full, false); pause < 7*time.Second {
		t.Errorf("the pause is %v although the server asks for 7 s", pause)
	}
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestAPauseEndsWithItsContextAndKeepsBothCauses(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	mine := errors.New("mine")
	cancel(mine)
	err := sleep(ctx, time.Hour, problemOf(429, CodeQueueFull, true))
	var problem *Problem
	if !errors.Is(err, context.Canceled) || !errors.Is(err, mine) || !errors.As(err, &problem) || !errors.Is(err, CodeQueueFull) {
		t.Errorf("a cause is lost: %v", err)
	}
	if err := sleep(ctx, time.Hour, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{"1m30s": 90 * time.Second, "7d": 168 * time.Hour, "1.5d": 36 * time.Hour, "1d12h": 36 * time.Hour, "-1d1h": -25 * time.Hour, "2µs": 2000} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s is %v (%v)", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "7", "1dd", "1e30d", "NaNd", "7 days"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestAClientMayHaveOtherRetries(t *testing.T) {
	var attempts atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
		attempts.Add(1)
		writer.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	client, err := New(server.URL, &Options{Retry: RetryOptions{First: time.Nanosecond, Max: time.Nanosecond, Attempts: 3}})
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range []struct {
		client *Client
		want   int64
	}{{client.WithRetry(RetryOptions{Attempts: 1}), 1}, {client, 3}} {
		attempts.Store(0)
		if _, err := each.client.Info(context.Background()); err == nil || attempts.Load() != each.want {
			t.Errorf("%d attempts instead of %d: %v", attempts.Load(), each.want, err)
		}
	}
}

func TestAWatchSaysThatItHasBegun(t *testing.T) {
	isAccepted := false
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
		if !isAccepted {
			writer.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	client, err := New(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, isAccepted = range []bool{false, true} {
		isOpen := false
		for range client.Queue("q").Watch(context.Background(), &WatchOptions{Opened: func() { isOpen = true }}) {
		}
		if isOpen != isAccepted {
			t.Errorf("it has begun: %v", isOpen)
		}
	}
}
