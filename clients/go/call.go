package deltaq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// drainedMax is how much is read of a reply that is not from deltaq. A connection can be used again if its reply was read to the end.
	drainedMax = 64 << 10
	// problemMax is the largest problem document: the results of 10,000 leases.
	problemMax = 16 << 20
)

// errSilence is why an attempt ends whose reply does not come in time.
var errSilence = errors.New("no reply in time")

// call is a request.
type call struct {
	method string
	// path is escaped.
	path  string
	query url.Values
	// headers is nil for most calls.
	headers     map[string]string
	body        []byte
	contentType string
	// stream is the body of a long list, instead of body.
	stream *listStream
	// queue is the name of the queue, if the call has one.
	queue string
	// wait is how long the server may wait before it replies.
	wait time.Duration
	// isOnce is true for a call that is not idempotent: it is repeated only if it was certainly not applied.
	isOnce bool
	// accept is the content type of the reply. Empty means JSON.
	accept string
}

// reply is a successful reply.
type reply struct {
	server string
	status int
	header http.Header
	body   []byte
}

// fetch makes a call and reads its reply. A failed call is repeated as the options of the client say.
func fetch[T any](ctx context.Context, c *Client, call *call) (*T, error) {
	document, _, err := fetchTagged[T](ctx, c, call)
	return document, err
}

// fetchTagged is fetch, with the entity tag of the reply.
func fetchTagged[T any](ctx context.Context, c *Client, call *call) (document *T, tag string, err error) {
	err = c.around(ctx, call, func(ctx context.Context) error {
		attempts := newAttempts(c.retry, false)
		for {
			found, reply, err := fetchOnce[T](ctx, c, call)
			if err == nil {
				c.rows.answered(call)
				document, tag = found, reply.header.Get("Etag")
				return nil
			}
			if err := c.pause(ctx, attempts, call, err); err != nil {
				return err
			}
		}
	})
	return document, tag, err
}

// repeat makes a call on a queue until it succeeds, its error is final, or the context ends: workers and reflectors don't give up.
func repeat[T any](ctx context.Context, q *Queue, call *call) (*T, error) {
	document, _, err := repeatCounted[T](ctx, q, call)
	return document, err
}

// repeatCounted is repeat, with the attempts before the reply.
func repeatCounted[T any](ctx context.Context, q *Queue, call *call) (document *T, attempts *attempts, err error) {
	attempts = newAttempts(q.client.retry, true)
	err = q.client.around(ctx, call, func(ctx context.Context) error {
		for {
			found, _, err := fetchOnce[T](ctx, q.client, call)
			if err == nil {
				q.client.rows.answered(call)
				document = found
				return nil
			}
			if err := q.client.pause(ctx, attempts, call, err); err != nil {
				return err
			}
		}
	})
	return document, attempts, err
}

// fetchOnce makes one attempt.
func fetchOnce[T any](ctx context.Context, c *Client, call *call) (*T, *reply, error) {
	reply, err := c.send(ctx, call)
	if err != nil {
		return nil, nil, err
	}
	document, err := read[T](reply)
	return document, reply, err
}

// do makes a call and returns the body of its reply.
func (c *Client) do(ctx context.Context, call *call) (body []byte, err error) {
	err = c.around(ctx, call, func(ctx context.Context) error {
		attempts := newAttempts(c.retry, false)
		for {
			reply, err := c.send(ctx, call)
			if err == nil {
				c.rows.answered(call)
				body = reply.body
				return nil
			}
			if err := c.pause(ctx, attempts, call, err); err != nil {
				return err
			}
		}
	})
	return body, err
}

// pause logs a failure and waits before the next attempt. It returns the error of the call if there is none.
func (c *Client) pause(ctx context.Context, attempts *attempts, call *call, err error) error {
	if call.stream != nil {
		if failure := call.stream.failure(ctx); failure != nil {
			return failure
		}
	}
	attempts.isUnknown = attempts.isUnknown || ctx.Err() != nil || isOutcomeUnknown(err)
	if ctx.Err() != nil {
		return after(err, attempts.last)
	}
	attempts.last = err
	pause, again := attempts.pauseAfter(err, call.isOnce)
	if !again {
		if statusOf(err) != 0 {
			c.rows.answered(call)
		}
		return err
	}
	limit := ""
	if !attempts.isEndless {
		limit = attempts.options.limit()
	}
	c.rows.failed(call, limit, err)
	return sleep(ctx, pause, err)
}

// read reads the document of a reply. A member that every reply of this kind has must be there: other services also reply with JSON.
func read[T any](reply *reply) (*T, error) {
	document := new(T)
	err := json.Unmarshal(reply.body, document)
	if err == nil {
		if checked, ok := any(document).(interface{ isComplete() bool }); ok && !checked.isComplete() {
			err = errors.New("a member is missing")
		}
	}
	if err != nil {
		return nil, &ReplyError{Server: reply.server, Status: reply.status, Err: err, isJSON: json.Valid(reply.body)}
	}
	return document, nil
}

