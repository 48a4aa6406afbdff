package deltaq

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Version is the version of this client.
const Version = "0.1.0"

// Options say how to reach a server. The zero value of each field is its default.
type Options struct {
	// Token, TokenFile and TokenSource are where the token comes from; at most one of them is set. A file is read again when the server refuses the
	// token, so a token can be replaced while workers and informers run.
	Token       string
	TokenFile   string
	TokenSource TokenSource
	// TLS verifies servers with https URLs. Nil means the authorities of the system.
	TLS *tls.Config
	// Retry says how failed calls are repeated.
	Retry RetryOptions
	// ReplyTimeout limits the time of one attempt, without the time for which the server was asked to wait. Zero means 1 minute.
	ReplyTimeout time.Duration
	// IdleConnections is the number of connections to each server that are kept open while no call uses them. It should be at least the number of calls
	// that run at once. Zero means 100.
	IdleConnections int
	// WrapTransport wraps the transport of all requests, for example to trace them.
	WrapTransport func(http.RoundTripper) http.RoundTripper
	// Middleware are functions around each call with its repeats, such as those of a trace. The first is the outermost. Streams, such as a watch, have none.
	Middleware []func(next Invoke) Invoke
	// Logger gets what no caller hears of: calls that are repeated because no server answers (a warning at the first failure, and then at most one a
	// minute), failures of handlers, and keys that are parked. Nil means slog.Default.
	Logger *slog.Logger
	// UserAgent names the program. Empty means deltaq-go with its version.
	UserAgent string
}

// Client is a client of one server, or of the nodes of one cluster. Any number of goroutines may use it at once. Programs should have one.
type Client struct {
	http         *http.Client
	transport    *http.Transport
	servers      *servers
	tokens       *tokens
	retry        RetryOptions
	replyTimeout time.Duration
	userAgent    string
	log          *slog.Logger
	rows         *rows
	// invoke has the middleware of all calls; nil without any.
	invoke Invoke
	// listWait is how much longer than another call a list may take, because it may wait for other lists of its queue.
	listWait time.Duration
	// silence is how long a server may say nothing while there are others, before it is asked whether it is alive.
	silence time.Duration
	// answer is how long the answer may take.
	answer time.Duration
}

// New returns a client of the server with this URL, such as http://localhost:7070. Commas separate the URLs of several nodes of one cluster: if a node
// can't be reached, calls go on at the next one. Nothing is sent yet.
func New(url string, options *Options) (*Client, error) {
	if options == nil {
		options = &Options{}
	}
	all, err := newServers(url)
	if err != nil {
		return nil, err
	}
	if err := options.check(); err != nil {
		return nil, err
	}
	tokens, err := newTokens(options)
	if err != nil {
		return nil, err
	}
	connectTimeout := 5 * time.Second
	if all.areSeveral() {
		connectTimeout = 2 * time.Second
	}
	// A peer that is gone is noticed within 30 s, also while a call waits.
	keepAlive := net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAliveConfig: keepAlive, Control: limitSilence}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     options.TLS.Clone(),
		TLSHandshakeTimeout: connectTimeout,
		MaxIdleConnsPerHost: or(options.IdleConnections, 100),
		// The server closes idle connections after two minutes.
		IdleConnTimeout:    time.Minute,
		DisableCompression: true,
		// An empty map turns HTTP/2 off: all calls of one connection would wait for one lost packet.
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	var wrapped http.RoundTripper = transport
	if options.WrapTransport != nil {
		wrapped = options.WrapTransport(transport)
	}
	log := or(options.Logger, slog.Default())
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	var invoke Invoke
	if len(options.Middleware) > 0 {
		invoke = wrap[Invoke](func(ctx context.Context, call *Call) error { return call.send(ctx) }, options.Middleware)
	}
	return &Client{
		invoke:       invoke,
		http:         &http.Client{Transport: wrapped, CheckRedirect: refuse},
		transport:    transport,
		servers:      all,
		tokens:       tokens,
		retry:        options.Retry.withDefaults(),
		replyTimeout: or(options.ReplyTimeout, time.Minute),
		userAgent:    or(options.UserAgent, "deltaq-go/"+Version),
		log:          log,
		rows:         newRows(log),
		listWait:     4 * time.Minute,
		silence:      3 * time.Second,
		answer:       2 * time.Second,
	}, nil
}

