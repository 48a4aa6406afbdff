package clientgo

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	deltaq "example.com/deltaq/clients/go"
)

const (
	// waitMax is how long a pop waits for keys.
	waitMax = 20 * time.Second
	// leasesMax is the number of leases from which on no further keys are taken, because the server does not take the ends of earlier ones.
	leasesMax = 10_000
	// marginMax is the longest safety margin: a lease that could not be extended counts as lost this long before its end.
	marginMax = 5 * time.Second
	// patienceMax is the longest time of one extension.
	patienceMax = 10 * time.Second
)

// held is a lease of this process.
type held struct {
	key, id string
	token   int64
	// failures are those of the key before the lease, and the rate-limited adds during it.
	failures int
	// isForgotten is true if Forget was called: the end of the lease resets the failures.
	isForgotten bool
	// ctx is the context of the work on the key, and cancel ends it.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// isDone is true after Done, and isReleased for a key that no Get takes.
	isDone, isReleased bool
	// isLost is true once the lease may have ended: another worker may hold the key, so nothing of it is settled.
	isLost bool
	// endedAt is the number of its end, see Queue.clock.
	endedAt  uint64
	extendAt time.Time
	// lostAt is when the lease counts as lost, unless it is extended: some time before the server may give the key to another worker.
	lostAt time.Time
}

// begin starts the time of the lease.
func (h *held) begin(from time.Time, length time.Duration) {
	h.extendAt = from.Add(length / 3)
	h.lostAt = from.Add(length - min(marginMax, length/6))
}

// take returns the next key that no Get has taken. A key that is still held waits: its first lease is lost, and its work goes on.
func (q *Queue) take() *held {
	for index, next := range q.delivered {
		if q.held[next.key] == nil {
			q.delivered = append(q.delivered[:index:index], q.delivered[index+1:]...)
			q.held[next.key] = next
			return next
		}
	}
	return nil
}

// startPop asks the server for the keys for which calls of Get wait.
func (q *Queue) startPop() {
	free := min(q.waiting-q.asked, batchMax, leasesMax-len(q.leases))
	if free <= 0 || q.taking.Err() != nil {
		return
	}
	q.asked += free
	q.begun++
	go q.pop(q.begun, free)
}

// pop is the pop of this number, which pops until there is a reply. Its repeats have the same id, and so the same leases.
func (q *Queue) pop(number, count int) {
	options := &deltaq.PopOptions{Wait: waitMax, Max: count, LeaseDuration: q.options.LeaseDuration, Worker: q.options.Name, ID: newID()}
	for failures := 1; ; failures++ {
		err := q.prepare()
		isClosing := q.awaitClose()
		if err == nil {
			var popped *deltaq.Popped
			popped, err = q.queue.Pop(q.taking, options)
			if err == nil {
				q.note("pop", nil)
				q.receive(count, popped.Items)
				return
			}
		}
		if q.taking.Err() != nil && q.ctx.Err() == nil {
			// ShutDown has ended this pop. Its repeat returns the keys that it has leased, without waiting for others.
			options.Wait = 0
			ctx, cancel := context.WithTimeout(q.ctx, flushMax)
			popped, err := q.queue.Pop(ctx, options)
			cancel()
			if err == nil {
				q.receive(count, popped.Items)
				return
			}
		}
		isClosed := errors.Is(err, deltaq.CodeQueueClosed) && q.options.Exclusive && q.ShuttingDown()
		if isClosed && !isClosing {
			// ShutDown has closed the queue during this pop.
			continue
		}
		if isClosed || !q.pause(q.taking, "pop", failures, err) {
			q.mutex.Lock()
			q.refused = max(q.refused, number)
			q.asked -= count
			q.changed.Broadcast()
			q.mutex.Unlock()
			return
		}
	}
}

// awaitClose waits, if an exclusive queue was shut down, until the server has its end and all leases that are done: it then says whether a key is ready.
func (q *Queue) awaitClose() (isClosing bool) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if !q.isShuttingDown || !q.options.Exclusive {
		return false
	}
	for clock := q.clock; !q.isFlushed(clock) && q.ctx.Err() == nil; {
		q.changed.Wait()
	}
	return true
}

