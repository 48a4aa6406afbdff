package deltaq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// source is a server that keeps the changes of one source, each number once.
type source struct {
	last    int64
	changes []string
	// fail says how the n-th call with changes ends: empty, before (no change, no reply), after (a change, no reply).
	fail []string
	hook func(call int)
	call int
}

func (s *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch {
	case strings.HasSuffix(r.URL.Path, "/sources"):
		fmt.Fprintf(w, `{"items":[{"source":"erp","keys":0,"sequence":%d}],"resource_version":1}`, s.last)
	case strings.HasSuffix(r.URL.Path, "/deltas"):
		call := s.call
		s.call++
		fail := ""
		if call < len(s.fail) {
			fail = s.fail[call]
		}
		isDuplicate := false
		if fail != "before" {
			var number int64
			fmt.Sscan(r.URL.Query().Get("sequence"), &number)
			if isDuplicate = number <= s.last; !isDuplicate {
				s.last, s.changes = number, append(s.changes, strings.TrimSpace(string(body)))
			}
		}
		if s.hook != nil {
			s.hook(call)
		}
		if fail != "" {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, `{"resource_version":1,"duplicate":%v,"incarnation":"i","life":"l","invalid_objects":[]}`, isDuplicate)
	default:
		io.WriteString(w, `{"name":"q","incarnation":"i","life":"l","status":{"resource_version":1}}`)
	}
}

func TestAChangeAfterACancelledOneIsNotTakenForIt(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// The first change is applied without a reply, and its caller gives up. The first attempt of the second one does not arrive.
	server := &source{fail: []string{"after", "before"}, hook: func(call int) {
		if call == 0 {
			cancel()
		}
	}}
	reflector := NewReflector(serve(t, quick(), server.ServeHTTP), "erp", nil)
	if _, err := reflector.Apply(ctx, DeltaCall{Type: Deleted, Key: "a"}); !errors.Is(err, context.Canceled) {
		t.Fatalf("the first change: %v", err)
	}
	if _, err := reflector.Apply(context.Background(), DeltaCall{Type: Deleted, Key: "b"}); err != nil {
		t.Fatal(err)
	}
	if len(server.changes) != 2 || !strings.Contains(server.changes[1], `"b"`) {
		t.Errorf("the queue has %q", server.changes)
	}
}
