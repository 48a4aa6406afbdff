package deltaq_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	deltaq "example.com/deltaq/clients/go"
	"example.com/deltaq/clients/go/deltaqtest"
)

// patience is how long a test waits for anything. A test that passes waits for none of it.
const patience = time.Minute

var (
	// shared is the server of the examples and of most tests; nil on a machine without the program.
	shared *deltaqtest.Server
	// url is its URL, such as http://localhost:7070.
	url string
	// queues numbers the queues of the tests, which may run several times.
	queues atomic.Int64
	// seen are the calls that the server has answered with success.
	seen = &recorder{calls: map[string]bool{}}
)

func TestMain(m *testing.M) {
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	if _, err := deltaqtest.Find(); err != nil {
		fmt.Println("without a server the examples and some tests are left out:", err)
		if flag.Lookup("test.run").Value.String() == "" {
			// Nothing else leaves out the examples.
			_ = flag.Set("test.run", "^Test")
		}
		os.Exit(m.Run())
	}
	server, err := deltaqtest.Run(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	shared, url = server, server.URL
	status := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Println(err)
		status = 1
	}
	os.Exit(status)
}

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
	name := strings.ToLower(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(t.Name(), "-"))
	return client.Queue(fmt.Sprintf("%s-%d", name, queues.Add(1)))
}

// contextOf returns a context that ends with the patience of the tests.
func contextOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func object(text string) json.RawMessage { return json.RawMessage(text) }