// send makes one attempt, and reads the reply.
func (c *Client) send(ctx context.Context, call *call) (*reply, error) {
	response, exchange, err := c.openAnywhere(ctx, call)
	if err != nil {
		return nil, err
	}
	defer exchange.done()
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		c.servers.leave(exchange.server, call.queue)
		return nil, exchange.failure(ctx, err, true)
	}
	if call.stream != nil {
		// The server may reply before it has read the list, for example to a number that was applied before.
		exchange.done()
		if err := call.stream.wait(ctx); err != nil {
			return nil, err
		}
	}
	return &reply{exchange.server.base, response.StatusCode, response.Header, body}, nil
}

// openAnywhere opens a call. If a server has done nothing, for a reason that another one need not have, the call goes to the next server.
func (c *Client) openAnywhere(ctx context.Context, call *call) (*http.Response, *exchange, error) {
	for others := len(c.servers.all) - 1; ; others-- {
		response, exchange, err := c.open(ctx, call)
		if err == nil || others == 0 || ctx.Err() != nil || !isUndoneHere(err) {
			return response, exchange, err
		}
	}
}

// exchange is an attempt at a server.
type exchange struct {
	server *server
	ctx    context.Context
	cancel context.CancelCauseFunc
	watch  *time.Timer
	silent *time.Timer
}

func (e *exchange) done() {
	e.cancel(nil)
	if e.watch != nil {
		e.watch.Stop()
	}
	if e.silent != nil {
		e.silent.Stop()
	}
}

// failure is the error of an attempt without a complete reply.
func (e *exchange) failure(ctx context.Context, err error, wasSent bool) error {
	if cause := context.Cause(e.ctx); errors.Is(cause, errSilence) {
		err = cause
	}
	var inner *url.Error
	if errors.As(err, &inner) {
		// The text of the outer error has the URL, whose query may have a key.
		err = inner.Err
	}
	if ctx.Err() != nil {
		return ended(ctx, nil)
	}
	return &ConnectionError{Server: e.server.base, Sent: wasSent, Err: err}
}

// open sends a call and returns the successful response, whose body the caller reads, with the attempt, which the caller ends. A token that the server
// refuses is asked for again, because it may have been replaced.
func (c *Client) open(ctx context.Context, call *call) (*http.Response, *exchange, error) {
	token, err := c.tokens.get(ctx)
	if err != nil {
		return nil, nil, err
	}
	server := c.servers.next(call.queue)
	response, end, err := c.attempt(ctx, call, server, token)
	if err != nil && statusOf(err) == http.StatusUnauthorized {
		if token, isReplaced := c.tokens.replaced(ctx, token); isReplaced {
			response, end, err = c.attempt(ctx, call, server, token)
		}
	}
	if err != nil && ctx.Err() == nil && isOfServer(err) {
		c.servers.leave(server, call.queue)
	}
	return response, end, err
}

func statusOf(err error) int {
	var problem *Problem
	var reply *ReplyError
	switch {
	case errors.As(err, &problem):
		return problem.Status
	case errors.As(err, &reply):
		return reply.Status
	}
	return 0
}

func (c *Client) attempt(ctx context.Context, call *call, server *server, token string) (*http.Response, *exchange, error) {
	e := &exchange{server: server}
	e.ctx, e.cancel = context.WithCancelCause(ctx)
	var isConnected atomic.Bool
	traced := httptrace.WithClientTrace(e.ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { isConnected.Store(true) }})
	request, err := c.request(traced, call, server, token)
	if err != nil {
		e.done()
		return nil, nil, err
	}
	c.limit(e, call)
	response, err := c.http.Do(request)
	if err != nil {
		e.done()
		return nil, nil, e.failure(ctx, err, isConnected.Load())
	}
	if call.accept != "" {
		// A stream has no time limit after its beginning.
		e.watch.Stop()
	}
	server.hear()
	c.servers.noteOwner(call.queue, response.Header.Get("Deltaq-Owner"))
	if response.StatusCode < 300 {
		return response, e, nil
	}
	err = c.refusal(ctx, e, response)
	e.done()
	return nil, nil, err
}

