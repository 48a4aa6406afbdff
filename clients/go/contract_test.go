package deltaq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	deltaq "example.com/deltaq/clients/go"
)

// schema is what the tests read of a schema of the server's description.
type schema struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
	Enum       []string                   `json:"enum"`
	AllOf      []schema                   `json:"allOf"`
}

type description struct {
	Paths      map[string]map[string]json.RawMessage `json:"paths"`
	Components struct {
		Schemas map[string]schema `json:"schemas"`
	} `json:"components"`
}

// openAPI reads the description in the repository, which a module that is fetched by itself does not have.
func openAPI(t *testing.T) description {
	t.Helper()
	text, err := os.ReadFile("../../docs/openapi.json")
	if os.IsNotExist(err) {
		t.Skip("this is not the repository of deltaq")
	}
	if err != nil {
		t.Fatal(err)
	}
	var read description
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// documents are the types for the schemas of the description. Each has exactly the members of its schemas.
var documents = []struct {
	document any
	schemas  []string
}{
	{deltaq.Delta{}, []string{"DeltaDocument"}},
	{deltaq.Lease{}, []string{"LeaseDocument"}},
	{deltaq.DiffOperation{}, []string{"DiffOperation"}},
	{deltaq.PoppedItem{}, []string{"PoppedItem"}},
	{deltaq.Popped{}, []string{"Popped"}},
	{deltaq.Hold{}, []string{"Hold"}},
	{deltaq.Settle{}, []string{"SettleCall"}},
	{deltaq.Settled{}, []string{"SettledDocument"}},
	{deltaq.SettledList{}, []string{"SettledList"}},
	{deltaq.FailedKey{}, []string{"FailedKey"}},
	{deltaq.InvalidObject{}, []string{"InvalidObject"}},
	{deltaq.Produced{}, []string{"Produced"}},
	{deltaq.ReplaceCounts{}, []string{"ReplaceCounts"}},
	{deltaq.DeltaCall{}, []string{"DeltaCall"}},
	{deltaq.Purged{}, []string{"PurgedDocument"}},
	{deltaq.Page[deltaq.Object]{}, []string{"Page_ObjectDocument", "Page_ItemDocument", "Page_EventDocument", "Page_WatchRow"}},
	{deltaq.Page[deltaq.Index]{}, []string{"Page_IndexDocument", "Page_IndexValueDocument", "Page_SourceDocument", "Page_WorkerDocument"}},
	{deltaq.Object{}, []string{"ObjectDocument"}},
	{deltaq.Item{}, []string{"ItemDocument"}},
	{deltaq.Explanation{}, []string{"ExplainDocument"}},
	{deltaq.ParkedError{}, []string{"ParkedError"}},
	{deltaq.ParkedErrorsPage{}, []string{"ParkedErrors"}},
	{deltaq.LastReplace{}, []string{"LastReplaceDocument"}},
	{deltaq.SourceProblem{}, []string{"SourceProblem"}},
	{deltaq.Source{}, []string{"SourceDocument"}},
	{deltaq.GroupList{}, []string{"GroupList"}},
	{deltaq.GroupStatus{}, []string{"GroupDocument"}},
	{deltaq.Groups{}, []string{"Groups", "GivenGroups"}},
	{deltaq.GroupOverride{}, []string{"GroupOverride"}},
	{deltaq.WorkerStatus{}, []string{"WorkerDocument"}},
	{deltaq.Index{}, []string{"IndexDocument"}},
	{deltaq.IndexValue{}, []string{"IndexValueDocument"}},
	{deltaq.SyncedReply{}, []string{"SyncedDocument"}},
	{deltaq.SettingsPlan{}, []string{"SettingsPlan"}},
	{deltaq.PushTest{}, []string{"PushTestDocument"}},
	{deltaq.RateLimiter{}, []string{"RateLimiter", "GivenRateLimiter"}},
	{deltaq.ItemExponential{}, []string{"ItemExponential", "GivenItemExponential"}},
	{deltaq.ItemFastSlow{}, []string{"ItemFastSlow", "GivenItemFastSlow"}},
	{deltaq.Bucket{}, []string{"Bucket", "GivenBucket"}},
	{deltaq.Debounce{}, []string{"Debounce", "GivenDebounce"}},
	{deltaq.HeadStartOrder{}, []string{"HeadStartOrder", "GivenHeadStartOrder"}},
	{deltaq.PriorityOrder{}, []string{"PriorityOrder", "GivenPriorityOrder"}},
	{deltaq.Order{}, []string{"Order", "GivenOrder"}},
	{deltaq.DeliveryRate{}, []string{"DeliveryRate", "GivenDeliveryRate"}},
	{deltaq.Follow{}, []string{"Follow", "GivenFollow"}},
	{deltaq.Push{}, []string{"Push", "GivenPush"}},
	{deltaq.Retention{}, []string{"Retention", "GivenRetention"}},
	{deltaq.DiffSettings{}, []string{"DiffSettings", "GivenDiffSettings"}},
	{deltaq.QueueSettings{}, []string{"QueueSettings", "GivenSettings"}},
	{deltaq.FollowStatus{}, []string{"FollowStatus"}},
	{deltaq.PushStatus{}, []string{"PushStatus"}},
	{deltaq.Hook{}, []string{"Hook", "GivenHook"}},
	{deltaq.HookSignature{}, []string{"HookSignature", "GivenHookSignature"}},
	{deltaq.HookCondition{}, []string{"HookCondition", "GivenHookCondition"}},
	{deltaq.CloudEvents{}, []string{"CloudEvents", "GivenCloudEvents"}},
	{deltaq.Kubernetes{}, []string{"Kubernetes", "GivenKubernetes"}},
	{deltaq.HookStatus{}, []string{"HookStatus"}},
	{deltaq.QueueStatus{}, []string{"QueueStatus"}},
	{deltaq.QueueDocument{}, []string{"QueueDocument"}},
	{deltaq.UnavailableQueue{}, []string{"UnavailableQueue"}},
	{deltaq.QueuePage{}, []string{"QueuePage"}},
	{deltaq.Info{}, []string{"Info"}},
	{deltaq.InfoStore{}, []string{"InfoStore"}},
	{deltaq.InfoNode{}, []string{"InfoNode"}},
	{deltaq.InfoCaller{}, []string{"InfoCaller"}},
	{deltaq.InfoGrant{}, []string{"InfoGrant"}},
	{deltaq.Node{}, []string{"NodeDocument"}},
	{deltaq.NodeList{}, []string{"NodeList"}},
	{deltaq.NodeDetails{}, []string{"NodeDetails"}},
	{deltaq.OwnedPartition{}, []string{"OwnedPartition"}},
	{deltaq.InfoLinks{}, []string{"InfoLinks"}},
	{deltaq.Violation{}, []string{"ViolationDocument"}},
}

// wider are the types that have at least the members of several schemas.
var wider = []struct {
	document any
	schemas  []string
}{
	{deltaq.WatchRow{}, []string{"AddedRow", "UpdatedRow", "DeletedRow", "BookmarkRow", "ErrorRow", "ExpiredRow"}},
	{deltaq.HistoryEvent{}, []string{"AppendedEvent", "QueuedEvent", "FailedEvent", "DroppedEvent", "TakenOverEvent", "LeasedEvent", "ExtendedEvent",
		"ProgressedEvent", "SettledEvent", "DelayElapsedEvent", "ForgottenEvent", "RefreshedEvent", "RedrivenEvent", "RemovedEvent", "VersionRememberedEvent", "SeededEvent"}},
	{deltaq.ProblemDocument{}, []string{"ProblemDocument"}},
	{deltaq.ReplaceReply{}, []string{"ReplaceCounts", "Replaced"}},
}

// written are the schemas of what the calls themselves write and read.
var written = []string{"DetailedKeyPart", "ForgetBody", "InfoLimits", "KeyPrefix", "KeysBody", "KeysCount", "KeysFilter", "LeasesBody", "PauseBody", "PopBody", "SeedCall", "SelectedCount", "SettleBody",
	"SourceChange", "SourceReport"}

// ofOperators are the schemas of calls that the client does not make.
var ofOperators = []string{"ActivityEntry", "ActivityPage", "DeliveriesBody", "DeliveriesCount", "DeliveryDocument", "DeliveryList", "DrainEstimate", "Found", "FoundKey",
	"FoundSource", "FoundWorker", "HookAnswer", "PageOfQueues_QueueSourceDocument", "PageOfQueues_ReflectorDocument", "ProcessingTime", "QueueSourceDocument",
	"QueueWorkerDocument", "Redelivered", "ReflectorDocument", "ReflectorReport", "SeriesCounts", "SeriesDocument", "SeriesGauges", "SeriesPoint", "SeriesRates",
	"SourceThreshold", "SourcesChange", "WorkerList"}

// byOperators are the calls of operators, who use the console or the command, and the heartbeats of deltaq reflect.
var byOperators = []string{"GET /v1/activity", "GET /v1/find", "GET /v1/queues/{queue}/series", "GET /v1/reflectors", "GET /v1/series", "GET /v1/sources",
	"GET /v1/workers", "PATCH /v1/queues/{queue}/sources", "POST /v1/queues/{queue}/reflectors"}

// members returns the names of the members of a type, and which of them may be absent or null.
func members(of reflect.Type) map[string]bool {
	found := map[string]bool{}
	for index := range of.NumField() {
		field := of.Field(index)
		name, rest, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			for name, isOptional := range members(field.Type) {
				found[name] = isOptional
			}
			continue
		}
		kind := field.Type.Kind()
		found[name] = kind == reflect.Pointer || kind == reflect.Slice || kind == reflect.Map || kind == reflect.Interface || strings.Contains(rest, "omitempty")
	}
	return found
}