// Close closes the idle connections. Running calls go on.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Logger returns the logger of the options, for packages that are built on this one.
func (c *Client) Logger() *slog.Logger { return c.log }

// WithRetry returns a client that repeats failed calls in another way. Both have the same connections, servers and tokens. It panics if a number of the
// options is negative.
func (c *Client) WithRetry(options RetryOptions) *Client {
	if err := options.check(); err != nil {
		panic(err.Error())
	}
	other := *c
	other.retry = options.withDefaults()
	return &other
}

// Queue returns the queue with this name. Nothing is sent. Calls on a queue without a name fail before they are sent.
func (c *Client) Queue(name string) *Queue { return &Queue{client: c, name: name} }

// QueueListOptions select queues.
type QueueListOptions struct {
	// Prefix selects the queues whose names begin with it.
	Prefix string
	// Limit is the size of a page, at most 5,000. Zero means 500.
	Limit int
	// Continue is the token of a page, for [Client.QueuesPage].
	Continue string
}

// QueuesPage returns a page of the list of queues.
func (c *Client) QueuesPage(ctx context.Context, options *QueueListOptions) (*QueuePage, error) {
	query := url.Values{}
	if options != nil {
		setText(query, "prefix", options.Prefix)
		setNumber(query, "limit", options.Limit)
		setText(query, "continue", options.Continue)
	}
	return fetch[QueuePage](ctx, c, &call{method: http.MethodGet, path: "/v1/queues", query: query})
}

// Queues iterates over all queues on which the token has the grant read. After an error, the iteration ends. It leaves out the queues that can't be read
// at present, which [Client.QueuesPage] names.
func (c *Client) Queues(ctx context.Context, options *QueueListOptions) iter.Seq2[QueueDocument, error] {
	selected := QueueListOptions{}
	if options != nil {
		selected = *options
	}
	return pages(func(token string) ([]QueueDocument, *string, error) {
		selected.Continue = token
		page, err := c.QueuesPage(ctx, &selected)
		if err != nil {
			return nil, nil, err
		}
		return page.Items, page.Continue, nil
	})
}

// Info returns the version, the limits and the uptime of the server.
func (c *Client) Info(ctx context.Context) (*Info, error) {
	return fetch[Info](ctx, c, &call{method: http.MethodGet, path: "/v1/info"})
}

// Nodes returns the nodes that share the database of the server.
func (c *Client) Nodes(ctx context.Context) (*NodeList, error) {
	return fetch[NodeList](ctx, c, &call{method: http.MethodGet, path: "/v1/nodes"})
}

// OpenAPI returns the server's description of its API.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	return c.do(ctx, &call{method: http.MethodGet, path: "/openapi.json"})
}

// ProblemPage returns the page that explains a problem.
func (c *Client) ProblemPage(ctx context.Context, code Code) (string, error) {
	path, err := segment(string(code))
	if err != nil {
		return "", err
	}
	text, err := c.do(ctx, &call{method: http.MethodGet, path: "/problems/" + path})
	return string(text), err
}

// Alive returns nil while the server serves.
func (c *Client) Alive(ctx context.Context) error {
	_, err := c.send(ctx, &call{method: http.MethodGet, path: "/livez"})
	return err
}

// Ready returns nil if the server has loaded all queues and takes calls. It makes one attempt.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.send(ctx, &call{method: http.MethodGet, path: "/readyz"})
	return err
}

// Decode reads an object into a type. Unknown members are ignored.
func Decode[T any](object json.RawMessage) (T, error) {
	var value T
	if len(object) == 0 {
		return value, fmt.Errorf("deltaq: there is no object")
	}
	if err := json.Unmarshal(object, &value); err != nil {
		return value, fmt.Errorf("deltaq: the object is no %T: %w", value, err)
	}
	return value, nil
}

// Ptr returns a pointer to a value, for options whose zero value has a meaning.
func Ptr[T any](value T) *T { return &value }
