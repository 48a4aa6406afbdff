package deltaq

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"
)

// PopOptions are options of [Queue.Pop].
type PopOptions struct {
	// Wait is how long to wait for a key, at most 55 s. Zero means not at all.
	Wait time.Duration
	// Max is the largest number of keys, up to 1,000. Zero means 1.
	Max int
	// LeaseDuration is the length of the leases. Zero means the setting of the queue.
	LeaseDuration time.Duration
	// Worker is the name of the worker, shown with its leases.
	Worker string
	// ID is the id of this pop: a repeat with the same id returns the same leases. Empty means a new one.
	ID string
	// Group is the only group whose keys are taken, outside its turns. The empty name is that of the group without a name.
	Group *string
	// WithKnown adds the object that was acknowledged last to each item.
	WithKnown bool
	// WithDiff adds the difference from that object to the newest one to each item.
	WithDiff bool
	// Settle are leases to settle before the pop.
	Settle []Settle
}

func (q *Queue) popCall(options *PopOptions) (*call, error) {
	call, err := q.call(http.MethodPost, "/pop")
	if err != nil {
		return nil, err
	}
	query := call.query
	setLength(query, "wait", options.Wait)
	call.wait = options.Wait
	setNumber(query, "max", options.Max)
	setLength(query, "lease_duration", options.LeaseDuration)
	setText(query, "worker", options.Worker)
	query.Set("id", options.ID)
	if options.Group != nil {
		query.Set("group", *options.Group)
	}
	var with []string
	if options.WithKnown {
		with = append(with, "known")
	}
	if options.WithDiff {
		with = append(with, "diff")
	}
	setText(query, "with", strings.Join(with, ","))
	settle := options.Settle
	if settle == nil {
		settle = []Settle{}
	}
	call.body, err = encode(map[string]any{"settle": settle})
	return call, err
}

// newID returns a random id, which other clients can't guess.
func newID() string {
	var bytes [16]byte
	// It never fails.
	_, _ = rand.Read(bytes[:])
	return hex.EncodeToString(bytes[:])
}

func (popped *Popped) isComplete() bool { return popped.Items != nil }

func (list *SettledList) isComplete() bool { return list.Settled != nil }

// Pop settles earlier leases, and then leases keys. A repeat after a lost reply returns the same leases.
func (q *Queue) Pop(ctx context.Context, options *PopOptions) (*Popped, error) {
	given := PopOptions{}
	if options != nil {
		given = *options
	}
	given.ID = or(given.ID, newID())
	call, err := q.popCall(&given)
	if err != nil {
		return nil, err
	}
	return fetch[Popped](ctx, q.client, call)
}

// results makes a call that settles. If all of its leases had ended before, the results are in a problem.
func results(list *SettledList, err error) (*SettledList, error) {
	var problem *Problem
	if errors.As(err, &problem) && problem.Code == CodeLeaseLost && problem.Settled != nil {
		return &SettledList{Settled: problem.Settled, Stale: int64(len(problem.Settled))}, nil
	}
	return list, err
}

// Settle ends or extends leases, each in its own way. A lease that had ended before is stale in the reply, which is no error.
func (q *Queue) Settle(ctx context.Context, settle []Settle) (*SettledList, error) {
	if settle == nil {
		settle = []Settle{}
	}
	return results(post[SettledList](ctx, q, "/settle", map[string]any{"settle": settle}, nil))
}

func (q *Queue) settleAll(ctx context.Context, path string, leaseIDs []string, members map[string]any) (*SettledList, error) {
	return q.settle(ctx, path, leaseIDs, members, nil)
}

func (q *Queue) settle(ctx context.Context, path string, leaseIDs []string, members map[string]any, change func(*call)) (*SettledList, error) {
	if members == nil {
		members = map[string]any{}
	}
	if leaseIDs == nil {
		leaseIDs = []string{}
	}
	members["lease_ids"] = leaseIDs
	return results(post[SettledList](ctx, q, path, members, change))
}

// Ack acknowledges leases: their work is done. A lease that had ended before is stale in the reply, which is no error.
func (q *Queue) Ack(ctx context.Context, leaseIDs ...string) (*SettledList, error) {
	return q.settleAll(ctx, "/ack", leaseIDs, nil)
}

