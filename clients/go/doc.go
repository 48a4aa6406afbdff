// Package deltaq is the client of deltaq, a service that keeps one system in step with another.
//
//   - [Client] and [Queue] have all calls of the API, with retries.
//   - [Worker] runs a handler for each changed key.
//   - [Informer] keeps a copy of a queue in memory, with indexes, and calls handlers for its changes.
//   - [Reflector] keeps a queue in step with a source.
//
// The names are those of client-go.
//
// # Contexts and errors
//
// Every call ends with its context, and its error then is the error of the context; errors.As also finds the failure of the last attempt. A refusal of
// the server is a [*Problem], and errors.Is(err, [CodeQueueFull]) recognises one by its code. A call without a reply is a [*ConnectionError], a reply
// that is not from deltaq a [*ReplyError].
//
// # Objects
//
// Objects to send are any values that encoding/json writes as JSON objects. Objects that are received are json.RawMessage with the text as it was sent,
// so that 9007199254740993 and 1.10 stay as they were. [Decode] reads one into a type.
//
// # Options
//
// Options are pointers to structs: nil means the zero value, and the zero value of each field is a useful default, which its comment states.
package deltaq
