package deltaq

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestABreaker runs scripts of a breaker with the limit 3. The key and the outcome of a handler end with !, when a pause begins, with +, when the worker goes
// on, and with neither. A number is the length of the pause in seconds, which passes.
func TestABreaker(t *testing.T) {
	for _, script := range []string{
		"a:nack b:nack c:nack! 1 d:nack! 2 e:nack! 4 f:ack+ a:nack b:nack c:nack! 1",
		"a:nack a:nack a:nack a:nack b:nack c:nack!",
		"a:nack b:nack c:ack a:nack b:nack c:done a:nack b:nack c:reject a:nack b:nack c:release d:nack!",
		"a:nack b:nack c:nack! 1 a:release 1 a:release 1 a:nack! 2 b:reject+ c:nack",
		"a:nack b:nack c:nack! 1 x:nack! 2 x:nack! 4 x:nack! 8 x:nack! 16 x:nack! 32 x:nack! 60 x:nack! 60 x:done+",
	} {
		b, now, number := newBreaker(3), time.Unix(1000, 0), 0
		for _, step := range strings.Fields(script) {
			if seconds, err := strconv.Atoi(step); err == nil {
				end := now.Add(time.Duration(seconds) * time.Second)
				if b.mayStart(end.Add(-1)) || b.next(now) != end || !b.mayStart(end) || b.next(end) != far {
					t.Errorf("%s: the pause before %s ends at %v", script, step, b.until.Sub(now))
				}
				now = end
				continue
			}
			key, as, _ := strings.Cut(strings.TrimRight(step, "!+"), ":")
			number++
			id := fmt.Sprint(number)
			if !b.mayStart(now) {
				t.Errorf("%s: no key may be tried at %s", script, step)
			}
			b.started(id)
			if b.isPaused() && b.mayStart(now) {
				t.Errorf("%s: two keys are tried at %s", script, step)
			}
			begins, goesOn := b.ended(now, id, key, SettleAs(as))
			if begins != strings.HasSuffix(step, "!") || goesOn != strings.HasSuffix(step, "+") || b.isPaused() && len(b.keys) > 0 {
				t.Errorf("%s: %v and %v at %s", script, begins, goesOn, step)
			}
		}
	}
}

func TestHandlersThatBeganBeforeAPauseDoNotEndIt(t *testing.T) {
	b, now := newBreaker(1), time.Unix(1000, 0)
	for _, id := range []string{"1", "2", "3"} {
		b.started(id)
	}
	b.ended(now, "1", "a", AsNack)
	b.ended(now, "2", "b", AsAck)
	if !b.isPaused() || b.mayStart(now) {
		t.Error("a handler that began earlier has ended the pause")
	}
	now = now.Add(breakerFirst)
	b.started("4")
	b.ended(now, "3", "c", AsAck)
	if !b.isPaused() || b.probe != "4" {
		t.Error("a handler that began earlier counts as the key that is tried")
	}
	if _, goesOn := b.ended(now, "4", "d", AsAck); !goesOn || b.isPaused() {
		t.Error("the key that was tried does not end the pause")
	}
}

func TestWithoutALimitNothingPauses(t *testing.T) {
	b := newBreaker(0)
	for number := range 5000 {
		if begins, _ := b.ended(time.Unix(1000, 0), "1", fmt.Sprint(number), AsNack); begins || len(b.keys) > 0 {
			t.Fatal("a pause begins")
		}
	}
}
