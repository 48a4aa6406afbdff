package deltaq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"time"
)

// ProduceOptions are options of the calls that produce. Some belong to some calls only: the server refuses an option of another call.
type ProduceOptions struct {
	// Key is the key of a single object that does not contain it.
	Key string
	// Source is the producer, which becomes the owner of the keys. Empty means none.
	Source string
	// Sequence is the number of the call: with Source, the server applies each number once, however often it is repeated. Zero means none.
	Sequence int64
	// Delay is the time after which the keys of an Add or an Update become ready. Zero means at once.
	Delay time.Duration
	// Debounce is how long the keys must be quiet before they are delivered. Nil means the setting of the queue, and 0 not at all.
	Debounce *time.Duration
	// MaxWait is the longest wait for that. Zero means 10 times Debounce.
	MaxWait time.Duration
	// HeadStart is how much earlier than they did the changes count as arrived; it may be negative. Nil means the setting of the queue.
	HeadStart *time.Duration
	// MustExist refuses the call if the queue does not exist, instead of creating it.
	MustExist bool
	// RateLimited is for [Queue.AddKey]: the key waits as after a failure, and the call counts as one.
	RateLimited bool
	// IfMatch refuses the change of a single object unless the newest object has this entity tag. Empty means no condition.
	IfMatch string
	// IfAbsent refuses the change of a single object if there is one.
	IfAbsent bool
	// Traceparent is the trace of the call, as in W3C Trace Context. Empty means none.
	Traceparent string
}

func (options *ProduceOptions) apply(call *call) {
	if options == nil {
		return
	}
	query := call.query
	setText(query, "key", options.Key)
	setText(query, "source", options.Source)
	setNumber(query, "sequence", options.Sequence)
	setLength(query, "delay", options.Delay)
	setGiven(query, "debounce", options.Debounce)
	setLength(query, "max_wait", options.MaxWait)
	setGiven(query, "head_start", options.HeadStart)
	setFlag(query, "must_exist", options.MustExist)
	setFlag(query, "rate_limited", options.RateLimited)
	call.headers = map[string]string{}
	if options.Traceparent != "" {
		call.headers["Traceparent"] = options.Traceparent
	}
	hasCondition := options.IfMatch != "" || options.IfAbsent
	if options.IfMatch != "" {
		call.headers["If-Match"] = options.IfMatch
	}
	if options.IfAbsent {
		call.headers["If-None-Match"] = "*"
	}
	// A repeat after a lost reply would count again, or would be refused although the first call was applied.
	call.isOnce = (options.RateLimited || hasCondition) && options.Sequence == 0
}

// encode writes a value as JSON. Unlike json.Marshal it leaves <, > and & as they are.
func encode(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, &EncodeError{err}
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte{'\n'}), nil
}

// ofObject is the error of an object that can't be written, with its place in the call.
func ofObject(index int64, err error) error {
	var failed *EncodeError
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return &EncodeError{fmt.Errorf("object %d: %w", index, err)}
}

// encodeObjects writes an object, or those of a slice. Its error names the place of an object of a slice. Nil is refused: as null, the server would take it
// for a call without objects.
func encodeObjects(objects any) (json.RawMessage, error) {
	if _, isBytes := objects.([]byte); isBytes {
		return nil, &EncodeError{errors.New("a []byte would become a text; json.RawMessage(bytes) is an object that is JSON already")}
	}
	list := reflect.Indirect(reflect.ValueOf(objects))
	_, isJSON := objects.(json.Marshaler)
	if list.Kind() == reflect.Slice && list.IsNil() && !isJSON {
		// A nil slice is an empty one.
		return json.RawMessage("[]"), nil
	}
	text, err := encode(objects)
	if err == nil {
		if bytes.Equal(bytes.TrimSpace(text), []byte("null")) {
			return nil, &EncodeError{errors.New("there is no object, but nil, or null in JSON")}
		}
		return text, nil
	}
	if kind := list.Kind(); kind == reflect.Slice || kind == reflect.Array {
		for index := range list.Len() {
			if _, wrong := encode(list.Index(index).Interface()); wrong != nil {
				return nil, ofObject(int64(index), wrong)
			}
		}
	}
	return nil, err
}

func (q *Queue) produce(ctx context.Context, path string, objects any, options *ProduceOptions) (*Produced, error) {
	if objects == nil && options != nil && options.Key != "" {
		return post[Produced](ctx, q, path, nil, options.apply)
	}
	text, err := encodeObjects(objects)
	if err != nil {
		return nil, err
	}
	return post[Produced](ctx, q, path, text, options.apply)
}

// Add queues an Added change for an object, or for each object of a slice, all or none.
func (q *Queue) Add(ctx context.Context, objects any, options *ProduceOptions) (*Produced, error) {
	return q.produce(ctx, "/add", objects, options)
}

// Update queues an Updated change for an object, or for each object of a slice, all or none.
func (q *Queue) Update(ctx context.Context, objects any, options *ProduceOptions) (*Produced, error) {
	return q.produce(ctx, "/update", objects, options)
}