func (s schema) members() []string {
	names := []string{}
	for name := range s.Properties {
		names = append(names, name)
	}
	for _, part := range s.AllOf {
		names = append(names, part.members()...)
	}
	sort.Strings(names)
	return slices.Compact(names)
}

func TestDocumentsHaveTheMembersOfTheirSchemas(t *testing.T) {
	api := openAPI(t)
	for _, entry := range documents {
		of := reflect.TypeOf(entry.document)
		var names []string
		for name := range members(of) {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range entry.schemas {
			described, ok := api.Components.Schemas[name]
			if !ok {
				t.Errorf("there is no schema %s", name)
			} else if want := described.members(); !slices.Equal(names, want) {
				t.Errorf("%v has the members\n\t%v, and the schema %s\n\t%v", of, names, name, want)
			}
		}
	}
	for _, entry := range wider {
		known := members(reflect.TypeOf(entry.document))
		for _, name := range entry.schemas {
			for _, member := range api.Components.Schemas[name].members() {
				if _, ok := known[member]; !ok {
					t.Errorf("%T lacks %s of %s", entry.document, member, name)
				}
			}
		}
	}
}

func TestEverySchemaHasAType(t *testing.T) {
	api := openAPI(t)
	known := map[string]bool{}
	for _, entry := range append(documents, wider...) {
		for _, name := range entry.schemas {
			known[name] = true
		}
	}
	for _, name := range append(written, ofOperators...) {
		known[name] = true
	}
	for name, described := range api.Components.Schemas {
		if len(described.members()) > 0 && !known[name] {
			t.Errorf("no type is known for the schema %s", name)
		}
	}
}

func TestAReplyWithANullHasAPlaceForIt(t *testing.T) {
	api := openAPI(t)
	isNull := regexp.MustCompile(`"null"`)
	for _, entry := range documents {
		found := members(reflect.TypeOf(entry.document))
		for _, name := range entry.schemas {
			if strings.HasPrefix(name, "Given") {
				// Only requests have it.
				continue
			}
			for member, described := range api.Components.Schemas[name].Properties {
				if isNull.Match(described) && !found[member] {
					t.Errorf("%T: %s may be null", entry.document, member)
				}
			}
		}
	}
}

func TestCodesAreThoseOfTheServer(t *testing.T) {
	api := openAPI(t)
	source, err := os.ReadFile("codes.go")
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, match := range regexp.MustCompile(`Code = "([^"]+)"`).FindAllStringSubmatch(string(source), -1) {
		named = append(named, match[1])
	}
	if want := api.Components.Schemas["ProblemName"].Enum; !slices.Equal(named, want) {
		t.Errorf("the codes are\n%v, and those of the server\n%v", named, want)
	}
}

func TestTheVersionIsThatOfTheServer(t *testing.T) {
	text, err := os.ReadFile("../../Cargo.toml")
	if os.IsNotExist(err) {
		t.Skip("this is not the repository of deltaq")
	}
	if err != nil || !strings.Contains(string(text), fmt.Sprintf("\nversion = %q\n", deltaq.Version)) {
		t.Errorf("Cargo.toml has another version than %s (%v)", deltaq.Version, err)
	}
}

// call names a call, such as GET /v1/queues/q/items, by the path of the description.
func template(call string, paths map[string]map[string]json.RawMessage) string {
	method, path, _ := strings.Cut(call, " ")
	best := ""
	for described, methods := range paths {
		pattern := "^" + regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(described), "[^/]+") + "$"
		_, hasMethod := methods[strings.ToLower(method)]
		isMatch, _ := regexp.MatchString(pattern, path)
		if hasMethod && isMatch && (best == "" || strings.Count(described, "{") < strings.Count(best, "{")) {
			best = described
		}
	}
	return method + " " + best
}