func (c *Client) request(ctx context.Context, call *call, server *server, token string) (*http.Request, error) {
	target := server.base + call.path
	if len(call.query) > 0 {
		target += "?" + call.query.Encode()
	}
	var body io.Reader
	if call.stream != nil {
		list, err := call.stream.open(ctx)
		if err != nil {
			return nil, err
		}
		body = list
	} else if call.body != nil {
		body = bytes.NewReader(call.body)
	}
	// Of a bytes.Reader, this also sets GetBody.
	request, err := http.NewRequestWithContext(ctx, call.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("deltaq: %w", err)
	}
	request.Header.Set("User-Agent", c.userAgent)
	request.Header.Set("Accept", or(call.accept, "application/json"))
	if body != nil {
		request.Header.Set("Content-Type", or(call.contentType, "application/json"))
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for name, value := range call.headers {
		request.Header.Set(name, value)
	}
	for name, values := range request.Header {
		// The transport would refuse it as if there were no connection, and the text may be a token.
		if strings.ContainsFunc(values[0], func(letter rune) bool { return letter < ' ' && letter != '\t' || letter == 0x7f }) {
			if request.Body != nil {
				// This ends the goroutine that reads a long list.
				request.Body.Close()
			}
			return nil, fmt.Errorf("deltaq: not sent: the header %s would have a control character, such as a line break", name)
		}
	}
	return request, nil
}

// limit ends an attempt whose reply does not come. The time of a long list begins when it was sent. If there are other servers, a server that says
// nothing is asked whether it is alive.
func (c *Client) limit(e *exchange, call *call) {
	timeout := c.replyTimeout + call.wait
	end := func() { e.cancel(fmt.Errorf("%w: %v", errSilence, timeout)) }
	if call.stream == nil {
		e.watch = time.AfterFunc(timeout, end)
	} else {
		go func(sent <-chan struct{}) {
			select {
			case <-sent:
				time.AfterFunc(timeout, end)
			case <-e.ctx.Done():
			}
		}(call.stream.ended)
	}
	if !c.servers.areSeveral() {
		return
	}
	e.silent = time.AfterFunc(c.silence, func() { c.ask(e) })
}

// ask ends an attempt whose server says nothing, although it was asked whether it is alive, and asks again later.
func (c *Client) ask(e *exchange) {
	heard := time.Unix(0, e.server.heard.Load())
	switch {
	case e.ctx.Err() != nil:
		return
	case time.Since(heard) >= c.silence && !c.isAlive(e.ctx, e.server):
		e.cancel(fmt.Errorf("%w: the server does not say that it is alive", errSilence))
		return
	}
	time.AfterFunc(c.silence, func() { c.ask(e) })
}

// isAlive asks a server whether it is alive. Any answer counts.
func (c *Client) isAlive(ctx context.Context, server *server) bool {
	ctx, cancel := context.WithTimeout(ctx, c.answer)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.base+"/livez", nil)
	if err != nil {
		return false
	}
	response, err := c.http.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.CopyN(io.Discard, response.Body, drainedMax)
	response.Body.Close()
	server.hear()
	return true
}

// refusal reads a reply that is not a success.
func (c *Client) refusal(ctx context.Context, e *exchange, response *http.Response) error {
	defer response.Body.Close()
	limit := int64(drainedMax)
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json") {
		limit = problemMax
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, limit))
	if err != nil {
		return e.failure(ctx, err, true)
	}
	asked := readRetryAfter(response.Header, time.Now())
	problem := &Problem{retryAfter: asked}
	if json.Unmarshal(body, &problem.ProblemDocument) != nil || problem.Code == "" {
		return &ReplyError{Server: e.server.base, Status: response.StatusCode, retryAfter: asked}
	}
	problem.Status = response.StatusCode
	if problem.RetryAfterMs != nil {
		problem.retryAfter = milliseconds(*problem.RetryAfterMs)
	}
	return problem
}

// segment escapes a name for a path. HTTP libraries and proxies remove some parts of paths, so that the path would name something else.
func segment(name string) (string, error) {
	if name == "" {
		return "", errors.New("deltaq: not sent: a name is empty: that of a queue, a key, a source or an index")
	}
	for _, part := range strings.Split(name, "/") {
		if part == "" || part == "." || part == ".." {
			return "", fmt.Errorf("deltaq: %q is no name: a path can't have it as a part", name)
		}
	}
	return url.PathEscape(name), nil
}

func setText(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

func setNumber[N int | int64](query url.Values, name string, value N) {
	if value != 0 {
		query.Set(name, strconv.FormatInt(int64(value), 10))
	}
}

func setFlag(query url.Values, name string, value bool) {
	if value {
		query.Set(name, "true")
	}
}

// setLength sets a duration that is not zero.
func setLength(query url.Values, name string, value time.Duration) {
	if value != 0 {
		query.Set(name, value.String())
	}
}

// setGiven sets a duration that is not nil.
func setGiven(query url.Values, name string, value *time.Duration) {
	if value != nil {
		query.Set(name, value.String())
	}
}

// pages iterates over the items of all pages.
func pages[T any](page func(token string) (items []T, next *string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		token := ""
		for {
			items, next, err := page(token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == nil {
				return
			}
			token = *next
		}
	}
}
