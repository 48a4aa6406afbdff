package deltaq

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const length = 30 * time.Second

func takeAll(l *leases, now time.Time, ids ...string) []*held {
	var taken []*held
	for _, id := range ids {
		job := &Job{PoppedItem: PoppedItem{Key: "key of " + id, Lease: Lease{ID: id, ExpiresInMs: length.Milliseconds()}}}
		taken = append(taken, l.take(job, now))
	}
	return taken
}

func extendedBy(id string, length time.Duration) Settled {
	return Settled{LeaseID: id, As: AsExtend, Result: "ok", ExpiresInMs: Ptr(length.Milliseconds()), PendingDeltas: Ptr(int64(2)), Deleted: Ptr(true)}
}

func staleOf(id string) Settled { return Settled{LeaseID: id, As: AsExtend, Result: "stale"} }

func TestLeasesAreExtendedAtAThirdAndLostBeforeTheirEnd(t *testing.T) {
	l, now := newLeases(), time.Now()
	taken := takeAll(l, now, "a", "b", "c")
	if !l.next.Equal(now.Add(length / 3)) {
		t.Errorf("the next attention is after %v", l.next.Sub(now))
	}
	l.remove("c")
	if lost, extend, _ := l.attend(now.Add(length/3 - 1)); lost != nil || extend != nil {
		t.Errorf("too early: %v %v", lost, extend)
	}
	sentAt := now.Add(length / 3)
	lost, extend, patience := l.attend(sentAt)
	slices.Sort(extend)
	// A sixth is left at the loss, and an extension may take half of the time until then, up to 10 s.
	if lost != nil || !slices.Equal(extend, []string{"a", "b"}) || patience != length/4 {
		t.Errorf("%v %v %v", lost, extend, patience)
	}
	if _, extend, _ := l.attend(sentAt); extend != nil {
		t.Error("two extensions at once")
	}
	lost = l.extended(&SettledList{Settled: []Settled{extendedBy("a", length), staleOf("b"), staleOf("c")}}, sentAt)
	if len(lost) != 1 || lost[0] != taken[1] || l.held["b"] != nil {
		t.Errorf("lost is %v", lost)
	}
	if count, isDeleted := taken[0].job.PendingDeltas(); count != 2 || !isDeleted {
		t.Errorf("the job hears of %d changes, %v", count, isDeleted)
	}
	if _, extend, _ = l.attend(sentAt.Add(length / 3)); len(extend) != 1 {
		t.Errorf("the second extension has %v", extend)
	}
	// The extension has no reply, which does not hide the end.
	lostAt := sentAt.Add(length * 5 / 6)
	if !l.next.Equal(lostAt) {
		t.Errorf("the next attention is %v before the loss", lostAt.Sub(l.next))
	}
	if lost, _, _ = l.attend(lostAt.Add(-1)); lost != nil {
		t.Error("the lease is lost too early")
	}
	if lost, _, _ = l.attend(lostAt); len(lost) != 1 || len(l.held) != 0 {
		t.Errorf("lost is %v", lost)
	}
}

func TestAFailedExtensionIsRepeatedAndALongLeaseHasAShortMargin(t *testing.T) {
	l, now := newLeases(), time.Now()
	h := takeAll(l, now, "a")[0]
	h.begin(now, time.Hour)
	if !h.lostAt.Equal(now.Add(time.Hour - 5*time.Second)) {
		t.Errorf("the margin is %v", now.Add(time.Hour).Sub(h.lostAt))
	}
	if _, extend, patience := l.attend(now.Add(30 * time.Minute)); len(extend) != 1 || patience != 10*time.Second {
		t.Errorf("%v %v", extend, patience)
	}
	again := now.Add(31 * time.Minute)
	l.notExtended(again)
	if _, extend, _ := l.attend(again.Add(-1)); extend != nil || !l.next.Equal(again) {
		t.Errorf("%v, and the next attention %v early", extend, again.Sub(l.next))
	}
	if _, extend, _ := l.attend(again); len(extend) != 1 {
		t.Error("it is not repeated")
	}
}

