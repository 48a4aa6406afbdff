package clientgo_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	deltaq "example.com/deltaq/clients/go"
	"example.com/deltaq/clients/go/clientgo"
	"example.com/deltaq/clients/go/deltaqtest"
)

// item is an object of the tests.
type item struct {
	Key   string `json:"key"`
	Price int    `json:"price"`
}

func put(t *testing.T, q *deltaq.Queue, objects any) {
	t.Helper()
	if _, err := q.Update(contextOf(t), objects, nil); err != nil {
		t.Fatal(err)
	}
}

// informer runs an informer until the test ends, and waits until it has synced.
func informer(t *testing.T, lw cache.ListerWatcher, example runtime.Object) cache.SharedIndexInformer {
	t.Helper()
	shared := cache.NewSharedIndexInformer(lw, example, 0, cache.Indexers{})
	stop := make(chan struct{})
	ended := make(chan struct{})
	t.Cleanup(func() { close(stop); <-ended })
	go func() {
		defer close(ended)
		shared.Run(stop)
	}()
	if !cache.WaitForCacheSync(contextOf(t).Done(), shared.HasSynced) {
		t.Fatal("the informer has not synced")
	}
	return shared
}

// isInStep reports whether a store has the objects of a queue, with their keys and versions.
func isInStep(t *testing.T, store cache.Store, q *deltaq.Queue) bool {
	t.Helper()
	want, found := map[string]string{}, map[string]string{}
	for object, err := range q.Latest(contextOf(t), nil) {
		if err != nil {
			t.Fatal(err)
		}
		want[object.Key] = fmt.Sprint(object.ResourceVersion)
	}
	for _, key := range store.ListKeys() {
		object, _, _ := store.GetByKey(key)
		accessor, err := meta.Accessor(object)
		if err != nil {
			t.Fatal(err)
		}
		found[key] = accessor.GetResourceVersion()
	}
	return fmt.Sprint(want) == fmt.Sprint(found)
}

func TestAnInformerIsInStepWithAQueue(t *testing.T) {
	server := queue(t)
	put(t, server, []item{{"a", 1}, {"b", 2}, {"ns/c", 3}, {"x/y/z", 4}})
	shared := informer(t, clientgo.NewListWatch(server, nil), &unstructured.Unstructured{})
	var mutex sync.Mutex
	deleted := map[string]bool{}
	_, err := shared.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
		mutex.Lock()
		defer mutex.Unlock()
		deleted[key] = true
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !isInStep(t, shared.GetStore(), server) {
		t.Error(shared.GetStore().ListKeys())
	}
	put(t, server, []item{{"b", 20}, {"d", 5}, {"ns/c", 30}})
	for _, key := range []string{"a", "ns/c", "x/y/z"} {
		if _, err := server.DeleteKey(contextOf(t), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the informer is in step", func() bool { return isInStep(t, shared.GetStore(), server) })
	until(t, "the handler is called", func() bool {
		mutex.Lock()
		defer mutex.Unlock()
		return deleted["a"] && deleted["ns/c"] && deleted["x/y/z"]
	})
	found, _, _ := shared.GetStore().GetByKey("b")
	object := found.(*unstructured.Unstructured)
	if price, _, err := unstructured.NestedInt64(object.Object, "price"); price != 20 || err != nil {
		t.Error(object, err)
	}
	if object.GroupVersionKind() != clientgo.DefaultKind || object.GetName() != "b" || object.GetNamespace() != "" {
		t.Error(object)
	}
}

func TestAnInformerSurvivesRestartsOfItsServer(t *testing.T) {
	queue(t)
	folder := t.TempDir()
	options := &deltaqtest.Options{DataDir: folder}
	server := deltaqtest.Start(t, options)
	q := server.Client().Queue("q")
	put(t, q, []item{{"a", 1}, {"b", 2}})
	lists := &counting{ListWatch: clientgo.NewListWatch(q, nil)}
	shared := informer(t, lists, &unstructured.Unstructured{})
	options.Listen = strings.TrimPrefix(server.URL, "http://")
	server.Kill()
	deltaqtest.Start(t, options)
	put(t, q, item{"c", 3})
	until(t, "the informer is in step", func() bool { return isInStep(t, shared.GetStore(), q) })
	if count := lists.count(); count != 1 {
		t.Errorf("%d lists: the watch should go on from its last version", count)
	}
	// The queue is created again: the watch from its last version is gone.
	if err := q.DeleteQueue(contextOf(t), nil); err != nil {
		t.Fatal(err)
	}
	put(t, q, item{"a", 4})
	until(t, "the informer is in step with the new queue", func() bool { return isInStep(t, shared.GetStore(), q) })
	if lists.count() < 2 {
		t.Error("there was no second list")
	}
}

// counting counts lists.
type counting struct {
	*clientgo.ListWatch[*unstructured.Unstructured]
	mutex sync.Mutex
	lists int
}

func (c *counting) List(options metav1.ListOptions) (runtime.Object, error) {
	return c.ListWithContext(context.Background(), options)
}

func (c *counting) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	c.mutex.Lock()
	c.lists++
	c.mutex.Unlock()
	return c.ListWatch.ListWithContext(ctx, options)
}

func (c *counting) count() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.lists
}

