package deltaq

import (
	"encoding/json"
	"time"
)

// The documents of the HTTP API, with the names of docs/api.md. A member without a value is nil. Enumerations are texts, because a newer server may
// have more values than this version names. An object of the application is the JSON text that the server sent.

// DeltaType is the kind of a change.
type DeltaType string

// The kinds of changes.
const (
	Added    DeltaType = "Added"
	Updated  DeltaType = "Updated"
	Deleted  DeltaType = "Deleted"
	Replaced DeltaType = "Replaced"
	Sync     DeltaType = "Sync"
)

// View is one of the two views of a queue.
type View string

// The views of a queue. An empty View is [Latest].
const (
	// Latest has the newest accepted object of each key.
	Latest View = "latest"
	// Known has the objects that workers have acknowledged.
	Known View = "known"
)

// SettleAs says how a lease ends.
type SettleAs string

// The ways to end a lease, and its extension.
const (
	AsAck     SettleAs = "ack"
	AsDone    SettleAs = "done"
	AsNack    SettleAs = "nack"
	AsRelease SettleAs = "release"
	AsReject  SettleAs = "reject"
	AsExtend  SettleAs = "extend"
)

// Delta is a change of a key.
type Delta struct {
	Type            DeltaType `json:"type"`
	ResourceVersion int64     `json:"resource_version"`
	QueuedAt        time.Time `json:"queued_at"`
	// Object is the object as it was sent. For a deletion, it is the last one.
	Object json.RawMessage `json:"object"`
	// FinalStateUnknown is true for a deletion whose Object may be older than the last state.
	FinalStateUnknown bool    `json:"final_state_unknown,omitempty"`
	Source            *string `json:"source,omitempty"`
	// Coalesced is the number of older changes that were merged into this one.
	Coalesced   int64   `json:"coalesced,omitempty"`
	Traceparent *string `json:"traceparent,omitempty"`
}

// Lease is the right to work on a key for some time.
type Lease struct {
	ID string `json:"id"`
	// Token is the fencing token, which grows with every lease of the queue.
	Token       int64     `json:"token"`
	Worker      *string   `json:"worker"`
	ExpiresAt   time.Time `json:"expires_at"`
	ExpiresInMs int64     `json:"expires_in_ms"`
}

// DiffOperation is an operation of a JSON patch (RFC 6902), with the value that it replaces or removes.
type DiffOperation struct {
	Op   string `json:"op"`
	Path string `json:"path"`
	// Value is the new value; nil in a removal.
	Value json.RawMessage `json:"value,omitempty"`
	// Old is the value before; nil in an addition.
	Old json.RawMessage `json:"old,omitempty"`
}

// PoppedItem is a delivered key with every change since its last acknowledgement.
type PoppedItem struct {
	Key   string `json:"key"`
	Lease Lease  `json:"lease"`
	// Attempt is the number of deliveries since the last acknowledgement.
	Attempt         int64 `json:"attempt"`
	Failures        int64 `json:"failures"`
	IsInInitialList bool  `json:"is_in_initial_list"`
	// Deltas are the changes, oldest first. In mode events there is one, in mode keys none.
	Deltas []Delta `json:"deltas"`
	// Known is the object that was acknowledged last, if [PopOptions] or [WorkerOptions] ask for it and there is one.
	Known json.RawMessage `json:"known,omitempty"`
	// Diff has the operations from that object to the newest one, if the options ask for them; nil without a difference to show.
	Diff        []DiffOperation `json:"diff,omitempty"`
	DiffOmitted *string         `json:"diff_omitted,omitempty"`
}

// Newest returns the newest change; nil in mode keys.
func (item *PoppedItem) Newest() *Delta {
	if len(item.Deltas) == 0 {
		return nil
	}
	return &item.Deltas[len(item.Deltas)-1]
}

// Object returns the newest object, for a deleted key its last one. In mode keys it is nil.
func (item *PoppedItem) Object() json.RawMessage {
	if newest := item.Newest(); newest != nil {
		return newest.Object
	}
	return nil
}

