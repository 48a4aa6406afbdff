package deltaq_test

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	deltaq "example.com/deltaq/clients/go"
)

// keysOf returns the keys of the newest objects.
func keysOf(t *testing.T, q *deltaq.Queue) []string {
	t.Helper()
	var keys []string
	for object, err := range q.Latest(contextOf(t), &deltaq.ViewOptions{ListOptions: deltaq.ListOptions{Limit: 2}}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, object.Key)
	}
	return keys
}

func entries(list ...deltaq.Entry) iter.Seq2[deltaq.Entry, error] {
	return func(yield func(deltaq.Entry, error) bool) {
		for _, entry := range list {
			if !yield(entry, nil) {
				return
			}
		}
	}
}

func listOf(keys ...string) deltaq.Entry {
	var list []product
	for _, key := range keys {
		list = append(list, product{Key: key})
	}
	return deltaq.Entry{List: deltaq.Objects(list)}
}

func TestAReflectorKeepsAQueueInStep(t *testing.T) {
	q := queue(t)
	ctx := contextOf(t)
	reflector := deltaq.NewReflector(q, "erp", nil)
	changes := deltaq.Entry{Changes: []deltaq.DeltaCall{{Type: deltaq.Added, Object: product{Key: "d"}}, {Type: deltaq.Deleted, Key: "a"}}}
	if err := reflector.Run(ctx, entries(listOf("a", "b", "c", "e", "f"), changes, listOf("b", "c", "d", "e"))); err != nil {
		t.Fatal(err)
	}
	if keys := keysOf(t, q); !slices.Equal(keys, []string{"b", "c", "d", "e"}) {
		t.Errorf("the queue has %v", keys)
	}
	// A new process goes on with the numbers of the source.
	reply, err := deltaq.NewReflector(q, "erp", nil).Apply(ctx, deltaq.DeltaCall{Type: deltaq.Deleted, Key: "e"})
	if err != nil || reply.Duplicate || *reply.Sequence != 4 {
		t.Errorf("%+v (%v)", reply, err)
	}
	// The first one hears that its number is taken, and takes the next one.
	reply, err = reflector.Apply(ctx, deltaq.DeltaCall{Type: deltaq.Added, Object: product{Key: "g"}})
	if err != nil || reply.Duplicate || *reply.Sequence != 5 {
		t.Errorf("%+v (%v)", reply, err)
	}
}

func TestAnEntryThatIsRefusedDoesNotEndTheSource(t *testing.T) {
	q := queue(t)
	var refused []error
	reflector := deltaq.NewReflector(q, "erp", &deltaq.ReflectorOptions{OnRefused: func(_ deltaq.Entry, err error) { refused = append(refused, err) }})
	broken := deltaq.Entry{List: func(yield func(any, error) bool) { yield(nil, errors.New("the source broke")) }}
	source := func(yield func(deltaq.Entry, error) bool) {
		_ = yield(listOf("a", "b"), nil) && yield(deltaq.Entry{}, errors.New("no answer")) && yield(listOf(), nil) && yield(broken, nil) &&
			yield(listOf("a"), nil)
	}
	if err := reflector.Run(contextOf(t), source); err != nil {
		t.Fatal(err)
	}
	if keys := keysOf(t, q); !slices.Equal(keys, []string{"a"}) || len(refused) != 1 || !errors.Is(refused[0], deltaq.CodeMassDelete) {
		t.Errorf("the queue has %v, and refused was %v", keys, refused)
	}
}

func TestObjectsThatCannotBeWrittenAreLeftOut(t *testing.T) {
	q := queue(t)
	ctx := contextOf(t)
	list := products(20)
	list[7].Price = math.NaN()
	reply, err := deltaq.NewReflector(q, "erp", nil).Replace(ctx, deltaq.Objects(list))
	if err != nil || reply.Queued != 19 || reply.Invalid != 1 || reply.InvalidObjects[0].Index != 7 || !strings.Contains(reply.InvalidObjects[0].Detail, "NaN") {
		t.Errorf("%+v (%v)", reply, err)
	}
	var encoding *deltaq.EncodeError
	strict := deltaq.NewReflector(q, "erp", &deltaq.ReflectorOptions{RefuseInvalid: true})
	if _, err := strict.Replace(ctx, deltaq.Objects(list)); !errors.As(err, &encoding) {
		t.Errorf("a list with NaN: %v", err)
	}
	// A deletion needs only its key.
	reply, err = strict.Apply(ctx, deltaq.DeltaCall{Type: deltaq.Deleted, Key: "k000"})
	if err != nil || reply.Queued != 1 {
		t.Errorf("%+v (%v)", reply, err)
	}
	reply, err = deltaq.NewReflector(q, "erp", nil).Apply(ctx, deltaq.DeltaCall{Type: deltaq.Deleted, Key: "k001", Object: math.NaN()}, deltaq.DeltaCall{Type: deltaq.Added, Object: math.Inf(1)})
	if err != nil || reply.Queued != 1 || reply.Invalid != 1 || reply.InvalidObjects[0].Index != 1 {
		t.Errorf("%+v (%v)", reply, err)
	}
}

func TestManyChangesAreSentInParts(t *testing.T) {
	q := queue(t)
	var changes []deltaq.DeltaCall
	for _, each := range products(10_001) {
		changes = append(changes, deltaq.DeltaCall{Type: deltaq.Added, Object: each})
	}
	changes[10_000].Object = 7
	reply, err := deltaq.NewReflector(q, "erp", nil).Apply(contextOf(t), changes...)
	if err != nil || reply.Queued != 10_000 || *reply.Sequence != 2 || reply.Invalid != 1 || reply.InvalidObjects[0].Index != 10_000 {
		t.Errorf("%+v (%v)", reply, err)
	}
}

func TestADeletedQueueIsLost(t *testing.T) {
	q := queue(t)
	ctx := contextOf(t)
	reflector := deltaq.NewReflector(q, "erp", nil)
	if _, err := reflector.Replace(ctx, listOf("a").List); err != nil {
		t.Fatal(err)
	}
	if err := q.DeleteQueue(ctx, nil); err != nil {
		t.Fatal(err)
	}
	var lost *deltaq.LostError
	if err := reflector.Run(ctx, entries(deltaq.Entry{Changes: []deltaq.DeltaCall{{Type: deltaq.Added, Object: product{Key: "b"}}}})); !errors.As(err, &lost) || lost.IsRestored {
		t.Errorf("a change of a deleted queue: %v", err)
	}
	if err := reflector.Run(ctx, entries(listOf("a", "b"))); err != nil {
		t.Fatal(err)
	}
	if keys := keysOf(t, q); !slices.Equal(keys, []string{"a", "b"}) {
		t.Errorf("the queue has %v", keys)
	}
}

func TestPollGoesOnAfterAnErrorAndEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	calls := 0
	var seen []bool
	for entry, err := range deltaq.Poll(ctx, time.Microsecond, func(context.Context) ([]product, error) {
		if calls++; calls == 2 {
			return nil, errors.New("no answer")
		}
		return products(1), nil
	}) {
		if seen = append(seen, err == nil && entry.List != nil); len(seen) == 4 {
			cancel()
		}
	}
	if !slices.Equal(seen, []bool{true, false, true, true}) {
		t.Errorf("the lists are %v", seen)
	}
}
