package controllerruntime

import (
	"context"
	"errors"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	deltaq "example.com/deltaq/clients/go"
)

// Objects makes the keys of the objects of an informer the requests of a controller: all keys at the start, and then each key whose object is added, has
// changed or is deleted. The reconciler reads the object from the store of the informer. The manager runs the informer:
//
//	informer := deltaq.NewInformer(client.Queue("prices"), nil)
//	mgr.Add(manager.RunnableFunc(informer.Run))
//	builder.ControllerManagedBy(mgr).Named("prices").
//		WatchesRawSource(controllerruntime.NewObjects(informer, controllerruntime.Names)).
//		Complete(reconciler)
//
// The requests are in the memory of the process, as those of a watch of Kubernetes are: each process gets all keys, and a restart begins with all keys.
type Objects[request comparable] struct {
	informer *deltaq.Informer
	requests Requests[request]

	mutex  sync.Mutex
	synced []*deltaq.Registration
}

var _ source.SyncingSource = (*Objects[reconcile.Request])(nil)

// NewObjects returns a source of the keys of the objects of an informer.
func NewObjects[request comparable](informer *deltaq.Informer, requests Requests[request]) *Objects[request] {
	return &Objects[request]{informer: informer, requests: requests}
}

// String names the source in logs.
func (o *Objects[request]) String() string { return "deltaq objects" }

// Start begins to add requests to the queue of a controller, until the context ends.
func (o *Objects[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	add := func(object *deltaq.Object) {
		if ctx.Err() == nil {
			queue.Add(o.requests.RequestOf(object.Key))
		}
	}
	registration := o.informer.AddHandler(deltaq.Handlers{
		OnAdd:    func(object *deltaq.Object, _ bool) { add(object) },
		OnUpdate: func(_, object *deltaq.Object) { add(object) },
		OnDelete: func(object *deltaq.Object, _ bool) { add(object) },
	})
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.synced = append(o.synced, registration)
	return nil
}

// WaitForSync waits until the requests of all first objects are added.
func (o *Objects[request]) WaitForSync(ctx context.Context) error {
	o.mutex.Lock()
	synced := append([]*deltaq.Registration(nil), o.synced...)
	o.mutex.Unlock()
	if len(synced) == 0 {
		return errors.New("deltaq: the source Objects has not begun")
	}
	for _, registration := range synced {
		if err := deltaq.WaitForCacheSync(ctx, registration); err != nil {
			return err
		}
	}
	return nil
}