// IsDeleted reports whether the newest change is a deletion.
func (item *PoppedItem) IsDeleted() bool {
	newest := item.Newest()
	return newest != nil && newest.Type == Deleted
}

// Popped is the reply to a pop.
type Popped struct {
	Items   []PoppedItem `json:"items"`
	Settled []Settled    `json:"settled"`
	Closed  bool         `json:"closed"`
	Paused  bool         `json:"paused"`
	// HeldUntil is the end of the hold that stops delivery. Nil without one.
	HeldUntil *time.Time `json:"held_until,omitempty"`
}

// The scopes of a [Hold]: all keys of a queue, those of the group that the lease counts for, or the key of the lease.
const (
	HoldQueue = "queue"
	HoldGroup = "group"
	HoldKey   = "key"
)

// Hold is a time in which nothing is delivered, because the target of the work asks for it.
type Hold struct {
	// Scope is [HoldQueue], [HoldGroup] or [HoldKey].
	Scope string `json:"scope"`
	// For is how long nothing is delivered. More than an hour counts as an hour.
	For Duration `json:"for"`
}

// Settle ends or extends leases.
type Settle struct {
	As       SettleAs `json:"as"`
	LeaseID  string   `json:"lease_id,omitempty"`
	LeaseIDs []string `json:"lease_ids,omitempty"`
	// Delay is for a nack or done: nil means the backoff of a nack, and no further delivery after done.
	Delay *Duration `json:"delay,omitempty"`
	// Floor is for a nack: no change shortens its wait.
	Floor bool `json:"floor,omitempty"`
	// Error is for a nack or a reject.
	Error string `json:"error,omitempty"`
	// Hold is for an ack or a release.
	Hold *Hold `json:"hold,omitempty"`
	// Through is for an ack, nack or release of one lease, in mode delta: the ResourceVersion of a leased delta. The deltas up to it are
	// acknowledged, and only the others are settled in the given way; with ack they are delivered again at once. Zero means all deltas.
	Through int64 `json:"through,omitempty"`
	// Keep is for an ack with Through: the lease goes on with the other deltas.
	Keep bool `json:"keep,omitempty"`
	// LeaseDuration is for an extension. Zero means the setting of the queue.
	LeaseDuration Duration `json:"lease_duration,omitempty"`
}

// Settled is the result for one lease.
type Settled struct {
	LeaseID string   `json:"lease_id"`
	As      SettleAs `json:"as"`
	// Result is ok, repeated (equivalent to ok), stale, or not_leased if the lease has no delta Through.
	Result string `json:"result"`
	// Outcome says for a stale lease how it had ended.
	Outcome *string `json:"outcome"`
	// Failures, DueAt and Parked are set after a nack or a reject.
	Failures *int64     `json:"failures,omitempty"`
	DueAt    *time.Time `json:"due_at,omitempty"`
	Parked   *bool      `json:"parked,omitempty"`
	// HeldUntil is the end of the hold of the queue or of the group, after a settle with a hold.
	HeldUntil *time.Time `json:"held_until,omitempty"`
	// ExpiresAt, ExpiresInMs, PendingDeltas and Deleted are set after an extension.
	ExpiresAt     *time.Time `json:"expires_at,omitempty"`
	ExpiresInMs   *int64     `json:"expires_in_ms,omitempty"`
	PendingDeltas *int64     `json:"pending_deltas,omitempty"`
	Deleted       *bool      `json:"deleted,omitempty"`
}

// IsStale reports whether the lease had ended before the call, which has therefore changed nothing.
func (settled *Settled) IsStale() bool { return settled.Result == "stale" }

// SettledList has the results of a call, one for each lease, in order.
type SettledList struct {
	Settled []Settled `json:"settled"`
	// Stale is the number of leases that had ended before.
	Stale int64 `json:"stale"`
}

