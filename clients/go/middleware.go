package deltaq

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// Call is a call as the middleware of a client sees it.
type Call struct {
	// Method is the method of HTTP.
	Method string
	// Name is the end of the path, such as add, pop or settle, without the name of a source or an index. It is empty for the queue itself.
	Name string
	// Queue is the name of the queue. It is empty for a call that concerns no queue.
	Queue string
	// Header has headers of each attempt. A middleware may set others, such as a trace.
	Header http.Header
	send   func(context.Context) error
}

// Invoke makes a call with its repeats, and returns its error. [Options].Middleware changes what it does.
type Invoke func(ctx context.Context, call *Call) error

// errNotMade is the error of a call that a middleware has not made, although it has returned no error.
var errNotMade = errors.New("deltaq: a middleware has returned no error, and has not made the call")

// wrap returns the function inside all middleware, of which the first is the outermost.
func wrap[F any](inner F, middleware []func(F) F) F {
	for index := len(middleware) - 1; index >= 0; index-- {
		inner = middleware[index](inner)
	}
	return inner
}

// around makes a call within the middleware of the client.
func (c *Client) around(ctx context.Context, call *call, send func(context.Context) error) error {
	if c.invoke == nil {
		return send(ctx)
	}
	isMade := false
	made := &Call{Method: call.method, Name: call.name(), Queue: call.queue, Header: http.Header{}}
	for name, value := range call.headers {
		made.Header.Set(name, value)
	}
	made.send = func(ctx context.Context) error {
		call.headers = map[string]string{}
		for name := range made.Header {
			call.headers[name] = made.Header.Get(name)
		}
		err := send(ctx)
		isMade = isMade || err == nil
		return err
	}
	if err := c.invoke(ctx, made); err != nil || isMade {
		return err
	}
	return errNotMade
}

// name is the end of the path without the name of a source or an index; empty for that of a queue itself.
func (call *call) name() string {
	path := strings.TrimPrefix(call.path, "/v1/")
	if call.queue != "" {
		if _, rest, hasRest := strings.Cut(strings.TrimPrefix(path, "queues/"), "/"); hasRest {
			path = rest
		} else {
			return ""
		}
	}
	// A source or an index may have the name of a call.
	if first, _, _ := strings.Cut(path, "/"); first == "sources" || first == "indexes" {
		return first
	}
	return path[strings.LastIndexByte(path, '/')+1:]
}
