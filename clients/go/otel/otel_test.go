package otel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	deltaq "example.com/deltaq/clients/go"
	"example.com/deltaq/clients/go/deltaqtest"
	"example.com/deltaq/clients/go/internal/tested"
	"example.com/deltaq/clients/go/otel"
)

var shared *deltaqtest.Server

func TestMain(m *testing.M) { tested.Main(m, func(server *deltaqtest.Server) { shared = server }) }

// traced is a queue whose client is traced, and what the exporter has got.
type traced struct {
	*deltaq.Queue
	exporter *tracetest.InMemoryExporter
	options  *otel.Options
}

func start(t *testing.T) *traced {
	t.Helper()
	if shared == nil {
		t.Skip("there is no server")
	}
	exporter := tracetest.NewInMemoryExporter()
	// The SDK keeps 128 links by itself; the limit is that of the middleware.
	limits := sdk.NewSpanLimits()
	limits.LinkCountLimit = -1
	options := &otel.Options{TracerProvider: sdk.NewTracerProvider(sdk.WithSyncer(exporter), sdk.WithRawSpanLimits(limits))}
	client, err := deltaq.New(shared.URL, &deltaq.Options{Middleware: []func(deltaq.Invoke) deltaq.Invoke{otel.TraceCalls(options)}})
	if err != nil {
		t.Fatal(err)
	}
	return &traced{client.Queue(tested.QueueName(t)), exporter, options}
}

func (q *traced) spans(kind trace.SpanKind) []tracetest.SpanStub {
	return slices.DeleteFunc(q.exporter.GetSpans(), func(span tracetest.SpanStub) bool { return span.SpanKind != kind })
}

// work runs a worker until the queue is empty, and returns the spans of its handlers.
func (q *traced) work(t *testing.T, handler deltaq.Handler) []tracetest.SpanStub {
	t.Helper()
	ctx := tested.Context(t)
	if _, err := q.Close(ctx, nil); err != nil {
		t.Fatal(err)
	}
	worker := deltaq.NewWorker(q.Queue, handler, &deltaq.WorkerOptions{
		Name: "w1", Middleware: []func(deltaq.Handler) deltaq.Handler{otel.TraceHandler(q.options)},
	})
	if err := worker.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return q.spans(trace.SpanKindConsumer)
}

// texts are attributes without those of the queue.
func texts(attributes []attribute.KeyValue) []string {
	var texts []string
	for _, each := range attributes {
		if each.Key != "messaging.destination.name" {
			texts = append(texts, fmt.Sprintf("%s=%v", each.Key, each.Value.AsInterface()))
		}
	}
	return texts
}

func done(context.Context, *deltaq.Job) error { return nil }

