package deltaq

import (
	"errors"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ownersMax is the number of queues whose owner is remembered.
const ownersMax = 10_000

// server is a server of a client.
type server struct {
	base string
	// heard is when the server has sent something last, in nanoseconds of the Unix time.
	heard atomic.Int64
}

func (s *server) hear() { s.heard.Store(time.Now().UnixNano()) }

// servers chooses the server of each call: the nodes of one cluster, any of which accepts any call. The client stays with one of them until a call fails
// there.
type servers struct {
	all   []*server
	mutex sync.Mutex
	// present is the index of the server for calls on queues whose owner is unknown.
	present int
	// owners has the owners of queues, as servers have named them. Only a server of this client counts: the token goes to no other.
	owners map[string]int
}

func newServers(text string) (*servers, error) {
	s := &servers{owners: map[string]int{}}
	for _, part := range strings.Split(text, ",") {
		base, err := readURL(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		if s.index(base) < 0 {
			s.all = append(s.all, &server{base: base})
		}
	}
	return s, nil
}

func (s *servers) index(base string) int {
	for index, other := range s.all {
		if other.base == base {
			return index
		}
	}
	return -1
}

func (s *servers) areSeveral() bool { return len(s.all) > 1 }

// next returns the server for the next call on a queue, or for a call on none.
func (s *servers) next(queue string) *server {
	if !s.areSeveral() {
		return s.all[0]
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if owner, ok := s.owners[queue]; ok {
		return s.all[owner]
	}
	return s.all[s.present]
}

// leave records that a call has failed at a server: the next call goes to the server after it.
func (s *servers) leave(left *server, queue string) {
	if !s.areSeveral() {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.owners, queue)
	if s.all[s.present] == left {
		s.present = (s.present + 1) % len(s.all)
	}
}

// noteOwner records which server owns a queue, as the header deltaq-owner of a reply names it.
func (s *servers) noteOwner(queue, owner string) {
	if !s.areSeveral() || queue == "" || owner == "" {
		return
	}
	base, err := readURL(owner)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.owners) >= ownersMax {
		clear(s.owners)
	}
	if index := s.index(base); err == nil && index >= 0 {
		s.owners[queue] = index
	} else {
		delete(s.owners, queue)
	}
}

// readURL returns a URL in the form in which equal ones are equal texts.
func readURL(text string) (string, error) {
	if text == "" {
		return "", errors.New("deltaq: the URL of a server is empty; it is written like http://localhost:7070")
	}
	// The URL may have a password, so the error does not show it.
	refused := errors.New("deltaq: the URL of a server is written like http://localhost:7070, without a user; those of several nodes have commas between them")
	for _, letter := range text {
		if letter <= ' ' || letter > '~' {
			return "", refused
		}
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	read, err := url.Parse(text)
	if err != nil || read.Hostname() == "" || read.User != nil || read.RawQuery != "" || read.ForceQuery || strings.Contains(text, "#") {
		return "", refused
	}
	defaultPort, ok := map[string]string{"http": "80", "https": "443"}[read.Scheme]
	if !ok {
		return "", refused
	}
	host := strings.ToLower(read.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port := read.Port(); port != "" && port != defaultPort {
		host += ":" + port
	}
	return read.Scheme + "://" + host + strings.TrimRight(read.EscapedPath(), "/"), nil
}
