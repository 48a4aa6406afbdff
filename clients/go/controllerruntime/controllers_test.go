package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	deltaq "example.com/deltaq/clients/go"
	"example.com/deltaq/clients/go/clientgo"
	"example.com/deltaq/clients/go/controllerruntime"
	"example.com/deltaq/clients/go/deltaqtest"
	"example.com/deltaq/clients/go/internal/tested"
)

// patience is how long a test waits for anything.
const patience = tested.Patience

var (
	shared *deltaqtest.Server
	queues atomic.Int64
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	log.SetLogger(logr.Discard())
	if _, err := deltaqtest.Find(); err != nil {
		fmt.Println("without a server the tests are left out:", err)
		os.Exit(0)
	}
	server, err := deltaqtest.Run(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	shared = server
	status := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Println(err)
		status = 1
	}
	os.Exit(status)
}

func queue() *deltaq.Queue { return shared.Client().Queue(fmt.Sprintf("q%d", queues.Add(1))) }

func contextOf(t *testing.T) context.Context { return tested.Context(t) }

// newManager returns a manager without an API server: nothing listens at the address.
func newManager(t *testing.T) manager.Manager {
	t.Helper()
	mgr, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{
		Metrics:        metrics.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}

// start runs a manager. The returned function stops it, and waits for its end.
func start(t *testing.T, mgr manager.Manager) (stop func()) {
	ctx, cancel := context.WithCancel(contextOf(t))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestKeysAreReconciled(t *testing.T) {
	server := queue()
	workqueue := clientgo.NewQueue(contextOf(t), server, nil)
	keys := controllerruntime.NewKeys(workqueue, controllerruntime.Names)
	mgr := newManager(t)
	var mutex sync.Mutex
	seen := map[string]int{}
	reconciler := reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
		mutex.Lock()
		defer mutex.Unlock()
		key := controllerruntime.Names.KeyOf(request)
		seen[key]++
		switch {
		case key == "fails" && seen[key] < 4:
			return reconcile.Result{}, errors.New("not yet")
		case key == "later" && seen[key] == 1:
			return reconcile.Result{RequeueAfter: time.Millisecond}, nil
		case key == "given-up":
			return reconcile.Result{}, reconcile.TerminalError(errors.New("never"))
		}
		return reconcile.Result{}, nil
	})
	err := builder.ControllerManagedBy(mgr).Named("keys").
		WithOptions(controller.Options{NewQueue: keys.NewQueue, MaxConcurrentReconciles: 4}).
		WatchesRawSource(keys).
		Complete(reconciler)
	if err != nil {
		t.Fatal(err)
	}
	// Other programs add keys, also before the controller runs.
	want := map[string]int{"fails": 4, "later": 2, "given-up": 1, "ns/name": 1, "a/b/c": 1}
	for key := range want {
		workqueue.Add(key)
	}
	stop := start(t, mgr)
	until(t, "all keys are reconciled", func() bool {
		mutex.Lock()
		defer mutex.Unlock()
		return fmt.Sprint(seen) == fmt.Sprint(want)
	})
	stop()
	workqueue.ShutDownWithDrain()
	if status, err := server.Status(contextOf(t)); err != nil || status.Ready+status.Leased+status.Delayed+status.Parked != 0 {
		t.Errorf("%+v %v", status, err)
	}
	if _, isEnd := workqueue.Get(); !isEnd {
		t.Error("the manager has not shut the queue down")
	}
}

