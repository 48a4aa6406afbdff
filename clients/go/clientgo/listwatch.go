package clientgo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	deltaq "example.com/deltaq/clients/go"
)

// DefaultKind is the kind of unstructured objects that have none.
var DefaultKind = schema.GroupVersionKind{Group: "deltaq", Version: "v1", Kind: "Object"}

// Object is what reflectors and informers keep: a Kubernetes object, unstructured or of a Go type.
type Object interface {
	runtime.Object
	metav1.Object
}

// ListWatchOptions are options of a [ListWatch]. The zero value of each field is its default.
type ListWatchOptions struct {
	// View is the view to list and watch. Empty means deltaq.Latest.
	View deltaq.View
	// Prefix selects keys that begin with it, and Shard (such as 0/4) a part of all keys. Empty selects all.
	Prefix, Shard string
	// Bookmark is the interval of bookmarks while nothing changes, from 1 s to 1 m. Zero means 15 s.
	Bookmark time.Duration
}

// ListWatch is a cache.ListerWatcher over the objects of a queue, for reflectors and informers. T is a pointer to a struct, such as *unstructured.Unstructured.
//
// The namespace and the name of an object are those of its key, so that the key in a store is the key in the queue: of a key with one slash, they are the
// two parts, and any other key is a name without a namespace. The resource version is that of the queue. Lists have all objects, whatever their limit is.
// Selectors are refused.
type ListWatch[T Object] struct {
	queue   *deltaq.Queue
	decode  func(*deltaq.Object) (T, error)
	options ListWatchOptions
}

var _ cache.ListerWatcher = (*ListWatch[*unstructured.Unstructured])(nil)

// NewListWatch returns a ListWatch of unstructured objects. An object without apiVersion or kind has those of [DefaultKind].
func NewListWatch(queue *deltaq.Queue, options *ListWatchOptions) *ListWatch[*unstructured.Unstructured] {
	return NewTypedListWatch(queue, decodeUnstructured, options)
}

// NewTypedListWatch returns a ListWatch of objects of a Go type. Decode makes an object of a key; [Decode] returns one that reads the JSON text. A list with
// an object that can't be decoded fails, and so does a watch, which is then repeated.
func NewTypedListWatch[T Object](queue *deltaq.Queue, decode func(*deltaq.Object) (T, error), options *ListWatchOptions) *ListWatch[T] {
	if kind := reflect.TypeFor[T](); kind.Kind() != reflect.Pointer {
		panic(fmt.Sprintf("deltaq: objects of a ListWatch are pointers to structs, and not %v", kind))
	}
	given := ListWatchOptions{}
	if options != nil {
		given = *options
	}
	once := queue.Client().WithRetry(deltaq.RetryOptions{Attempts: 1})
	return &ListWatch[T]{queue: once.Queue(queue.Name()), decode: decode, options: given}
}

// Decode returns a function that reads the JSON text of an object into a new T. Unknown members are ignored.
func Decode[T Object]() func(*deltaq.Object) (T, error) {
	return func(object *deltaq.Object) (T, error) {
		decoded := newObject[T]()
		err := json.Unmarshal(object.Object, decoded)
		return decoded, err
	}
}

func newObject[T Object]() T { return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T) }

func decodeUnstructured(object *deltaq.Object) (*unstructured.Unstructured, error) {
	decoded := &unstructured.Unstructured{}
	// Unlike encoding/json, it reads whole numbers as int64, so 9007199254740993 stays as it is.
	if err := decoded.UnmarshalJSON(withKind(object.Object)); err != nil {
		return nil, err
	}
	return decoded, nil
}

// withKind adds a kind to an object, without which unstructured objects are not read.
func withKind(text json.RawMessage) []byte {
	var found struct {
		APIVersion any `json:"apiVersion"`
		Kind       any `json:"kind"`
		Metadata   any `json:"metadata"`
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &found) != nil || json.Unmarshal(text, &members) != nil || members == nil {
		return text
	}
	if kind, isText := found.Kind.(string); !isText || kind == "" {
		members["kind"] = quoted(DefaultKind.Kind)
	}
	if version, isText := found.APIVersion.(string); !isText || version == "" {
		members["apiVersion"] = quoted(DefaultKind.GroupVersion().String())
	}
	if _, isObject := found.Metadata.(map[string]any); !isObject {
		// The metadata of Kubernetes objects is an object.
		delete(members, "metadata")
	}
	completed, err := json.Marshal(members)
	if err != nil {
		return text
	}
	return completed
}