// receive takes leased keys. After ShutDown they are released.
func (q *Queue) receive(count int, items []deltaq.PoppedItem) {
	now := time.Now()
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.asked -= count
	for index := range items {
		item := &items[index]
		leased := &held{key: item.Key, id: item.Lease.ID, token: item.Lease.Token, failures: int(item.Failures)}
		leased.ctx, leased.cancel = context.WithCancelCause(q.ctx)
		leased.begin(now, time.Duration(item.Lease.ExpiresInMs)*time.Millisecond)
		q.leases[leased.id] = leased
		if q.taking.Err() == nil {
			q.delivered = append(q.delivered, leased)
			continue
		}
		leased.isReleased = true
		q.end(leased)
	}
	q.keepLeases()
	q.changed.Broadcast()
}

// end settles a lease soon.
func (q *Queue) end(leased *held) {
	leased.cancel(nil)
	if leased.endedAt == 0 {
		q.clock++
		leased.endedAt = q.clock
	}
	q.ended = append(q.ended, leased)
	if !q.isSettling {
		q.isSettling = true
		go q.sendSettles()
	}
}

func (h *held) settle() deltaq.Settle {
	settle := deltaq.Settle{LeaseID: h.id, As: deltaq.AsDone}
	switch {
	case h.isReleased:
		settle.As = deltaq.AsRelease
	case h.isForgotten:
		settle.As = deltaq.AsAck
	}
	return settle
}

// sendSettles settles leases until there are none to settle. A repeat after a lost reply has the same effect.
func (q *Queue) sendSettles() {
	failures := 0
	for {
		q.mutex.Lock()
		count := min(len(q.ended), batchMax)
		if count == 0 {
			q.isSettling = false
			q.changed.Broadcast()
			q.mutex.Unlock()
			return
		}
		batch := q.ended[:count:count]
		settles := make([]deltaq.Settle, count)
		for index, leased := range batch {
			settles[index] = leased.settle()
		}
		q.mutex.Unlock()
		list, err := q.queue.Settle(q.ctx, settles)
		switch {
		case errors.Is(err, deltaq.CodeQueueNotFound), errors.Is(err, deltaq.CodeWrongMode):
			// The queue was deleted, so its leases have ended.
			list = &deltaq.SettledList{}
		case err != nil:
			failures++
			if q.pause(q.ctx, "settle", failures, err) {
				continue
			}
			q.mutex.Lock()
			q.isSettling = false
			q.changed.Broadcast()
			q.mutex.Unlock()
			return
		}
		failures = 0
		q.note("settle", nil)
		q.settled(count, list)
	}
}

func (q *Queue) settled(count int, list *deltaq.SettledList) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	for index, leased := range q.ended[:count] {
		delete(q.leases, leased.id)
		if index < len(list.Settled) && list.Settled[index].IsStale() {
			outcome := "unknown"
			if list.Settled[index].Outcome != nil {
				outcome = *list.Settled[index].Outcome
			}
			q.log.Warn("deltaq: a lease had ended before its outcome was sent", "key", leased.key, "lease", leased.id, "outcome", outcome)
		}
	}
	q.ended = q.ended[count:]
	q.changed.Broadcast()
}

// keepLeases wakes the goroutine that extends leases, or starts it.
func (q *Queue) keepLeases() {
	if q.isKeeping {
		select {
		case q.kept <- struct{}{}:
		default:
		}
		return
	}
	if len(q.leases) > 0 {
		q.isKeeping = true
		go q.extendLeases()
	}
}

