package deltaq

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

func (page *Page[T]) isComplete() bool { return page.Items != nil }

func (page *QueuePage) isComplete() bool { return page.Items != nil }

func (document *QueueDocument) isComplete() bool { return document.Incarnation != "" }

func (produced *Produced) isComplete() bool { return produced.InvalidObjects != nil }

// ListOptions select a page of a list. Iterations set Continue.
type ListOptions struct {
	// Limit is the size of a page, at most 5,000. Zero means 500.
	Limit int
	// Continue is the token of a page. Empty means the first one.
	Continue string
}

func (options *ListOptions) apply(query url.Values) {
	setNumber(query, "limit", options.Limit)
	setText(query, "continue", options.Continue)
}

// copied returns the options, or their zero value.
func copied[T any](options *T) T {
	if options == nil {
		var zero T
		return zero
	}
	return *options
}

// listed iterates over a list of a queue.
func listed[T any](list *ListOptions, page func() (*Page[T], error)) iter.Seq2[T, error] {
	return pages(func(token string) ([]T, *string, error) {
		list.Continue = token
		found, err := page()
		if err != nil {
			return nil, nil, err
		}
		return found.Items, found.Continue, nil
	})
}

// ItemsOptions select keys.
type ItemsOptions struct {
	ListOptions
	// States are ready, delayed, leased and parked. Empty means all of them.
	States []string
	// Worker selects the leases of a worker, Prefix keys that begin with it, Source keys that it owns, and Key one key. Empty selects all.
	Worker, Prefix, Source, Key string
	// Error selects the keys whose last error this is. Nil selects all, and an empty text the keys without an error.
	Error *string
	// WithDiff adds the difference from the object that was acknowledged last to the newest one to each item.
	WithDiff bool
}

func (options *ItemsOptions) query() url.Values {
	query := url.Values{}
	options.apply(query)
	setText(query, "state", strings.Join(options.States, ","))
	setText(query, "worker", options.Worker)
	setText(query, "prefix", options.Prefix)
	setText(query, "source", options.Source)
	setText(query, "key", options.Key)
	if options.Error != nil {
		query.Set("error", *options.Error)
	}
	if options.WithDiff {
		query.Set("with", "diff")
	}
	return query
}

// ItemsPage returns a page of the keys with waiting or leased changes.
func (q *Queue) ItemsPage(ctx context.Context, options *ItemsOptions) (*Page[Item], error) {
	given := copied(options)
	return get[Page[Item]](ctx, q, "/items", given.query())
}

// Items iterates over the keys with waiting or leased changes. After an error, the iteration ends.
func (q *Queue) Items(ctx context.Context, options *ItemsOptions) iter.Seq2[Item, error] {
	given := copied(options)
	return listed(&given.ListOptions, func() (*Page[Item], error) { return q.ItemsPage(ctx, &given) })
}

// ItemOptions are options of [Queue.Item].
type ItemOptions struct {
	// WithDiff adds the difference from the object that was acknowledged last to the newest one.
	WithDiff bool
}

// Item returns one key. A key that the queue does not have is the problem CodeKeyNotFound.
func (q *Queue) Item(ctx context.Context, key string, options *ItemOptions) (*Item, error) {
	query := url.Values{"key": {key}}
	if options != nil && options.WithDiff {
		query.Set("with", "diff")
	}
	return get[Item](ctx, q, "/item", query)
}

// Explain says why a key is not delivered.
func (q *Queue) Explain(ctx context.Context, key string) (*Explanation, error) {
	return get[Explanation](ctx, q, "/explain", url.Values{"key": {key}})
}

// ViewOptions select objects of a view.
type ViewOptions struct {
	ListOptions
	// Prefix selects keys that begin with it, Source keys that it owns, Shard (such as 0/4) a part of all keys, and Key one key. Empty selects all.
	Prefix, Source, Shard, Key string
	// Index and Value select the known objects that have this value in this index. An empty Index selects all.
	Index, Value string
	// Wait is how long to wait until the index is built, at most 10 s.
	Wait time.Duration
}

func (options *ViewOptions) query() url.Values {
	query := url.Values{}
	options.apply(query)
	setText(query, "prefix", options.Prefix)
	setText(query, "source", options.Source)
	setText(query, "shard", options.Shard)
	setText(query, "key", options.Key)
	if options.Index != "" {
		query.Set("index", options.Index)
		query.Set("value", options.Value)
	}
	setLength(query, "wait", options.Wait)
	return query
}

// ViewPage returns a page of the objects of a view.
func (q *Queue) ViewPage(ctx context.Context, view View, options *ViewOptions) (*Page[Object], error) {
	given := copied(options)
	call, err := q.call(http.MethodGet, "/"+string(or(view, Latest)))
	if err != nil {
		return nil, err
	}
	call.query, call.wait = given.query(), given.Wait
	return fetch[Page[Object]](ctx, q.client, call)
}

