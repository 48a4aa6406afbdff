package deltaq

import (
	"encoding/json"
	"time"
)

// Page is a page of a list of one queue.
type Page[T any] struct {
	Items []T `json:"items"`
	// Continue is the token of the next page; nil on the last one.
	Continue        *string `json:"continue"`
	ResourceVersion int64   `json:"resource_version"`
}

// Object is an object of a view.
type Object struct {
	Key             string          `json:"key"`
	Source          *string         `json:"source"`
	ResourceVersion int64           `json:"resource_version"`
	Object          json.RawMessage `json:"object"`
}

// Item is a key with waiting or leased changes.
type Item struct {
	Key string `json:"key"`
	// State is ready, delayed, leased or parked; nil for a key that has only failures.
	State        *string    `json:"state"`
	Deltas       []Delta    `json:"deltas"`
	LeasedDeltas []Delta    `json:"leased_deltas"`
	Lease        *Lease     `json:"lease"`
	LeasedAt     *time.Time `json:"leased_at"`
	Attempt      int64      `json:"attempt"`
	Failures     int64      `json:"failures"`
	LastError    *string    `json:"last_error"`
	// DueAt is the end of a delay, a backoff or a debounce window.
	DueAt  *time.Time `json:"due_at"`
	Source *string    `json:"source"`
	// Diff and DiffOmitted are those of [PoppedItem], if [ItemOptions] asks for them.
	Diff        []DiffOperation `json:"diff,omitempty"`
	DiffOmitted *string         `json:"diff_omitted,omitempty"`
}

// Explanation says why a key is not delivered.
type Explanation struct {
	Key string `json:"key"`
	// Reason is leased, delayed, debouncing, backing_off, parked, paused, held, queue_limit, group_limit, group_paused, group_held, key_held,
	// rate_limited, group_rate_limited, closed, queued, next, nothing_waits or unknown.
	Reason      string     `json:"reason"`
	Explanation string     `json:"explanation"`
	Lease       *Lease     `json:"lease"`
	LeasedAt    *time.Time `json:"leased_at"`
	DueAt       *time.Time `json:"due_at"`
	LatestAt    *time.Time `json:"latest_at"`
	FloorAt     *time.Time `json:"floor_at"`
	Failures    int64      `json:"failures"`
	LastError   *string    `json:"last_error"`
	HeadStartMs *int64     `json:"head_start_ms"`
	Priority    *int64     `json:"priority"`
	// Ahead is the number of keys that are delivered before, up to 5,000.
	Ahead        *int64 `json:"ahead"`
	HasMoreAhead bool   `json:"has_more_ahead"`
	// Group is nil for the group without a name, and in a queue without groups.
	Group *string `json:"group"`
	// GroupShare is the share of the group in the time of the workers, from 0 to 1.
	GroupShare *float64 `json:"group_share"`
}

// ParkedError is an error of parked keys. An empty Error means keys without one.
type ParkedError struct {
	Error    string `json:"error"`
	Keys     int64  `json:"keys"`
	FirstKey string `json:"first_key"`
}

// ParkedErrorsPage is a page of the errors of parked keys.
type ParkedErrorsPage struct {
	Page[ParkedError]
	// OtherKeys counts the keys whose errors are on no page, because there are too many different ones.
	OtherKeys int64 `json:"other_keys"`
}

// HistoryEvent is an event of a key. Which members it has depends on Event, see docs/api/reading.md.
type HistoryEvent struct {
	Event             string          `json:"event"`
	ResourceVersion   int64           `json:"resource_version"`
	At                time.Time       `json:"at"`
	Type              *DeltaType      `json:"type,omitempty"`
	Object            json.RawMessage `json:"object,omitempty"`
	Source            *string         `json:"source,omitempty"`
	FinalStateUnknown *bool           `json:"final_state_unknown,omitempty"`
	Traceparent       *string         `json:"traceparent,omitempty"`
	LeaseID           *string         `json:"lease_id,omitempty"`
	Worker            *string         `json:"worker,omitempty"`
	ExpiresAt         *time.Time      `json:"expires_at,omitempty"`
	Through           *int64          `json:"through,omitempty"`
	Outcome           *string         `json:"outcome,omitempty"`
	Error             *string         `json:"error,omitempty"`
	Parked            *bool           `json:"parked,omitempty"`
	DueAt             *time.Time      `json:"due_at,omitempty"`
}

// LastReplace is the latest Replace of a queue or of a source.
type LastReplace struct {
	Source    *string       `json:"source"`
	Counts    ReplaceCounts `json:"counts"`
	StartedAt time.Time     `json:"started_at"`
	// EndedAt is nil while the Replace runs.
	EndedAt *time.Time `json:"ended_at"`
	// Aborted is true if the server stopped before the Replace ended.
	Aborted bool `json:"aborted"`
}

// SourceProblem is why a queue is not in step with a source.
type SourceProblem struct {
	Detail     string    `json:"detail"`
	ReportedAt time.Time `json:"reported_at"`
}

