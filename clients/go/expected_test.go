package deltaq_test

import (
	"context"
	"errors"
	"testing"

	deltaq "example.com/deltaq/clients/go"
)

func TestAChangeMayNameTheObjectThatItExpects(t *testing.T) {
	ctx, q := context.Background(), queue(t)
	object := map[string]any{"key": "a"}
	tag := func() *deltaq.ProduceOptions {
		t.Helper()
		_, etag, err := q.LatestObject(ctx, "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		return &deltaq.ProduceOptions{IfMatch: etag}
	}
	done := func(_ *deltaq.Produced, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(_ *deltaq.Produced, err error) {
		t.Helper()
		if !errors.Is(err, deltaq.CodePreconditionFailed) {
			t.Fatalf("not refused: %v", err)
		}
	}
	absent := &deltaq.ProduceOptions{IfAbsent: true}
	done(q.Add(ctx, object, absent))
	first := tag()
	done(q.Update(ctx, map[string]any{"key": "a", "n": 2}, first))
	refused(q.Add(ctx, object, absent))
	refused(q.Update(ctx, object, absent))
	refused(q.Add(ctx, object, first))
	refused(q.Update(ctx, object, first))
	refused(q.Delete(ctx, object, first))
	refused(q.DeleteKey(ctx, "a", first))
	done(q.DeleteKey(ctx, "a", tag()))
	done(q.Add(ctx, object, absent))
	done(q.Delete(ctx, object, tag()))
	if _, _, err := q.LatestObject(ctx, "a", nil); !errors.Is(err, deltaq.CodeKeyNotFound) {
		t.Fatalf("the object is still there: %v", err)
	}
}
