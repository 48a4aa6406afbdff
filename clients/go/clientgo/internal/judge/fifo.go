package judge

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	deltaq "example.com/deltaq/clients/go"
)

// objects are those of a test, which can't be written as JSON. The server has their keys and their numbers. Keys are escaped, because some tests have
// control characters in them.
type objects struct {
	keyOf cache.KeyFunc
	mutex sync.Mutex
	all   []any
}

// document is an object as the server has it.
type document struct {
	Key    string `json:"key"`
	Number int    `json:"number"`
}

func (o *objects) document(object any) document {
	key, err := o.keyOf(object)
	check(err)
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.all = append(o.all, object)
	return document{url.PathEscape(key), len(o.all) - 1}
}

func keyOf(escaped string) string {
	key, err := url.PathUnescape(escaped)
	check(err)
	return key
}

func (o *objects) object(text json.RawMessage) any {
	var found document
	err := json.Unmarshal(text, &found)
	check(err)
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.all[found.Number]
}

// fifo makes the calls of DeltaFIFO and FIFO on a queue. A call that fails ends the tests: most of them do not look at errors.
type fifo struct {
	queue *deltaq.Queue
	objects
	// transform changes an object before it is sent; nil for none.
	transform cache.TransformFunc
}

func newFIFO(keyOf cache.KeyFunc, settings deltaq.QueueSettings) *fifo {
	f := &fifo{queue: newQueue(), objects: objects{keyOf: keyOf}}
	// Any list may delete all keys.
	settings.MaxDeletePercent = deltaq.Ptr(100.0)
	_, err := f.queue.PutSettings(running, settings, nil)
	check(err)
	return f
}

// sent is what the server gets for an object of a producer.
func (f *fifo) sent(object any) (document, error) {
	if f.transform == nil {
		return f.document(object), nil
	}
	object, err := f.transform(object)
	if err != nil {
		return document{}, err
	}
	return f.document(object), nil
}

// Add queues an Added change.
func (f *fifo) Add(object any) error {
	sent, err := f.sent(object)
	if err == nil {
		must(f.queue.Add(running, sent, nil))
	}
	return err
}

// Update queues an Updated change.
func (f *fifo) Update(object any) error {
	sent, err := f.sent(object)
	if err == nil {
		must(f.queue.Update(running, sent, nil))
	}
	return err
}

// Delete queues a Deleted change.
func (f *fifo) Delete(object any) error {
	sent, err := f.sent(object)
	if err == nil {
		must(f.queue.Delete(running, sent, nil))
	}
	return err
}

// Replace sends a whole list.
func (f *fifo) Replace(list []any, _ string) error {
	var all []document
	for _, object := range list {
		sent, err := f.sent(object)
		if err != nil {
			return err
		}
		all = append(all, sent)
	}
	_, err := f.queue.Replace(running, deltaq.Objects(all), &deltaq.ReplaceOptions{AllowEmpty: true, KeepLast: true})
	check(err)
	return nil
}

// Resync queues the known objects.
func (f *fifo) Resync() error {
	must(f.queue.Resync(running))
	return nil
}

// waiting returns the keys with changes that no Pop has, in the order of the queue, and their changes.
func (f *fifo) waiting() (keys []string, changes map[string][]deltaq.Delta) {
	changes = map[string][]deltaq.Delta{}
	for item, err := range f.queue.Items(running, nil) {
		check(err)
		if len(item.Deltas) > 0 {
			key := keyOf(item.Key)
			keys = append(keys, key)
			changes[key] = item.Deltas
		}
	}
	return keys, changes
}

// ListKeys returns the keys in the order of the queue.
func (f *fifo) ListKeys() []string {
	keys, _ := f.waiting()
	return keys
}

// HasSynced reports whether the initial list is processed.
func (f *fifo) HasSynced() bool {
	reply, err := f.queue.Synced(running, nil)
	check(err)
	return reply.Synced
}

// Close lets Pop return an error once nothing waits.
func (f *fifo) Close() {
	_, err := f.queue.Close(running, nil)
	check(err)
}

// pop waits for the changes of a key, and gives them to a function. A key that it requeues is released, and any other one acknowledged.
func (f *fifo) pop(process func(key string, changes []deltaq.Delta, isInInitialList bool) error) error {
	for {
		popped, err := f.queue.Pop(running, &deltaq.PopOptions{Wait: 50 * time.Second})
		if errors.Is(err, deltaq.CodeQueueClosed) {
			return cache.ErrFIFOClosed
		}
		check(err)
		if len(popped.Items) == 0 {
			continue
		}
		item := popped.Items[0]
		settle := f.queue.Ack
		err = process(keyOf(item.Key), item.Deltas, item.IsInInitialList)
		if requeue, isRequeue := err.(cache.ErrRequeue); isRequeue {
			settle, err = f.queue.Release, requeue.Err
		}
		list, failure := settle(running, item.Lease.ID)
		check(failure)
		if list.Stale > 0 {
			check(fmt.Errorf("the lease of %s had ended before", item.Key))
		}
		return err
	}
}

// DeltaFIFO makes the calls of a cache.DeltaFIFO on a queue of mode delta. The known objects are those of the queue: the objects of the options, and then
// what Pop has processed.
type DeltaFIFO struct{ *fifo }

var _ cache.Queue = DeltaFIFO{}

// errNoAccumulator is the error of AddIfNotPresent.
var errNoAccumulator = errors.New("a queue takes changes from producers, and not back from a Pop that has ended")