func TestEveryCallHasAMethod(t *testing.T) {
	q := queue(t)
	api := openAPI(t)
	if err := everyCall(contextOf(t), q); err != nil {
		t.Fatal(err)
	}
	seen.mutex.Lock()
	defer seen.mutex.Unlock()
	// The queue does not push, so this call is refused.
	called := map[string]bool{"POST /v1/queues/{queue}/push/test": true}
	for call := range seen.calls {
		called[template(call, api.Paths)] = true
	}
	for _, call := range byOperators {
		called[call] = true
	}
	for path, methods := range api.Paths {
		for method := range methods {
			// These have a second form, which takes every key.
			isSecond := strings.HasSuffix(path, "/{key}")
			// Vendors send deliveries, and operators look at those that could not be applied.
			isOfHook := strings.Contains(path, "/hook")
			if call := strings.ToUpper(method) + " " + path; !called[call] && !isSecond && !isOfHook {
				t.Errorf("no method makes the call %s", call)
			}
		}
	}
}

// everyCall makes every call of the API, and reports the first error.
func everyCall(ctx context.Context, q *deltaq.Queue) error {
	errs := append(callsThatChange(ctx, q), callsThatRead(ctx, q)...)
	for number, err := range append(errs, callsOfTheServer(ctx, q)...) {
		if err != nil {
			return fmt.Errorf("call %d: %w", number, err)
		}
	}
	return nil
}

