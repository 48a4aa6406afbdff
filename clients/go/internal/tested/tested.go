// Package tested has what the tests of all modules share: a server, contexts, names of queues, and the check of the examples of a README.
package tested

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/deltaq/clients/go/deltaqtest"
)

// Patience is how long a test waits for anything. A test that passes waits for none of it.
const Patience = time.Minute

// queues numbers the queues of the tests, which may run several times.
var queues atomic.Int64

// Main runs the tests of a package with a server, and ends the process. Without the program it runs only tests, which leave out what needs a server: start
// is not called, and nothing else leaves out the examples.
func Main(m *testing.M, start func(*deltaqtest.Server)) {
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	if _, err := deltaqtest.Find(); err != nil {
		fmt.Println("without a server the examples and some tests are left out:", err)
		if flag.Lookup("test.run").Value.String() == "" {
			_ = flag.Set("test.run", "^Test")
		}
		os.Exit(m.Run())
	}
	server, err := deltaqtest.Run(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	start(server)
	status := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Println(err)
		status = 1
	}
	os.Exit(status)
}

// Context returns a context that ends with the patience of the tests.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// QueueName returns the name of a queue that no other test uses.
func QueueName(t testing.TB) string {
	name := strings.ToLower(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(t.Name(), "-"))
	return fmt.Sprintf("%s-%d", name, queues.Add(1))
}

// Readme checks that the README of a package has this number of examples, and that their code, and what it prints, are those of example_test.go, which the
// tests run.
func Readme(t *testing.T, count int) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, line := range strings.Split(string(source), "\n") {
		lines = append(lines, strings.TrimPrefix(strings.TrimPrefix(line, "\t"), "// "))
	}
	examples := strings.ReplaceAll(strings.Join(lines, "\n"), "deltaq.New(url, nil)", `deltaq.New("http://localhost:7070", nil)`)
	blocks := strings.Split(string(readme), "```go\n")[1:]
	if len(blocks) != count {
		t.Errorf("%d examples instead of %d", len(blocks), count)
	}
	for _, block := range blocks {
		code, rest, _ := strings.Cut(block, "```")
		output, _, isPrinted := strings.Cut(strings.TrimPrefix(rest, "\n\n```text\n"), "```")
		if want := code + "Output:\n" + output; !isPrinted || !strings.Contains(examples, want) {
			t.Errorf("no example is like this:\n%s", want)
		}
	}
}
