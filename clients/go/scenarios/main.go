// The program of tests/clients/: it uses this client as an application would. Its settings are environment variables.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	deltaq "example.com/deltaq/clients/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	programs := map[string]func(context.Context, *deltaq.Queue) error{"worker": work, "informer": inform, "reflector": reflect, "produce": produce, "read": read}
	program := programs[os.Args[1]]
	queue, err := queue()
	if err == nil {
		err = program(ctx, queue)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func queue() (*deltaq.Queue, error) {
	options := &deltaq.Options{Token: os.Getenv("DELTAQ_TOKEN"), TokenFile: os.Getenv("DELTAQ_TOKEN_FILE")}
	if text := os.Getenv("MAX_ATTEMPTS"); text != "" {
		attempts, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		options.Retry.Attempts = attempts
	}
	client, err := deltaq.New(os.Getenv("DELTAQ_URL"), options)
	if err != nil {
		return nil, err
	}
	return client.Queue(os.Getenv("DELTAQ_QUEUE")), nil
}

// durationSetting reads a setting that may be absent.
func durationSetting(name string) (time.Duration, error) {
	text := os.Getenv(name)
	if text == "" {
		return 0, nil
	}
	return deltaq.ParseDuration(text)
}

// command is a command of any program. The members that a program does not know are empty.
type command struct {
	Command  string            `json:"command"`
	Objects  []json.RawMessage `json:"objects"`
	Deltas   []delta           `json:"deltas"`
	Key      string            `json:"key"`
	Name     string            `json:"name"`
	Value    string            `json:"value"`
	Sequence string            `json:"sequence"`
}

type delta struct {
	Type   deltaq.DeltaType `json:"type"`
	Object json.RawMessage  `json:"object"`
	Key    string           `json:"key"`
}

// commands returns the commands of standard input. The channel ends with the input, or with the context.
func commands(ctx context.Context) <-chan command {
	lines := make(chan command)
	go func() {
		defer close(lines)
		// A read of standard input can't be cancelled, so it has a goroutine that ends with the process.
		input := bufio.NewReader(os.Stdin)
		for {
			line, err := input.ReadBytes('\n')
			if err != nil {
				return
			}
			var next command
			if err := json.Unmarshal(line, &next); err != nil {
				fmt.Fprintf(os.Stderr, "the command %q is not JSON: %v\n", line, err)
				continue
			}
			lines <- next
		}
	}()
	until := make(chan command)
	go func() {
		defer close(until)
		for {
			select {
			case <-ctx.Done():
				return
			case next, ok := <-lines:
				if !ok {
					return
				}
				until <- next
			}
		}
	}()
	return until
}

var output sync.Mutex

// report writes a report.
func report(event string, members map[string]any) {
	members["event"] = event
	text, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(text, '\n'))
}