// FailedKey is a key of a rate-limited add.
type FailedKey struct {
	Key      string     `json:"key"`
	Failures int64      `json:"failures"`
	DueAt    *time.Time `json:"due_at"`
	Parked   bool       `json:"parked"`
}

// InvalidObject is an object that a call with SkipInvalid has left out.
type InvalidObject struct {
	// Index is its place in the call, from 0.
	Index int64 `json:"index"`
	// Key is nil if it can't be read.
	Key    *string `json:"key"`
	Code   string  `json:"code"`
	Detail string  `json:"detail"`
}

// Produced is the reply to a call that produces.
type Produced struct {
	ResourceVersion int64 `json:"resource_version"`
	Queued          int64 `json:"queued"`
	// Merged counts adds of keys that were already ready, in mode keys.
	Merged  int64 `json:"merged"`
	Ignored int64 `json:"ignored"`
	// Stale counts objects that were not newer than the newest state of their key.
	Stale int64 `json:"stale"`
	// Duplicate is true if the sequence number had been applied before, so that this call has changed nothing.
	Duplicate bool `json:"duplicate"`
	// Sequence is the last number of the source that was applied, for a call with a number.
	Sequence *int64 `json:"sequence"`
	// Incarnation is the id of the queue. If it has changed, the queue was deleted and created again, and lacks earlier objects.
	Incarnation *string `json:"incarnation"`
	// Life is the life to which ResourceVersion belongs. If it has changed, changes may be lost: Synced with an earlier version shows whether.
	Life *string `json:"life"`
	// Keys has the keys of a rate-limited add.
	Keys []FailedKey `json:"keys"`
	// Invalid counts the objects that SkipInvalid has left out, and InvalidObjects has the first 10 of them.
	Invalid        int64           `json:"invalid"`
	InvalidObjects []InvalidObject `json:"invalid_objects"`
}

// ReplaceCounts says what a Replace has done.
type ReplaceCounts struct {
	Replaced  int64 `json:"replaced"`
	Deleted   int64 `json:"deleted"`
	Unchanged int64 `json:"unchanged"`
	Skipped   int64 `json:"skipped"`
	TakenOver int64 `json:"taken_over"`
	Stale     int64 `json:"stale"`
}

// ReplaceReply is the reply to a Replace.
type ReplaceReply struct {
	Produced
	Replaced  int64 `json:"replaced"`
	Deleted   int64 `json:"deleted"`
	Unchanged int64 `json:"unchanged"`
	Skipped   int64 `json:"skipped"`
	TakenOver int64 `json:"taken_over"`
}

// DeltaCall is an entry of a mixed batch.
type DeltaCall struct {
	// Type is Added, Updated or Deleted.
	Type DeltaType `json:"type"`
	// Key may be empty if the object has it.
	Key string `json:"key,omitempty"`
	// Object is any value that is written as a JSON object; nil for a deletion by key.
	Object any    `json:"object,omitempty"`
	Source string `json:"source,omitempty"`
	// Delay, Debounce, MaxWait and HeadStart are those of [ProduceOptions].
	Delay             Duration  `json:"delay,omitempty"`
	Debounce          *Duration `json:"debounce,omitempty"`
	MaxWait           Duration  `json:"max_wait,omitempty"`
	HeadStart         *Duration `json:"head_start,omitempty"`
	FinalStateUnknown bool      `json:"final_state_unknown,omitempty"`
	// ExpectedVersion is the version that the newest object of the key must have, or 0 for no object; otherwise the whole batch is refused.
	ExpectedVersion *int64 `json:"expected_version,omitempty"`
}

// SeedCall is an object to store as known without a change.
type SeedCall struct {
	Key    string `json:"key,omitempty"`
	Source string `json:"source,omitempty"`
	Object any    `json:"object"`
}

// Purged is the reply to a purge.
type Purged struct {
	Keys   int64 `json:"keys"`
	Deltas int64 `json:"deltas"`
}
