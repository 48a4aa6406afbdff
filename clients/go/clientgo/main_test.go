package clientgo_test

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"k8s.io/klog/v2"

	deltaq "example.com/deltaq/clients/go"
	"example.com/deltaq/clients/go/clientgo"
	"example.com/deltaq/clients/go/deltaqtest"
	"example.com/deltaq/clients/go/internal/tested"
)

// patience is how long a test waits for anything.
const patience = tested.Patience

var (
	// shared is the server of the examples and of most tests; nil on a machine without the program.
	shared *deltaqtest.Server
	// url is its URL, such as http://localhost:7070.
	url string
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	tested.Main(m, func(server *deltaqtest.Server) { shared, url = server, server.URL })
}

// TestTheReadmeHasTheExamples checks README.md.
func TestTheReadmeHasTheExamples(t *testing.T) { tested.Readme(t, 2) }

// queue returns a queue of the shared server that no other test uses.
func queue(t *testing.T) *deltaq.Queue {
	t.Helper()
	if shared == nil {
		t.Skip("there is no server")
	}
	return shared.Client().Queue(fresh(t))
}

// fresh returns the name of a queue that no other test uses.
func fresh(t *testing.T) string { return tested.QueueName(t) }

// contextOf returns a context that ends with the patience of the tests.
func contextOf(t *testing.T) context.Context { return tested.Context(t) }

// workqueue returns a workqueue over a queue, which ends with the test.
func workqueue(t *testing.T, q *deltaq.Queue, options *clientgo.Options) *clientgo.Queue {
	t.Helper()
	releaseAtEnd(t, q)
	return clientgo.NewQueue(contextOf(t), q, options)
}

// releaseAtEnd ends all leases of a queue after the test, because a server that stops waits for them.
func releaseAtEnd(t *testing.T, q *deltaq.Queue) {
	t.Cleanup(func() {
		once := q.Client().WithRetry(deltaq.RetryOptions{Attempts: 1}).Queue(q.Name())
		for item, err := range once.Items(context.Background(), &deltaq.ItemsOptions{States: []string{"leased"}}) {
			if err != nil {
				break
			}
			if _, err := once.Release(context.Background(), item.Lease.ID); err != nil {
				t.Error(err)
			}
		}
	})
}
