package deltaq

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestTheLastPopReturnsTheKeysOfThePopThatIsCancelled has a server that never ends a pop by itself: the pop has leased a key, and its reply is lost.
func TestTheLastPopReturnsTheKeysOfThePopThatIsCancelled(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	var mutex sync.Mutex
	var pops []url.Values
	var settled []Settle
	q := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/v1/queues/q/pop" {
			var entries struct {
				Settle []Settle `json:"settle"`
			}
			if err := json.Unmarshal(body, &entries); err != nil {
				t.Error(err)
			}
			settled = append(settled, entries.Settle...)
			fmt.Fprintf(w, `{"settled":[{"lease_id":"l-1","as":"release","result":"ok","outcome":null}],"stale":0}`)
			return
		}
		mutex.Lock()
		pops = append(pops, r.URL.Query())
		isFirst := len(pops) == 1
		mutex.Unlock()
		if isFirst {
			stop()
			<-r.Context().Done()
			return
		}
		io.WriteString(w, `{"items":[{"key":"a","lease":{"id":"l-1","token":1,"worker":"w","expires_at":"2026-11-28T00:00:00.000Z","expires_in_ms":30000},
			"attempt":1,"failures":0,"is_in_initial_list":false,"deltas":[]}],"settled":[],"closed":false,"paused":false}`)
	})
	worker := NewWorker(q, func(context.Context, *Job) error {
		t.Error("a handler begins after the stop")
		return nil
	}, nil)
	if err := worker.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if len(pops) != 2 || pops[0].Get("id") != pops[1].Get("id") || pops[0].Get("wait") != "20s" || pops[1].Has("wait") {
		t.Errorf("the pops are %v", pops)
	}
	if len(settled) != 1 || settled[0].As != AsRelease || settled[0].LeaseID != "l-1" || worker.Stats() != (WorkerStats{Released: 1}) {
		t.Errorf("settled is %+v, %+v", settled, worker.Stats())
	}
}

// brokenError panics when it is asked for its text, as the nil pointer of many types of errors does.
type brokenError struct{ text *string }

func (err *brokenError) Error() string { return *err.text }

func TestAnErrorThatCannotBeReadFailsItsKeyAndNotTheWorker(t *testing.T) {
	for name, returned := range map[string]error{"a nil error": (*brokenError)(nil), "a nil nack": (*Nack)(nil), "a nil reject": (*Reject)(nil), "a nil done": (*Done)(nil)} {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		var settled atomic.Value
		var pops atomic.Int64
		q := serve(t, quick(), func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), `"lease_id"`) {
				settled.Store(string(body))
				cancel()
			}
			switch {
			case !strings.HasSuffix(r.URL.Path, "/pop"):
				io.WriteString(w, `{"settled":[],"stale":0}`)
			case pops.Add(1) == 1:
				io.WriteString(w, `{"items":[{"key":"a","lease":{"id":"l1","token":1,"expires_in_ms":60000},"deltas":[]}],"settled":[]}`)
			default:
				select {
				case <-r.Context().Done():
				case <-ctx.Done():
				}
				io.WriteString(w, `{"items":[],"settled":[]}`)
			}
		})
		if err := NewWorker(q, func(context.Context, *Job) error { return returned }, nil).Run(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if text, _ := settled.Load().(string); !strings.Contains(text, `"as":"nack"`) || !strings.Contains(text, "panic") {
			t.Errorf("%s is settled as %q", name, text)
		}
		cancel()
	}
}
