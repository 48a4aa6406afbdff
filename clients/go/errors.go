package deltaq

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

var (
	// ErrLeaseLost is the cause of the context of a handler whose lease has ended: another worker may hold the key.
	ErrLeaseLost = errors.New("deltaq: the lease is lost")
	// ErrStopping is the cause of the context of a handler that still runs when a stopping worker no longer waits for it.
	ErrStopping = errors.New("deltaq: the worker has stopped")
)

// ProblemDocument is a problem document (RFC 9457) of a server.
type ProblemDocument struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Hint says what to do, such as did you mean "wait"?
	Hint      *string `json:"hint,omitempty"`
	Code      Code    `json:"code"`
	Retryable bool    `json:"retryable"`
	RequestID string  `json:"request_id"`
	// RetryAfterMs is how long to wait before a repeat.
	RetryAfterMs    *int64      `json:"retry_after_ms,omitempty"`
	Limit           *float64    `json:"limit,omitempty"`
	LimitMs         *int64      `json:"limit_ms,omitempty"`
	Queue           *string     `json:"queue,omitempty"`
	Parameter       *string     `json:"parameter,omitempty"`
	Field           *string     `json:"field,omitempty"`
	Index           *int64      `json:"index,omitempty"`
	Line            *int64      `json:"line,omitempty"`
	Column          *int64      `json:"column,omitempty"`
	Pointer         *string     `json:"pointer,omitempty"`
	Errors          []Violation `json:"errors,omitempty"`
	Settled         []Settled   `json:"settled,omitempty"`
	Stale           *int64      `json:"stale,omitempty"`
	Count           *int64      `json:"count,omitempty"`
	Reason          *string     `json:"reason,omitempty"`
	AcceptEncoding  *string     `json:"accept_encoding,omitempty"`
	Fields          []string    `json:"fields,omitempty"`
	Key             *string     `json:"key,omitempty"`
	ResourceVersion *int64      `json:"resource_version,omitempty"`
}

// Violation is a place where an object violates the schema of its queue.
type Violation struct {
	Pointer       string `json:"pointer"`
	SchemaPointer string `json:"schema_pointer"`
	Detail        string `json:"detail"`
}

// Problem is a refusal of the server. errors.Is(err, deltaq.CodeQueueFull) recognises one by its code.
type Problem struct {
	ProblemDocument
	retryAfter time.Duration
}

// Error returns the status, the code, the detail and the hint.
func (problem *Problem) Error() string {
	text := fmt.Sprintf("deltaq: %d %s: %s", problem.Status, problem.Code, problem.Detail)
	if problem.Hint != nil {
		text += "; " + *problem.Hint
	}
	return text
}

// Is reports whether the target is the code of the problem.
func (problem *Problem) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == problem.Code
}

// RetryAfter is how long the server asks to wait before a repeat; 0 if it does not ask.
func (problem *Problem) RetryAfter() time.Duration { return problem.retryAfter }

// ReplyError is a reply that is not from a deltaq server, such as the page of a proxy, or that can't be read.
type ReplyError struct {
	// Server is the URL of the server.
	Server string
	Status int
	// Err is why the reply can't be read; nil for a reply without a problem document.
	Err        error
	isJSON     bool
	retryAfter time.Duration
}

// Error says what is wrong with the reply.
func (err *ReplyError) Error() string {
	if err.Err != nil {
		return fmt.Sprintf("deltaq: the reply of %s with status %d can't be read: %v", err.Server, err.Status, err.Err)
	}
	return fmt.Sprintf("deltaq: the reply of %s with status %d is not from deltaq: check the URL, and whether it begins with https", err.Server, err.Status)
}

// Unwrap returns why the reply can't be read.
func (err *ReplyError) Unwrap() error { return err.Err }

// ConnectionError is a call without a complete reply.
type ConnectionError struct {
	// Server is the URL of the server.
	Server string
	// Sent is false if the call has certainly not reached the server. Otherwise its outcome is unknown.
	Sent bool
	Err  error
}

// Error says why there is no reply.
func (err *ConnectionError) Error() string {
	if err.Sent {
		return fmt.Sprintf("deltaq: no complete reply from %s: %v", err.Server, err.Err)
	}
	text := fmt.Sprintf("deltaq: can't connect to %s: %v", err.Server, err.Err)
	switch {
	case errors.Is(err.Err, http.ErrSchemeMismatch):
		text += "; the server has no TLS, so its URL begins with http"
	case isCertificate(err.Err):
		text += "; check Options.TLS, which has the authorities to trust"
	}
	return text
}

