package deltaq

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"
)

// Handlers are called for the changes of an informer's store. Each may be nil. They must not change objects.
type Handlers struct {
	// OnAdd gets an object that is new in the store, and whether it is of the first list of the handler.
	OnAdd func(object *Object, isInInitialList bool)
	// OnUpdate gets an object and the one before. A resync calls it with the same object twice.
	OnUpdate func(old, new *Object)
	// OnDelete gets the last object. It may be older than the last state if that is unknown: if a list shows that the key is gone, or the server says so.
	OnDelete func(object *Object, isFinalStateUnknown bool)
}

func (h *Handlers) notify(change change) {
	switch {
	case change.old == nil:
		if h.OnAdd != nil {
			h.OnAdd(change.new, change.isInInitialList)
		}
	case change.new == nil:
		if h.OnDelete != nil {
			h.OnDelete(change.old, change.isFinalStateUnknown)
		}
	case h.OnUpdate != nil:
		h.OnUpdate(change.old, change.new)
	}
}

// Registration are handlers of an informer.
type Registration struct {
	handlers Handlers
	synced   chan struct{}
}

// HasSynced reports whether the handlers were called for every object of their first list.
func (r *Registration) HasSynced() bool { return isClosed(r.synced) }

// Synced returns a channel that is closed when [Registration.HasSynced] becomes true.
func (r *Registration) Synced() <-chan struct{} { return r.synced }

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// InformerOptions are options of an informer. The zero value of each field is its default.
type InformerOptions struct {
	// View is the view to keep. Empty means [Latest].
	View View
	// Prefix selects keys that begin with it, and Shard (such as 0/4) a part of all keys. Empty selects all.
	Prefix, Shard string
	// Indexes are the indexes of the store, by their names. Nil means none.
	Indexes map[string]IndexFunc
	// Resync is the interval at which handlers get every object again. Zero means never.
	Resync time.Duration
	// Bookmark is that of [WatchOptions].
	Bookmark time.Duration
}

// Informer keeps a copy of a view of a queue in memory, and calls handlers for its changes.
//
// Handlers are called one at a time, in the order of the changes. While a handler runs, the informer reads nothing; several changes of a key then arrive
// as one, with the newest state. A handler that panics is logged.
type Informer struct {
	queue   *Queue
	options InformerOptions
	cache   cache
	synced  chan struct{}

	mutex sync.Mutex
	// added are handlers that run has not seen yet.
	added []*Registration
	// wake tells run that there are some.
	wake chan struct{}
	// hasBegun is true once Run was called.
	hasBegun bool
	// registrations belong to the goroutine of Run.
	registrations []*Registration
}

// NewInformer returns an informer of a queue. Nothing is sent before [Informer.Run]. It panics without a queue, and if a time of the options is negative.
func NewInformer(queue *Queue, options *InformerOptions) *Informer {
	must(queue != nil, "NewInformer: queue is nil; it must be a queue, such as client.Queue(\"orders\")")
	given := copied(options)
	mustNotBeNegative("InformerOptions", named{"Resync", given.Resync}, named{"Bookmark", given.Bookmark})
	return &Informer{
		queue:   queue,
		options: given,
		cache:   cache{store: newStore(given.Indexes)},
		synced:  make(chan struct{}),
		wake:    make(chan struct{}, 1),
	}
}

// Store returns the store. It is empty until the informer has synced.
func (i *Informer) Store() *Store { return i.cache.store }

// HasSynced reports whether the store has had a complete list.
func (i *Informer) HasSynced() bool { return isClosed(i.synced) }

// Synced returns a channel that is closed when [Informer.HasSynced] becomes true.
func (i *Informer) Synced() <-chan struct{} { return i.synced }

// AddHandler adds handlers, also while the informer runs: they get an add for each object of the store.
func (i *Informer) AddHandler(handlers Handlers) *Registration {
	registration := &Registration{handlers: handlers, synced: make(chan struct{})}
	i.mutex.Lock()
	i.added = append(i.added, registration)
	i.mutex.Unlock()
	select {
	case i.wake <- struct{}{}:
	default:
	}
	return registration
}

// WaitForCacheSync waits until all of these informers and registrations have synced, or the context ends.
func WaitForCacheSync(ctx context.Context, all ...interface{ Synced() <-chan struct{} }) error {
	for _, each := range all {
		select {
		case <-each.Synced():
		case <-ctx.Done():
			return ended(ctx, nil)
		}
	}
	return nil
}

// Run keeps the store until the context ends, and then returns nil. It lists and watches, goes on from its last version after a lost connection, and lists
// again if the server no longer knows what was deleted since. A final error, such as that of an unknown token, is returned. An informer runs once.
func (i *Informer) Run(ctx context.Context) error {
	i.mutex.Lock()
	hasBegun := i.hasBegun
	i.hasBegun = true
	i.mutex.Unlock()
	if hasBegun {
		return errors.New("deltaq: an informer runs once")
	}
	var resync <-chan time.Time
	if i.options.Resync > 0 {
		ticker := time.NewTicker(i.options.Resync)
		defer ticker.Stop()
		resync = ticker.C
	}
	watching := newWatching(&i.cache, i.queue.client.retry)
	var pause time.Duration
	for {
		err := i.watch(ctx, pause, resync, watching)
		if ctx.Err() != nil {
			return nil
		}
		again, isFinal := watching.pauseAfter(err)
		if isFinal {
			return err
		}
		switch {
		case errors.Is(err, CodeExpired):
			// This is usual when the server keeps few changes, and the new list has everything.
			i.queue.client.log.Debug("deltaq: an informer lists again", "queue", i.queue.name, "error", err)
		case err != nil:
			i.queue.client.rows.failed(watchOf(i.queue), "", err)
		}
		pause = again
	}
}

