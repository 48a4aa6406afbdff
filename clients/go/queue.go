package deltaq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Queue has the calls on one queue. Any number of goroutines may use it at once.
//
// A call is repeated if its problem is retryable or if there was no reply. If only the reply was lost, a repeated Add, Update or Delete may queue its
// changes twice; Source and Sequence prevent that. Purge, DeleteQueue, Promote, Redrive, Discard, Resync, Seed, a rate-limited add, a change with a
// condition and Deltas with an ExpectedVersion are repeated only if they were certainly not applied.
type Queue struct {
	client *Client
	name   string
}

// Name returns the name of the queue.
func (q *Queue) Name() string { return q.name }

// Client returns the client of the queue.
func (q *Queue) Client() *Client { return q.client }

// call returns a call on the queue; the path is what follows the name of the queue.
func (q *Queue) call(method, path string) (*call, error) {
	if q.name == "" {
		return nil, errors.New(`deltaq: not sent: the name of the queue is empty; it is the argument of Client.Queue, such as Queue("orders")`)
	}
	name, err := segment(q.name)
	if err != nil {
		return nil, err
	}
	return &call{method: method, path: "/v1/queues/" + name + path, query: url.Values{}, queue: q.name}, nil
}

// get makes a GET.
func get[T any](ctx context.Context, q *Queue, path string, query url.Values) (*T, error) {
	call, err := q.call(http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	call.query = query
	return fetch[T](ctx, q.client, call)
}

// post makes a POST with a document as the body; nil is no body.
func post[T any](ctx context.Context, q *Queue, path string, body any, change func(*call)) (*T, error) {
	call, err := q.call(http.MethodPost, path)
	if err != nil {
		return nil, err
	}
	if body != nil {
		if call.body, err = encode(body); err != nil {
			return nil, err
		}
	}
	if change != nil {
		change(call)
	}
	return fetch[T](ctx, q.client, call)
}

// once marks a call that is not idempotent.
func once(call *call) { call.isOnce = true }

// PutOptions are conditions of [Queue.PutSettings].
type PutOptions struct {
	// IfMatch changes the settings only if they have this entity tag. Empty means no condition.
	IfMatch string
	// IfAbsent creates a queue, and changes none.
	IfAbsent bool
	// Force detaches the followers that the new settings do not allow.
	Force bool
}

// PutSettings creates the queue with these settings, or replaces all of its settings: what is nil or zero gets its default. It returns the settings that
// are in force.
func (q *Queue) PutSettings(ctx context.Context, settings QueueSettings, options *PutOptions) (*TaggedSettings, error) {
	given := PutOptions{}
	if options != nil {
		given = *options
	}
	return q.change(ctx, http.MethodPut, settings, given)
}

// PatchOptions are conditions of [Queue.PatchSettings].
type PatchOptions struct {
	// Reset names settings, such as lease, that get their default.
	Reset []string
	// IfMatch changes the settings only if they have this entity tag. Empty means no condition.
	IfMatch string
	// Force detaches the followers that the new settings do not allow.
	Force bool
}

// PatchSettings changes the settings that are neither nil nor zero. Settings that are documents are merged with the present ones.
func (q *Queue) PatchSettings(ctx context.Context, changes QueueSettings, options *PatchOptions) (*TaggedSettings, error) {
	given := PatchOptions{}
	if options != nil {
		given = *options
	}
	text, err := encode(changes)
	if err != nil {
		return nil, err
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, &EncodeError{err}
	}
	for _, name := range given.Reset {
		members[name] = json.RawMessage("null")
	}
	return q.change(ctx, http.MethodPatch, members, PutOptions{IfMatch: given.IfMatch, Force: given.Force})
}

func (q *Queue) change(ctx context.Context, method string, settings any, options PutOptions) (*TaggedSettings, error) {
	call, err := q.call(method, "")
	if err != nil {
		return nil, err
	}
	if call.body, err = encode(settings); err != nil {
		return nil, err
	}
	setFlag(call.query, "force", options.Force)
	call.headers = map[string]string{}
	if options.IfMatch != "" {
		call.headers["If-Match"] = options.IfMatch
	}
	if options.IfAbsent {
		call.headers["If-None-Match"] = "*"
	}
	// A repeat after a lost reply would be refused, although the first call was applied.
	call.isOnce = len(call.headers) > 0
	document, etag, err := fetchTagged[QueueDocument](ctx, q.client, call)
	if err != nil {
		return nil, err
	}
	return &TaggedSettings{document.Settings, etag}, nil
}

// PlanSettings returns what [Queue.PutSettings] with these settings would change. Nothing is changed.
func (q *Queue) PlanSettings(ctx context.Context, settings QueueSettings) (*SettingsPlan, error) {
	return post[SettingsPlan](ctx, q, "/settings/plan", settings, nil)
}

// Settings returns the settings of the queue, as [Queue.PutSettings] takes them.
func (q *Queue) Settings(ctx context.Context) (*TaggedSettings, error) {
	call, err := q.call(http.MethodGet, "/settings")
	if err != nil {
		return nil, err
	}
	settings, etag, err := fetchTagged[QueueSettings](ctx, q.client, call)
	if err != nil {
		return nil, err
	}
	return &TaggedSettings{*settings, etag}, nil
}

// Get returns the queue with its settings and its status.
func (q *Queue) Get(ctx context.Context) (*QueueDocument, error) {
	return get[QueueDocument](ctx, q, "", nil)
}

// Status returns the counts and flags of the queue.
func (q *Queue) Status(ctx context.Context) (*QueueStatus, error) {
	return get[QueueStatus](ctx, q, "/status", nil)
}

// DeleteQueueOptions are options of [Queue.DeleteQueue].
type DeleteQueueOptions struct {
	// Force detaches the followers of the queue, which otherwise refuse the call.
	Force bool
}

// DeleteQueue deletes the queue with all its contents.
func (q *Queue) DeleteQueue(ctx context.Context, options *DeleteQueueOptions) error {
	call, err := q.call(http.MethodDelete, "")
	if err != nil {
		return err
	}
	call.isOnce = true
	setFlag(call.query, "force", options != nil && options.Force)
	_, err = q.client.do(ctx, call)
	return err
}

// Pause stops delivery.
func (q *Queue) Pause(ctx context.Context) (*QueueDocument, error) {
	return post[QueueDocument](ctx, q, "/pause", nil, nil)
}

// PauseGroup stops the delivery of a group. The empty name is that of the group without a name.
func (q *Queue) PauseGroup(ctx context.Context, group string) (*QueueDocument, error) {
	return post[QueueDocument](ctx, q, "/pause", map[string]string{"group": group}, nil)
}

// ResumeGroup resumes the delivery of a group, and ends its hold.
func (q *Queue) ResumeGroup(ctx context.Context, group string) (*QueueDocument, error) {
	return post[QueueDocument](ctx, q, "/resume", map[string]string{"group": group}, nil)
}

// Resume resumes delivery.
func (q *Queue) Resume(ctx context.Context) (*QueueDocument, error) {
	return post[QueueDocument](ctx, q, "/resume", nil, nil)
}

// TestPush sends a test request to the endpoint to which the queue pushes. What the endpoint answers is no error.
func (q *Queue) TestPush(ctx context.Context) (*PushTest, error) {
	return post[PushTest](ctx, q, "/push/test", nil, nil)
}

// CloseOptions are options of [Queue.Close].
type CloseOptions struct {
	// AtOnce ends pops as soon as no key is ready. Otherwise they also wait until no key is delayed or leased.
	AtOnce bool
	// Drain waits until no key is ready, delayed or leased, but at most for Wait.
	Drain bool
	Wait  time.Duration
}

// Close closes the queue: pops drain it, and then get CodeQueueClosed.
func (q *Queue) Close(ctx context.Context, options *CloseOptions) (*QueueDocument, error) {
	return post[QueueDocument](ctx, q, "/close", nil, func(call *call) {
		if options == nil {
			return
		}
		if options.AtOnce {
			call.query.Set("wait_for", "none")
		}
		setFlag(call.query, "drain", options.Drain)
		setLength(call.query, "wait", options.Wait)
		call.wait = options.Wait
	})
}

// Reopen opens a closed queue again.
func (q *Queue) Reopen(ctx context.Context) (*QueueDocument, error) {
	return post[QueueDocument](ctx, q, "/reopen", nil, nil)
}

// Purge drops ready and delayed keys, and changes that arrived during a lease.
func (q *Queue) Purge(ctx context.Context) (*Purged, error) {
	return post[Purged](ctx, q, "/purge", nil, once)
}

// Selection selects delayed or parked keys: exactly one of Keys, Error, WithoutError and All is set.
type Selection struct {
	Keys []string
	// Error selects the keys with this last error.
	Error string
	// WithoutError selects the keys that have none.
	WithoutError bool
	All          bool
	// ExpectedCount refuses the call if it selects another number of keys. Nil means any number.
	ExpectedCount *int64
}

// body returns the body of the call. The server refuses a body that does not select in exactly one way.
func (selection *Selection) body() map[string]any {
	body := map[string]any{}
	if selection.Keys != nil {
		body["keys"] = selection.Keys
	}
	if selection.Error != "" || selection.WithoutError {
		body["error"] = selection.Error
	}
	if selection.All {
		body["all"] = true
	}
	if selection.ExpectedCount != nil {
		body["expected_count"] = *selection.ExpectedCount
	}
	return body
}

type keysCount struct {
	Keys *int64 `json:"keys"`
}

func (count *keysCount) isComplete() bool { return count.Keys != nil }

func (q *Queue) selected(ctx context.Context, path string, selection Selection) (int64, error) {
	if selection.Error != "" && selection.WithoutError {
		return 0, fmt.Errorf("deltaq: a selection has Error or WithoutError, and not both")
	}
	count, err := post[keysCount](ctx, q, path, selection.body(), once)
	if err != nil {
		return 0, err
	}
	return *count.Keys, nil
}

// Promote makes delayed keys ready before they are due, and returns their number.
func (q *Queue) Promote(ctx context.Context, selection Selection) (int64, error) {
	return q.selected(ctx, "/delayed/promote", selection)
}

// Redrive makes parked keys ready, and returns their number.
func (q *Queue) Redrive(ctx context.Context, selection Selection) (int64, error) {
	return q.selected(ctx, "/parked/redrive", selection)
}

// Discard drops parked keys, and returns their number.
func (q *Queue) Discard(ctx context.Context, selection Selection) (int64, error) {
	return q.selected(ctx, "/parked/discard", selection)
}

// Forget sets the failures of keys to 0, and returns the number of keys that had failures.
func (q *Queue) Forget(ctx context.Context, keys ...string) (int64, error) {
	count, err := post[keysCount](ctx, q, "/forget", map[string]any{"keys": keys}, nil)
	if err != nil {
		return 0, err
	}
	return *count.Keys, nil
}
