package deltaq

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// The calls of a worker. A repeat of each has the same effect.

// pop pops until there is a reply. While the queue does not exist, it asks again.
func (w *Worker) pop(ctx context.Context, options PopOptions) popResult {
	pause := absentFirst
	var dropped []Settle
	for {
		call, err := w.queue.popCall(&options)
		if err != nil {
			return popResult{settles: options.Settle, err: err}
		}
		popped, attempts, err := repeatCounted[Popped](ctx, w.queue, call)
		if !errors.Is(err, CodeQueueNotFound) || ctx.Err() != nil {
			return popResult{popped: popped, settles: options.Settle, receivedAt: time.Now(), err: err, isUnknown: attempts.isUnknown, dropped: dropped}
		}
		// The queue was deleted, so its leases have ended.
		dropped, options.Settle = append(dropped, options.Settle...), nil
		if options.Wait == 0 {
			return popResult{popped: &Popped{}, receivedAt: time.Now(), dropped: dropped}
		}
		if pause == absentFirst {
			w.queue.client.log.Warn(fmt.Sprintf("deltaq: queue %s does not exist yet", w.queue.name))
		}
		if err := sleep(ctx, pause, nil); err != nil {
			return popResult{err: err, dropped: dropped}
		}
		pause = min(2*pause, absentMax)
	}
}

// settle settles leases. If the queue was deleted, all of them have ended.
func (w *Worker) settle(ctx context.Context, settles []Settle) (*SettledList, error) {
	call, err := w.queue.call(http.MethodPost, "/settle")
	if err != nil {
		return nil, err
	}
	if call.body, err = encode(map[string]any{"settle": settles}); err != nil {
		return nil, err
	}
	list, err := results(repeat[SettledList](ctx, w.queue, call))
	if errors.Is(err, CodeQueueNotFound) {
		return &SettledList{}, nil
	}
	return list, err
}

// extend extends leases once. An extension without a reply has failed after the patience.
func (w *Worker) extend(ctx context.Context, leaseIDs []string, patience time.Duration) extendResult {
	sentAt := time.Now()
	body := map[string]any{"lease_ids": leaseIDs}
	if w.options.LeaseDuration != 0 {
		body["lease_duration"] = Duration(w.options.LeaseDuration)
	}
	call, err := w.queue.call(http.MethodPost, "/extend")
	if err != nil {
		return extendResult{err: err}
	}
	if call.body, err = encode(body); err != nil {
		return extendResult{err: err}
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var list *SettledList
	err = w.queue.client.around(limited, call, func(ctx context.Context) error {
		list, _, err = fetchOnce[SettledList](ctx, w.queue.client, call)
		return err
	})
	list, err = results(list, err)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		client := w.queue.client
		server := client.servers.next(w.queue.name)
		client.servers.leave(server, w.queue.name)
		err = &ConnectionError{Server: server.base, Sent: true, Err: fmt.Errorf("%w: %v", errSilence, patience)}
	}
	return extendResult{list, sentAt, err}
}

// count counts a result.
func (w *Worker) count(settled *Settled) {
	if settled.IsStale() {
		w.lost.Add(1)
		outcome := "unknown"
		if settled.Outcome != nil {
			outcome = *settled.Outcome
		}
		w.queue.client.log.Warn("deltaq: a lease had ended before its outcome was sent",
			"queue", w.queue.name, "lease", settled.LeaseID, "as", settled.As, "outcome", outcome)
		return
	}
	switch settled.As {
	case AsAck, AsDone:
		w.acknowledged.Add(1)
	case AsNack:
		w.nacked.Add(1)
	case AsReject:
		w.rejected.Add(1)
	case AsRelease:
		w.released.Add(1)
	}
}
