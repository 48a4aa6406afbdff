package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// A controller of controller-runtime. The store has what its reconciler has seen in the cache; that of the cache must be the same.
func readController(config *rest.Config) func() dump {
	ctrl.SetLogger(logr.Discard())
	options := ctrl.Options{Metrics: metrics.Options{BindAddress: "0"}}
	if *namespace != "" {
		options.Cache.DefaultNamespaces = map[string]cache.Config{*namespace: {}}
	}
	of, err := ctrl.NewManager(config, options)
	check(err)
	kind := gvr().GroupVersion().WithKind(kinds[*resource])
	object := func() *unstructured.Unstructured {
		made := &unstructured.Unstructured{}
		made.SetGroupVersionKind(kind)
		return made
	}

	var lock sync.Mutex
	seen, counts := map[string]map[string]any{}, map[string]int{}
	reconciler := func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
		found := object()
		err := of.GetClient().Get(ctx, request.NamespacedName, found)
		key := request.Name
		if request.Namespace != "" {
			key = request.Namespace + "/" + request.Name
		}
		lock.Lock()
		defer lock.Unlock()
		counts["reconciled"]++
		if apierrors.IsNotFound(err) {
			delete(seen, key)
			return ctrl.Result{}, nil
		}
		if err == nil {
			seen[key] = found.Object
		}
		return ctrl.Result{}, err
	}
	workers := controller.Options{MaxConcurrentReconciles: 8}
	check(ctrl.NewControllerManagedBy(of).For(object()).Named("judge").WithOptions(workers).Complete(reconcileFunc(reconciler)))
	go func() { check(of.Start(context.Background())) }()
	return func() dump {
		informer, err := of.GetCache().GetInformer(context.Background(), object(), cache.BlockUntilSynced(false))
		check(err)
		result := dump{Synced: informer.HasSynced(), Store: map[string]map[string]any{}, Counts: map[string]int{}}
		if !result.Synced {
			return result
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := of.GetCache().List(context.Background(), list); err != nil {
			result.Faults = append(result.Faults, fmt.Sprint("list of the cache: ", err))
		}
		lock.Lock()
		defer lock.Unlock()
		result.Counts["reconciled"] = counts["reconciled"]
		for key, object := range seen {
			result.Store[key] = object
		}
		if len(list.Items) != len(seen) {
			result.Counts["behind"]++
		}
		for i := range list.Items {
			item := &list.Items[i]
			version, _, _ := unstructured.NestedString(seen[keyOf(item)], "metadata", "resourceVersion")
			if version != item.GetResourceVersion() {
				result.Counts["behind"]++
			}
		}
		return result
	}
}

type reconcileFunc func(context.Context, ctrl.Request) (ctrl.Result, error)

// Reconcile implements reconcile.Reconciler.
func (f reconcileFunc) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return f(ctx, request)
}
