package deltaq_test

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
	count := 0
	for _, block := range strings.Split(string(readme), "```go\n")[1:] {
		code, rest, _ := strings.Cut(block, "```")
		output, _, isPrinted := strings.Cut(strings.TrimPrefix(rest, "\n\n```text\n"), "```")
		if !isPrinted {
			t.Errorf("the README does not say what this prints:\n%s", code)
		}
		if want := code + "Output:\n" + output; !strings.Contains(examples, want) {
			t.Errorf("no example is like this:\n%s", want)
		}
		count++
	}
	if count == 0 {
		t.Error("the README has no code")
	}
}