func TestAHandlerIsLinkedToTheCallsThatProducedItsDeltas(t *testing.T) {
	q, ctx := start(t), tested.Context(t)
	_, first := q.Add(ctx, map[string]any{"key": "a"}, nil)
	_, second := q.Update(ctx, map[string]any{"key": "a", "n": 1}, nil)
	own := &deltaq.ProduceOptions{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	_, third := q.Update(ctx, map[string]any{"key": "a", "n": 2}, own)
	if err := errors.Join(first, second, third); err != nil {
		t.Fatal(err)
	}
	handled := q.work(t, done)
	calls := q.spans(trace.SpanKindProducer)
	if len(handled) != 1 || len(calls) != 2 || len(handled[0].Links) != 3 {
		t.Fatalf("%+v %+v", handled, calls)
	}
	for index, call := range calls {
		if handled[0].Links[index].SpanContext.SpanID() != call.SpanContext.SpanID() {
			t.Errorf("link %d is not to %s", index, call.Name)
		}
	}
	if id := handled[0].Links[2].SpanContext.SpanID().String(); id != "b7ad6b7169203331" {
		t.Error(id)
	}
	if calls[0].Name != "add "+q.Name() || handled[0].Name != "process "+q.Name() {
		t.Error(calls[0].Name, handled[0].Name)
	}
	if found := texts(calls[0].Attributes); !slices.Equal(found, []string{
		"messaging.system=deltaq", "messaging.operation.type=send", "messaging.operation.name=add",
	}) {
		t.Error(found)
	}
	if found := texts(handled[0].Attributes); !slices.Equal(found, []string{
		"messaging.system=deltaq", "messaging.operation.type=process", "messaging.operation.name=process", "deltaq.key=a", "deltaq.attempt=1",
		"messaging.client.id=w1", "messaging.batch.message_count=3", "deltaq.outcome=ack",
	}) {
		t.Error(found)
	}
}

func TestCallsArePartOfTheTraceOfTheCaller(t *testing.T) {
	q := start(t)
	ctx, outer := q.options.TracerProvider.Tracer("test").Start(tested.Context(t), "outer")
	if _, err := q.Add(ctx, map[string]any{"key": "a"}, nil); err != nil {
		t.Fatal(err)
	}
	item, err := q.Item(ctx, "a", nil)
	calls := q.spans(trace.SpanKindProducer)
	if err != nil || len(calls) != 1 || calls[0].Parent.SpanID() != outer.SpanContext().SpanID() {
		t.Fatalf("%v %+v", err, calls)
	}
	wanted := fmt.Sprintf("00-%s-%s-01", calls[0].SpanContext.TraceID(), calls[0].SpanContext.SpanID())
	if *item.Deltas[0].Traceparent != wanted {
		t.Errorf("%s instead of %s", *item.Deltas[0].Traceparent, wanted)
	}
}

func TestAtMost128LinksAndTheOthersAreCounted(t *testing.T) {
	q, ctx := start(t), tested.Context(t)
	for number := range 130 {
		if _, err := q.Update(ctx, map[string]any{"key": "a", "n": number}, nil); err != nil {
			t.Fatal(err)
		}
	}
	handled := q.work(t, done)
	calls := q.spans(trace.SpanKindProducer)
	if len(handled) != 1 || len(handled[0].Links) != 128 || handled[0].Links[0].SpanContext.SpanID() != calls[2].SpanContext.SpanID() ||
		!slices.Contains(texts(handled[0].Attributes), "deltaq.links_left_out=2") {
		t.Errorf("%+v", handled)
	}
}

func TestFailuresAreErrors(t *testing.T) {
	q, ctx := start(t), tested.Context(t)
	if _, err := q.PutSettings(ctx, deltaq.QueueSettings{MaxFailures: deltaq.Ptr(int64(1))}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Add(ctx, map[string]any{}, nil); !errors.Is(err, deltaq.CodeNoKey) {
		t.Fatal(err)
	}
	if call := q.spans(trace.SpanKindProducer)[0]; call.Status.Code != codes.Error || !slices.Contains(texts(call.Attributes), "error.type=no-key") {
		t.Errorf("%+v", call)
	}
	keys := []map[string]any{{"key": "fails"}, {"key": "panics"}, {"key": "rejected"}, {"key": "released"}}
	if _, err := q.Add(ctx, keys, nil); err != nil {
		t.Fatal(err)
	}
	var reported []string
	for _, span := range q.work(t, func(_ context.Context, job *deltaq.Job) error {
		switch {
		case job.Key == "fails":
			return errors.New("no price")
		case job.Key == "panics":
			panic("boom")
		case job.Key == "rejected":
			return &deltaq.Reject{Err: errors.New("never")}
		case job.Attempt == 1:
			return &deltaq.Release{}
		}
		return nil
	}) {
		line := span.Status.Description
		for _, each := range span.Attributes {
			if each.Key == "deltaq.outcome" || each.Key == "error.type" {
				line += " " + each.Value.AsString()
			}
		}
		reported = append(reported, line)
	}
	wanted := []string{"no price nack *errors.errorString", "the handler panicked nack panic", "reject: never reject reject", " release", " ack"}
	if !slices.Equal(reported, wanted) {
		t.Errorf("%q", reported)
	}
}

func TestTheDefaultIsTheGlobalProvider(t *testing.T) {
	handler := otel.TraceHandler(nil)(done)
	if err := handler(context.Background(), &deltaq.Job{}); err != nil {
		t.Error(err)
	}
}
