package deltaq

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// slow is a list of more than 4 MiB, and counts how often it is read at once.
func slow(readers, most *atomic.Int64) iter.Seq2[any, error] {
	text := strings.Repeat("x", 100<<10)
	return func(yield func(any, error) bool) {
		if now := readers.Add(1); now > most.Load() {
			most.Store(now)
		}
		defer readers.Add(-1)
		for number := range 60 {
			if number == 50 {
				time.Sleep(200 * time.Millisecond)
			}
			if !yield(map[string]any{"key": number, "text": text}, nil) {
				return
			}
		}
	}
}

const replacedText = `{"resource_version":1,"duplicate":false,"incarnation":"i","life":"l","invalid_objects":[]}`

func TestALongListIsReadByOneAttemptAtATime(t *testing.T) {
	var readers, most, calls atomic.Int64
	var complete atomic.Bool
	options := quick()
	var tokens atomic.Int64
	options.TokenSource = func(context.Context) (string, error) { return fmt.Sprint(tokens.Add(1)), nil }
	q := serve(t, options, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			refuse(w, 401, CodeUnauthorized, "")
			return
		}
		count := 0
		lines := bufio.NewReaderSize(r.Body, 1<<20)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			complete.Store(string(line) == "{\"$end\":60}\n" && count == 60)
			count++
		}
		io.WriteString(w, replacedText)
	})
	_, err := q.Replace(context.Background(), slow(&readers, &most), nil)
	if err != nil || calls.Load() != 2 || most.Load() != 1 || !complete.Load() {
		t.Errorf("%d calls, %d readers at once, complete: %v (%v)", calls.Load(), most.Load(), complete.Load(), err)
	}
}

func TestAnEarlyReplyWaitsForTheReaderOfTheList(t *testing.T) {
	var readers, most atomic.Int64
	q := serve(t, quick(), func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, replacedText) })
	if _, err := q.Replace(context.Background(), slow(&readers, &most), nil); err != nil || readers.Load() != 0 {
		t.Errorf("after the call, the list has %d readers (%v)", readers.Load(), err)
	}
}

func TestAnAbsentListIsAnError(t *testing.T) {
	var calls atomic.Int64
	q := serve(t, quick(), func(w http.ResponseWriter, _ *http.Request) { calls.Add(1); io.WriteString(w, replacedText) })
	_, err := q.Replace(context.Background(), nil, nil)
	_, reflected := NewReflector(q, "erp", nil).Replace(context.Background(), nil)
	if err == nil || reflected == nil || calls.Load() != 0 {
		t.Errorf("a list that is nil: %v, %v, with %d calls", err, reflected, calls.Load())
	}
}
