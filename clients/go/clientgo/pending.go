package clientgo

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	deltaq "example.com/deltaq/clients/go"
)

const (
	// batchMax is the largest number of keys of one call.
	batchMax = 1000
	// callsMax is the number of rate-limited adds that run at once, because each is a call.
	callsMax = 16
)

// pending are the changes of a key that the server does not have. They are bounded, however many calls they stand for. Their order is that of the fields:
// a failure that is forgotten later only matters for its delay, which is shortest for the first one.
type pending struct {
	key string
	// since is the number of the first of them, see Queue.clock.
	since uint64
	// early is true for a rate-limited add before forget.
	early  bool
	forget bool
	// limited is the number of rate-limited adds after forget.
	limited int
	// due is the earliest time of an AddAfter; zero for none.
	due time.Time
	add bool
	// ends are leases to settle after the changes.
	ends []*held
}

// merge adds later changes.
func (p *pending) merge(later pending) {
	if later.forget {
		p.early = p.early || p.limited > 0 || later.early
		p.forget, p.limited = true, later.limited
	} else {
		p.limited += later.limited
	}
	if p.due.IsZero() || (!later.due.IsZero() && later.due.Before(p.due)) {
		p.due = later.due
	}
	p.add = p.add || later.add
	p.ends = append(p.ends, later.ends...)
}

func (p *pending) isEmpty() bool {
	return !p.early && !p.forget && p.limited == 0 && p.due.IsZero() && !p.add
}

func (q *Queue) add(key string, change pending) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.addLocked(key, change)
}

func (q *Queue) addLocked(key string, change pending) {
	if q.ctx.Err() != nil || (q.isShuttingDown && q.options.Exclusive) {
		return
	}
	found := q.pending[key]
	if found == nil {
		q.clock++
		found = &pending{key: key, since: q.clock}
		q.pending[key] = found
		q.names = append(q.names, key)
	}
	found.merge(change)
	q.startSending()
}

func (q *Queue) startSending() {
	if !q.isSending {
		q.isSending = true
		go q.sendChanges()
	}
}

// sendChanges sends changes until there are none, and then closes the queue if it is exclusive and shut down.
func (q *Queue) sendChanges() {
	failures := 0
	for {
		batch, isEnd := q.nextChanges()
		if isEnd {
			return
		}
		err := q.prepare()
		switch {
		case err != nil:
		case len(batch) > 0:
			err = q.sendBatch(batch)
		default:
			err = q.closeServer()
		}
		q.sent(batch)
		if err == nil {
			failures = 0
			q.note("add", nil)
			continue
		}
		failures++
		if !q.pause(q.ctx, "add", failures, err) {
			q.mutex.Lock()
			q.isSending = false
			q.changed.Broadcast()
			q.mutex.Unlock()
			return
		}
	}
}

// nextChanges takes the changes of the next keys. An empty batch means to close the queue.
func (q *Queue) nextChanges() (batch []*pending, isEnd bool) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	count := min(len(q.names), batchMax)
	for _, key := range q.names[:count] {
		batch = append(batch, q.pending[key])
		q.sending[key] = q.pending[key]
		delete(q.pending, key)
	}
	q.names = q.names[count:]
	if count == 0 && (q.isServerClosed || !q.isShuttingDown || !q.options.Exclusive) {
		q.isSending, q.names = false, nil
		q.changed.Broadcast()
		return nil, true
	}
	return batch, false
}

// sent ends the leases of the keys whose changes the server has, and puts back the others.
func (q *Queue) sent(batch []*pending) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	clear(q.sending)
	for _, changes := range batch {
		if changes.isEmpty() {
			for _, held := range changes.ends {
				q.end(held)
			}
			continue
		}
		if later := q.pending[changes.key]; later != nil {
			changes.merge(*later)
		} else {
			q.names = append(q.names, changes.key)
		}
		q.pending[changes.key] = changes
	}
	q.changed.Broadcast()
}

// sendBatch sends the changes of a batch, and takes out of them what the server has, or what it will never take.
func (q *Queue) sendBatch(batch []*pending) error {
	var early, forgotten, limited, added []*pending
	for _, changes := range batch {
		if changes.early {
			early = append(early, changes)
		}
	}
	errs := []error{q.sendLimited(early, func(changes *pending) { changes.early = false })}
	for _, changes := range batch {
		if changes.forget && !changes.early {
			forgotten = append(forgotten, changes)
		}
	}
	errs = append(errs, q.sendForget(forgotten))
	for _, changes := range batch {
		if changes.limited > 0 && !changes.forget {
			limited = append(limited, changes)
		}
		if changes.add || !changes.due.IsZero() {
			added = append(added, changes)
		}
	}
	errs = append(errs, q.sendLimited(limited, func(changes *pending) { changes.limited-- }))
	return errors.Join(append(errs, q.sendAdds(added))...)
}

func (q *Queue) sendForget(batch []*pending) error {
	if len(batch) == 0 {
		return nil
	}
	keys := make([]string, len(batch))
	for index, changes := range batch {
		keys[index] = changes.key
	}
	_, err := q.queue.Forget(q.ctx, keys...)
	switch {
	case isRefused(err) && len(batch) > 1:
		middle := len(batch) / 2
		return errors.Join(q.sendForget(batch[:middle]), q.sendForget(batch[middle:]))
	case isRefused(err):
		q.log.Error("deltaq: a workqueue can't forget the failures of a key", "key", keys[0], "error", err)
	case err != nil:
		return err
	}
	for _, changes := range batch {
		changes.forget = false
	}
	return nil
}