func callsThatChange(ctx context.Context, q *deltaq.Queue) []error {
	var errs []error
	do := func(_ any, err error) { errs = append(errs, err) }
	do(q.PutSettings(ctx, deltaq.QueueSettings{Indexes: map[string]string{"by_city": "/city"}}, nil))
	do(q.PatchSettings(ctx, deltaq.QueueSettings{MaxFailures: deltaq.Ptr(int64(3))}, &deltaq.PatchOptions{Reset: []string{"lease"}}))
	do(q.Settings(ctx))
	do(q.PlanSettings(ctx, deltaq.QueueSettings{}))
	if _, err := q.TestPush(ctx); !errors.Is(err, deltaq.CodeInvalidConfig) {
		do(nil, fmt.Errorf("the queue does not push: %w", err))
	}
	do(q.Get(ctx))
	do(q.Status(ctx))
	do(q.Seed(ctx, []deltaq.SeedCall{{Object: object(`{"key":"known","city":"Rome"}`)}}))
	do(q.Add(ctx, object(`{"key":"a"}`), &deltaq.ProduceOptions{Source: "erp", Sequence: 1}))
	do(q.Update(ctx, []any{object(`{"key":"b"}`)}, nil))
	do(q.Delete(ctx, object(`{"key":"b"}`), nil))
	do(q.Deltas(ctx, []deltaq.DeltaCall{{Type: deltaq.Added, Object: object(`{"key":"c"}`)}}, nil))
	do(q.Replace(ctx, deltaq.Objects([]any{object(`{"key":"d"}`)}), &deltaq.ReplaceOptions{Source: "wms"}))
	do(q.Resync(ctx))
	do(q.Forget(ctx, "a"))
	do(nil, q.ReportSource(ctx, "erp", "the export is late"))
	do(nil, q.SeenSource(ctx, "erp"))
	do(q.SetStaleAfter(ctx, "erp", 15*time.Minute))
	do(q.SetStaleAfter(ctx, "erp", 0))
	do(q.RenumberSource(ctx, "erp", deltaq.Ptr(int64(7))))
	for _, end := range []func(string) error{
		func(id string) error { _, err := q.Ack(ctx, id); return err },
		func(id string) error {
			_, err := q.Extend(ctx, []string{id}, &deltaq.ExtendOptions{LeaseDuration: time.Minute, UntilChanged: time.Millisecond})
			return err
		},
		func(id string) error { _, err := q.Release(ctx, id); return err },
		func(id string) error {
			_, err := q.ReleaseAndHold(ctx, deltaq.HoldKey, time.Millisecond, id)
			return err
		},
		func(id string) error { _, err := q.Nack(ctx, []string{id}, nil); return err },
		func(id string) error { _, err := q.Reject(ctx, []string{id}, nil); return err },
		func(id string) error {
			_, err := q.Settle(ctx, []deltaq.Settle{{LeaseID: id, As: deltaq.AsAck}})
			return err
		},
	} {
		do(nil, popOne(ctx, q, end))
	}
	do(q.ParkedErrorsPage(ctx, nil))
	do(q.Redrive(ctx, deltaq.Selection{All: true}))
	do(q.Promote(ctx, deltaq.Selection{All: true}))
	do(q.Discard(ctx, deltaq.Selection{WithoutError: true}))
	return errs
}