// Release ends leases without a failure: their keys are delivered again at once.
func (q *Queue) Release(ctx context.Context, leaseIDs ...string) (*SettledList, error) {
	return q.settleAll(ctx, "/release", leaseIDs, nil)
}

// AckAndHold is like [Queue.Ack], and nothing of the scope is delivered for a time, at most an hour, because the target asks for it. The scope
// is [HoldQueue] or [HoldGroup].
func (q *Queue) AckAndHold(ctx context.Context, scope string, length time.Duration, leaseIDs ...string) (*SettledList, error) {
	return q.settleAll(ctx, "/ack", leaseIDs, map[string]any{"hold": holdOf(scope, length)})
}

// ReleaseAndHold is like [Queue.Release], and nothing of the scope is delivered for a time, at most an hour, because the target asks for it. The
// scope is [HoldQueue], [HoldGroup] or [HoldKey].
func (q *Queue) ReleaseAndHold(ctx context.Context, scope string, length time.Duration, leaseIDs ...string) (*SettledList, error) {
	return q.settleAll(ctx, "/release", leaseIDs, map[string]any{"hold": holdOf(scope, length)})
}

func holdOf(scope string, length time.Duration) *Hold {
	if scope == "" {
		scope = HoldQueue
	}
	return &Hold{Scope: scope, For: Duration(length)}
}

// DoneOptions are options of [Queue.Done].
type DoneOptions struct {
	// Delay adds the keys again after this time. Zero means not at all.
	Delay time.Duration
}

// Done ends leases of a queue of mode keys, and keeps the failures of their keys.
func (q *Queue) Done(ctx context.Context, leaseIDs []string, options *DoneOptions) (*SettledList, error) {
	members := map[string]any{}
	if options != nil && options.Delay != 0 {
		members["delay"] = Duration(options.Delay)
	}
	return q.settleAll(ctx, "/done", leaseIDs, members)
}

// NackOptions are options of [Queue.Nack].
type NackOptions struct {
	// Delay is the wait before the keys are delivered again. Nil means their backoff.
	Delay *time.Duration
	// Floor is true if no change shortens the wait.
	Floor bool
	// Error is why the work has failed.
	Error string
}

// Nack reports that the work of leases has failed: their keys are delivered again later.
func (q *Queue) Nack(ctx context.Context, leaseIDs []string, options *NackOptions) (*SettledList, error) {
	members := map[string]any{}
	if options != nil {
		if options.Delay != nil {
			members["delay"] = Duration(*options.Delay)
		}
		if options.Floor {
			members["floor"] = true
		}
		if options.Error != "" {
			members["error"] = options.Error
		}
	}
	return q.settleAll(ctx, "/nack", leaseIDs, members)
}

// RejectOptions are options of [Queue.Reject].
type RejectOptions struct {
	// Error is why the work will never succeed.
	Error string
}

// Reject parks the keys of leases. Except in mode events, a key with a newer change is delivered again instead.
func (q *Queue) Reject(ctx context.Context, leaseIDs []string, options *RejectOptions) (*SettledList, error) {
	members := map[string]any{}
	if options != nil && options.Error != "" {
		members["error"] = options.Error
	}
	return q.settleAll(ctx, "/reject", leaseIDs, members)
}

// ExtendOptions are options of [Queue.Extend].
type ExtendOptions struct {
	// LeaseDuration is the new length of the leases from now on. Zero means the setting of the queue.
	LeaseDuration time.Duration
	// UntilChanged is the longest wait for a newer change of one of the keys: the reply comes at this change, when one of the leases ends, or
	// after this time. Zero means no wait.
	UntilChanged time.Duration
}

// Extend sets the deadlines of leases.
func (q *Queue) Extend(ctx context.Context, leaseIDs []string, options *ExtendOptions) (*SettledList, error) {
	given, members := copied(options), map[string]any{}
	if given.LeaseDuration != 0 {
		members["lease_duration"] = Duration(given.LeaseDuration)
	}
	return q.settle(ctx, "/extend", leaseIDs, members, func(call *call) {
		setFlag(call.query, "until_changed", given.UntilChanged > 0)
		setLength(call.query, "wait", given.UntilChanged)
		call.wait = given.UntilChanged
	})
}
