package deltaq

import (
	"errors"
	"fmt"
	"time"
)

// delayMax is the longest delay of a key. Longer ones are cut to it, because the server would refuse the settles of other keys, too.
const delayMax = 366 * 24 * time.Hour

// Nack is the error of a handler whose work has failed: the key is delivered again later. Any other error is a Nack without options.
type Nack struct {
	// Err is the reason, which the queue shows. Nil means none.
	Err error
	// Delay is the wait before the key is delivered again. Zero means the backoff of the queue, and a negative time no wait.
	Delay time.Duration
	// Floor is true if no newer change shortens the wait.
	Floor bool
}

// Error returns the reason.
func (nack *Nack) Error() string { return reason("nack", nack.Err) }

// Unwrap returns the reason.
func (nack *Nack) Unwrap() error { return nack.Err }

// Reject is the error of a handler whose work will never succeed: the key is parked, unless a newer change waits.
type Reject struct {
	// Err is the reason, which the queue shows. Nil means none.
	Err error
}

// Error returns the reason.
func (reject *Reject) Error() string { return reason("reject", reject.Err) }

// Unwrap returns the reason.
func (reject *Reject) Unwrap() error { return reject.Err }

// Done is what a handler of a queue of mode keys returns if its work is done and the failures of the key are to be kept. It is no failure; in queues of
// other modes, it is one.
type Done struct {
	// Delay is the time after which the key is added again. Zero means not at all.
	Delay time.Duration
}

// Error says that the work is done.
func (done *Done) Error() string { return "done" }

// Release is what a handler returns that has not worked on its key: the key is delivered again at once. It is no failure.
type Release struct {
	// Hold is how long nothing of the scope is delivered, because the target asks for it. Zero means no hold. More than an hour counts as an
	// hour.
	Hold time.Duration
	// HoldScope is [HoldQueue], [HoldGroup] or [HoldKey]. Empty means the queue.
	HoldScope string
}

// Error says that the key is released.
func (release *Release) Error() string { return "release" }

func reason(name string, err error) string {
	if err == nil {
		return name
	}
	return fmt.Sprintf("%s: %v", name, err)
}

// errDoneElsewhere is the error of a key whose handler has returned Done, although its queue is not of mode keys.
var errDoneElsewhere = errors.New("Done is only for queues of mode keys, and this queue has another mode")

// settle returns how the lease ends after its handler has returned an error, or nil.
func (job *Job) settle(err error) Settle {
	entry := Settle{LeaseID: job.Lease.ID, As: AsAck}
	var nack *Nack
	var reject *Reject
	var done *Done
	var release *Release
	switch {
	case err == nil:
		return entry
	case errors.As(err, &nack):
		entry.As, entry.Floor = AsNack, nack.Floor
		entry.Error = textOf(nack.Err)
		if nack.Delay != 0 {
			entry.Delay = Ptr(Duration(min(max(nack.Delay, 0), delayMax)))
		}
	case errors.As(err, &reject):
		entry.As, entry.Error = AsReject, textOf(reject.Err)
	case errors.As(err, &done) && len(job.Deltas) > 0:
		// Items of mode keys have no deltas. The server would refuse the settles of other keys in the same call, too.
		entry.As, entry.Error = AsNack, errDoneElsewhere.Error()
	case errors.As(err, &done):
		entry.As = AsDone
		if done.Delay > 0 {
			entry.Delay = Ptr(Duration(min(done.Delay, delayMax)))
		}
	case errors.As(err, &release):
		entry.As = AsRelease
		if release.Hold > 0 {
			entry.Hold = holdOf(release.HoldScope, release.Hold)
		}
	default:
		entry.As, entry.Error = AsNack, textOf(err)
	}
	return entry
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return errorText(err)
}
