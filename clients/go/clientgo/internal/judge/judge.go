// Package judge has what scripts/judge_client_go.py puts into the tests and examples of client-go, in place of their own queues, sources and clocks.
package judge

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"

	deltaq "example.com/deltaq/clients/go"
	"example.com/deltaq/clients/go/clientgo"
	"example.com/deltaq/clients/go/deltaqtest"
)

// slowness is how much longer all delays are than those of the tests, whose clock is a fake one. Calls to the server must take less than the shortest delay.
const slowness = 20

var (
	client *deltaq.Client
	queues atomic.Int64
	// running is the context of the calls of FIFOs. It ends before the server.
	running, ended = context.WithCancel(context.Background())
	// exit ends the server and the process.
	exit func(status int)
)

// Main runs tests with a server, and ends the process.
func Main(m *testing.M) {
	// Limiter reads waits from the history, which needs a journal.
	folder, err := os.MkdirTemp("", "judge-")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	server, err := deltaqtest.Run(context.Background(), &deltaqtest.Options{DataDir: folder, Settings: map[string]string{"storage.sync": "normal"}})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	exit = func(status int) {
		ended()
		// Some tests leave keys that are not done, for which a server that stops would wait.
		server.Kill()
		_ = os.RemoveAll(folder)
		os.Exit(status)
	}
	client = server.Client()
	exit(m.Run())
}

// check ends all tests if a call has failed: most of them do not look at errors. A panic would leave the server. Calls that still wait when all tests have
// ended are no failures.
func check(err error) {
	switch {
	case err == nil:
	case running.Err() != nil:
		select {}
	default:
		fmt.Printf("a call has failed: %v\n%s", err, debug.Stack())
		exit(1)
	}
}

func newQueue() *deltaq.Queue { return client.Queue(fmt.Sprintf("q%d", queues.Add(1))) }

// Queue is a workqueue of any values. The keys are their texts.
type Queue struct {
	*clientgo.Queue
	mutex sync.Mutex
	items map[string]any
}

var _ workqueue.TypedRateLimitingInterface[any] = (*Queue)(nil)

// New returns a queue that no other test uses. It ends as that of client-go.
func New() *Queue {
	return &Queue{Queue: clientgo.NewQueue(context.Background(), newQueue(), &clientgo.Options{Exclusive: true}), items: map[string]any{}}
}

// NewWithConfig is New: the order of the keys is that of the server.
func NewWithConfig(workqueue.QueueConfig) *Queue { return New() }

// NewStrings returns a queue of texts that no other test uses.
func NewStrings() *clientgo.Queue { return clientgo.NewQueue(context.Background(), newQueue(), nil) }

func (q *Queue) key(item any) string {
	key := fmt.Sprintf("%T %v", item, item)
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.items[key] = item
	return key
}

// Add adds an item.
func (q *Queue) Add(item any) { q.Queue.Add(q.key(item)) }

// AddAfter adds an item after a time.
func (q *Queue) AddAfter(item any, duration time.Duration) {
	q.Queue.AddAfter(q.key(item), slowness*duration)
}

// AddRateLimited adds an item after its backoff.
func (q *Queue) AddRateLimited(item any) { q.Queue.AddRateLimited(q.key(item)) }

// Forget forgets the failures of an item.
func (q *Queue) Forget(item any) { q.Queue.Forget(q.key(item)) }

// NumRequeues returns the failures of an item.
func (q *Queue) NumRequeues(item any) int { return q.Queue.NumRequeues(q.key(item)) }

// Done ends the work on an item.
func (q *Queue) Done(item any) { q.Queue.Done(q.key(item)) }

// Get waits for an item.
func (q *Queue) Get() (item any, shutdown bool) {
	key, shutdown := q.Queue.Get()
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return q.items[key], shutdown
}

// Clock takes the place of a fake clock: its steps take time.
type Clock struct{}

// NewClock returns a clock.
func NewClock() Clock { return Clock{} }

// Step waits. A longer step than those to the next key has the same effect.
func (Clock) Step(duration time.Duration) { time.Sleep(slowness * min(duration, 2*time.Second)) }

// Source takes the place of an API server with pods.
type Source struct {
	*clientgo.ListWatch[*corev1.Pod]
	queue *deltaq.Queue
}

// NewSource returns a source without pods.
func NewSource() *Source {
	queue := newQueue()
	settings := deltaq.QueueSettings{Key: []deltaq.KeyPart{{Pointer: "/metadata/namespace", Optional: true}, {Pointer: "/metadata/name"}}}
	_, err := queue.PutSettings(context.Background(), settings, nil)
	check(err)
	return &Source{clientgo.NewTypedListWatch(queue, clientgo.Decode[*corev1.Pod](), nil), queue}
}

func must(_ *deltaq.Produced, err error) { check(err) }

// Add adds a pod.
func (s *Source) Add(pod runtime.Object) { must(s.queue.Add(context.Background(), pod, nil)) }

// Modify changes a pod.
func (s *Source) Modify(pod runtime.Object) { must(s.queue.Update(context.Background(), pod, nil)) }

// Delete deletes a pod.
func (s *Source) Delete(pod runtime.Object) { must(s.queue.Delete(context.Background(), pod, nil)) }

// Shutdown does nothing: the server ends with the tests.
func (s *Source) Shutdown() {}
