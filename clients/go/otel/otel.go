// Package otel traces clients and workers of deltaq with OpenTelemetry.
//
// The server stores the trace of each call that produces with the deltas that it queues. A worker links its spans to the spans of these calls: a link instead
// of a parent, because the deltas of a key may come from many calls.
package otel

import (
	"context"
	"errors"
	"fmt"

	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	deltaq "example.com/deltaq/clients/go"
)

// linksMax is the largest number of links of a span. Those of the newest deltas are kept.
const linksMax = 128

// Options are options of the traces. The zero value of each field is its default.
type Options struct {
	// TracerProvider creates the spans. Nil means the global one.
	TracerProvider trace.TracerProvider
}

func (options *Options) tracer() trace.Tracer {
	if options != nil && options.TracerProvider != nil {
		return options.TracerProvider.Tracer("deltaq")
	}
	return global.GetTracerProvider().Tracer("deltaq")
}

// TraceCalls is middleware of a client: a producer span for each call that queues deltas, and the trace of the context in every call. A call that has a
// Traceparent of its own is left as it is.
func TraceCalls(options *Options) func(deltaq.Invoke) deltaq.Invoke {
	tracer := options.tracer()
	return func(next deltaq.Invoke) deltaq.Invoke {
		return func(ctx context.Context, call *deltaq.Call) error {
			if call.Header.Get("Traceparent") != "" {
				return next(ctx, call)
			}
			switch call.Name {
			case "add", "update", "delete", "deltas", "replace", "resync":
			default:
				setTrace(ctx, call)
				return next(ctx, call)
			}
			attributes := trace.WithAttributes(common(call.Queue, "send", call.Name)...)
			ctx, span := tracer.Start(ctx, call.Name+" "+call.Queue, trace.WithSpanKind(trace.SpanKindProducer), attributes)
			defer span.End()
			setTrace(ctx, call)
			err := next(ctx, call)
			if err != nil {
				fail(span, kind(err), err)
			}
			return err
		}
	}
}

// TraceHandler is middleware of a worker: a consumer span around the handler, with links to the spans of the calls that produced the deltas.
func TraceHandler(options *Options) func(deltaq.Handler) deltaq.Handler {
	tracer := options.tracer()
	return func(next deltaq.Handler) deltaq.Handler {
		return func(ctx context.Context, job *deltaq.Job) error {
			links := links(job)
			attributes := append(common(job.Queue(), "process", "process"),
				attribute.String("deltaq.key", job.Key), attribute.Int64("deltaq.attempt", job.Attempt))
			if worker := job.Lease.Worker; worker != nil {
				attributes = append(attributes, attribute.String("messaging.client.id", *worker))
			}
			if count := len(job.Deltas); count > 1 {
				attributes = append(attributes, attribute.Int("messaging.batch.message_count", count))
			}
			if leftOut := len(links) - linksMax; leftOut > 0 {
				attributes = append(attributes, attribute.Int("deltaq.links_left_out", leftOut))
				links = links[leftOut:]
			}
			ctx, span := tracer.Start(ctx, "process "+job.Queue(), trace.WithSpanKind(trace.SpanKindConsumer),
				trace.WithAttributes(attributes...), trace.WithLinks(links...))
			hasReturned := false
			defer func() {
				if !hasReturned {
					span.SetAttributes(attribute.String("deltaq.outcome", string(deltaq.AsNack)))
					fail(span, "panic", errors.New("the handler panicked"))
				}
				span.End()
			}()
			err := next(ctx, job)
			hasReturned = true
			end(ctx, span, job, err)
			return err
		}
	}
}

func common(queue, operationType, name string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "deltaq"),
		attribute.String("messaging.destination.name", queue),
		attribute.String("messaging.operation.type", operationType),
		attribute.String("messaging.operation.name", name),
	}
}

// setTrace sends the trace of a context with a call.
func setTrace(ctx context.Context, call *deltaq.Call) {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if traceparent := carrier["traceparent"]; traceparent != "" {
		call.Header.Set("Traceparent", traceparent)
	}
}

// links returns links to different spans, in the order of the deltas.
func links(job *deltaq.Job) []trace.Link {
	var links []trace.Link
	seen := map[string]bool{}
	for index := range job.Deltas {
		traceparent := job.Deltas[index].Traceparent
		if traceparent == nil || seen[*traceparent] {
			continue
		}
		seen[*traceparent] = true
		ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": *traceparent})
		if found := trace.SpanContextFromContext(ctx); found.IsValid() {
			links = append(links, trace.Link{SpanContext: found})
		}
	}
	return links
}

// end sets the outcome of a handler.
func end(ctx context.Context, span trace.Span, job *deltaq.Job, err error) {
	if errors.Is(context.Cause(ctx), deltaq.ErrLeaseLost) {
		fail(span, "lease-lost", deltaq.ErrLeaseLost)
		return
	}
	outcome := job.Outcome(err)
	span.SetAttributes(attribute.String("deltaq.outcome", string(outcome)))
	if outcome == deltaq.AsNack || outcome == deltaq.AsReject {
		fail(span, kind(err), err)
	}
}

func fail(span trace.Span, errorType string, err error) {
	span.SetAttributes(attribute.String("error.type", errorType))
	span.SetStatus(codes.Error, err.Error())
	span.RecordError(err)
}

// kind is the code of a problem, the outcome of a handler, or the type of another error.
func kind(err error) string {
	var problem *deltaq.Problem
	var nack *deltaq.Nack
	var reject *deltaq.Reject
	switch {
	case errors.As(err, &reject):
		return string(deltaq.AsReject)
	case errors.As(err, &nack):
		return string(deltaq.AsNack)
	case errors.As(err, &problem):
		return string(problem.Code)
	}
	return fmt.Sprintf("%T", err)
}
