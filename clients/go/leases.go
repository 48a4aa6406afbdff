package deltaq

import (
	"context"
	"time"
)

const (
	// batchMax is the largest number of leases in one settle or extension.
	batchMax = 1000
	// marginMax is the longest safety margin: a lease that could not be extended counts as lost this long before its end.
	marginMax = 5 * time.Second
)

// far is a time that does not come.
var far = time.Unix(1<<40, 0)

// held is a lease that the worker holds.
//
// Invariant: a lease is in leases.held from its pop until its outcome is settled, or until it is lost.
type held struct {
	job      *Job
	extendAt time.Time
	// lostAt is when the lease counts as lost, unless it is extended: some time before the server may give the key to another worker.
	lostAt time.Time
	// cancel ends the context of the handler; nil before the handler has begun.
	cancel context.CancelCauseFunc
	// isEnded is true once the handler has ended. Its outcome is sent also when the lease may have ended, and the server says whether it had.
	isEnded bool
}

// begin starts the time of the lease.
func (h *held) begin(from time.Time, length time.Duration) {
	h.extendAt = from.Add(length / 3)
	h.lostAt = from.Add(length - min(marginMax, length/6))
}

// leases has the leases of a worker, and says when they need attention. It makes no calls and has no clock. It belongs to one goroutine.
type leases struct {
	held map[string]*held
	// isExtending is true while an extension runs. There is one at a time.
	isExtending bool
	// notBefore is the time of the next extension after a failed one.
	notBefore time.Time
	// next is not later than the time at which the next lease needs attention. It is the time itself after attend.
	next time.Time
}

func newLeases() *leases { return &leases{held: map[string]*held{}, next: far} }

func (l *leases) take(job *Job, now time.Time) *held {
	h := &held{job: job}
	h.begin(now, time.Duration(job.Lease.ExpiresInMs)*time.Millisecond)
	l.held[job.Lease.ID] = h
	l.next = earlier(l.next, h.extendAt)
	return h
}

// remove forgets a lease that is settled or lost.
func (l *leases) remove(leaseID string) { delete(l.held, leaseID) }

// attend returns the leases that are lost, which it removes, and those to extend now with the time that the extension may take.
func (l *leases) attend(now time.Time) (lost []*held, extend []string, patience time.Duration) {
	l.next = far
	firstLost := far
	for id, h := range l.held {
		if !h.isEnded {
			if !h.lostAt.After(now) {
				lost = append(lost, h)
				delete(l.held, id)
				continue
			}
			firstLost = earlier(firstLost, h.lostAt)
		}
		due := later(h.extendAt, l.notBefore)
		switch {
		case l.isExtending:
		case due.After(now):
			l.next = earlier(l.next, due)
		case len(extend) < batchMax:
			extend = append(extend, id)
		default:
			l.next = now
		}
	}
	l.next = earlier(l.next, firstLost)
	if len(extend) > 0 {
		l.isExtending = true
		// This leaves time for another attempt after one without a reply.
		patience = min(max(firstLost.Sub(now)/2, 0), 10*time.Second)
	}
	return lost, extend, patience
}

// extended records the reply to an extension that was sent at a time. It returns the leases that are lost, which it removes.
func (l *leases) extended(list *SettledList, sentAt time.Time) (lost []*held) {
	l.isExtending, l.notBefore, l.next = false, time.Time{}, time.Time{}
	for index := range list.Settled {
		settled := &list.Settled[index]
		h := l.held[settled.LeaseID]
		switch {
		case h == nil:
		case !settled.IsStale() && settled.ExpiresInMs != nil:
			h.begin(sentAt, time.Duration(*settled.ExpiresInMs)*time.Millisecond)
			h.job.note(settled)
		case h.isEnded:
			h.extendAt = far
		default:
			lost = append(lost, h)
			delete(l.held, settled.LeaseID)
		}
	}
	return lost
}

// notExtended records that an extension has failed. The next one is not sent before a time.
func (l *leases) notExtended(notBefore time.Time) {
	l.isExtending, l.notBefore, l.next = false, notBefore, time.Time{}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