// watch applies the rows of one watch, which begins after a pause, until its end. It calls all handlers.
func (i *Informer) watch(ctx context.Context, pause time.Duration, resync <-chan time.Time, watching *watching) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, ends := make(chan *WatchRow), make(chan error)
	options := &WatchOptions{
		View: i.options.View, ResourceVersion: i.cache.begin(), Prefix: i.options.Prefix, Shard: i.options.Shard, Bookmark: i.options.Bookmark,
	}
	// A server that has begun the stream answers, also if nothing changes for a while.
	options.Opened = func() { i.queue.client.rows.answered(watchOf(i.queue)) }
	go func() {
		err := sleep(ctx, pause, nil)
		if err == nil {
			err = i.queue.watch(ctx, options, func(row *WatchRow) bool { rows <- row; return true })
		}
		ends <- err
	}()
	var failure error
	for {
		select {
		case row := <-rows:
			watching.received()
			if failure == nil {
				if failure = i.apply(row); failure != nil {
					cancel()
				}
			}
		case err := <-ends:
			return or(failure, err)
		case <-i.wake:
			i.takeAdded()
		case <-resync:
			i.resync()
		}
	}
}

// watchOf is the call of the watches of a queue, for the log.
func watchOf(queue *Queue) *call { return &call{path: "/v1/queues/-/watch", queue: queue.name} }

// apply applies a row, and calls the handlers.
func (i *Informer) apply(row *WatchRow) error {
	i.takeAdded()
	hadSynced := i.cache.hasSynced
	err := i.cache.apply(row, func(change change) {
		for _, registration := range i.registrations {
			i.call(registration, change)
		}
	})
	if i.cache.hasSynced && !hadSynced {
		for _, registration := range i.registrations {
			close(registration.synced)
		}
		close(i.synced)
	}
	return err
}

// takeAdded begins to call handlers that were added. If the store has synced, they get an add for each object first.
func (i *Informer) takeAdded() {
	i.mutex.Lock()
	added := i.added
	i.added = nil
	i.mutex.Unlock()
	for _, registration := range added {
		if i.cache.hasSynced {
			for _, object := range i.cache.store.List() {
				i.call(registration, change{new: object, isInInitialList: true})
			}
			close(registration.synced)
		}
		i.registrations = append(i.registrations, registration)
	}
}

func (i *Informer) resync() {
	objects := i.cache.store.List()
	for _, registration := range i.registrations {
		for _, object := range objects {
			i.call(registration, change{old: object, new: object})
		}
	}
}

// call calls a handler. A panic is logged.
func (i *Informer) call(registration *Registration, change change) {
	defer func() {
		if reason := recover(); reason != nil {
			i.queue.client.log.Error("deltaq: a handler of an informer panicked", "queue", i.queue.name, "panic", reason, "stack", string(debug.Stack()))
		}
	}()
	registration.handlers.notify(change)
}

// watching decides when the next watch of an informer begins.
type watching struct {
	cache    *cache
	options  RetryOptions
	attempts *attempts
	hasRows  bool
	// version is that of the store at the end of the last watch.
	version int64
}

func newWatching(cache *cache, options RetryOptions) *watching {
	return &watching{cache: cache, options: options, attempts: newAttempts(options, true)}
}

// received records that a row has arrived.
func (w *watching) received() {
	if !w.hasRows {
		w.hasRows = true
		w.attempts.failures = 0
	}
}

// pauseAfter returns the pause before the next watch, after an error or the end of a stream, and whether the error is final.
func (w *watching) pauseAfter(err error) (pause time.Duration, isFinal bool) {
	hadRows := w.hasRows
	w.hasRows = false
	hasProgress := w.cache.version != w.version
	if hasProgress {
		// Only a new version is progress. Rows alone are not, because a list may have a row that can't be read.
		w.version, w.attempts = w.cache.version, newAttempts(w.options, true)
	}
	switch {
	case err == nil && hadRows && hasProgress:
		// The server ends each stream after some minutes.
		return 0, false
	case errors.Is(err, CodeExpired), errors.Is(err, CodeQueueDeleted):
		w.cache.expire()
	case err == nil, errors.Is(err, CodeQueueNotFound):
		// The queue does not exist yet, or a stream has brought nothing new, such as a part of a list: without a pause, this would be a busy loop.
	default:
		pause, again := w.attempts.pauseAfter(err, false)
		return pause, !again
	}
	w.attempts.failures++
	return backoff(w.options.First, w.options.Max, w.attempts.failures), false
}
