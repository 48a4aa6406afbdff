package deltaq

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

const (
	// changesMax is the number of changes in a call. The limit of a server may be smaller.
	changesMax = 10_000
	// invalidShown is the number of invalid objects that a reply names.
	invalidShown = 10
)

// LostError says that the queue of a reflector may lack what was sent before, because it was deleted or has lost changes. The source must be listed again.
type LostError struct {
	Queue, Source string
	// IsRestored is false if the queue was deleted, and true if it may have lost changes, for example because a backup was restored, or the token does
	// not permit to check.
	IsRestored bool
}

// Error says what has happened.
func (err *LostError) Error() string {
	if err.IsRestored {
		return fmt.Sprintf("deltaq: the queue %s may have lost what the source %s sent, so it must be listed again", err.Queue, err.Source)
	}
	return fmt.Sprintf("deltaq: the queue %s was deleted, so the source %s must be listed again", err.Queue, err.Source)
}

// ReflectorOptions are options of a reflector. The zero value of each field is its default.
type ReflectorOptions struct {
	// All queues every object of a list. Otherwise only those that differ from the newest object of their key are queued.
	All bool
	// MaxDeletePercent, MaxDeletes and AllowEmpty are those of [ReplaceOptions].
	MaxDeletePercent *float64
	MaxDeletes       *int64
	AllowEmpty       bool
	// RefuseInvalid refuses a list or changes with an invalid object. Otherwise such objects are left out and logged, and their keys keep what they have;
	// a list is still refused if more than one object, and more than a tenth of it, is like that.
	RefuseInvalid bool
	// OnRefused gets the entries of [Reflector.Run] that are refused, such as a list that would delete most keys. Nil logs them.
	OnRefused func(entry Entry, err error)
}

// Entry is an entry of a source: its whole list, or changes that are applied together.
type Entry struct {
	// List is the whole list; nil for changes.
	List iter.Seq2[any, error]
	// Changes are changes since the last entry. More of them than a call takes are sent in several calls.
	Changes []DeltaCall
}

// Reflector keeps a queue in step with a source: each of its lists and changes takes effect once, in order, also if a reply is lost or the process begins
// anew. Run one reflector for each source: two would take sequence numbers from each other. Its methods wait for each other.
type Reflector struct {
	queue    *Queue
	options  ReflectorOptions
	sequence sequence
	// turn has room for the caller that may use sequence.
	turn chan struct{}
}

// NewReflector returns a reflector of a source. Nothing is sent yet. It panics without a queue or the name of a source.
func NewReflector(queue *Queue, source string, options *ReflectorOptions) *Reflector {
	must(queue != nil, "NewReflector: queue is nil; it must be a queue, such as client.Queue(\"orders\")")
	must(source != "", "NewReflector: source is empty; it must be the name of the source, such as \"shop\"")
	return &Reflector{queue: queue, options: copied(options), sequence: sequence{queue: queue, source: source}, turn: make(chan struct{}, 1)}
}

// Poll returns a source that has only lists: it calls a function about once in each interval, which varies by a tenth. An error of the function is logged,
// and the last list stays in force. The source ends with the context. It panics if the interval is not positive, or without a function.
func Poll[T any](ctx context.Context, interval time.Duration, list func(context.Context) ([]T, error)) iter.Seq2[Entry, error] {
	must(interval > 0, "Poll: interval must be positive, such as time.Minute")
	must(list != nil, "Poll: list is nil; it must be a function that returns the whole list")
	return func(yield func(Entry, error) bool) {
		for ctx.Err() == nil {
			objects, err := list(ctx)
			if err == nil {
				if !yield(Entry{List: Objects(objects)}, nil) {
					return
				}
			} else if !yield(Entry{}, err) {
				return
			}
			varied := time.Duration(float64(interval) * (0.9 + 0.2*rand.Float64()))
			if sleep(ctx, varied, nil) != nil {
				return
			}
		}
	}
}

// Run applies each entry of a source, until the source or the context ends; both return nil. An error of the source is logged, and its last list stays in
// force. So does an entry that is refused, see [ReflectorOptions].OnRefused. Errors that another list would not fix, such as an unknown token, are returned,
// and so is a [*LostError].
func (r *Reflector) Run(ctx context.Context, source iter.Seq2[Entry, error]) error {
	log := r.queue.client.log.With("queue", r.queue.name, "source", r.sequence.source)
	for entry, err := range source {
		var broken *listError
		if err == nil {
			_, err = r.apply(ctx, entry)
		} else {
			broken = &listError{err}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
		case broken != nil, errors.As(err, &broken):
			log.Warn("deltaq: a source can't be read, so its last list stays in force", "error", err)
		case !isAboutTheEntry(err):
			return err
		case r.options.OnRefused != nil:
			r.options.OnRefused(entry, err)
		default:
			log.Warn("deltaq: an entry of a source is refused", "error", err)
		}
	}
	return nil
}

// Replace sends the whole list of the source. [Objects] makes one from a slice. A call whose error may pass is repeated until the context ends.
func (r *Reflector) Replace(ctx context.Context, objects iter.Seq2[any, error]) (*Produced, error) {
	if objects == nil {
		return nil, errNoList
	}
	return r.apply(ctx, Entry{List: objects})
}

