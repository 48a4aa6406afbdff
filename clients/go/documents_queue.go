package deltaq

import (
	"encoding/json"
	"fmt"
	"time"
)

// Mode is what a pop of a queue delivers.
type Mode string

// The modes of a queue.
const (
	// ModeDelta delivers all changes of a key since its last acknowledgement.
	ModeDelta Mode = "delta"
	// ModeLatest delivers the newest change of a key.
	ModeLatest Mode = "latest"
	// ModeKeys delivers the key without an object.
	ModeKeys Mode = "keys"
	// ModeEvents delivers each change alone.
	ModeEvents Mode = "events"
)

// KeyPart is a JSON pointer to a part of the key.
type KeyPart struct {
	Pointer string
	// Optional is true if the value at the pointer may be absent.
	Optional bool
}

type detailedKeyPart struct {
	Pointer  string `json:"pointer"`
	Optional bool   `json:"optional,omitempty"`
}

// MarshalJSON writes the pointer, or a document if the part is optional.
func (part KeyPart) MarshalJSON() ([]byte, error) {
	if part.Optional {
		return json.Marshal(detailedKeyPart(part))
	}
	return json.Marshal(part.Pointer)
}

// UnmarshalJSON reads both forms.
func (part *KeyPart) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		*part = KeyPart{}
		return json.Unmarshal(text, &part.Pointer)
	}
	var detailed detailedKeyPart
	if err := json.Unmarshal(text, &detailed); err != nil {
		return fmt.Errorf("a part of the key: %w", err)
	}
	*part = KeyPart(detailed)
	return nil
}

// ItemExponential is a wait that doubles with each failure of a key.
type ItemExponential struct {
	Base Duration `json:"base"`
	Max  Duration `json:"max"`
}

// ItemFastSlow is a short wait for the first failures of a key, and a long one later.
type ItemFastSlow struct {
	Fast    Duration `json:"fast"`
	Slow    Duration `json:"slow"`
	MaxFast int64    `json:"max_fast"`
}

// Bucket is a token bucket for the failures of all keys.
type Bucket struct {
	QPS   float64 `json:"qps"`
	Burst int64   `json:"burst"`
}

// RateLimiter is the wait of a key after a failure: the longest of the limiters that are not nil.
type RateLimiter struct {
	ItemExponential *ItemExponential `json:"item_exponential,omitempty"`
	ItemFastSlow    *ItemFastSlow    `json:"item_fast_slow,omitempty"`
	Bucket          *Bucket          `json:"bucket,omitempty"`
	MaxWait         Duration         `json:"max_wait,omitempty"`
	Jitter          *float64         `json:"jitter,omitempty"`
}

// Debounce is how long a changed key waits until it is quiet.
type Debounce struct {
	Quiet Duration `json:"quiet"`
	// MaxWait is the longest wait. Zero means 10 times Quiet.
	MaxWait Duration `json:"max_wait,omitempty"`
	// Deletes is debounced or now.
	Deletes string `json:"deletes,omitempty"`
	// Lists is true if the changes of a Replace wait, too.
	Lists bool `json:"lists,omitempty"`
}

// HeadStartOrder takes the head start of each object from the object.
type HeadStartOrder struct {
	Pointer string   `json:"pointer"`
	Default Duration `json:"default,omitempty"`
}

// PriorityOrder takes the priority of each object from the object.
type PriorityOrder struct {
	Pointer string `json:"pointer"`
	// Step is the head start of one unit. Zero means that each priority is a class of its own.
	Step Duration `json:"step,omitempty"`
}

// Order says which ready key is delivered first.
type Order struct {
	HeadStart   *HeadStartOrder `json:"head_start,omitempty"`
	Priority    *PriorityOrder  `json:"priority,omitempty"`
	InitialList *Duration       `json:"initial_list,omitempty"`
	Resync      *Duration       `json:"resync,omitempty"`
}

// Groups says which keys take turns.
type Groups struct {
	By        GroupBy `json:"by"`
	MaxLeased *int64  `json:"max_leased,omitempty"`
	// Rate is that of each group.
	Rate *DeliveryRate `json:"rate,omitempty"`
	// Overrides has the settings of single groups, by name. The empty name is that of the group without a name.
	Overrides map[string]GroupOverride `json:"overrides,omitempty"`
}

// GroupBy is what names the group of a key: Value is a JSON pointer or "source". If it is empty, KeyPrefix is the text that ends the
// beginning of a key.
type GroupBy struct {
	Value     string
	KeyPrefix string
}