// Unwrap returns the cause.
func (err *ConnectionError) Unwrap() error { return err.Err }

// EncodeError is an object that can't be sent: it can't be written as JSON, such as one with NaN, or there is none. Nothing was sent.
type EncodeError struct{ Err error }

// Error says what can't be written.
func (err *EncodeError) Error() string { return fmt.Sprintf("deltaq: not sent: %v", err.Err) }

// Unwrap returns the error of encoding/json, or of the marshaler of the value.
func (err *EncodeError) Unwrap() error { return err.Err }

// IsRetryable reports whether the same call may succeed later.
func IsRetryable(err error) bool {
	var problem *Problem
	var reply *ReplyError
	var connection *ConnectionError
	switch {
	case errors.As(err, &problem):
		return problem.Retryable
	case errors.As(err, &reply):
		switch reply.Status {
		case 408, 429, 502, 503, 504:
			return true
		}
		return false
	default:
		return errors.As(err, &connection)
	}
}

// isCertificate reports whether a connection has failed at TLS, such as at a certificate that is not trusted, or at a server without TLS. Another attempt of
// the same call would fail, too. A worker goes on, because certificates are renewed while it runs.
func isCertificate(err error) bool {
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var record tls.RecordHeaderError
	return errors.As(err, &certificate) || errors.As(err, &alert) || errors.As(err, &record) || errors.Is(err, http.ErrSchemeMismatch)
}

// isTemporary reports whether an endless loop, such as that of a worker, goes on: the error is retryable, of a token source, or a defect.
func isTemporary(err error) bool {
	var token *tokenError
	return IsRetryable(err) || errors.As(err, &token) || isDefect(err)
}

// isDefect reports whether a reply is a defect of the server or of a proxy.
func isDefect(err error) bool {
	status := statusOf(err)
	var reply *ReplyError
	return status >= 500 || (errors.As(err, &reply) && status < 300)
}

// isOutcomeUnknown reports whether the call may have been applied.
func isOutcomeUnknown(err error) bool {
	var problem *Problem
	var reply *ReplyError
	var connection *ConnectionError
	switch {
	case errors.As(err, &problem):
		switch problem.Code {
		case CodeDraining, CodeRecovering, CodeTooManyConnections, CodeJournalBehind, CodeIndexBuilding:
			return false
		}
		return isDefect(err)
	case errors.As(err, &reply):
		return isDefect(err)
	case errors.As(err, &connection):
		return connection.Sent
	}
	return true
}

// isUndoneHere reports whether a server has done nothing, for a reason that another server need not have: it can't be reached, stops, refuses every
// call, or is no deltaq server.
func isUndoneHere(err error) bool {
	var problem *Problem
	var reply *ReplyError
	var connection *ConnectionError
	switch {
	case errors.As(err, &problem):
		switch problem.Code {
		case CodeDraining, CodeHostNotAllowed, CodeTooManyConnections, CodeUnauthorized:
			return true
		}
		return false
	case errors.As(err, &reply):
		return reply.Status >= 300 && reply.Status < 500 && !IsRetryable(err)
	case errors.As(err, &connection):
		return !connection.Sent
	}
	return false
}

// isOfServer reports whether the next call should go to another server.
func isOfServer(err error) bool {
	var problem *Problem
	var reply *ReplyError
	var connection *ConnectionError
	status := 0
	switch {
	case isUndoneHere(err), errors.As(err, &connection):
		return true
	case errors.As(err, &problem):
		status = problem.Status
	case errors.As(err, &reply):
		status = reply.Status
	}
	return status == 502 || status == 503 || status == 504
}

// retryAfter is how long the server asks to wait before a repeat of the call.
func retryAfter(err error) time.Duration {
	var problem *Problem
	var reply *ReplyError
	switch {
	case errors.As(err, &problem):
		return problem.retryAfter
	case errors.As(err, &reply):
		return reply.retryAfter
	}
	return 0
}

// errorText is the text of an error in a form that the server accepts: UTF-8, and only the end of a long text, because the end says more.
func errorText(err error) string {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	start := max(0, len(text)-errorBytesMax)
	for start < len(text) && !utf8.RuneStart(text[start]) {
		start++
	}
	return text[start:]
}

// errorBytesMax is the longest error of a failed key, which is that of the server. The end of a longer one is sent, because it says more.
const errorBytesMax = 4096
