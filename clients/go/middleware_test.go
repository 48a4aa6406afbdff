package deltaq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	deltaq "example.com/deltaq/clients/go"
)

func clientWith(t *testing.T, middleware ...func(deltaq.Invoke) deltaq.Invoke) *deltaq.Client {
	t.Helper()
	if shared == nil {
		t.Skip("there is no server")
	}
	client, err := deltaq.New(shared.URL, &deltaq.Options{Middleware: middleware})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestTheFirstMiddlewareOfAClientIsTheOutermost(t *testing.T) {
	var seen []string
	noted := func(name string) func(deltaq.Invoke) deltaq.Invoke {
		return func(next deltaq.Invoke) deltaq.Invoke {
			return func(ctx context.Context, call *deltaq.Call) error {
				seen = append(seen, fmt.Sprintf("%s %s %q %q", name, call.Method, call.Queue, call.Name))
				return next(ctx, call)
			}
		}
	}
	client, ctx := clientWith(t, noted("outer"), noted("inner")), contextOf(t)
	name := queue(t).Name()
	q := client.Queue(name)
	_, err := q.Add(ctx, object(`{"key":"k"}`), nil)
	_, gotten := q.Get(ctx)
	_, listed := q.ParkedErrorsPage(ctx, nil)
	_, all := client.QueuesPage(ctx, nil)
	_, info := client.Info(ctx)
	if err := errors.Join(err, gotten, listed, all, info); err != nil {
		t.Fatal(err)
	}
	wanted := []string{
		fmt.Sprintf(`outer POST %q "add"`, name), fmt.Sprintf(`inner POST %q "add"`, name),
		fmt.Sprintf(`outer GET %q ""`, name), fmt.Sprintf(`inner GET %q ""`, name),
		fmt.Sprintf(`outer GET %q "errors"`, name), fmt.Sprintf(`inner GET %q "errors"`, name),
		`outer GET "" "queues"`, `inner GET "" "queues"`, `outer GET "" "info"`, `inner GET "" "info"`,
	}
	if !slices.Equal(seen, wanted) {
		t.Errorf("%q", seen)
	}
}

func TestTheNameOfACallIsNotThatOfASourceOrAnIndex(t *testing.T) {
	var seen []string
	client := clientWith(t, func(deltaq.Invoke) deltaq.Invoke {
		return func(_ context.Context, call *deltaq.Call) error {
			seen = append(seen, call.Method+" "+call.Name)
			return errors.New("not sent")
		}
	})
	q, ctx := client.Queue("q"), contextOf(t)
	if _, err := q.RenumberSource(ctx, "add", nil); err == nil {
		t.Error("the call was sent")
	}
	for _, err := range q.IndexValues(ctx, "delete", "", nil) {
		if err == nil {
			t.Error("the call was sent")
		}
	}
	if !slices.Equal(seen, []string{"PATCH sources", "GET indexes"}) {
		t.Errorf("%q", seen)
	}
}

func TestAMiddlewareAddsHeadersAndSeesErrors(t *testing.T) {
	const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var seen []error
	client := clientWith(t, func(next deltaq.Invoke) deltaq.Invoke {
		return func(ctx context.Context, call *deltaq.Call) error {
			call.Header.Set("Traceparent", traceparent)
			err := next(ctx, call)
			seen = append(seen, err)
			return err
		}
	})
	q, ctx := client.Queue(queue(t).Name()), contextOf(t)
	if _, err := q.Add(ctx, object(`{"key":"k"}`), nil); err != nil {
		t.Fatal(err)
	}
	popped, err := q.Pop(ctx, nil)
	if err != nil || *popped.Items[0].Deltas[0].Traceparent != traceparent {
		t.Errorf("%+v %v", popped, err)
	}
	_, err = q.Add(ctx, object(`{}`), nil)
	if len(seen) != 3 || !errors.Is(seen[2], deltaq.CodeNoKey) || !errors.Is(err, deltaq.CodeNoKey) {
		t.Errorf("%v %v", seen, err)
	}
}

func TestAMiddlewareMustMakeTheCall(t *testing.T) {
	client := clientWith(t, func(deltaq.Invoke) deltaq.Invoke { return func(context.Context, *deltaq.Call) error { return nil } })
	if info, err := client.Info(contextOf(t)); err == nil {
		t.Errorf("%+v", info)
	}
}

func TestAMiddlewareOfAWorkerSeesTheErrorsOfItsHandler(t *testing.T) {
	q := queue(t)
	fill(t, q, products(2))
	var seen []string
	noted := func(next deltaq.Handler) deltaq.Handler {
		return func(ctx context.Context, job *deltaq.Job) error {
			err := next(ctx, job)
			seen = append(seen, fmt.Sprintf("%t %s %v", job.Queue() == q.Name(), job.Key, err))
			if err != nil {
				return &deltaq.Reject{Err: errors.New("as seen")}
			}
			return nil
		}
	}
	worker := deltaq.NewWorker(q, func(_ context.Context, job *deltaq.Job) error {
		if job.Key == "k000" {
			return errors.New("no price")
		}
		return nil
	}, &deltaq.WorkerOptions{Middleware: []func(deltaq.Handler) deltaq.Handler{noted}})
	if err := worker.Run(contextOf(t)); err != nil {
		t.Fatal(err)
	}
	item, err := q.Item(contextOf(t), "k000", nil)
	if err != nil || *item.LastError != "as seen" || !slices.Equal(seen, []string{"true k000 no price", "true k001 <nil>"}) {
		t.Errorf("%q %+v %v", seen, item, err)
	}
}
