// Package controllerruntime lets controllers of controller-runtime work on queues of deltaq.
//
//   - [Keys] is a source of the keys of a queue of mode keys: they are reconciled with leases, and several processes share them without leader election.
//   - [Objects] is a source of the keys of the objects of a queue, which an informer keeps in memory.
//
// Both are for controllers whose requests are reconcile.Request or any other comparable type.
package controllerruntime
