package deltaq

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
)

// TokenSource returns the token of a call. It is called for each call, and once more if the server has refused a token, so a source that remembers its
// token must notice that the token was replaced. Several goroutines call it at once. An error ends the call; workers, informers and
// reflectors ask again after a pause.
type TokenSource func(ctx context.Context) (string, error)

// tokenError is an error of a token source, such as an identity provider that does not answer for a moment.
type tokenError struct{ error }

// Error says that there is no token.
func (err *tokenError) Error() string { return "deltaq: the token: " + err.error.Error() }

// Unwrap returns the error of the source.
func (err *tokenError) Unwrap() error { return err.error }

// tokens has the token of the calls.
type tokens struct {
	source TokenSource
	file   string
	mutex  sync.Mutex
	text   string
}

func newTokens(options *Options) (*tokens, error) {
	given := 0
	for _, isGiven := range []bool{options.Token != "", options.TokenFile != "", options.TokenSource != nil} {
		if isGiven {
			given++
		}
	}
	if given > 1 {
		return nil, fmt.Errorf("deltaq: a client has only one of Token, TokenFile and TokenSource")
	}
	t := &tokens{source: options.TokenSource, file: options.TokenFile, text: strings.TrimSpace(options.Token)}
	if t.file != "" {
		text, err := os.ReadFile(t.file)
		if err != nil {
			return nil, fmt.Errorf("deltaq: the token: %w", err)
		}
		t.text = strings.TrimSpace(string(text))
	}
	return t, nil
}

func (t *tokens) get(ctx context.Context) (string, error) {
	if t.source != nil {
		token, err := t.source(ctx)
		if err != nil {
			return "", &tokenError{err}
		}
		return strings.TrimSpace(token), nil
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.text, nil
}

// replaced returns the present token, and whether it is another one than the server has refused.
func (t *tokens) replaced(ctx context.Context, refused string) (string, bool) {
	if t.file != "" {
		// The file may be absent or empty for a moment while it is replaced.
		if text, err := os.ReadFile(t.file); err == nil {
			if token := strings.TrimSpace(string(text)); token != "" {
				t.mutex.Lock()
				t.text = token
				t.mutex.Unlock()
			}
		}
	}
	token, err := t.get(ctx)
	return token, err == nil && token != refused
}
