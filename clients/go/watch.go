package deltaq

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"
)

const (
	// bookmarkDefault is the interval of bookmarks if the watch does not set it.
	bookmarkDefault = 15 * time.Second
	// silentHalves is the number of half intervals after which a silent stream is lost.
	silentHalves = 5
)

// Watch iterates over the changes of a view, on one stream. It ends without an error when the server ends the stream, which it does after some minutes,
// and with an error if the connection is lost or the server refuses to go on. It does not connect again.
func (q *Queue) Watch(ctx context.Context, options *WatchOptions) iter.Seq2[*WatchRow, error] {
	given := copied(options)
	return func(yield func(*WatchRow, error) bool) {
		err := q.watch(ctx, &given, func(row *WatchRow) bool { return yield(row, nil) })
		if err != nil {
			yield(nil, err)
		}
	}
}

// watch calls a function with each row, until the function returns false or the stream ends.
func (q *Queue) watch(ctx context.Context, options *WatchOptions, yield func(*WatchRow) bool) error {
	call, err := q.call(http.MethodGet, "/watch")
	if err != nil {
		return err
	}
	call.query, call.accept = options.query(), "application/x-ndjson"
	response, exchange, err := q.client.openAnywhere(ctx, call)
	if err != nil {
		return err
	}
	defer exchange.done()
	defer response.Body.Close()
	if options.Opened != nil {
		options.Opened()
	}
	patience := or(options.Bookmark, bookmarkDefault) * silentHalves / 2
	silent := time.AfterFunc(patience, func() { exchange.cancel(fmt.Errorf("%w: the stream is silent for %v", errSilence, patience)) })
	defer silent.Stop()
	reader := bufio.NewReader(response.Body)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the stream ended in the middle of a line")
			}
			q.client.servers.leave(exchange.server, q.name)
			return exchange.failure(ctx, err, true)
		}
		exchange.server.hear()
		silent.Reset(patience)
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		row, err := rowOf(exchange.server.base, line)
		if err != nil {
			return err
		}
		// The caller may take its time: only the server must not be silent.
		silent.Stop()
		if !yield(row) {
			return nil
		}
		silent.Reset(patience)
	}
}