// Apply sends changes of the source. A call whose error may pass is repeated until the context ends. A [*LostError] says that the queue lacks earlier
// changes: send the list before others.
func (r *Reflector) Apply(ctx context.Context, changes ...DeltaCall) (*Produced, error) {
	return r.apply(ctx, Entry{Changes: changes})
}

func (r *Reflector) apply(ctx context.Context, entry Entry) (*Produced, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return nil, ended(ctx, nil)
	}
	if entry.List != nil || len(entry.Changes) <= 1 {
		return r.send(ctx, entry)
	}
	var replies []*Produced
	var refusal error
	passed := int64(0)
	for parts := slices.Collect(slices.Chunk(entry.Changes, changesMax)); len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		reply, err := r.send(ctx, Entry{Changes: part})
		var problem *Problem
		switch {
		case err == nil:
			for index := range reply.InvalidObjects {
				reply.InvalidObjects[index].Index += passed
			}
			replies = append(replies, reply)
		case errors.As(err, &problem) && problem.Status == http.StatusRequestEntityTooLarge && len(part) > 1:
			middle := len(part) / 2
			parts = append([][]DeltaCall{part[:middle], part[middle:]}, parts...)
			continue
		case !isAboutTheEntry(err):
			return nil, err
		case refusal == nil:
			// The other parts are still sent.
			refusal = err
		}
		passed += int64(len(part))
	}
	if refusal != nil {
		return nil, refusal
	}
	return sum(replies), nil
}

// sum is the reply to a call from the replies to its parts.
func sum(replies []*Produced) *Produced {
	total := *replies[len(replies)-1]
	for _, reply := range replies[:len(replies)-1] {
		total.Queued += reply.Queued
		total.Merged += reply.Merged
		total.Ignored += reply.Ignored
		total.Stale += reply.Stale
		total.Invalid += reply.Invalid
	}
	total.InvalidObjects = []InvalidObject{}
	for _, reply := range replies {
		total.InvalidObjects = append(total.InvalidObjects, reply.InvalidObjects...)
	}
	total.InvalidObjects = total.InvalidObjects[:min(len(total.InvalidObjects), invalidShown)]
	return &total
}

// isAboutTheEntry reports whether a refusal is about the list or the change, so that the next one may be accepted.
func isAboutTheEntry(err error) bool {
	var encoding *EncodeError
	var problem *Problem
	if errors.As(err, &encoding) {
		return true
	}
	if !errors.As(err, &problem) || problem.Retryable {
		return false
	}
	switch problem.Status {
	case http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	// The server refuses an object that is nested too deeply with 400.
	return problem.Code == CodeInvalidJSON
}

// send applies an entry by one call.
func (r *Reflector) send(ctx context.Context, entry Entry) (*Produced, error) {
	isList := entry.List != nil
	if err := r.sequence.check(ctx, isList); err != nil {
		return nil, err
	}
	for {
		number, err := r.sequence.next(ctx)
		if err != nil {
			return nil, err
		}
		reply, failures, err := r.call(ctx, entry, number)
		if err != nil {
			if !isAboutTheEntry(err) {
				r.sequence.forget()
			}
			return nil, err
		}
		isApplied, err := r.sequence.applied(ctx, reply, isList, failures)
		if err != nil {
			return nil, err
		}
		if isApplied {
			r.logInvalid(reply)
			return reply, nil
		}
	}
}

func (r *Reflector) call(ctx context.Context, entry Entry, number int64) (*Produced, int, error) {
	options := &r.options
	if entry.List == nil {
		given := &DeltasOptions{Source: r.sequence.source, Sequence: number, SkipInvalid: !options.RefuseInvalid}
		call, list, err := r.queue.deltasCall(entry.Changes, given)
		if err != nil {
			return nil, 0, err
		}
		reply, attempts, err := repeatCounted[Produced](ctx, r.queue, call)
		if err == nil {
			list.explain(reply)
		}
		return reply, attempts.failures, err
	}
	call, list, err := r.queue.replaceCall(entry.List, ReplaceOptions{
		Source: r.sequence.source, Sequence: number, OnlyChanged: !options.All, MaxDeletePercent: options.MaxDeletePercent, MaxDeletes: options.MaxDeletes,
		AllowEmpty: options.AllowEmpty, SkipInvalid: !options.RefuseInvalid,
	})
	if err != nil {
		return nil, 0, err
	}
	reply, attempts, err := repeatCounted[ReplaceReply](ctx, r.queue, call)
	if err != nil {
		return nil, attempts.failures, err
	}
	list.explain(&reply.Produced)
	return &reply.Produced, attempts.failures, nil
}

func (r *Reflector) logInvalid(reply *Produced) {
	for _, invalid := range reply.InvalidObjects {
		r.queue.client.log.Warn("deltaq: the queue refuses an object, which is left out; its key keeps what it has",
			"queue", r.queue.name, "source", r.sequence.source, "key", invalid.Key, "code", invalid.Code, "detail", invalid.Detail)
	}
	if more := reply.Invalid - int64(len(reply.InvalidObjects)); more > 0 {
		r.queue.client.log.Warn("deltaq: the queue refuses more objects, which are left out", "queue", r.queue.name, "source", r.sequence.source, "count", more)
	}
}