func TestObjectsOfAGoType(t *testing.T) {
	server := queue(t)
	settings := deltaq.QueueSettings{Key: []deltaq.KeyPart{{Pointer: "/metadata/namespace", Optional: true}, {Pointer: "/metadata/name"}}}
	if _, err := server.PutSettings(contextOf(t), settings, nil); err != nil {
		t.Fatal(err)
	}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"app": "web"}}}
	put(t, server, pod)
	lw := clientgo.NewTypedListWatch(server, clientgo.Decode[*corev1.Pod](), nil)
	shared := informer(t, lw, &corev1.Pod{})
	found, ok, _ := shared.GetStore().GetByKey("shop/web")
	if !ok || found.(*corev1.Pod).Labels["app"] != "web" {
		t.Error(found)
	}
	pod.Spec.NodeName = "n1"
	put(t, server, pod)
	until(t, "the informer is in step", func() bool { return isInStep(t, shared.GetStore(), server) })
	list, err := lw.List(metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if items, err := meta.ExtractList(list); err != nil || len(items) != 1 || items[0].(*corev1.Pod).Spec.NodeName != "n1" {
		t.Error(items, err)
	}
	put(t, server, map[string]any{"metadata": map[string]any{"name": "odd"}, "spec": "no object"})
	if _, err := lw.List(metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), `the object of the key "odd"`) {
		t.Error(err)
	}
}

func TestObjectsWithoutTheFormOfKubernetes(t *testing.T) {
	server := queue(t)
	texts := []string{
		`{"key":"a","n":9007199254740993}`, `{"key":"b","kind":7,"apiVersion":null,"metadata":"none"}`, `{"key":"c","items":[{"x":1}],"metadata":{"labels":{"l":"1"},"name":"other"}}`,
		`{"key":"d","kind":"Price","apiVersion":"shop/v2"}`,
	}
	for _, text := range texts {
		put(t, server, raw(text))
	}
	list, err := clientgo.NewListWatch(server, nil).List(metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	items := list.(*unstructured.UnstructuredList).Items
	for index, want := range []string{"a", "b", "c", "d"} {
		if items[index].GetName() != want {
			t.Error(items[index])
		}
	}
	if items[0].Object["n"] != int64(9007199254740993) || items[2].GetLabels()["l"] != "1" || items[3].GetKind() != "Price" {
		t.Error(items)
	}
}

// raw is JSON text.
type raw string

func (r raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// next returns the next event of a watch.
func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case event := <-w.ResultChan():
		return event
	case <-time.After(patience):
		t.Fatal("there is no event")
		return watch.Event{}
	}
}