// NewDeltaFIFOWithOptions returns a DeltaFIFO that no other test uses.
func NewDeltaFIFOWithOptions(options cache.DeltaFIFOOptions) *DeltaFIFO {
	settings := deltaq.QueueSettings{
		KnownObjects: deltaq.Ptr(options.KnownObjects != nil),
		EmitReplaced: &options.EmitDeltaTypeReplaced,
	}
	f := newFIFO(options.KeyFunction, settings)
	f.transform = options.Transformer
	if options.KnownObjects == nil {
		return &DeltaFIFO{f}
	}
	var known []deltaq.SeedCall
	for _, key := range options.KnownObjects.ListKeys() {
		object, exists, err := options.KnownObjects.GetByKey(key)
		check(err)
		if !exists {
			check(fmt.Errorf("there is no known object %s", key))
		}
		known = append(known, deltaq.SeedCall{Object: f.document(object)})
	}
	must(f.queue.Seed(running, known))
	return &DeltaFIFO{f}
}

// EmitReplaced is like the option EmitDeltaTypeReplaced.
func (f DeltaFIFO) EmitReplaced() {
	_, err := f.queue.PatchSettings(running, deltaq.QueueSettings{EmitReplaced: deltaq.Ptr(true)}, nil)
	check(err)
}

func (f DeltaFIFO) deltas(key string, changes []deltaq.Delta) cache.Deltas {
	var deltas cache.Deltas
	for _, change := range changes {
		object := f.object(change.Object)
		if change.FinalStateUnknown {
			object = cache.DeletedFinalStateUnknown{Key: key, Obj: object}
		}
		deltas = append(deltas, cache.Delta{Type: cache.DeltaType(change.Type), Object: object})
	}
	return deltas
}

// Items returns the changes of all keys.
func (f DeltaFIFO) Items() map[string]cache.Deltas {
	items := map[string]cache.Deltas{}
	_, changes := f.waiting()
	for key := range changes {
		items[key] = f.deltas(key, changes[key])
	}
	return items
}

// List returns the newest objects.
func (f DeltaFIFO) List() []any {
	var list []any
	for _, deltas := range f.Items() {
		list = append(list, deltas.Newest().Object)
	}
	return list
}

// Get returns the changes of the key of an object.
func (f DeltaFIFO) Get(object any) (item any, exists bool, err error) {
	key, err := f.keyOf(object)
	if err != nil {
		return nil, false, cache.KeyError{Obj: object, Err: err}
	}
	return f.GetByKey(key)
}

// GetByKey returns the changes of a key.
func (f DeltaFIFO) GetByKey(key string) (item any, exists bool, err error) {
	item, exists = f.Items()[key]
	return item, exists, nil
}

// AddIfNotPresent fails, because it has no counterpart.
func (f DeltaFIFO) AddIfNotPresent(any) error { return errNoAccumulator }

// Pop processes the changes of a key.
func (f DeltaFIFO) Pop(process cache.PopProcessFunc) (any, error) {
	var item any
	err := f.pop(func(key string, changes []deltaq.Delta, isInInitialList bool) error {
		item = f.deltas(key, changes)
		return process(item, isInInitialList)
	})
	return item, err
}

// FIFO makes the calls of a cache.FIFO on a queue of mode latest without known objects.
type FIFO struct{ *fifo }

var _ cache.Queue = FIFO{}

// NewFIFO returns a FIFO that no other test uses.
func NewFIFO(keyOf cache.KeyFunc) *FIFO {
	return &FIFO{newFIFO(keyOf, deltaq.QueueSettings{Mode: deltaq.ModeLatest, KnownObjects: deltaq.Ptr(false)})}
}

// Items returns the newest objects by their keys. That of a key which is to be deleted is not one of them.
func (f FIFO) Items() map[string]any {
	items := map[string]any{}
	_, changes := f.waiting()
	for key := range changes {
		if newest := changes[key][len(changes[key])-1]; newest.Type != deltaq.Deleted {
			items[key] = f.object(newest.Object)
		}
	}
	return items
}

// List returns the newest objects.
func (f FIFO) List() []any { return slices.Collect(maps.Values(f.Items())) }

// Get returns the newest object of the key of an object.
func (f FIFO) Get(object any) (item any, exists bool, err error) {
	key, err := f.keyOf(object)
	if err != nil {
		return nil, false, cache.KeyError{Obj: object, Err: err}
	}
	return f.GetByKey(key)
}

// GetByKey returns the newest object of a key.
func (f FIFO) GetByKey(key string) (item any, exists bool, err error) {
	item, exists = f.Items()[key]
	return item, exists, nil
}

// AddIfNotPresent queues an Added change, unless the key has an object.
func (f FIFO) AddIfNotPresent(object any) error {
	_, err := f.queue.Add(running, f.document(object), &deltaq.ProduceOptions{IfAbsent: true})
	if !errors.Is(err, deltaq.CodePreconditionFailed) {
		must(nil, err)
	}
	return nil
}

// Pop processes the newest object of a key. A deletion is no object, so it takes the next key.
func (f FIFO) Pop(process cache.PopProcessFunc) (any, error) {
	for {
		var item any
		isDeleted := false
		err := f.pop(func(_ string, changes []deltaq.Delta, isInInitialList bool) error {
			newest := changes[len(changes)-1]
			if isDeleted = newest.Type == deltaq.Deleted; isDeleted {
				return nil
			}
			item = f.object(newest.Object)
			return process(item, isInInitialList)
		})
		if !isDeleted {
			return item, err
		}
	}
}