// sendLimited makes rate-limited adds, for each key until it is no longer limited or early. A repeat after a lost reply counts twice, which makes the next
// delay longer. Without it, the key might be lost.
func (q *Queue) sendLimited(batch []*pending, sent func(*pending)) error {
	var group sync.WaitGroup
	var mutex sync.Mutex
	var failure error
	permits := make(chan struct{}, callsMax)
	for _, changes := range batch {
		calls := 1
		if !changes.early {
			calls = changes.limited
		}
		group.Add(1)
		permits <- struct{}{}
		go func() {
			defer func() { <-permits; group.Done() }()
			for range calls {
				_, err := q.queue.AddKey(q.ctx, changes.key, &deltaq.ProduceOptions{RateLimited: true, MustExist: true})
				switch {
				case isRefused(err):
					q.log.Error("deltaq: a workqueue can't add a key", "key", changes.key, "error", err)
				case err != nil:
					mutex.Lock()
					failure = err
					mutex.Unlock()
					return
				}
				sent(changes)
			}
		}()
	}
	group.Wait()
	return failure
}

// sendAdds sends the adds of keys, all or none in one call. If the server refuses a key, the others are sent without it. If the queue is full, keys that
// this process has leased are sent first: the queue has room for them, and their leases can't end before.
func (q *Queue) sendAdds(batch []*pending) error {
	if len(batch) == 0 {
		return nil
	}
	_, err := q.queue.Deltas(q.ctx, adds(batch), &deltaq.DeltasOptions{MustExist: true})
	middle := len(batch) / 2
	switch {
	case isRefused(err) && len(batch) > 1:
		return errors.Join(q.sendAdds(batch[:middle]), q.sendAdds(batch[middle:]))
	case isRefused(err):
		q.log.Error("deltaq: a workqueue can't add a key", "key", batch[0].key, "error", err)
	case errors.Is(err, deltaq.CodeQueueFull) && len(batch) > 1:
		first, then := q.owned(batch)
		if len(first) == 0 || len(then) == 0 {
			first, then = batch[:middle], batch[middle:]
		}
		if err := q.sendAdds(first); err != nil {
			return err
		}
		return q.sendAdds(then)
	case err != nil:
		return err
	}
	for _, changes := range batch {
		changes.add, changes.due = false, time.Time{}
	}
	return nil
}

func adds(batch []*pending) (deltas []deltaq.DeltaCall) {
	now := time.Now()
	for _, changes := range batch {
		if changes.add {
			deltas = append(deltas, deltaq.DeltaCall{Type: deltaq.Added, Key: changes.key})
		}
		if !changes.due.IsZero() {
			delay := max(changes.due.Sub(now), time.Millisecond).Round(time.Millisecond)
			deltas = append(deltas, deltaq.DeltaCall{Type: deltaq.Added, Key: changes.key, Delay: deltaq.Duration(delay)})
		}
	}
	return deltas
}

// owned divides changes into those of keys that this process has leased, and the others.
func (q *Queue) owned(batch []*pending) (owned, others []*pending) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	for _, changes := range batch {
		if q.held[changes.key] != nil || len(changes.ends) > 0 {
			owned = append(owned, changes)
		} else {
			others = append(others, changes)
		}
	}
	return owned, others
}

func (q *Queue) closeServer() error {
	_, err := q.queue.Close(q.ctx, &deltaq.CloseOptions{AtOnce: true})
	if err == nil {
		q.mutex.Lock()
		q.isServerClosed = true
		q.mutex.Unlock()
	}
	return err
}

// isRefused reports whether the server will never take the call, because of what it has.
func isRefused(err error) bool {
	var problem *deltaq.Problem
	var unwritable *deltaq.EncodeError
	if errors.As(err, &problem) {
		switch problem.Status {
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
			return true
		}
		return false
	}
	return errors.As(err, &unwritable)
}

// failuresOf asks the server for the failures of a key, once it has all changes of the key.
func (q *Queue) failuresOf(key string) int {
	q.waitUntil(flushMax, func() bool { return q.pending[key] == nil && q.sending[key] == nil && !q.isEnding(key) })
	ctx, cancel := context.WithTimeout(q.ctx, flushMax)
	defer cancel()
	item, err := q.queue.Item(ctx, key, nil)
	switch {
	case err == nil:
		return int(item.Failures)
	case !errors.Is(err, deltaq.CodeKeyNotFound) && !errors.Is(err, deltaq.CodeQueueNotFound):
		q.log.Warn("deltaq: the failures of a key are unknown", "key", key, "error", err)
	}
	return 0
}

func (q *Queue) isEnding(key string) bool {
	for _, held := range q.leases {
		if held.key == key && held.isDone {
			return true
		}
	}
	return false
}

// ready asks the server for the number of keys that are ready, once it has all changes.
func (q *Queue) ready() int {
	q.flush(flushMax)
	ctx, cancel := context.WithTimeout(q.ctx, flushMax)
	defer cancel()
	status, err := q.queue.Status(ctx)
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if err == nil {
		return int(status.Ready) + len(q.delivered)
	}
	if !errors.Is(err, deltaq.CodeQueueNotFound) {
		q.log.Warn("deltaq: the length of a workqueue is unknown", "error", err)
	}
	return len(q.pending)
}