// Delete queues a Deleted change for an object, or for each object of a slice, all or none.
func (q *Queue) Delete(ctx context.Context, objects any, options *ProduceOptions) (*Produced, error) {
	return q.produce(ctx, "/delete", objects, options)
}

// AddKey adds a key without an object to a queue of mode keys.
func (q *Queue) AddKey(ctx context.Context, key string, options *ProduceOptions) (*Produced, error) {
	return q.byKey(ctx, "/add", key, options)
}

// DeleteKey queues a Deleted change with the newest object of the key.
func (q *Queue) DeleteKey(ctx context.Context, key string, options *ProduceOptions) (*Produced, error) {
	return q.byKey(ctx, "/delete", key, options)
}

func (q *Queue) byKey(ctx context.Context, path, key string, options *ProduceOptions) (*Produced, error) {
	if key == "" {
		return nil, &EncodeError{errors.New("the key is empty")}
	}
	given := copied(options)
	given.Key = key
	return q.produce(ctx, path, nil, &given)
}

// DeltasOptions are options of [Queue.Deltas].
type DeltasOptions struct {
	// Source is the producer of the entries without one. Empty means none.
	Source string
	// Sequence is the number of the call: with Source, the server applies each number once. Zero means none.
	Sequence int64
	// SkipInvalid leaves out entries with an invalid object, however many they are, and applies the others.
	SkipInvalid bool
	// MustExist refuses the call if the queue does not exist, instead of creating it.
	MustExist bool
	// Traceparent is the trace of the call. Empty means none.
	Traceparent string
}

// Deltas queues a mixed batch, all or none.
func (q *Queue) Deltas(ctx context.Context, deltas []DeltaCall, options *DeltasOptions) (*Produced, error) {
	given := DeltasOptions{}
	if options != nil {
		given = *options
	}
	call, list, err := q.deltasCall(deltas, &given)
	if err != nil {
		return nil, err
	}
	produced, err := fetch[Produced](ctx, q.client, call)
	if err == nil {
		list.explain(produced)
	}
	return produced, err
}

func (q *Queue) deltasCall(deltas []DeltaCall, options *DeltasOptions) (*call, *lines, error) {
	call, err := q.call(http.MethodPost, "/deltas")
	if err != nil {
		return nil, nil, err
	}
	setText(call.query, "source", options.Source)
	setNumber(call.query, "sequence", options.Sequence)
	setFlag(call.query, "skip_invalid", options.SkipInvalid)
	setFlag(call.query, "must_exist", options.MustExist)
	if options.Traceparent != "" {
		call.headers = map[string]string{"Traceparent": options.Traceparent}
	}
	list := &lines{skipInvalid: options.SkipInvalid}
	if len(deltas) == 0 {
		call.body = []byte("[]")
		return call, list, nil
	}
	for index := range deltas {
		delta := deltas[index]
		// If only the reply was lost, a repeat is refused: the first call has changed the version.
		call.isOnce = call.isOnce || (delta.ExpectedVersion != nil && options.Sequence == 0)
		if _, err := encode(delta.Object); err != nil && options.SkipInvalid && delta.Type == Deleted && delta.Key != "" {
			// A deletion needs only its key.
			delta.Object = nil
		}
		if err := list.add(delta); err != nil {
			return nil, nil, err
		}
	}
	call.body, call.contentType = list.text.Bytes(), "application/x-ndjson"
	return call, list, nil
}

// Resync queues a Sync change for each known key that has no waiting change and is neither leased nor parked.
func (q *Queue) Resync(ctx context.Context) (*Produced, error) {
	return post[Produced](ctx, q, "/resync", nil, once)
}

// Seed stores objects as known without a change. The queue must have no work.
func (q *Queue) Seed(ctx context.Context, objects []SeedCall) (*Produced, error) {
	if objects == nil {
		objects = []SeedCall{}
	}
	text, err := encodeObjects(objects)
	if err != nil {
		return nil, err
	}
	return post[Produced](ctx, q, "/seed", text, once)
}

// ReplaceOptions are options of [Queue.Replace].
type ReplaceOptions struct {
	// Source is the source whose list this is. Empty means the keys without an owner.
	Source string
	// Sequence is the number of the call: with Source, the server applies each number once. Zero means none.
	Sequence int64
	// OnlyChanged does not queue an object that is equal to the newest one of its key.
	OnlyChanged bool
	// MaxDeletePercent and MaxDeletes refuse a list whose deletions exceed both. Nil for both means the limits of the queue.
	MaxDeletePercent *float64
	MaxDeletes       *int64
	// AllowEmpty lets an empty list delete all keys of the source.
	AllowEmpty bool
	// KeepLast takes the last one of several objects with the same key. Otherwise they refuse the list.
	KeepLast bool
	// SkipInvalid leaves out invalid objects, at most a tenth of the list; their keys keep what they have.
	SkipInvalid bool
	// MustExist refuses the call if the queue does not exist, instead of creating it.
	MustExist bool
	// DryRun returns the counts or the refusal, and changes nothing.
	DryRun bool
	// Traceparent is the trace of the call. Empty means none.
	Traceparent string
}

