package deltaq

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// tablePage has the names and defaults of all clients.
const tablePage = "../../docs/clients.md"

// tableRows returns the cells of the rows of the page with this number of columns, without headings.
func tableRows(t *testing.T, columns int) [][]string {
	t.Helper()
	page, err := os.ReadFile(tablePage)
	if err != nil {
		t.Skip("the page is in the repository")
	}
	var rows [][]string
	for _, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for index := range cells {
			cells[index] = strings.TrimSpace(cells[index])
		}
		if strings.HasPrefix(line, "|") && len(cells) == columns && cells[0] != "" && !strings.HasPrefix(cells[0], "---") {
			rows = append(rows, cells)
		}
	}
	return rows
}

// isDefault reports whether a value is the default that the page writes.
func isDefault(value reflect.Value, cell string) bool {
	if cell == "none" || cell == "no" {
		return value.IsZero() && (value.Kind() == reflect.Bool) == (cell == "no")
	}
	if length, isDuration := value.Interface().(time.Duration); isDuration {
		wanted, err := ParseDuration(cell)
		return err == nil && length == wanted
	}
	return fmt.Sprint(value.Interface()) == cell
}

// effective returns the options of each type as they are in force if nothing is set.
func effective(t *testing.T, options *WorkerOptions) map[string]reflect.Value {
	t.Helper()
	client, err := New("http://localhost:7070", nil)
	if err != nil {
		t.Fatal(err)
	}
	q := client.Queue("q")
	worker := NewWorker(q, func(context.Context, *Job) error { return nil }, options)
	informer := NewInformer(q, nil).options
	informer.View = View((&WatchOptions{View: informer.View}).query().Get("view"))
	informer.Bookmark = or(informer.Bookmark, bookmarkDefault)
	values := map[string]reflect.Value{}
	for _, each := range []any{
		Options{ReplyTimeout: client.replyTimeout}, client.retry, worker.options, informer, NewReflector(q, "s", nil).options,
		PutOptions{}, ProduceOptions{}, ReplaceOptions{}, PopOptions{}, ObjectOptions{}, ListOptions{}, ItemsOptions{},
	} {
		values[reflect.TypeOf(each).Name()] = reflect.ValueOf(each)
	}
	return values
}

// TestTheClientHasTheNamesAndDefaultsOfThePage compares docs/clients.md with the methods and the options of this package.
func TestTheClientHasTheNamesAndDefaultsOfThePage(t *testing.T) {
	types := map[string]reflect.Type{}
	for _, each := range []any{&Queue{}, &Client{}, &Informer{}, &Store{}} {
		types[reflect.TypeOf(each).Elem().Name()] = reflect.TypeOf(each)
	}
	functions := map[string]any{"WaitForCacheSync": WaitForCacheSync}
	one, two := effective(t, nil), effective(t, &WorkerOptions{Concurrency: 7})
	for _, cells := range append(tableRows(t, 6), tableRows(t, 7)...) {
		name, isOpposite := strings.CutPrefix(cells[len(cells)-2], "not ")
		name = strings.Trim(name, "`")
		owner, member, _ := strings.Cut(name, ".")
		// The tests of the module otel call its functions.
		if functions[name] != nil || name == "-" || owner == "otel" {
			continue
		}
		if len(cells) == 6 {
			if _, found := types[owner].MethodByName(member); !found {
				t.Errorf("%s: there is no method %s", cells[0], name)
			}
			continue
		}
		field := one[owner].FieldByName(member)
		if !field.IsValid() {
			t.Errorf("%s: there is no option %s", cells[0], name)
			continue
		}
		other := two[owner].FieldByName(member)
		switch wanted := cells[1]; {
		case wanted == "concurrency":
			if field.Int() != 1 || other.Int() != 7 {
				t.Errorf("%s is %v, and %v with a concurrency of 7", name, field, other)
			}
		case wanted == "unique":
			if field.Interface() == other.Interface() {
				t.Errorf("%s is not unique: %v", name, field)
			}
		case isOpposite:
			if field.Bool() == (wanted == "yes") {
				t.Errorf("%s is %v, and the page says not %s", name, field, wanted)
			}
		case !isDefault(field, wanted):
			t.Errorf("%s is %v, and the page says %s", name, field, wanted)
		}
	}
}

// TestWhatHasNoOptionHasTheValueOfThePage compares the table of docs/clients.md that has no names.
func TestWhatHasNoOptionHasTheValueOfThePage(t *testing.T) {
	failed := (&Job{}).settle(errors.New(strings.Repeat("x", 9999)))
	values := map[string]string{
		"longest error of a failed key, of which the end is kept":  fmt.Sprintf("%d bytes", len(failed.Error)),
		"first pause while the queue of a worker does not exist":   absentFirst.String(),
		"longest pause while the queue of a worker does not exist": absentMax.String(),
		"time for the last calls of a worker that stops":           lastCalls.String(),
	}
	for _, cells := range tableRows(t, 2) {
		if values[cells[0]] != cells[1] {
			t.Errorf("%s: %q, and the page says %q", cells[0], values[cells[0]], cells[1])
		}
	}
}
