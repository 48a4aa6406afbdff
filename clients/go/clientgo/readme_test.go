package clientgo_test

import (
	"os"
	"strings"
	"testing"
)

// TestTheReadmeHasTheExamples checks that the code of README.md, and what it prints, are those of the examples, which the tests run.
func TestTheReadmeHasTheExamples(t *testing.T) {
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
	if len(blocks) != 2 {
		t.Errorf("%d examples", len(blocks))
	}
	for _, block := range blocks {
		code, rest, _ := strings.Cut(block, "```")
		output, _, isPrinted := strings.Cut(strings.TrimPrefix(rest, "\n\n```text\n"), "```")
		if want := code + "Output:\n" + output; !isPrinted || !strings.Contains(examples, want) {
			t.Errorf("no example is like this:\n%s", want)
		}
	}
}
