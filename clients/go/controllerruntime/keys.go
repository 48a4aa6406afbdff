package controllerruntime

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"example.com/deltaq/clients/go/clientgo"
)

// Requests converts keys to requests, and back. Both directions must agree: KeyOf(RequestOf(key)) is the key.
type Requests[request comparable] struct {
	KeyOf     func(request) string
	RequestOf func(key string) request
}

// Names are the requests of most controllers: a key with one slash is a namespace and a name, and any other key is a name without a namespace.
var Names = Requests[reconcile.Request]{
	KeyOf: func(request reconcile.Request) string {
		if request.Namespace == "" {
			return request.Name
		}
		return request.Namespace + "/" + request.Name
	},
	RequestOf: func(key string) reconcile.Request {
		namespace, name, isNamespaced := strings.Cut(key, "/")
		if !isNamespaced || namespace == "" || name == "" || strings.Contains(name, "/") {
			namespace, name = "", key
		}
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
	},
}

// Texts are requests that are the keys themselves.
var Texts = Requests[string]{
	KeyOf:     func(request string) string { return request },
	RequestOf: func(key string) string { return key },
}

// Keys makes the keys of a queue the requests of a controller. It is a source, whose method NewQueue must be the option NewQueue of the controller:
//
//	keys := controllerruntime.NewKeys(queue, controllerruntime.Names)
//	builder.ControllerManagedBy(mgr).Named("prices").
//		WithOptions(controller.Options{NewQueue: keys.NewQueue}).
//		WatchesRawSource(keys).
//		Complete(reconciler)
//
// The controller may have other sources: their requests are added to the queue, too. The rate limiter is that of the queue, and not that of the controller.
type Keys[request comparable] struct {
	queue    *clientgo.Queue
	requests Requests[request]
	isUsed   atomic.Bool
}

var _ source.SyncingSource = (*Keys[reconcile.Request])(nil)

// NewKeys returns a source of the keys of a queue.
func NewKeys[request comparable](queue *clientgo.Queue, requests Requests[request]) *Keys[request] {
	return &Keys[request]{queue: queue, requests: requests}
}

// String names the source in logs.
func (k *Keys[request]) String() string { return "deltaq keys" }

// NewQueue returns the queue of the controller.
func (k *Keys[request]) NewQueue(string, workqueue.TypedRateLimiter[request]) workqueue.TypedRateLimitingInterface[request] {
	k.isUsed.Store(true)
	return &queue[request]{k.queue, k.requests}
}

// Start checks that the queue of the controller is that of NewQueue.
func (k *Keys[request]) Start(context.Context, workqueue.TypedRateLimitingInterface[request]) error {
	if !k.isUsed.Load() {
		return errors.New("deltaq: the option NewQueue of the controller is not that of its source Keys")
	}
	return nil
}

// WaitForSync waits until the queue can be used. It returns an error at once if the queue has another mode.
func (k *Keys[request]) WaitForSync(ctx context.Context) error { return k.queue.Check(ctx) }

// queue is a workqueue of requests.
type queue[request comparable] struct {
	*clientgo.Queue
	requests Requests[request]
}

func (q *queue[request]) Add(item request) { q.Queue.Add(q.requests.KeyOf(item)) }

func (q *queue[request]) AddRateLimited(item request) { q.Queue.AddRateLimited(q.requests.KeyOf(item)) }

func (q *queue[request]) Forget(item request) { q.Queue.Forget(q.requests.KeyOf(item)) }

func (q *queue[request]) Done(item request) { q.Queue.Done(q.requests.KeyOf(item)) }

func (q *queue[request]) AddAfter(item request, duration time.Duration) {
	q.Queue.AddAfter(q.requests.KeyOf(item), duration)
}

func (q *queue[request]) NumRequeues(item request) int {
	return q.Queue.NumRequeues(q.requests.KeyOf(item))
}

func (q *queue[request]) Get() (item request, shutdown bool) {
	key, shutdown := q.Queue.Get()
	if shutdown {
		return item, true
	}
	return q.requests.RequestOf(key), false
}