// Latest iterates over the newest objects, in the order of their keys. After an error, the iteration ends.
func (q *Queue) Latest(ctx context.Context, options *ViewOptions) iter.Seq2[Object, error] {
	return q.view(ctx, Latest, options)
}

// Known iterates over the objects that were acknowledged last, in the order of their keys. After an error, the iteration ends.
func (q *Queue) Known(ctx context.Context, options *ViewOptions) iter.Seq2[Object, error] {
	return q.view(ctx, Known, options)
}

func (q *Queue) view(ctx context.Context, view View, options *ViewOptions) iter.Seq2[Object, error] {
	given := copied(options)
	return listed(&given.ListOptions, func() (*Page[Object], error) { return q.ViewPage(ctx, view, &given) })
}

// ObjectOptions are options of [Queue.LatestObject] and [Queue.KnownObject].
type ObjectOptions struct {
	// MinResourceVersion is the version in the reply to an earlier call. The read is refused if the queue does not have it. Zero means none.
	MinResourceVersion int64
}

// LatestObject returns the newest object of a key, with its entity tag. A key without one is the problem CodeKeyNotFound.
func (q *Queue) LatestObject(ctx context.Context, key string, options *ObjectOptions) (*Object, string, error) {
	return q.object(ctx, Latest, key, options)
}

// KnownObject returns the object of a key that was acknowledged last, with its entity tag. A key without one is the problem CodeKeyNotFound.
func (q *Queue) KnownObject(ctx context.Context, key string, options *ObjectOptions) (*Object, string, error) {
	return q.object(ctx, Known, key, options)
}

func (q *Queue) object(ctx context.Context, view View, key string, options *ObjectOptions) (*Object, string, error) {
	call, err := q.call(http.MethodGet, "/object")
	if err != nil {
		return nil, "", err
	}
	call.query.Set("view", string(view))
	call.query.Set("key", key)
	if options != nil {
		setNumber(call.query, "min_resource_version", options.MinResourceVersion)
	}
	return fetchTagged[Object](ctx, q.client, call)
}

// ParkedErrorsPage returns a page of the errors of the parked keys, the most frequent ones first.
func (q *Queue) ParkedErrorsPage(ctx context.Context, options *ListOptions) (*ParkedErrorsPage, error) {
	query, given := url.Values{}, copied(options)
	given.apply(query)
	return get[ParkedErrorsPage](ctx, q, "/parked/errors", query)
}

// simplePage returns a page of a list without other options.
func simplePage[T any](ctx context.Context, q *Queue, path string, options *ListOptions, query url.Values) (*Page[T], error) {
	given := copied(options)
	given.apply(query)
	return get[Page[T]](ctx, q, path, query)
}

func simpleList[T any](ctx context.Context, q *Queue, path string, options *ListOptions, query url.Values) iter.Seq2[T, error] {
	given := copied(options)
	return listed(&given, func() (*Page[T], error) {
		query := cloneQuery(query)
		return simplePage[T](ctx, q, path, &given, query)
	})
}

func cloneQuery(query url.Values) url.Values {
	cloned := url.Values{}
	for name, values := range query {
		cloned[name] = values
	}
	return cloned
}

// HistoryPage returns a page of the events of a key, newest first.
func (q *Queue) HistoryPage(ctx context.Context, key string, options *ListOptions) (*Page[HistoryEvent], error) {
	return simplePage[HistoryEvent](ctx, q, "/history", options, url.Values{"key": {key}})
}

// History iterates over the events of a key, newest first. After an error, the iteration ends.
func (q *Queue) History(ctx context.Context, key string, options *ListOptions) iter.Seq2[HistoryEvent, error] {
	return simpleList[HistoryEvent](ctx, q, "/history", options, url.Values{"key": {key}})
}

// Sources iterates over the sources that own keys, have made calls or have a problem. After an error, the iteration ends.
func (q *Queue) Sources(ctx context.Context, options *ListOptions) iter.Seq2[Source, error] {
	return simpleList[Source](ctx, q, "/sources", options, nil)
}

// Workers iterates over the workers that hold leases or wait for keys. After an error, the iteration ends.
func (q *Queue) Workers(ctx context.Context, options *ListOptions) iter.Seq2[WorkerStatus, error] {
	return simpleList[WorkerStatus](ctx, q, "/workers", options, nil)
}

// Groups returns the first 20 groups of keys that take turns. sort is wait, ready or leased; empty means wait.
func (q *Queue) Groups(ctx context.Context, sort string) (*GroupList, error) {
	call, err := q.call(http.MethodGet, "/groups")
	if err != nil {
		return nil, err
	}
	if sort != "" {
		call.query.Set("sort", sort)
	}
	return fetch[GroupList](ctx, q.client, call)
}