func TestReplicasShareTheKeysWithoutLeaderElection(t *testing.T) {
	server := queue()
	var mutex sync.Mutex
	running, seen := map[string]bool{}, map[string]int{}
	reconciler := reconcile.TypedFunc[string](func(_ context.Context, key string) (reconcile.Result, error) {
		mutex.Lock()
		if running[key] {
			t.Errorf("%s is reconciled by two replicas at once", key)
		}
		running[key] = true
		seen[key]++
		mutex.Unlock()
		mutex.Lock()
		defer mutex.Unlock()
		running[key] = false
		return reconcile.Result{}, nil
	})
	var stops []func()
	for replica := range 2 {
		mgr := newManager(t)
		workqueue := clientgo.NewQueue(contextOf(t), server, nil)
		keys := controllerruntime.NewKeys(workqueue, controllerruntime.Texts)
		one, err := controller.NewTyped(fmt.Sprintf("replica-%d", replica), mgr, controller.TypedOptions[string]{
			Reconciler: reconciler, NewQueue: keys.NewQueue, MaxConcurrentReconciles: 3,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := one.Watch(keys); err != nil {
			t.Fatal(err)
		}
		stop := start(t, mgr)
		stops = append(stops, func() {
			stop()
			workqueue.ShutDownWithDrain()
		})
	}
	producer := clientgo.NewQueue(contextOf(t), server, nil)
	for number := range 200 {
		producer.Add(fmt.Sprint(number))
	}
	until(t, "all keys are reconciled", func() bool {
		mutex.Lock()
		defer mutex.Unlock()
		return len(seen) == 200
	})
	for _, stop := range stops {
		stop()
	}
	if status, err := server.Status(contextOf(t)); err != nil || status.Ready+status.Leased != 0 {
		t.Errorf("%+v %v", status, err)
	}
	for key, count := range seen {
		if count != 1 {
			t.Errorf("%s is reconciled %d times", key, count)
		}
	}
}

func TestKeysNeedTheirQueue(t *testing.T) {
	keys := controllerruntime.NewKeys(clientgo.NewQueue(contextOf(t), queue(), nil), controllerruntime.Texts)
	if err := keys.Start(contextOf(t), nil); err == nil {
		t.Error("a controller with another queue")
	}
	wrong := queue()
	if _, err := wrong.Add(contextOf(t), map[string]string{"key": "a"}, nil); err != nil {
		t.Fatal(err)
	}
	keys = controllerruntime.NewKeys(clientgo.NewQueue(contextOf(t), wrong, nil), controllerruntime.Texts)
	if err := keys.WaitForSync(contextOf(t)); err == nil {
		t.Error("a queue of another mode")
	}
}

func TestObjectsAreReconciled(t *testing.T) {
	server := queue()
	update := func(key string, price int) {
		t.Helper()
		if _, err := server.Update(contextOf(t), map[string]any{"key": key, "price": price}, nil); err != nil {
			t.Fatal(err)
		}
	}
	update("a", 1)
	update("ns/b", 2)
	informer := deltaq.NewInformer(server, nil)
	mgr := newManager(t)
	if err := mgr.Add(manager.RunnableFunc(informer.Run)); err != nil {
		t.Fatal(err)
	}
	var mutex sync.Mutex
	state := map[string]string{}
	reconciler := reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
		mutex.Lock()
		defer mutex.Unlock()
		key := controllerruntime.Names.KeyOf(request)
		object, ok := informer.Store().Get(key)
		if !ok {
			delete(state, key)
			return reconcile.Result{}, nil
		}
		state[key] = string(object.Object)
		return reconcile.Result{}, nil
	})
	err := builder.ControllerManagedBy(mgr).Named("objects").WatchesRawSource(controllerruntime.NewObjects(informer, controllerruntime.Names)).Complete(reconciler)
	if err != nil {
		t.Fatal(err)
	}
	stop := start(t, mgr)
	is := func(want map[string]string) func() bool {
		return func() bool {
			mutex.Lock()
			defer mutex.Unlock()
			return fmt.Sprint(state) == fmt.Sprint(want)
		}
	}
	until(t, "the first objects", is(map[string]string{"a": `{"key":"a","price":1}`, "ns/b": `{"key":"ns/b","price":2}`}))
	update("ns/b", 3)
	if _, err := server.DeleteKey(contextOf(t), "a", nil); err != nil {
		t.Fatal(err)
	}
	until(t, "the changes", is(map[string]string{"ns/b": `{"key":"ns/b","price":3}`}))
	stop()
	if err := controllerruntime.NewObjects(informer, controllerruntime.Texts).WaitForSync(contextOf(t)); err == nil {
		t.Error("a source that has not begun")
	}
}