// MarshalJSON writes Value or, if it is empty, KeyPrefix.
func (b GroupBy) MarshalJSON() ([]byte, error) {
	if b.Value != "" {
		return json.Marshal(b.Value)
	}
	return json.Marshal(map[string]string{"key_prefix": b.KeyPrefix})
}

// UnmarshalJSON reads both forms.
func (b *GroupBy) UnmarshalJSON(data []byte) error {
	var prefix struct {
		KeyPrefix string `json:"key_prefix"`
	}
	*b = GroupBy{}
	if json.Unmarshal(data, &b.Value) == nil {
		return nil
	}
	err := json.Unmarshal(data, &prefix)
	b.KeyPrefix = prefix.KeyPrefix
	return err
}

// GroupOverride has the settings of one group.
type GroupOverride struct {
	Weight    *int64        `json:"weight,omitempty"`
	MaxLeased *int64        `json:"max_leased,omitempty"`
	Rate      *DeliveryRate `json:"rate,omitempty"`
}

// DeliveryRate is how many keys are delivered per second, and after a pause at once.
type DeliveryRate struct {
	PerSecond float64 `json:"per_second"`
	Burst     int64   `json:"burst"`
}

// Follow names the queue that feeds a follower.
type Follow struct {
	Queue      string `json:"queue"`
	View       View   `json:"view,omitempty"`
	Prefix     string `json:"prefix,omitempty"`
	MaxWaiting *int64 `json:"max_waiting,omitempty"`
}

// Push names the endpoint that gets the keys of a queue as requests.
type Push struct {
	URL string `json:"url"`
	// Format is standard, raw or cloudevents.
	Format string `json:"format,omitempty"`
	// Payload is full, known or thin.
	Payload string `json:"payload,omitempty"`
	// Secrets are the names of the secrets, from the settings of the server, that sign a request.
	Secrets     []string  `json:"secrets,omitempty"`
	Timeout     *Duration `json:"timeout,omitempty"`
	MaxInFlight *int64    `json:"max_in_flight,omitempty"`
	// Batch is the maximum number of keys in a request.
	Batch *int64 `json:"batch,omitempty"`
	// Retry has the wait after each failure of a key. An empty list means the rate limiter of the queue; nil means the default.
	Retry *[]Duration `json:"retry,omitempty"`
	// RejectStatuses park a key at once. Nil means the default.
	RejectStatuses *[]int64 `json:"reject_statuses,omitempty"`
	// DisableAfter is how long the endpoint may fail before the queue pauses itself.
	DisableAfter *Duration `json:"disable_after,omitempty"`
	// Handshake is the origin in whose name the server asks the endpoint before it sends keys; empty if it asks nothing.
	Handshake string `json:"handshake,omitempty"`
	// Headers are further headers of each request.
	Headers map[string]PushHeader `json:"headers,omitempty"`
	// Async says that the receiver of a 202 settles the key later.
	Async *bool `json:"async,omitempty"`
}

// PushHeader is the value of a header: a text, or the first line of a secret of the server.
type PushHeader struct {
	// Text is the value if Secret is empty.
	Text string
	// Secret is the name of a secret from the settings of the server.
	Secret string
	// Prefix is the text before the secret, such as "Bearer ".
	Prefix string
}

type secretHeader struct {
	Secret string `json:"secret"`
	Prefix string `json:"prefix,omitempty"`
}

// MarshalJSON writes a text, or the name of a secret.
func (h PushHeader) MarshalJSON() ([]byte, error) {
	if h.Secret == "" {
		return json.Marshal(h.Text)
	}
	return json.Marshal(secretHeader{h.Secret, h.Prefix})
}

// UnmarshalJSON reads a text, or the name of a secret.
func (h *PushHeader) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		*h = PushHeader{}
		return json.Unmarshal(text, &h.Text)
	}
	var secret secretHeader
	if err := json.Unmarshal(text, &secret); err != nil {
		return err
	}
	*h = PushHeader{Secret: secret.Secret, Prefix: secret.Prefix}
	return nil
}

