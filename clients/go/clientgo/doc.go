// Package clientgo lets a controller that is written for client-go work on queues of deltaq.
//
//   - [Queue] is a workqueue.TypedRateLimitingInterface[string] over a queue of mode keys. Its keys, delays and failures outlast the process, and several
//     processes share its work.
//   - [ListWatch] is a cache.ListerWatcher over the objects of a queue, for reflectors and informers.
//
// The module controllerruntime, next to this one, has sources and queues for controllers of controller-runtime.
package clientgo
