package deltaq

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// checkInterval is how often a reflector checks at most that the queue still has what was sent.
const checkInterval = 5 * time.Second

// place is a queue, the life of its numbers, and its newest version.
type place struct {
	incarnation, life string
	version           int64
}

// sequence numbers the calls of a source, and checks that the queue still has what was sent. A change must not go to a queue that lacks earlier changes; a
// list may.
type sequence struct {
	queue  *Queue
	source string
	// last is the last number of the source; nil until the server was asked.
	last *int64
	// place is the queue that has what was sent; nil if it does not exist yet, or was not checked.
	place   *place
	checkAt time.Time
	// version is that in the last reply.
	version int64
}

// check checks that the queue is still the same, unless the last check was a short time ago.
func (s *sequence) check(ctx context.Context, isList bool) error {
	now := time.Now()
	if s.place != nil && now.Before(s.checkAt) {
		return nil
	}
	s.checkAt = now.Add(checkInterval)
	call, err := s.queue.call(http.MethodGet, "")
	if err != nil {
		return err
	}
	var found *place
	document, err := repeat[QueueDocument](ctx, s.queue, call)
	switch {
	case err == nil:
		found = &place{document.Incarnation, document.Life, document.Status.ResourceVersion}
	case !errors.Is(err, CodeQueueNotFound):
		return err
	}
	return s.compare(ctx, found, isList, s.last)
}

// next returns the number of the next call.
func (s *sequence) next(ctx context.Context) (int64, error) {
	if s.last == nil {
		last, err := s.ask(ctx)
		if err != nil {
			return 0, err
		}
		s.last = &last
	}
	return *s.last + 1, nil
}

// applied reports whether a call was applied. If not, another process has used its number, and it is sent again with the next one.
func (s *sequence) applied(ctx context.Context, reply *Produced, isList bool, failures int) (bool, error) {
	if reply.Duplicate && failures == 0 {
		s.last = nil
		return false, nil
	}
	*s.last++
	if reply.Incarnation != nil && reply.Life != nil {
		found := &place{*reply.Incarnation, *reply.Life, reply.ResourceVersion}
		// The last number in the queue is now that of this call, so it says nothing about earlier calls.
		if err := s.compare(ctx, found, isList, nil); err != nil {
			return false, err
		}
		s.version = reply.ResourceVersion
	}
	return true, nil
}

// compare checks that the queue has what was sent before. If a server has loaded it since, it is in another life: then it must have the version of the last
// reply, and the number of the last call.
func (s *sequence) compare(ctx context.Context, found *place, isList bool, number *int64) error {
	before := s.place
	if isList || before == nil {
		// A list is complete, so the earlier content does not matter. A queue in another life may have another last number.
		if before != nil && number != nil && (found == nil || found.life != before.life) {
			s.last = nil
		}
		s.place = found
		return nil
	}
	if found == nil || found.incarnation != before.incarnation {
		s.adopt(found)
		return &LostError{Queue: s.queue.name, Source: s.source}
	}
	isKept := found.version >= s.version
	if isKept && found.life != before.life {
		var err error
		if isKept, err = s.hasVersion(ctx); err != nil {
			return err
		}
		if isKept && number != nil {
			last, err := s.ask(ctx)
			if err != nil {
				return err
			}
			isKept = last == *number
		}
	}
	if !isKept {
		s.adopt(found)
		return &LostError{Queue: s.queue.name, Source: s.source, IsRestored: true}
	}
	s.place = found
	return nil
}

// forget forgets the last number after a call whose outcome is unknown. Otherwise the next call would have the same number, and if its first attempt
// got no reply, the reply that the number was applied would seem to be about this call.
func (s *sequence) forget() { s.last = nil }

func (s *sequence) adopt(found *place) { s.place, s.last, s.version = found, nil, 0 }

// hasVersion reports whether the queue has the version of the last reply.
func (s *sequence) hasVersion(ctx context.Context) (bool, error) {
	if s.version == 0 {
		return true, nil
	}
	call, err := s.queue.call(http.MethodGet, "/synced")
	if err != nil {
		return false, err
	}
	call.query = url.Values{"resource_version": {strconv.FormatInt(s.version, 10)}}
	_, err = repeat[SyncedReply](ctx, s.queue, call)
	var problem *Problem
	switch {
	case err == nil:
		return true, nil
	// 403: the token does not permit to check.
	case errors.Is(err, CodeExpired), errors.Is(err, CodeVersionAhead), errors.As(err, &problem) && problem.Status == http.StatusForbidden:
		return false, nil
	}
	return false, err
}

// ask returns the last number of the source that the queue has applied; 0 if there is none.
func (s *sequence) ask(ctx context.Context) (int64, error) {
	options := ListOptions{Limit: 5000}
	for {
		call, err := s.queue.call(http.MethodGet, "/sources")
		if err != nil {
			return 0, err
		}
		options.apply(call.query)
		page, err := repeat[Page[Source]](ctx, s.queue, call)
		if errors.Is(err, CodeQueueNotFound) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		for _, source := range page.Items {
			if source.Source == s.source && source.Sequence != nil {
				return *source.Sequence, nil
			}
		}
		if page.Continue == nil {
			return 0, nil
		}
		options.Continue = *page.Continue
	}
}