// Indexes iterates over the indexes of the known objects. After an error, the iteration ends.
func (q *Queue) Indexes(ctx context.Context, options *ListOptions) iter.Seq2[Index, error] {
	return simpleList[Index](ctx, q, "/indexes", options, nil)
}

// IndexValues iterates over the values of an index that begin with a prefix, which may be empty. After an error, the iteration ends.
func (q *Queue) IndexValues(ctx context.Context, index, prefix string, options *ListOptions) iter.Seq2[IndexValue, error] {
	name, err := segment(index)
	if err != nil {
		return func(yield func(IndexValue, error) bool) { yield(IndexValue{}, err) }
	}
	query := url.Values{}
	setText(query, "prefix", prefix)
	return simpleList[IndexValue](ctx, q, "/indexes/"+name, options, query)
}

// SyncedOptions are options of [Queue.Synced].
type SyncedOptions struct {
	// ResourceVersion waits until every change up to this version is acknowledged. Zero means the initial list.
	ResourceVersion int64
	// Now waits until every change before the call is acknowledged.
	Now bool
	// Wait is how long to wait, at most 55 s. Zero means not at all.
	Wait time.Duration
}

// Synced says whether the initial list is processed or, with a version, whether everything up to it is acknowledged.
func (q *Queue) Synced(ctx context.Context, options *SyncedOptions) (*SyncedReply, error) {
	given := copied(options)
	call, err := q.call(http.MethodGet, "/synced")
	if err != nil {
		return nil, err
	}
	setNumber(call.query, "resource_version", given.ResourceVersion)
	if given.Now {
		call.query.Set("resource_version", "now")
	}
	setLength(call.query, "wait", given.Wait)
	call.wait = given.Wait
	return fetch[SyncedReply](ctx, q.client, call)
}

// WatchOptions select the changes of a watch.
type WatchOptions struct {
	// View is the view to watch. Empty means [Latest].
	View View
	// ResourceVersion begins with the changes after this version. Zero begins with all keys.
	ResourceVersion int64
	// Now begins with the next change.
	Now bool
	// Prefix selects keys that begin with it, and Shard (such as 0/4) a part of all keys. Empty selects all.
	Prefix, Shard string
	// Bookmark is the interval of bookmarks while nothing changes, from 1 s to 1 m. A stream that is silent for two and a half of these intervals is lost.
	// Zero means 15 s.
	Bookmark time.Duration
	// Opened is called once the server has accepted the watch, before the first row. Nil means nothing.
	Opened func()
}

func (options *WatchOptions) query() url.Values {
	query := url.Values{"view": {string(or(options.View, Latest))}}
	query.Set("resource_version", strconv.FormatInt(options.ResourceVersion, 10))
	if options.Now {
		query.Set("resource_version", "now")
	}
	setText(query, "prefix", options.Prefix)
	setText(query, "shard", options.Shard)
	setLength(query, "bookmark", options.Bookmark)
	return query
}

// WatchPageOptions are options of [Queue.WatchPage].
type WatchPageOptions struct {
	WatchOptions
	ListOptions
	// Wait is how long to wait for the first row, at most 55 s. Zero means not at all.
	Wait time.Duration
}

// WatchPage returns the rows that a watch would send now, or within Wait.
func (q *Queue) WatchPage(ctx context.Context, options *WatchPageOptions) (*Page[WatchRow], error) {
	given := copied(options)
	call, err := q.call(http.MethodGet, "/watch")
	if err != nil {
		return nil, err
	}
	call.query, call.wait = given.WatchOptions.query(), given.Wait
	given.ListOptions.apply(call.query)
	setLength(call.query, "wait", given.Wait)
	return fetch[Page[WatchRow]](ctx, q.client, call)
}

// rowProblem is the problem in a row that ends a watch.
func rowProblem(row *WatchRow) error {
	if row.Problem == nil {
		return errors.New("a row has no type of this version")
	}
	problem := &Problem{ProblemDocument: *row.Problem}
	if problem.RetryAfterMs != nil {
		problem.retryAfter = milliseconds(*problem.RetryAfterMs)
	}
	return problem
}

// rowOf reads a line of a watch.
func rowOf(server string, line []byte) (*WatchRow, error) {
	row := new(WatchRow)
	err := json.Unmarshal(line, row)
	if err == nil && row.Type == "" {
		err = errors.New("a member is missing")
	}
	if err != nil {
		return nil, &ReplyError{Server: server, Status: http.StatusOK, Err: err, isJSON: json.Valid(line)}
	}
	if row.Type == WatchError || row.Type == WatchExpired {
		return nil, rowProblem(row)
	}
	return row, nil
}