func TestAnOutcomeIsSentAlsoWhenItsLeaseMayHaveEnded(t *testing.T) {
	l, now := newLeases(), time.Now()
	takeAll(l, now, "a")[0].isEnded = true
	lost, extend, _ := l.attend(now.Add(2 * length))
	if lost != nil || len(extend) != 1 {
		t.Errorf("%v %v", lost, extend)
	}
	if lost := l.extended(&SettledList{Settled: []Settled{staleOf("a")}}, now); lost != nil || l.held["a"] == nil {
		t.Error("the outcome is dropped")
	}
	if _, extend, _ := l.attend(now.Add(time.Hour)); extend != nil {
		t.Error("a lease that has ended is extended again")
	}
}

func TestAnExtensionHasABoundedNumberOfLeases(t *testing.T) {
	l, now := newLeases(), time.Now()
	for number := range 1200 {
		takeAll(l, now, fmt.Sprint(number))
	}
	_, extend, _ := l.attend(now.Add(length / 3))
	if len(extend) != batchMax {
		t.Errorf("%d leases", len(extend))
	}
	var list SettledList
	for _, id := range extend {
		list.Settled = append(list.Settled, extendedBy(id, length))
	}
	l.extended(&list, now.Add(length/3))
	if _, extend, _ := l.attend(now.Add(length / 3)); len(extend) != 200 {
		t.Errorf("then %d leases", len(extend))
	}
}

func TestOutcomes(t *testing.T) {
	why := errors.New("no route")
	long := strings.Repeat("ä", 5000)
	for _, row := range []struct {
		err  error
		want string
	}{
		{nil, `{"as":"ack","lease_id":"l"}`},
		{why, `{"as":"nack","lease_id":"l","error":"no route"}`},
		{&Nack{}, `{"as":"nack","lease_id":"l"}`},
		{&Release{Hold: 2 * time.Hour}, `{"as":"release","lease_id":"l","hold":{"scope":"queue","for":"2h0m0s"}}`},
		{&Release{Hold: time.Second, HoldScope: HoldKey}, `{"as":"release","lease_id":"l","hold":{"scope":"key","for":"1s"}}`},
		{&Nack{Err: why, Delay: 90 * time.Second, Floor: true}, `{"as":"nack","lease_id":"l","delay":"1m30s","floor":true,"error":"no route"}`},
		{&Nack{Delay: -1}, `{"as":"nack","lease_id":"l","delay":"0s"}`},
		{&Nack{Delay: 1 << 62}, `{"as":"nack","lease_id":"l","delay":"8784h0m0s"}`},
		{fmt.Errorf("store: %w", &Reject{Err: why}), `{"as":"reject","lease_id":"l","error":"no route"}`},
		{&Done{}, `{"as":"done","lease_id":"l"}`},
		{&Done{Delay: time.Hour}, `{"as":"done","lease_id":"l","delay":"1h0m0s"}`},
		{&Release{}, `{"as":"release","lease_id":"l"}`},
		{errors.New("file \xff.txt"), `{"as":"nack","lease_id":"l","error":"file ` + "\uFFFD" + `.txt"}`},
		{errors.New(long + "end"), `{"as":"nack","lease_id":"l","error":"` + strings.Repeat("ä", 2046) + `end"}`},
	} {
		got, err := encode((&Job{PoppedItem: PoppedItem{Lease: Lease{ID: "l"}}}).settle(row.err))
		if err != nil || string(got) != row.want {
			t.Errorf("%v: %s (%v)", row.err, got, err)
		}
	}
	elsewhere := &Job{PoppedItem: PoppedItem{Deltas: make([]Delta, 1)}}
	if got := elsewhere.settle(&Done{}); got.As != AsNack || got.Error != errDoneElsewhere.Error() {
		t.Errorf("Done outside mode keys: %+v", got)
	}
	if !errors.Is(&Nack{Err: why}, why) || !errors.Is(&Reject{Err: why}, why) {
		t.Error("the reason is not unwrapped")
	}
}
