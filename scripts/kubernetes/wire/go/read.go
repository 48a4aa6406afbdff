package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Each starts a reader, and returns what gives its state.
var readers = map[string]func(*rest.Config) func() dump{
	"dynamic":    readDynamic,
	"typed":      readTyped,
	"metadata":   readMetadata,
	"reflector":  readReflector,
	"controller": readController,
}

// What the handlers of an informer have been notified.
type notified struct {
	sync.Mutex
	versions map[string]string
	faults   []string
	counts   map[string]int
}

func newNotified() *notified {
	return &notified{versions: map[string]string{}, counts: map[string]int{}}
}

func (t *notified) fault(format string, arguments ...any) {
	if len(t.faults) < 20 {
		t.faults = append(t.faults, fmt.Sprintf(format, arguments...))
	}
}

// Handlers that know which keys they have: none is added twice, and none is updated or deleted that they do not have.
func (t *notified) handlers() cache.ResourceEventHandler {
	tell := func(what string, object any, known, stays bool) {
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		meta := object.(metav1.Object)
		key := cache.NewObjectName(meta.GetNamespace(), meta.GetName()).String()
		t.Lock()
		defer t.Unlock()
		t.counts[what]++
		if _, ok := t.versions[key]; ok != known {
			t.fault("%s of %s at version %s, which the handler has: %v", what, key, meta.GetResourceVersion(), ok)
		}
		if created := meta.GetCreationTimestamp(); meta.GetResourceVersion() == "" || meta.GetUID() == "" || created.IsZero() {
			t.fault("%s of %s without version, uid or time of creation", what, key)
		}
		if stays {
			t.versions[key] = meta.GetResourceVersion()
		} else {
			delete(t.versions, key)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { tell("add", object, false, true) },
		UpdateFunc: func(_, object any) { tell("update", object, true, true) },
		DeleteFunc: func(object any) { tell("delete", object, true, false) },
	}
}

// The state of an informer. What the handlers were notified must agree with the store, once it is quiet.
func (t *notified) state(store cache.Store, synced func() bool) dump {
	t.Lock()
	defer t.Unlock()
	result := dump{Synced: synced(), Store: objectsOf(store), Faults: append([]string{}, t.faults...), Counts: map[string]int{}}
	for what, count := range t.counts {
		result.Counts[what] = count
	}
	for key, object := range result.Store {
		version, _, _ := unstructured.NestedString(object, "metadata", "resourceVersion")
		if t.versions[key] != version {
			result.Counts["behind"]++
		}
	}
	if len(t.versions) != len(result.Store) {
		result.Counts["behind"]++
	}
	return result
}

func objectsOf(store cache.Store) map[string]map[string]any {
	objects := map[string]map[string]any{}
	for _, found := range store.List() {
		object, ok := found.(*unstructured.Unstructured)
		if !ok {
			text, err := json.Marshal(found)
			check(err)
			object = &unstructured.Unstructured{}
			check(json.Unmarshal(text, &object.Object))
		}
		objects[keyOf(object)] = object.Object
	}
	return objects
}

func tweak(options *metav1.ListOptions) { options.LabelSelector = *selector }

func run(informer cache.SharedIndexInformer) func() dump {
	handlers := newNotified()
	registration, err := informer.AddEventHandler(handlers.handlers())
	check(err)
	go informer.Run(make(chan struct{}))
	return func() dump { return handlers.state(informer.GetStore(), registration.HasSynced) }
}

func readDynamic(config *rest.Config) func() dump {
	client, err := dynamic.NewForConfig(config)
	check(err)
	return run(dynamicinformer.NewFilteredDynamicInformer(client, gvr(), *namespace, 0, cache.Indexers{}, tweak).Informer())
}

func readMetadata(config *rest.Config) func() dump {
	client, err := metadata.NewForConfig(config)
	check(err)
	return run(metadatainformer.NewFilteredMetadataInformer(client, gvr(), *namespace, 0, cache.Indexers{}, tweak).Informer())
}

// Price is a type as a generator makes it. Rates have the same members.
type Price struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              map[string]any `json:"spec,omitempty"`
}

// PriceList is a list of them.
type PriceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Price `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (p *Price) DeepCopyObject() runtime.Object {
	to := *p
	p.ObjectMeta.DeepCopyInto(&to.ObjectMeta)
	to.Spec = runtime.DeepCopyJSON(p.Spec)
	return &to
}

// DeepCopyObject implements runtime.Object.
func (l *PriceList) DeepCopyObject() runtime.Object {
	to := *l
	to.Items = make([]Price, len(l.Items))
	for i := range l.Items {
		to.Items[i] = *l.Items[i].DeepCopyObject().(*Price)
	}
	return &to
}

// A scheme with the kind of the resource, as generated code has it.
func scheme() *runtime.Scheme {
	of, group := runtime.NewScheme(), schema.GroupVersion{Group: "shop.example", Version: "v1"}
	of.AddKnownTypeWithName(group.WithKind(kinds[*resource]), &Price{})
	of.AddKnownTypeWithName(group.WithKind(kinds[*resource]+"List"), &PriceList{})
	metav1.AddToGroupVersion(of, group)
	return of
}

func typedClient(config *rest.Config) rest.Interface {
	group := schema.GroupVersion{Group: "shop.example", Version: "v1"}
	typed := rest.CopyConfig(config)
	typed.APIPath, typed.GroupVersion = "/apis", &group
	typed.NegotiatedSerializer = serializer.NewCodecFactory(scheme()).WithoutConversion()
	client, err := rest.RESTClientFor(typed)
	check(err)
	return client
}

func listWatch(config *rest.Config) *cache.ListWatch {
	return cache.NewFilteredListWatchFromClient(typedClient(config), *resource, *namespace, tweak)
}

func readTyped(config *rest.Config) func() dump {
	return run(cache.NewSharedIndexInformer(listWatch(config), &Price{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}))
}

// A reflector alone, which lists in pages of 500 as it does without resourceVersion=0.
func readReflector(config *rest.Config) func() dump {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	reflector := cache.NewReflectorWithOptions(listWatch(config), &Price{}, store, cache.ReflectorOptions{Name: "judge"})
	reflector.WatchListPageSize = *page
	go reflector.RunWithContext(context.Background())
	return func() dump {
		return dump{reflector.LastSyncResourceVersion() != "", objectsOf(store), nil, map[string]int{}}
	}
}