// Hook names the webhooks of a vendor that a queue takes as changes.
type Hook struct {
	// Scheme is standard, github, stripe, shopify, slack, gitlab or hmac.
	Scheme string `json:"scheme"`
	// Secrets are the names of the secrets, from the settings of the server, of which one has signed a delivery.
	Secrets []string `json:"secrets,omitempty"`
	// Signature is where the signature is; only with the scheme hmac.
	Signature *HookSignature `json:"signature,omitempty"`
	// Object is the JSON pointer to the stored object; empty for the whole body.
	Object string `json:"object,omitempty"`
	// ID is header:NAME or a JSON pointer; empty for the place that the vendor uses.
	ID string `json:"id,omitempty"`
	// Only has the conditions that a delivery meets to be applied.
	Only []HookCondition `json:"only,omitempty"`
	// Deleted is the condition of a deletion.
	Deleted *HookCondition `json:"deleted,omitempty"`
	// Source is the source in whose name deliveries are applied.
	Source string `json:"source,omitempty"`
	// Refuse answers 422 to a delivery that can't be applied; otherwise it is kept.
	Refuse *bool `json:"refuse,omitempty"`
}

// CloudEvents says how CloudEvents become changes.
type CloudEvents struct {
	// Store is data or event: what of an event is stored.
	Store string `json:"store,omitempty"`
	// Deleted are the endings of the types of events that delete their key. Nil means the default.
	Deleted *[]string `json:"deleted,omitempty"`
}

// Kubernetes is the resource of the Kubernetes API as which clients of Kubernetes read and write the objects of a queue.
type Kubernetes struct {
	// Group is the API group, a DNS name with a dot.
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
	// Plural is the name in paths; no other queue has it in the group.
	Plural string `json:"plural"`
	// View is latest or known: what clients read. Empty means latest.
	View string `json:"view,omitempty"`
}

// HookSignature is where a delivery of the scheme hmac has its signature.
type HookSignature struct {
	Header string `json:"header"`
	Prefix string `json:"prefix,omitempty"`
	// Encoding is hex or base64.
	Encoding string `json:"encoding,omitempty"`
	// TimestampHeader has the time of the delivery; empty if it has none.
	TimestampHeader string `json:"timestamp_header,omitempty"`
}

// HookCondition is met if a header or a value of the body is one of the values.
type HookCondition struct {
	Header  string   `json:"header,omitempty"`
	Pointer string   `json:"pointer,omitempty"`
	Values  []string `json:"values"`
}

// PushTest is what an endpoint has answered to a test request.
type PushTest struct {
	// Status is nil without a whole answer.
	Status     *int64 `json:"status"`
	DurationMS int64  `json:"duration_ms"`
	// Answer is the status with the start of the body, or why there is no answer.
	Answer string `json:"answer"`
}

// Retention is how long events are kept for the history. Zero and nil mean the default.
type Retention struct {
	Age   Duration `json:"age,omitempty"`
	Bytes *int64   `json:"bytes,omitempty"`
}

// DiffSettings names the arrays whose elements a difference compares one by one.
type DiffSettings struct {
	// ArrayKeys has, for the pointer to each array, the pointer to what identifies an element.
	ArrayKeys map[string]string `json:"array_keys,omitempty"`
}

// QueueSettings are the settings of a queue. In a call, nil and zero values mean the default; [Ptr] makes a pointer to a value. In a reply, every
// setting with a default has its value, so the settings can be read, changed and sent back.
type QueueSettings struct {
	Mode    Mode      `json:"mode,omitempty"`
	Key     []KeyPart `json:"key,omitempty"`
	Version string    `json:"version,omitempty"`
	// VersionTies is stale or apply; empty for the default.
	VersionTies      string            `json:"version_ties,omitempty"`
	KnownObjects     *bool             `json:"known_objects,omitempty"`
	EmitReplaced     *bool             `json:"emit_replaced,omitempty"`
	Lease            Duration          `json:"lease,omitempty"`
	MaxFailures      *int64            `json:"max_failures,omitempty"`
	RateLimiter      *RateLimiter      `json:"rate_limiter,omitempty"`
	Debounce         *Debounce         `json:"debounce,omitempty"`
	Order            *Order            `json:"order,omitempty"`
	Groups           *Groups           `json:"groups,omitempty"`
	MaxLeased        *int64            `json:"max_leased,omitempty"`
	Rate             *DeliveryRate     `json:"rate,omitempty"`
	ResyncPeriod     Duration          `json:"resync_period,omitempty"`
	MaxKeys          *int64            `json:"max_keys,omitempty"`
	MaxObjectBytes   *int64            `json:"max_object_bytes,omitempty"`
	MaxDeltasPerKey  *int64            `json:"max_deltas_per_key,omitempty"`
	MaxBytesPerKey   *int64            `json:"max_bytes_per_key,omitempty"`
	MaxDeletePercent *float64          `json:"max_delete_percent,omitempty"`
	MaxDeletes       *int64            `json:"max_deletes,omitempty"`
	Retention        *Retention        `json:"retention,omitempty"`
	Follow           *Follow           `json:"follow,omitempty"`
	Push             *Push             `json:"push,omitempty"`
	Hook             *Hook             `json:"hook,omitempty"`
	CloudEvents      *CloudEvents      `json:"cloudevents,omitempty"`
	Kubernetes       *Kubernetes       `json:"kubernetes,omitempty"`
	Owner            string            `json:"owner,omitempty"`
	Schema           json.RawMessage   `json:"schema,omitempty"`
	Prune            []string          `json:"prune,omitempty"`
	Ignore           []string          `json:"ignore,omitempty"`
	Diff             *DiffSettings     `json:"diff,omitempty"`
	Indexes          map[string]string `json:"indexes,omitempty"`
}