func quoted(text string) json.RawMessage { return json.RawMessage(strconv.Quote(text)) }

// name sets the namespace, the name and the version of an object.
func name(object Object, key string, version int64) {
	namespace, name, isNamespaced := strings.Cut(key, "/")
	if !isNamespaced || namespace == "" || name == "" || strings.Contains(name, "/") {
		namespace, name = "", key
	}
	object.SetNamespace(namespace)
	object.SetName(name)
	object.SetResourceVersion(strconv.FormatInt(version, 10))
}

// object makes the object of a key. The text of an object is missing only in a deletion.
func (l *ListWatch[T]) object(found *deltaq.Object) (T, error) {
	text := strings.TrimSpace(string(found.Object))
	if text == "" || text == "null" {
		return l.empty(found.Key, found.ResourceVersion), nil
	}
	decoded, err := l.decode(found)
	if err != nil {
		return decoded, fmt.Errorf("deltaq: the object of the key %q can't be decoded: %w", found.Key, err)
	}
	name(decoded, found.Key, found.ResourceVersion)
	return decoded, nil
}

// empty makes an object without contents: of a bookmark, or of a deletion whose last object is unknown.
func (l *ListWatch[T]) empty(key string, version int64) T {
	created := newObject[T]()
	if found, isUnstructured := any(created).(*unstructured.Unstructured); isUnstructured {
		found.SetGroupVersionKind(DefaultKind)
	}
	name(created, key, version)
	return created
}

// List returns all objects, as of one version. See [ListWatch.ListWithContext].
func (l *ListWatch[T]) List(options metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), options)
}

// ListWithContext returns all objects, as of one version, in the order of their keys: an UnstructuredList for unstructured objects, and otherwise a
// metav1.List. It makes one attempt, because its callers repeat it.
func (l *ListWatch[T]) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if err := refuseSelectors(options); err != nil {
		return nil, err
	}
	found, version, err := l.snapshot(ctx)
	if err != nil {
		return nil, statusOf(err)
	}
	text := strconv.FormatInt(version, 10)
	if objects, areUnstructured := any(found).([]*unstructured.Unstructured); areUnstructured {
		list := &unstructured.UnstructuredList{Items: make([]unstructured.Unstructured, 0, len(objects))}
		list.SetGroupVersionKind(DefaultKind.GroupVersion().WithKind(DefaultKind.Kind + "List"))
		list.SetResourceVersion(text)
		for _, object := range objects {
			list.Items = append(list.Items, *object)
		}
		return list, nil
	}
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: text}, Items: make([]runtime.RawExtension, 0, len(found))}
	for _, object := range found {
		list.Items = append(list.Items, runtime.RawExtension{Object: object})
	}
	return list, nil
}

// snapshot reads a watch up to its first bookmark. Unlike the version of a list, a watch can go on from this version on every server.
func (l *ListWatch[T]) snapshot(ctx context.Context) ([]T, int64, error) {
	objects := map[string]T{}
	for row, err := range l.queue.Watch(ctx, l.watchOptions(0)) {
		if err != nil {
			return nil, 0, err
		}
		switch {
		case row.Type == deltaq.WatchDeleted:
			delete(objects, row.Key)
		case row.Type == deltaq.WatchBookmark && row.InitialEventsEnd:
			keys := make([]string, 0, len(objects))
			for key := range objects {
				keys = append(keys, key)
			}
			slices.Sort(keys)
			list := make([]T, len(keys))
			for index, key := range keys {
				list[index] = objects[key]
			}
			return list, row.ResourceVersion, nil
		case row.Type == deltaq.WatchAdded || row.Type == deltaq.WatchUpdated:
			// The initial keys have the versions of their last changes.
			if objects[row.Key], err = l.object(objectOf(row)); err != nil {
				return nil, 0, err
			}
		}
	}
	return nil, 0, errUnfinished
}

// errUnfinished is the error of a list whose stream ends early, for example because the server shuts down.
var errUnfinished = errors.New("deltaq: the list was not sent to its end")