func callsThatRead(ctx context.Context, q *deltaq.Queue) []error {
	var errs []error
	do := func(_ any, err error) { errs = append(errs, err) }
	do(q.ItemsPage(ctx, nil))
	do(q.Add(ctx, object(`{"key":"e","city":"Oslo"}`), nil))
	do(q.Item(ctx, "e", &deltaq.ItemOptions{WithDiff: true}))
	do(q.Explain(ctx, "e"))
	do(q.ViewPage(ctx, deltaq.Latest, nil))
	do(q.ViewPage(ctx, deltaq.Known, &deltaq.ViewOptions{Index: "by_city", Value: "Rome", Wait: 10 * time.Second}))
	_, _, err := q.LatestObject(ctx, "e", nil)
	do(nil, err)
	do(q.Groups(ctx, ""))
	do(first(q.Indexes(ctx, nil)), nil)
	do(nil, firstError(q.IndexValues(ctx, "by_city", "R", nil)))
	do(nil, firstError(q.Sources(ctx, nil)))
	do(nil, firstError(q.Workers(ctx, nil)))
	do(nil, firstError(q.History(ctx, "e", nil)))
	do(q.Synced(ctx, nil))
	do(q.WatchPage(ctx, nil))
	return errs
}

func callsOfTheServer(ctx context.Context, q *deltaq.Queue) []error {
	client := q.Client()
	var errs []error
	do := func(_ any, err error) { errs = append(errs, err) }
	do(q.Pause(ctx))
	do(q.Resume(ctx))
	do(q.Close(ctx, nil))
	do(q.Reopen(ctx))
	do(q.Purge(ctx))
	keys := client.Queue(q.Name() + "-keys")
	do(keys.PutSettings(ctx, deltaq.QueueSettings{Mode: deltaq.ModeKeys}, nil))
	do(keys.AddKey(ctx, "a", &deltaq.ProduceOptions{RateLimited: true}))
	do(nil, popOne(ctx, keys, func(id string) error { _, err := keys.Done(ctx, []string{id}, nil); return err }))
	do(client.QueuesPage(ctx, nil))
	do(nil, q.DeleteQueue(ctx, nil))
	do(nil, keys.DeleteQueue(ctx, &deltaq.DeleteQueueOptions{Force: true}))
	do(client.Info(ctx))
	do(client.Nodes(ctx))
	do(client.OpenAPI(ctx))
	do(client.ProblemPage(ctx, deltaq.CodeMassDelete))
	do(nil, client.Alive(ctx))
	do(nil, client.Ready(ctx))
	return errs
}

func popOne(ctx context.Context, q *deltaq.Queue, end func(leaseID string) error) error {
	popped, err := q.Pop(ctx, &deltaq.PopOptions{Wait: 10 * time.Second})
	if err != nil {
		return err
	}
	if len(popped.Items) == 0 {
		return fmt.Errorf("the queue has no key")
	}
	return end(popped.Items[0].Lease.ID)
}

func first[T any](list func(func(T, error) bool)) any {
	for item, err := range list {
		return []any{item, err}
	}
	return nil
}

func firstError[T any](list func(func(T, error) bool)) error {
	for _, err := range list {
		return err
	}
	return nil
}

func TestAHeaderOfPushIsATextOrASecret(t *testing.T) {
	for text, want := range map[string]deltaq.PushHeader{
		`"prod"`:                               {Text: "prod"},
		`""`:                                   {},
		`{"secret":"shop"}`:                    {Secret: "shop"},
		`{"secret":"shop","prefix":"Bearer "}`: {Secret: "shop", Prefix: "Bearer "},
	} {
		var got deltaq.PushHeader
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if again, err := json.Marshal(got); err != nil || string(again) != text {
			t.Errorf("%s: %s, %v", text, again, err)
		}
	}
	if err := json.Unmarshal([]byte(`[]`), new(deltaq.PushHeader)); err == nil {
		t.Error("a list is no header")
	}
}
