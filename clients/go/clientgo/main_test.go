package clientgo_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/klog/v2"

	deltaq "example.com/deltaq/clients/go"
	"example.com/deltaq/clients/go/clientgo"
	"example.com/deltaq/clients/go/deltaqtest"
)

// patience is how long a test waits for anything. A test that passes waits for none of it.
const patience = time.Minute

var (
	// shared is the server of the examples and of most tests; nil on a machine without the program.
	shared *deltaqtest.Server
	// url is its URL, such as http://localhost:7070.
	url    string
	queues atomic.Int64
)

func TestMain(m *testing.M) {
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	klog.SetSlogLogger(slog.Default())
	if _, err := deltaqtest.Find(); err != nil {
		fmt.Println("without a server the examples and most tests are left out:", err)
		if flag.Lookup("test.run").Value.String() == "" {
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

// queue returns a queue of the shared server that no other test uses.
func queue(t *testing.T) *deltaq.Queue {
	t.Helper()
	if shared == nil {
		t.Skip("there is no server")
	}
	return shared.Client().Queue(fresh(t))
}

// fresh returns the name of a queue that no other test uses.
func fresh(t *testing.T) string {
	name := strings.ToLower(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(t.Name(), "-"))
	return fmt.Sprintf("%s-%d", name, queues.Add(1))
}

// contextOf returns a context that ends with the patience of the tests.
func contextOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

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