func objectOf(row *deltaq.WatchRow) *deltaq.Object {
	return &deltaq.Object{Key: row.Key, Source: row.Source, ResourceVersion: row.ResourceVersion, Object: row.Object}
}

func (l *ListWatch[T]) watchOptions(version int64) *deltaq.WatchOptions {
	return &deltaq.WatchOptions{
		View: l.options.View, ResourceVersion: version, Prefix: l.options.Prefix, Shard: l.options.Shard, Bookmark: l.options.Bookmark,
	}
}

// Watch watches the objects. See [ListWatch.WatchWithContext].
func (l *ListWatch[T]) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), options)
}

// WatchWithContext returns the changes after a resource version. Without one, or with sendInitialEvents, all objects come first. If the server does not know
// the changes after the version, the watch fails with the status 410 and the reason Expired, so that reflectors list again. This is an event also if the
// server says so at once: reflectors call their WatchErrorHandler for the error of a call, and an old version is usual. Failures that may
// pass have the status 429, after which reflectors wait and watch again from their last version. The watch ends when the server ends the stream, after some
// minutes, and with the context.
func (l *ListWatch[T]) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := refuseSelectors(options); err != nil {
		return nil, err
	}
	version, err := versionOf(options)
	if err != nil {
		return nil, err
	}
	watching, cancel := context.WithCancel(ctx)
	w := &watcher{events: make(chan watch.Event), cancel: cancel}
	begun := make(chan error, 1)
	isOpen := false
	given := l.watchOptions(version)
	given.Opened = func() {
		isOpen = true
		begun <- nil
	}
	go func() {
		defer cancel()
		defer close(w.events)
		err := l.stream(watching, w, given, options)
		if !isOpen {
			begun <- err
			if !isExpired(err) {
				return
			}
		}
		if err != nil && watching.Err() == nil {
			level := slog.LevelWarn
			if isExpired(err) {
				level = slog.LevelDebug
			}
			l.queue.Client().Logger().Log(ctx, level, "deltaq: a watch has ended", "queue", l.queue.Name(), "error", err)
			w.send(watching, watch.Event{Type: watch.Error, Object: statusObject(err)})
		}
	}()
	select {
	case err := <-begun:
		if err != nil && !isExpired(err) {
			return nil, resumable(err)
		}
	case <-ctx.Done():
		cancel()
		return nil, fmt.Errorf("deltaq: %w", context.Cause(ctx))
	}
	if options.TimeoutSeconds != nil {
		timer := time.AfterFunc(time.Duration(*options.TimeoutSeconds)*time.Second, cancel)
		context.AfterFunc(watching, func() { timer.Stop() })
	}
	return w, nil
}

// stream sends the events of one watch, until it ends.
func (l *ListWatch[T]) stream(ctx context.Context, w *watcher, given *deltaq.WatchOptions, options metav1.ListOptions) error {
	for row, err := range l.queue.Watch(ctx, given) {
		if err != nil {
			return err
		}
		event := watch.Event{}
		switch row.Type {
		case deltaq.WatchAdded:
			event.Type = watch.Added
		case deltaq.WatchUpdated:
			event.Type = watch.Modified
		case deltaq.WatchDeleted:
			event.Type = watch.Deleted
		case deltaq.WatchBookmark:
			if !options.AllowWatchBookmarks {
				continue
			}
			event.Type = watch.Bookmark
			bookmark := l.empty("", row.ResourceVersion)
			if row.InitialEventsEnd && options.SendInitialEvents != nil && *options.SendInitialEvents {
				bookmark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
			}
			event.Object = bookmark
		default:
			// A newer server may have more types.
			continue
		}
		if event.Object == nil {
			if event.Object, err = l.object(objectOf(row)); err != nil {
				return err
			}
		}
		if !w.send(ctx, event) {
			return nil
		}
	}
	return nil
}

// watcher is a running watch.
type watcher struct {
	events chan watch.Event
	cancel context.CancelFunc
}

// Stop ends the watch.
func (w *watcher) Stop() { w.cancel() }

// ResultChan returns the events. It is closed at the end.
func (w *watcher) ResultChan() <-chan watch.Event { return w.events }

func (w *watcher) send(ctx context.Context, event watch.Event) bool {
	select {
	case w.events <- event:
		return true
	case <-ctx.Done():
		return false
	}
}