// TaggedSettings are the settings of a queue with their entity tag.
type TaggedSettings struct {
	Settings QueueSettings
	// ETag is for IfMatch in a later call.
	ETag string
}

// SettingsPlan is what a change of settings would make of a queue.
type SettingsPlan struct {
	// Current are the present settings; nil if there is no queue of this name.
	Current *QueueSettings `json:"current"`
	// ETag is that of the present settings, for IfMatch in a later call; nil if there is no queue of this name.
	ETag *string `json:"etag"`
	// Planned are the settings after the change.
	Planned QueueSettings `json:"planned"`
}

// FollowStatus is the progress of a follower.
type FollowStatus struct {
	// State is listing, following, blocked or waiting.
	State           string `json:"state"`
	ResourceVersion *int64 `json:"resource_version"`
	LagEvents       int64  `json:"lag_events"`
	LagMs           int64  `json:"lag_ms"`
	// Reason is full, busy, failed, history_lost or not_granted, if the follower takes nothing.
	Reason *string `json:"reason"`
	Detail *string `json:"detail"`
}

// PushStatus is what the sender of a queue that pushes does.
type PushStatus struct {
	// State is sending, failing or refused.
	State           string     `json:"state"`
	InFlight        int64      `json:"in_flight"`
	AllowedInFlight int64      `json:"allowed_in_flight"`
	LastSuccessAt   *time.Time `json:"last_success_at"`
	LastError       *string    `json:"last_error"`
}

// HookStatus is what became of the deliveries of a hook.
type HookStatus struct {
	Kept           int64      `json:"kept"`
	LastAppliedAt  *time.Time `json:"last_applied_at"`
	LastRejectedAt *time.Time `json:"last_rejected_at"`
	LastRejected   *string    `json:"last_rejected"`
}

// QueueStatus has the counts and flags of a queue.
type QueueStatus struct {
	Ready                     int64         `json:"ready"`
	Delayed                   int64         `json:"delayed"`
	Leased                    int64         `json:"leased"`
	Parked                    int64         `json:"parked"`
	Known                     int64         `json:"known"`
	HeldBytes                 int64         `json:"held_bytes"`
	Waiters                   int64         `json:"waiters"`
	HasSynced                 bool          `json:"has_synced"`
	InitialRemaining          int64         `json:"initial_remaining"`
	ResourceVersion           int64         `json:"resource_version"`
	Changes                   int64         `json:"changes"`
	OldestReadyAgeMs          int64         `json:"oldest_ready_age_ms"`
	OldestUnacknowledgedAgeMs int64         `json:"oldest_unacknowledged_age_ms"`
	Paused                    bool          `json:"paused"`
	HeldUntil                 *time.Time    `json:"held_until"`
	PauseReason               *string       `json:"pause_reason"`
	Closed                    bool          `json:"closed"`
	Drained                   bool          `json:"drained"`
	BuildingIndexes           []string      `json:"building_indexes"`
	BuildingGroups            bool          `json:"building_groups"`
	LastReplace               *LastReplace  `json:"last_replace"`
	Follow                    *FollowStatus `json:"follow"`
	Push                      *PushStatus   `json:"push"`
	Hook                      *HookStatus   `json:"hook"`
	Followers                 []string      `json:"followers"`
}

