package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
)

// Lists in pages as client-go's pager does. No key may come twice, all pages have one version, and a watch from there brings the store up to date:
// the caller says on stdin up to which version.
func pages(config *rest.Config) {
	client, err := dynamic.NewForConfig(config)
	check(err)
	api := client.Resource(gvr()).Namespace(*namespace)
	if *namespace == "" {
		check(err)
	}
	store, version, count := map[string]map[string]any{}, "", 0
	var lock sync.Mutex
	lister := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		options.LabelSelector = *selector
		list, err := api.List(ctx, options)
		if err == nil {
			lock.Lock()
			defer lock.Unlock()
			count++
			if version != "" && version != list.GetResourceVersion() {
				faults++
				fmt.Fprintf(os.Stderr, "page %d has the version %s, and the first %s\n", count, list.GetResourceVersion(), version)
			}
			version = list.GetResourceVersion()
		}
		return list, err
	})
	lister.PageSize, lister.FullListIfExpired = *page, false
	check(lister.EachListItem(context.Background(), metav1.ListOptions{}, func(found runtime.Object) error {
		object := found.(*unstructured.Unstructured)
		key := keyOf(object)
		if _, twice := store[key]; twice {
			faults++
			fmt.Fprintf(os.Stderr, "%s comes twice\n", key)
		}
		store[key] = object.Object
		return nil
	}))
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{"store": store, "resourceVersion": version, "pages": count, "faults": faults}))
}
