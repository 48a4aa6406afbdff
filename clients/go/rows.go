package deltaq

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// rowInterval is the time between two warnings about one row of failures.
	rowInterval = time.Minute
	// rowsMax is the number of rows that are remembered.
	rowsMax = 1000
)

// rows logs calls that fail and are repeated: one warning at the first failure of a row, at most one a minute while the row goes on, and one line when the
// server answers again. A row belongs to a kind of call, such as the pops of a queue, so many calls that fail at once are one row.
type rows struct {
	log *slog.Logger
	now func() time.Time
	// count is the number of rows, so that calls that succeed need no lock.
	count atomic.Int64
	mutex sync.Mutex
	// warned has the time of the last warning of each row.
	warned map[string]time.Time
}

func newRows(log *slog.Logger) *rows {
	return &rows{log: log, now: time.Now, warned: map[string]time.Time{}}
}

// failed notes that a call has failed and is repeated. The limit says for how long, such as " for up to 2m0s"; empty means without end.
func (r *rows) failed(call *call, limit string, err error) {
	row := call.row()
	r.mutex.Lock()
	last, goesOn := r.warned[row]
	now := r.now()
	isDue := !goesOn || now.Sub(last) >= rowInterval
	if isDue {
		if len(r.warned) >= rowsMax {
			clear(r.warned)
		}
		r.warned[row] = now
		r.count.Store(int64(len(r.warned)))
	}
	r.mutex.Unlock()
	if isDue {
		r.log.Warn(fmt.Sprintf("deltaq: %s; %s is repeated%s", reasonOf(err), row, limit), "queue", call.queue, "error", err)
	}
}

// answered notes that the server has answered a call.
func (r *rows) answered(call *call) {
	if r.count.Load() == 0 {
		return
	}
	row := call.row()
	r.mutex.Lock()
	_, wasFailing := r.warned[row]
	delete(r.warned, row)
	r.count.Store(int64(len(r.warned)))
	r.mutex.Unlock()
	if wasFailing {
		r.log.Info(fmt.Sprintf("deltaq: the server answers again: %s has a reply", row), "queue", call.queue)
	}
}

// row names the calls whose failures are logged together. It has no key and no id.
func (call *call) row() string {
	name := or(call.name(), "call "+call.method)
	if call.queue == "" {
		return "the call " + name
	}
	return fmt.Sprintf("the %s of the queue %q", name, call.queue)
}

// reasonOf says shortly why a call has failed.
func reasonOf(err error) string {
	var connection *ConnectionError
	var problem *Problem
	switch {
	case errors.As(err, &connection) && !connection.Sent:
		return "can't reach " + connection.Server
	case errors.As(err, &connection):
		return "no reply from " + connection.Server
	case errors.As(err, &problem):
		return fmt.Sprintf("the server has answered %d %s", problem.Status, problem.Code)
	}
	return "a call has failed"
}