func (options *ReplaceOptions) apply(call *call) {
	query := call.query
	setText(query, "source", options.Source)
	setNumber(query, "sequence", options.Sequence)
	setFlag(query, "only_changed", options.OnlyChanged)
	if options.MaxDeletePercent != nil {
		query.Set("max_delete_percent", fmt.Sprint(*options.MaxDeletePercent))
	}
	if options.MaxDeletes != nil {
		query.Set("max_deletes", fmt.Sprint(*options.MaxDeletes))
	}
	setFlag(query, "allow_empty", options.AllowEmpty)
	if options.KeepLast {
		query.Set("duplicates", "last")
	}
	setFlag(query, "skip_invalid", options.SkipInvalid)
	setFlag(query, "must_exist", options.MustExist)
	setFlag(query, "dry_run", options.DryRun)
	if options.Traceparent != "" {
		call.headers = map[string]string{"Traceparent": options.Traceparent}
	}
}

// errNoList is the error of a call without a list. It is not taken for an empty one, which may delete keys.
var errNoList = errors.New("deltaq: there is no list; Objects makes one from a slice, which may be empty")

// bufferedMax is the size up to which a list is written before it is sent, so that its repeats need not read the source again.
const bufferedMax = 4 << 20

// Replace sends the whole list of a source: each object is queued, and so is the deletion of each key that the list lacks. The list may have any length.
// It is read once, and once more for each repeat if it has more than 4 MiB. An error in the list ends the call, which then has changed nothing.
func (q *Queue) Replace(ctx context.Context, objects iter.Seq2[any, error], options *ReplaceOptions) (*ReplaceReply, error) {
	call, list, err := q.replaceCall(objects, copied(options))
	if err != nil {
		return nil, err
	}
	replaced, err := fetch[ReplaceReply](ctx, q.client, call)
	if err != nil {
		return nil, err
	}
	list.explain(&replaced.Produced)
	return replaced, nil
}

func (q *Queue) replaceCall(objects iter.Seq2[any, error], options ReplaceOptions) (*call, *lines, error) {
	call, err := q.call(http.MethodPost, "/replace")
	if err != nil {
		return nil, nil, err
	}
	options.apply(call)
	if objects == nil {
		return nil, nil, errNoList
	}
	call.contentType, call.wait = "application/x-ndjson", q.client.listWait
	list := &lines{skipInvalid: options.SkipInvalid}
	isWhole, err := list.fill(objects, bufferedMax)
	if err != nil {
		return nil, nil, err
	}
	if isWhole {
		call.body = list.text.Bytes()
	} else {
		call.stream = &listStream{objects: objects, lines: list}
	}
	return call, list, nil
}

// Objects returns a list for [Queue.Replace] from a slice.
func Objects[T any](objects []T) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		for _, object := range objects {
			if !yield(object, nil) {
				return
			}
		}
	}
}

// ReportSource reports why the queue is not in step with a source. An empty problem reports that it is in step.
func (q *Queue) ReportSource(ctx context.Context, source, problem string) error {
	call, err := q.call(http.MethodPost, "/sources")
	if err != nil {
		return err
	}
	body := map[string]any{"source": source, "problem": nil}
	if problem != "" {
		body["problem"] = problem
	}
	if call.body, err = encode(body); err != nil {
		return err
	}
	_, err = q.client.do(ctx, call)
	return err
}

// SeenSource reports that the source was reached and has no change, so that it does not count as silent.
func (q *Queue) SeenSource(ctx context.Context, source string) error {
	name, err := segment(source)
	if err != nil {
		return err
	}
	call, err := q.call(http.MethodPost, "/sources/"+name+"/seen")
	if err != nil {
		return err
	}
	_, err = q.client.do(ctx, call)
	return err
}

// SetStaleAfter sets how long a source may be silent before it counts as stale. Zero removes the threshold.
func (q *Queue) SetStaleAfter(ctx context.Context, source string, staleAfter time.Duration) (*Source, error) {
	var threshold *Duration
	if staleAfter != 0 {
		threshold = Ptr(Duration(staleAfter))
	}
	return q.changeSource(ctx, source, map[string]any{"stale_after": threshold})
}

// RenumberSource sets the last sequence number of a source. Nil forgets it: the next call of the source is applied whatever its number is.
func (q *Queue) RenumberSource(ctx context.Context, source string, sequence *int64) (*Source, error) {
	return q.changeSource(ctx, source, map[string]any{"sequence": sequence})
}

func (q *Queue) changeSource(ctx context.Context, source string, change map[string]any) (*Source, error) {
	name, err := segment(source)
	if err != nil {
		return nil, err
	}
	call, err := q.call(http.MethodPatch, "/sources/"+name)
	if err != nil {
		return nil, err
	}
	if call.body, err = encode(change); err != nil {
		return nil, err
	}
	return fetch[Source](ctx, q.client, call)
}
