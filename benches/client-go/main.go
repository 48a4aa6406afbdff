// The benchmark of benches/engine.rs for client-go: a DeltaFIFO with a store of known objects, on one goroutine. Keys,
// objects, order, timing and the names of the figures are the same as there.
package main

import (
	"fmt"
	"log"
	"time"

	"k8s.io/client-go/tools/cache"
)

const (
	objectBytes = 256
	cycleKeys   = 100_000
	fillKeys    = 1_000_000
	// Calls that are prepared before a timed part.
	ready  = 1_000
	rounds = 5
)

func main() {
	queue := newQueue()
	cycles := func() []time.Duration {
		return timed(cycleKeys, func(object *object) {
			queue.add(object)
			queue.popAndAck()
		})
	}
	cycles()
	fmt.Printf("cycle_ns %.0f\n", fastestNanoseconds(cycles, cycleKeys))
	fmt.Printf("fill_drain_ns %.0f\n", fastestNanoseconds(fillAndDrain, fillKeys))
}

type object struct {
	key  string
	body []byte
}

func keyOf(value interface{}) (string, error) {
	return value.(*object).key, nil
}

type queue struct {
	known cache.Store
	fifo  *cache.DeltaFIFO
}

func newQueue() queue {
	known := cache.NewStore(keyOf)
	return queue{known, cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{KeyFunction: keyOf, KnownObjects: known})}
}

func (q queue) add(object *object) {
	must(q.fifo.Add(object))
}

func (q queue) popAndAck() {
	_, err := q.fifo.Pop(func(deltas interface{}, _ bool) error {
		return q.known.Update(deltas.(cache.Deltas).Newest().Object)
	})
	must(err)
}

// The durations of each thousand adds, then of each thousand pops.
func fillAndDrain() []time.Duration {
	queue := newQueue()
	parts := timed(fillKeys, queue.add)
	for left := fillKeys; left > 0; left -= ready {
		start := time.Now()
		for range ready {
			queue.popAndAck()
		}
		parts = append(parts, time.Since(start))
	}
	return parts
}

// Time per key, if each part of a round takes as long as in its fastest round.
func fastestNanoseconds(round func() []time.Duration, keys int) float64 {
	fastest := round()
	for range rounds - 1 {
		for index, part := range round() {
			fastest[index] = min(fastest[index], part)
		}
	}
	var sum time.Duration
	for _, part := range fastest {
		sum += part
	}
	return float64(sum.Nanoseconds()) / float64(keys)
}

func timed(keys int, run func(*object)) []time.Duration {
	var parts []time.Duration
	for first := 0; first < keys; first += ready {
		objects := make([]*object, 0, ready)
		for number := first; number < first+ready; number++ {
			objects = append(objects, &object{name(number), make([]byte, objectBytes)})
		}
		start := time.Now()
		for _, object := range objects {
			run(object)
		}
		parts = append(parts, time.Since(start))
	}
	return parts
}

// Names of equal length, in random order.
func name(number int) string {
	return fmt.Sprintf("sku-%010x", uint64(number)*0x9e37_79b9_7f4a_7c15>>24)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
