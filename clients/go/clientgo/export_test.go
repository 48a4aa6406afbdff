package clientgo

import "time"

// Sizes returns how many keys have changes to send, and how many leases the queue has.
func (q *Queue) Sizes() (changes, leases int) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return len(q.names) + len(q.sending), len(q.leases)
}

// Refused returns the number of the newest pop that the closed queue has refused.
func (q *Queue) Refused() int {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return q.refused
}

// Checked returns why the last check has failed.
func (q *Queue) Checked() error {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return q.failures["check"]
}

// Merged is what is sent for a key after calls: of Forget (f), AddRateLimited (r), AddAfter (a digit of seconds) and Add (+).
func Merged(calls string, origin time.Time) (early, forget bool, limited int, due time.Time, add bool) {
	merged := pending{}
	for _, call := range calls {
		switch call {
		case 'f':
			merged.merge(pending{forget: true})
		case 'r':
			merged.merge(pending{limited: 1})
		case '+':
			merged.merge(pending{add: true})
		default:
			merged.merge(pending{due: origin.Add(time.Duration(call-'0') * time.Second)})
		}
	}
	return merged.early, merged.forget, merged.limited, merged.due, merged.add
}