func TestAWatchBeginsAsItsOptionsSay(t *testing.T) {
	server := queue(t)
	put(t, server, item{"a", 1})
	lw := clientgo.NewListWatch(server, nil)
	list, err := lw.List(metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	put(t, server, item{"b", 2})
	version := list.(*unstructured.UnstructuredList).GetResourceVersion()
	after, err := lw.Watch(metav1.ListOptions{ResourceVersion: version, TimeoutSeconds: deltaq.Ptr(int64(1))})
	if err != nil {
		t.Fatal(err)
	}
	if event := next(t, after); event.Type != watch.Added || event.Object.(*unstructured.Unstructured).GetName() != "b" {
		t.Error(event)
	}
	// The watch ends after its timeout.
	if event := next(t, after); event.Type != "" {
		t.Error(event)
	}
	all, err := lw.Watch(metav1.ListOptions{
		SendInitialEvents: deltaq.Ptr(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Stop()
	for _, name := range []string{"a", "b"} {
		if event := next(t, all); event.Type != watch.Added || event.Object.(*unstructured.Unstructured).GetName() != name {
			t.Error(event)
		}
	}
	bookmark := next(t, all)
	object := bookmark.Object.(*unstructured.Unstructured)
	if bookmark.Type != watch.Bookmark || object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" || object.GetResourceVersion() == "" {
		t.Error(bookmark)
	}
	none, err := lw.Watch(metav1.ListOptions{ResourceVersion: object.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	none.Stop()
	if event := next(t, none); event.Type != "" {
		t.Error(event)
	}
	for _, options := range []metav1.ListOptions{{LabelSelector: "a=b"}, {FieldSelector: "metadata.name=a"}, {ResourceVersion: "x"}} {
		if _, err := lw.Watch(options); !apierrors.IsBadRequest(err) {
			t.Error(options, err)
		}
	}
	if _, err := lw.List(metav1.ListOptions{LabelSelector: "a=b"}); !apierrors.IsBadRequest(err) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := lw.WatchWithContext(ctx, metav1.ListOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := lw.ListWithContext(ctx, metav1.ListOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAVersionThatIsGoneIsExpired(t *testing.T) {
	server := queue(t)
	put(t, server, item{"a", 1})
	lw := clientgo.NewListWatch(server, nil)
	list, err := lw.List(metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	version := list.(*unstructured.UnstructuredList).GetResourceVersion()
	for _, gone := range []string{"1", version + "0"} {
		// An error of the call would reach the WatchErrorHandler of a reflector.
		w, err := lw.Watch(metav1.ListOptions{ResourceVersion: gone})
		if err != nil {
			t.Fatal(gone, err)
		}
		if event := next(t, w); event.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
			t.Error(gone, event)
		}
		if _, isOpen := <-w.ResultChan(); isOpen {
			t.Error(gone, "the watch goes on")
		}
	}
	w, err := lw.Watch(metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := server.DeleteQueue(contextOf(t), nil); err != nil {
		t.Fatal(err)
	}
	if event := next(t, w); event.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
		t.Error(event)
	}
	if _, err := lw.List(metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

func TestFailuresThatMayPassDoNotEndAWatch(t *testing.T) {
	replies := make(chan func(http.ResponseWriter), 1)
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) { (<-replies)(writer) }))
	defer server.Close()
	client, err := deltaq.New(server.URL, &deltaq.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	lw := clientgo.NewListWatch(client.Queue("q"), nil)
	problem := func(status int, code deltaq.Code) func(http.ResponseWriter) {
		return func(writer http.ResponseWriter) {
			writer.Header().Set("Content-Type", "application/problem+json")
			writer.Header().Set("Retry-After", "7")
			writer.WriteHeader(status)
			fmt.Fprintf(writer, `{"code":%q,"status":%d,"retryable":%v}`, code, status, status >= 429)
		}
	}
	for _, code := range []deltaq.Code{deltaq.CodeDraining, deltaq.CodeRecovering, deltaq.CodeNotOwner} {
		replies <- problem(503, code)
		_, err := lw.Watch(metav1.ListOptions{})
		if delay, isAsked := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !isAsked || delay != 7 {
			t.Error(code, err)
		}
	}
	for status, is := range map[int]func(error) bool{401: apierrors.IsUnauthorized, 403: apierrors.IsForbidden, 404: apierrors.IsNotFound} {
		replies <- problem(status, "refused")
		if _, err := lw.Watch(metav1.ListOptions{}); !is(err) {
			t.Error(status, err)
		}
		replies <- problem(status, "refused")
		if _, err := lw.List(metav1.ListOptions{}); !is(err) {
			t.Error(status, err)
		}
	}
	broken := func(writer http.ResponseWriter) {
		writer.Header().Set("Content-Type", "application/x-ndjson")
		fmt.Fprintln(writer, `{"type":"Added","key":"a","resource_version":7,"object":{"key":"a"}}`)
		fmt.Fprint(writer, `{"type":"Upd`)
	}
	replies <- broken
	w, err := lw.Watch(metav1.ListOptions{ResourceVersion: "6"})
	if err != nil {
		t.Fatal(err)
	}
	if event := next(t, w); event.Type != watch.Added {
		t.Error(event)
	}
	if event := next(t, w); event.Type != watch.Error || !apierrors.IsTooManyRequests(apierrors.FromObject(event.Object)) {
		t.Error(event)
	}
	replies <- broken
	if _, err := lw.List(metav1.ListOptions{}); err == nil {
		t.Error("a list that is not complete")
	}
	replies <- func(http.ResponseWriter) {}
	if _, err := lw.List(metav1.ListOptions{}); err == nil {
		t.Error("a list without an end")
	}
	unknown := func(writer http.ResponseWriter) {
		writer.Header().Set("Content-Type", "application/x-ndjson")
		fmt.Fprintln(writer, `{"type":"Moved","key":"a","resource_version":6}`)
		fmt.Fprintln(writer, `{"type":"Deleted","key":"ns/a","resource_version":7,"object":null,"final_state_unknown":true}`)
	}
	replies <- unknown
	if w, err = lw.Watch(metav1.ListOptions{ResourceVersion: "6"}); err != nil {
		t.Fatal(err)
	}
	event := next(t, w)
	if object := event.Object.(*unstructured.Unstructured); event.Type != watch.Deleted || object.GetName() != "a" || object.GetNamespace() != "ns" {
		t.Error(event)
	}
}