// extendLeases extends leases while there are some.
func (q *Queue) extendLeases() {
	var notBefore time.Time
	failures := 0
	for {
		due, patience, next, isEnd := q.attend(time.Now(), notBefore)
		if isEnd {
			return
		}
		if len(due) == 0 {
			timer := time.NewTimer(time.Until(next))
			select {
			case <-timer.C:
			case <-q.kept:
			case <-q.ctx.Done():
			}
			timer.Stop()
			continue
		}
		sentAt := time.Now()
		ctx, cancel := context.WithTimeout(q.ctx, patience)
		list, err := q.queue.Extend(ctx, due, &deltaq.ExtendOptions{LeaseDuration: q.options.LeaseDuration})
		cancel()
		notBefore = time.Time{}
		switch {
		case err == nil:
			failures = 0
			q.note("extend", nil)
			q.extended(list, sentAt)
		case errors.Is(err, deltaq.CodeQueueNotFound):
			q.lose(due, "the queue was deleted")
		case q.ctx.Err() == nil:
			failures++
			pause := min(backoff(50*time.Millisecond, time.Second, failures)+retryAfter(err), patienceMax)
			notBefore = time.Now().Add(pause)
			q.failed("extend", err, pause)
		}
	}
}

// attend finds the leases to extend now, with the time that it may take, or else the time of the next one. It ends the work of leases that are lost.
func (q *Queue) attend(now, notBefore time.Time) (due []string, patience time.Duration, next time.Time, isEnd bool) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	var lost []string
	next, firstLost := now.Add(time.Hour), now.Add(time.Hour)
	for id, leased := range q.leases {
		isEnded := leased.isDone || leased.isReleased
		if !isEnded && !leased.lostAt.After(now) {
			lost = append(lost, id)
			continue
		}
		extendAt := leased.extendAt
		if notBefore.After(extendAt) {
			extendAt = notBefore
		}
		if !extendAt.After(now) && len(due) < batchMax {
			due = append(due, id)
		} else if extendAt.Before(next) {
			next = extendAt
		}
		if !isEnded && leased.lostAt.Before(firstLost) {
			firstLost = leased.lostAt
		}
	}
	q.loseLocked(lost, "no extension has succeeded in time")
	if firstLost.Before(next) {
		next = firstLost
	}
	if len(q.leases) == 0 || q.ctx.Err() != nil {
		q.isKeeping = false
		return nil, 0, next, true
	}
	// This leaves time for another attempt after one without a reply.
	return due, min(max(firstLost.Sub(now)/2, time.Millisecond), patienceMax), next, false
}

func (q *Queue) extended(list *deltaq.SettledList, sentAt time.Time) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	var lost []string
	for index := range list.Settled {
		settled := &list.Settled[index]
		leased := q.leases[settled.LeaseID]
		switch {
		case leased == nil:
		case !settled.IsStale() && settled.ExpiresInMs != nil:
			leased.begin(sentAt, time.Duration(*settled.ExpiresInMs)*time.Millisecond)
		case leased.isDone || leased.isReleased:
			// Its settle says how it has ended.
			leased.extendAt = sentAt.Add(time.Hour)
		default:
			lost = append(lost, settled.LeaseID)
		}
	}
	q.loseLocked(lost, "the server has ended it")
}

func (q *Queue) lose(ids []string, reason string) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.loseLocked(ids, reason)
}

// loseLocked ends the work of leases that are lost. Keys of them that no Get has taken are dropped.
func (q *Queue) loseLocked(ids []string, reason string) {
	for _, id := range ids {
		leased := q.leases[id]
		if leased == nil {
			continue
		}
		delete(q.leases, id)
		q.log.Warn("deltaq: a lease is lost", "key", leased.key, "lease", id, "reason", reason)
		leased.isLost = true
		leased.cancel(deltaq.ErrLeaseLost)
		for index, delivered := range q.delivered {
			if delivered == leased {
				q.delivered = append(q.delivered[:index:index], q.delivered[index+1:]...)
				break
			}
		}
	}
	if len(ids) > 0 {
		q.changed.Broadcast()
	}
}

// backoff returns a random part of first * 2^(failures-1), or of limit if that is less.
func backoff(first, limit time.Duration, failures int) time.Duration {
	longest := limit
	// A longer shift would overflow.
	if shift := failures - 1; shift < 32 && first <= limit>>shift {
		longest = first << shift
	}
	return time.Duration(rand.Int64N(int64(longest) + 1))
}
