package deltaqtest_test

import (
	"context"
	"log"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	deltaq "example.com/deltaq/clients/go"
	"example.com/deltaq/clients/go/deltaqtest"
)

// The code of the README that is no example with an output.

func TestAWorkerSendsEachPrice(t *testing.T) {
	ctx := context.Background()
	prices := deltaqtest.Start(t, nil).Client().Queue("prices")
	if _, err := prices.Add(ctx, []map[string]any{{"key": "sku-1", "price": 10}, {"key": "sku-2", "price": 7}}, nil); err != nil {
		t.Fatal(err)
	}
	// The worker ends once the closed queue is drained.
	if _, err := prices.Close(ctx, nil); err != nil {
		t.Fatal(err)
	}
	var sent []string
	send := func(ctx context.Context, job *deltaq.Job) error {
		sent = append(sent, job.Key)
		return nil
	}
	if err := deltaq.NewWorker(prices, send, nil).Run(ctx); err != nil {
		t.Fatal(err)
	}
	if len(sent) != 2 {
		t.Errorf("sent are %v", sent)
	}
}

func timed(next deltaq.Handler) deltaq.Handler {
	return func(ctx context.Context, job *deltaq.Job) error {
		began := time.Now()
		defer func() { log.Print(job.Queue(), " ", job.Key, " ", time.Since(began)) }()
		return next(ctx, job)
	}
}

func middleware() *deltaq.WorkerOptions {
	options := &deltaq.WorkerOptions{Middleware: []func(deltaq.Handler) deltaq.Handler{timed}}
	return options
}

func poll(ctx context.Context, hosts *deltaq.Queue, fetch func(context.Context) ([]any, error)) error {
	err := deltaq.NewReflector(hosts, "inventory", nil).Run(ctx, deltaq.Poll(ctx, time.Minute, fetch))
	return err
}

func keys(ctx context.Context, prices *deltaq.Queue) error {
	_, err := prices.PutSettings(ctx, deltaq.QueueSettings{Key: []deltaq.KeyPart{{Pointer: "/sku"}}}, nil)
	return err
}

func hurry(client *deltaq.Client, request *http.Request, price any) error {
	hasty := client.WithRetry(deltaq.RetryOptions{Total: 2 * time.Second})
	_, err := hasty.Queue("prices").Add(request.Context(), price, nil)
	return err
}

func TestTheCodeOfTheReadmeCompiles(t *testing.T) {
	_, _, _, _ = middleware, poll, keys, hurry
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	flat := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	compiled := flat(string(source))
	isFound := 0
	for _, block := range strings.Split(string(readme), "\n\n") {
		// The module of the traces has tests of its own.
		if !strings.HasPrefix(block, "    ") || strings.HasPrefix(block, "    go ") || strings.HasPrefix(block, "    export ") || strings.Contains(block, "otel.") {
			continue
		}
		isFound++
		if !strings.Contains(compiled, flat(block)) {
			t.Errorf("this is not compiled:\n%s", block)
		}
	}
	if isFound != 6 {
		t.Errorf("%d blocks instead of 6", isFound)
	}
}