// Source is a producer of a queue.
type Source struct {
	Source         string       `json:"source"`
	Keys           int64        `json:"keys"`
	LastCallAt     *time.Time   `json:"last_call_at"`
	LastContactAt  *time.Time   `json:"last_contact_at"`
	LastReplacedAt *time.Time   `json:"last_replaced_at"`
	LastReplace    *LastReplace `json:"last_replace"`
	// Sequence is the last sequence number that was applied.
	Sequence *int64 `json:"sequence"`
	// StaleAfter is how long the source may be silent; nil without a threshold.
	StaleAfter *Duration      `json:"stale_after"`
	IsStale    bool           `json:"is_stale"`
	Problem    *SourceProblem `json:"problem"`
}

// GroupList has the first groups of a queue. The share of a group is its weight divided by Weights.
type GroupList struct {
	Groups          []GroupStatus `json:"groups"`
	Count           int64         `json:"count"`
	Weights         int64         `json:"weights"`
	ResourceVersion int64         `json:"resource_version"`
}

// GroupStatus is a group of keys that takes turns with others.
type GroupStatus struct {
	// Name is nil for the group without a name.
	Name             *string `json:"name"`
	Ready            int64   `json:"ready"`
	Leased           int64   `json:"leased"`
	OldestReadyAgeMs *int64  `json:"oldest_ready_age_ms"`
	Weight           int64   `json:"weight"`
	MaxLeased        *int64  `json:"max_leased"`
	// IsFull says that workers hold as many keys of the group as they may.
	IsFull bool `json:"is_full"`
	Paused bool `json:"paused"`
	// HeldUntil is the end of the hold of the group. Nil without one.
	HeldUntil *time.Time `json:"held_until"`
	// Rate is how many of its keys are delivered per second, or nil without a limit.
	Rate *DeliveryRate `json:"rate"`
	// NextDeliveryAt is when the rate lets the next key through, if it stops the delivery of the group.
	NextDeliveryAt *time.Time `json:"next_delivery_at"`
}

// WorkerStatus is a worker that holds leases or waits for keys.
type WorkerStatus struct {
	// Worker is the name that its pops give; nil for all pops without one.
	Worker          *string    `json:"worker"`
	Leased          int64      `json:"leased"`
	OldestLeasedAt  *time.Time `json:"oldest_leased_at"`
	NextExpiresAt   *time.Time `json:"next_expires_at"`
	NextExpiresInMs *int64     `json:"next_expires_in_ms"`
	Waiting         int64      `json:"waiting"`
	OldestWaitingAt *time.Time `json:"oldest_waiting_at"`
	// RecentAcks counts the leases that ended with an ack or a done in the last ten minutes.
	RecentAcks int64 `json:"recent_acks"`
	// RecentFailures counts those that ended with a nack or a reject, or that expired.
	RecentFailures int64 `json:"recent_failures"`
}

// Index is an index of the known objects.
type Index struct {
	Name    string `json:"name"`
	Pointer string `json:"pointer"`
	// State is ready or building.
	State         string `json:"state"`
	Values        int64  `json:"values"`
	Keys          int64  `json:"keys"`
	OmittedValues int64  `json:"omitted_values"`
}

// IndexValue is a value of an index, with the number of keys that have it.
type IndexValue struct {
	Value string `json:"value"`
	Keys  int64  `json:"keys"`
}

// SyncedReply says how much of a queue is processed.
type SyncedReply struct {
	// Synced is true once the initial list is processed.
	Synced    bool  `json:"synced"`
	Remaining int64 `json:"remaining"`
	// Reached, for a call with a version, says whether every change up to it is acknowledged or parked.
	Reached         *bool  `json:"reached"`
	ResourceVersion *int64 `json:"resource_version"`
	// Parked counts the parked keys with a change up to that version.
	Parked *int64 `json:"parked"`
}

// WatchType is the kind of a row of a watch.
type WatchType string

// The kinds of rows.
const (
	WatchAdded    WatchType = "Added"
	WatchUpdated  WatchType = "Updated"
	WatchDeleted  WatchType = "Deleted"
	WatchBookmark WatchType = "Bookmark"
	WatchError    WatchType = "Error"
	WatchExpired  WatchType = "Expired"
)

// WatchRow is a row of a watch: a change of a key, or a message about the watch.
type WatchRow struct {
	Type            WatchType       `json:"type"`
	Key             string          `json:"key,omitempty"`
	ResourceVersion int64           `json:"resource_version"`
	Object          json.RawMessage `json:"object,omitempty"`
	Source          *string         `json:"source,omitempty"`
	// FinalStateUnknown is true for a deletion whose Object is null or may be older than the last state.
	FinalStateUnknown bool `json:"final_state_unknown,omitempty"`
	// InitialEventsEnd is true in the first bookmark after all keys.
	InitialEventsEnd bool             `json:"initial_events_end,omitempty"`
	Problem          *ProblemDocument `json:"problem,omitempty"`
}
