package deltaq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

func rowsOf(t *testing.T, lines string) []*WatchRow {
	t.Helper()
	var rows []*WatchRow
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		row, err := rowOf("", []byte(line))
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

func describe(change change) string {
	switch {
	case change.old == nil:
		return fmt.Sprintf("add %s %s %v", change.new.Key, change.new.Object, change.isInInitialList)
	case change.new == nil:
		return fmt.Sprintf("delete %s %s %v", change.old.Key, change.old.Object, change.isFinalStateUnknown)
	}
	return fmt.Sprintf("update %s %s %s", change.new.Key, change.old.Object, change.new.Object)
}

func TestRowsChangeTheStoreAndAListReplacesIt(t *testing.T) {
	c := &cache{store: newStore(nil)}
	var events []string
	apply := func(lines string) {
		t.Helper()
		for _, row := range rowsOf(t, lines) {
			if err := c.apply(row, func(change change) { events = append(events, describe(change)) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(version int64, want ...string) {
		t.Helper()
		if !reflect.DeepEqual(events, want) || c.version != version {
			t.Errorf("the events at version %d are\n\t%s\ninstead of\n\t%s", c.version, strings.Join(events, "\n\t"), strings.Join(want, "\n\t"))
		}
		events = nil
	}
	if c.begin() != 0 {
		t.Error("the first watch begins with all objects")
	}
	apply(`
{"type":"Added","key":"b","resource_version":2,"object":{"n":1},"source":null}
{"type":"Added","key":"a","resource_version":1,"object":{"n":1},"source":null}
{"type":"Added","key":"x","resource_version":3,"object":{},"source":null}
{"type":"Deleted","key":"x","resource_version":4,"final_state_unknown":false,"object":{},"source":null}
{"type":"Bookmark","resource_version":4,"initial_events_end":false}`)
	check(0)
	if c.begin() != 0 || c.hasSynced || c.store.Len() != 0 {
		t.Error("a list that breaks off changes something")
	}
	apply(`
{"type":"Added","key":"b","resource_version":2,"object":{"n":1},"source":null}
{"type":"Added","key":"a","resource_version":1,"object":{"n":1},"source":null}
{"type":"Bookmark","resource_version":5,"initial_events_end":true}`)
	check(5, `add a {"n":1} true`, `add b {"n":1} true`)
	apply(`
{"type":"Updated","key":"a","resource_version":6,"object":{"n":2},"source":null}
{"type":"Added","key":"c","resource_version":7,"object":{"n":9007199254740993},"source":"erp"}
{"type":"Deleted","key":"b","resource_version":8,"final_state_unknown":false,"object":{"n":7},"source":null}
{"type":"Deleted","key":"never","resource_version":9,"final_state_unknown":false,"object":{},"source":null}
{"type":"Nonsense","resource_version":10}
{"type":"Deleted","key":"c","resource_version":11,"final_state_unknown":true,"object":null,"source":null}`)
	check(11, `update a {"n":1} {"n":2}`, `add c {"n":9007199254740993} false`, `delete b {"n":7} false`, `delete c {"n":9007199254740993} true`)
	if c.begin() != 11 {
		t.Error("the next watch goes on")
	}
	c.expire()
	c.begin()
	apply(`
{"type":"Added","key":"d","resource_version":12,"object":{},"source":null}
{"type":"Bookmark","resource_version":13,"initial_events_end":true}`)
	check(13, `delete a {"n":2} true`, `add d {} false`)
}

func TestIndexesFollowTheStore(t *testing.T) {
	failure := errors.New("no index")
	store := newStore(map[string]IndexFunc{
		"city": PointerIndex("/home/city"),
		"tags": PointerIndex("/a~1b"),
		"fail": func(object *Object) ([]string, error) {
			if object.Key == "bad" {
				return nil, failure
			}
			return nil, nil
		},
	})
	put := func(key, object string) {
		t.Helper()
		if _, err := store.put(&Object{Key: key, Object: json.RawMessage(object)}); err != nil {
			t.Fatal(err)
		}
	}
	keys := func(name, value string) string {
		var keys []string
		for _, object := range store.ByIndex(name, value) {
			keys = append(keys, object.Key)
		}
		return strings.Join(keys, " ")
	}
	put("b", `{"home":{"city":"Rome"},"a/b":["x","y",1,null]}`)
	put("a", `{"home":{"city":"Rome"},"a/b":"x"}`)
	put("c", `{"home":{"city":7}}`)
	put("d", `{"home":["Rome"]}`)
	if keys("city", "Rome") != "a b" || keys("tags", "x") != "a b" || keys("tags", "y") != "b" || keys("city", "7") != "" {
		t.Errorf("%q %q %q", keys("city", "Rome"), keys("tags", "x"), keys("tags", "y"))
	}
	put("b", `{"home":{"city":"Oslo"}}`)
	store.remove("a")
	if keys("city", "Rome") != "" || keys("city", "Oslo") != "b" || !reflect.DeepEqual(store.IndexValues("city"), []string{"Oslo"}) || len(store.IndexValues("tags")) != 0 {
		t.Errorf("%v %v", store.IndexValues("city"), store.IndexValues("tags"))
	}
	if _, err := store.put(&Object{Key: "bad"}); !errors.Is(err, failure) || store.Len() != 3 {
		t.Errorf("a failed index leaves %d objects: %v", store.Len(), err)
	}
}

func TestWhatAnInformerDoesAfterAWatch(t *testing.T) {
	c := &cache{store: newStore(nil), version: 7}
	w := newWatching(c, RetryOptions{First: time.Hour, Max: 2 * time.Hour}.withDefaults())
	w.version = 7
	for range 20 {
		c.version++
		w.received()
		if pause, isFinal := w.pauseAfter(nil); pause != 0 || isFinal {
			t.Errorf("after an ordinary end: %v", pause)
		}
	}
	pauses := time.Duration(0)
	for range 20 {
		w.received()
		pause, _ := w.pauseAfter(nil)
		pauses += pause
		if pause > w.options.First {
			t.Errorf("after a stream without a new version: %v", pause)
		}
	}
	if pauses == 0 {
		t.Error("streams that end without a new version are repeated in a busy loop")
	}
	w.attempts.failures = 0
	for range 20 {
		if _, isFinal := w.pauseAfter(nil); isFinal {
			t.Error("an empty stream ends the informer")
		}
	}
	if w.attempts.failures != 20 {
		t.Errorf("%d empty streams are %d failures: a busy loop", 20, w.attempts.failures)
	}
	for _, code := range []Code{CodeExpired, CodeQueueDeleted} {
		c.version = 7
		if _, isFinal := w.pauseAfter(problemOf(410, code, false)); isFinal || c.version != 0 {
			t.Errorf("after %s the version is %d", code, c.version)
		}
	}
	for _, err := range []error{problemOf(404, CodeQueueNotFound, false), problemOf(500, CodeInternal, false), &ConnectionError{Sent: true}} {
		if _, isFinal := w.pauseAfter(err); isFinal {
			t.Errorf("%v ends the informer", err)
		}
	}
	for _, err := range []error{problemOf(401, CodeUnauthorized, false), errors.New("of an index")} {
		if _, isFinal := w.pauseAfter(err); !isFinal {
			t.Errorf("%v does not end the informer", err)
		}
	}
}

// oneObject serves a watch with one object, and keeps it open.
func oneObject(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, `{"type":"Added","key":"a","resource_version":1,"object":{"n":1},"source":null}
{"type":"Bookmark","resource_version":2,"initial_events_end":true}
`)
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func TestHandlersMayBeAddedAtAnyTimeAndMayPanic(t *testing.T) {
	q := serve(t, nil, oneObject)
	informer := NewInformer(q, nil)
	ctx, cancel := context.WithCancel(context.Background())
	added := make(chan string, 10)
	second := make(chan *Registration, 1)
	first := informer.AddHandler(Handlers{OnAdd: func(object *Object, _ bool) {
		added <- "first " + object.Key
		// A handler may add handlers.
		second <- informer.AddHandler(Handlers{OnAdd: func(object *Object, isInInitialList bool) {
			added <- fmt.Sprintf("second %s %v", object.Key, isInInitialList)
		}})
		panic("boom")
	}})
	ended := make(chan error)
	go func() { ended <- informer.Run(ctx) }()
	if err := WaitForCacheSync(ctx, informer, first, <-second); err != nil {
		t.Fatal(err)
	}
	if one, two := <-added, <-added; one != "first a" || two != "second a true" || !informer.HasSynced() || !first.HasSynced() {
		t.Errorf("%s, %s", one, two)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := informer.Run(context.Background()); err == nil {
		t.Error("an informer runs twice")
	}
	if err := WaitForCacheSync(ctx, NewInformer(q, nil)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAnErrorOfAnIndexEndsTheInformer(t *testing.T) {
	failure := errors.New("no index")
	q := serve(t, nil, oneObject)
	informer := NewInformer(q, &InformerOptions{Indexes: map[string]IndexFunc{"x": func(*Object) ([]string, error) { return nil, failure }}})
	if err := informer.Run(context.Background()); !errors.Is(err, failure) {
		t.Error(err)
	}
}

func TestASilentWatchIsLost(t *testing.T) {
	watches := make(chan string, 10)
	q := serve(t, quick(), func(w http.ResponseWriter, r *http.Request) {
		watches <- r.URL.Query().Get("resource_version")
		oneObject(w, r)
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- NewInformer(q, &InformerOptions{Bookmark: 20 * time.Millisecond}).Run(ctx) }()
	// A watch that is lost before its list is complete begins with all objects.
	for version := "0"; version != "2"; version = <-watches {
		if version != "0" {
			t.Errorf("a watch begins at %s", version)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