// QueueDocument is a queue with its settings and its status.
type QueueDocument struct {
	Name string `json:"name"`
	// Incarnation is the id of the queue. It changes when the queue is deleted and created again.
	Incarnation string `json:"incarnation"`
	// Life changes each time a server loads the queue.
	Life        string        `json:"life"`
	AutoCreated bool          `json:"auto_created"`
	CreatedAt   time.Time     `json:"created_at"`
	Settings    QueueSettings `json:"settings"`
	Status      QueueStatus   `json:"status"`
	// Drained is set in the reply to a close with Drain.
	Drained *bool `json:"drained"`
}

// UnavailableQueue is a queue that can't be read at present.
type UnavailableQueue struct {
	Name   string  `json:"name"`
	Code   Code    `json:"code"`
	Detail string  `json:"detail"`
	Hint   *string `json:"hint"`
}

// QueuePage is a page of the list of queues.
type QueuePage struct {
	Items       []QueueDocument    `json:"items"`
	Unavailable []UnavailableQueue `json:"unavailable"`
	Continue    *string            `json:"continue"`
	// ResourceVersion is always nil, because each queue has its own.
	ResourceVersion *int64 `json:"resource_version"`
}

// Info describes a server.
type Info struct {
	Name       string    `json:"name"`
	Version    string    `json:"version"`
	Durability string    `json:"durability"`
	Store      InfoStore `json:"store"`
	// Node is nil for a server that is not a node.
	Node     *InfoNode `json:"node"`
	UptimeMs int64     `json:"uptime_ms"`
	// MemoryBytes is the memory that the server may use; nil if its system does not say.
	MemoryBytes *int64 `json:"memory_bytes"`
	// Caller is the token of the call; nil on a server without tokens.
	Caller *InfoCaller      `json:"caller"`
	Links  InfoLinks        `json:"links"`
	Limits map[string]int64 `json:"limits"`
}

// InfoLinks has the pages that the console links to; nil without the setting.
type InfoLinks struct {
	Grafana *string `json:"grafana"`
	Docs    *string `json:"docs"`
}

// InfoStore is the store of a server.
type InfoStore struct {
	Kind       string `json:"kind"`
	Replicated *bool  `json:"replicated"`
}

// InfoNode is a node of a cluster.
type InfoNode struct {
	Name       string  `json:"name"`
	Partitions int64   `json:"partitions"`
	Owned      []int64 `json:"owned"`
}

// InfoCaller is a token and what it permits.
type InfoCaller struct {
	Name      string      `json:"name"`
	ExpiresAt *time.Time  `json:"expires_at"`
	Grants    []InfoGrant `json:"grants"`
}

// InfoGrant is a grant of a token.
type InfoGrant struct {
	Verbs   []string `json:"verbs"`
	Queues  []string `json:"queues"`
	Sources []string `json:"sources"`
}

// Node is a node of a cluster, as of its last heartbeat.
type Node struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	// This is true for the node that replies.
	This bool `json:"this"`
	// State is joining, serving, leaving or late.
	State          string `json:"state"`
	Partitions     int64  `json:"partitions"`
	Queues         int64  `json:"queues"`
	HeartbeatAgeMs int64  `json:"heartbeat_age_ms"`
	// ClockAheadMs is how far its wall clock is ahead of the clock of the database; negative if it is behind.
	ClockAheadMs int64 `json:"clock_ahead_ms"`
	// Details is what the node says of itself; nil if it has not replied.
	Details *NodeDetails `json:"details"`
}

// NodeDetails is what a node says of itself.
type NodeDetails struct {
	Version    string           `json:"version"`
	Store      string           `json:"store"`
	Durability string           `json:"durability"`
	UptimeMs   int64            `json:"uptime_ms"`
	Queues     int64            `json:"queues"`
	Owned      []OwnedPartition `json:"owned"`
	// DiskFreeBytes is nil with PostgreSQL and without a store.
	DiskFreeBytes *int64 `json:"disk_free_bytes"`
}

// OwnedPartition is a partition that a node owns. Epoch is nil without a store.
type OwnedPartition struct {
	Partition int64  `json:"partition"`
	Epoch     *int64 `json:"epoch"`
}

// NodeList has the nodes that share a database; none for a single server.
type NodeList struct {
	Nodes        []Node `json:"nodes"`
	Partitions   int64  `json:"partitions"`
	WithoutOwner int64  `json:"without_owner"`
	// This describes the process that replies.
	This NodeDetails `json:"this"`
}
