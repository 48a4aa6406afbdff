package deltaq_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"

	deltaq "example.com/deltaq/clients/go"
	"example.com/deltaq/clients/go/deltaqtest"
	"example.com/deltaq/clients/go/internal/tested"
)

var (
	// shared is the server of the examples and of most tests; nil on a machine without the program.
	shared *deltaqtest.Server
	// url is its URL, such as http://localhost:7070.
	url string
	// seen are the calls that the server has answered with success.
	seen = &recorder{calls: map[string]bool{}}
)

func TestMain(m *testing.M) {
	tested.Main(m, func(server *deltaqtest.Server) { shared, url = server, server.URL })
}

// TestTheReadmeHasTheExamples checks README.md.
func TestTheReadmeHasTheExamples(t *testing.T) { tested.Readme(t, 5) }

// recorder remembers calls by their method and the template of their path.
type recorder struct {
	mutex sync.Mutex
	calls map[string]bool
}

// recording records the successful calls of a client.
type recording struct{ next http.RoundTripper }

func (r recording) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err == nil && response.StatusCode < 300 {
		seen.mutex.Lock()
		seen.calls[request.Method+" "+request.URL.Path] = true
		seen.mutex.Unlock()
	}
	return response, err
}

// queue returns a queue of the shared server that no other test uses.
func queue(t *testing.T) *deltaq.Queue {
	t.Helper()
	if shared == nil {
		t.Skip("there is no server")
	}
	client, err := deltaq.New(shared.URL, &deltaq.Options{WrapTransport: func(next http.RoundTripper) http.RoundTripper { return recording{next} }})
	if err != nil {
		t.Fatal(err)
	}
	return client.Queue(tested.QueueName(t))
}

// contextOf returns a context that ends with the patience of the tests.
func contextOf(t *testing.T) context.Context { return tested.Context(t) }

func object(text string) json.RawMessage { return json.RawMessage(text) }
