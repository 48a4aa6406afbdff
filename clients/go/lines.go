package deltaq

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
)

// unwritable is the line of an object that can't be written as JSON. It is not JSON, so the server leaves the object out.
const unwritable = "!\n"

// listError is an error of a list, and not of the call that sends it.
type listError struct{ error }

// Unwrap returns the error of the list.
func (err *listError) Unwrap() error { return err.error }

// lines is a list with one object a line.
type lines struct {
	// skipInvalid leaves out objects that can't be written as JSON.
	skipInvalid bool
	text        bytes.Buffer
	count       int64
	// unfit has the reasons for objects that can't be written, by their place in the list.
	unfit map[int64]string
}

func (list *lines) add(object any) error {
	line, err := encode(object)
	if err == nil {
		// A json.RawMessage keeps its line breaks.
		err = compactLine(&list.text, line)
	}
	if err != nil {
		if !list.skipInvalid {
			return ofObject(list.count, err)
		}
		if list.unfit == nil {
			list.unfit = map[int64]string{}
		}
		list.unfit[list.count] = err.Error()
		list.text.WriteString(unwritable)
	}
	list.count++
	return nil
}

func compactLine(text *bytes.Buffer, line []byte) error {
	if bytes.IndexByte(line, '\n') >= 0 {
		if err := json.Compact(text, line); err != nil {
			return &EncodeError{err}
		}
	} else {
		text.Write(line)
	}
	text.WriteByte('\n')
	return nil
}

// end writes the last line, which says that the list is complete.
func (list *lines) end() { fmt.Fprintf(&list.text, "{\"$end\":%d}\n", list.count) }

// fill writes the list, and reports whether it has at most a number of bytes. Otherwise it stops early.
func (list *lines) fill(objects iter.Seq2[any, error], bytesMax int) (bool, error) {
	for object, err := range objects {
		if err != nil {
			return false, &listError{err}
		}
		if err := list.add(object); err != nil {
			return false, err
		}
		if list.text.Len() > bytesMax {
			return false, nil
		}
	}
	list.end()
	return true, nil
}

// listStream is a list that is too long to be kept. Each attempt reads its objects again.
type listStream struct {
	objects iter.Seq2[any, error]
	lines   *lines
	// ended is closed when the list is no longer read; nil before the first attempt.
	ended chan struct{}
	// err is the error of the list itself, once it is no longer read.
	err error
}

// open starts to read the list, once an earlier attempt no longer reads it.
func (stream *listStream) open(ctx context.Context) (io.ReadCloser, error) {
	if err := stream.wait(ctx); err != nil {
		return nil, err
	}
	if stream.err != nil {
		return nil, stream.err
	}
	reader, writer := io.Pipe()
	*stream.lines = lines{skipInvalid: stream.lines.skipInvalid}
	read := make(chan struct{})
	stream.ended = read
	go func() {
		defer close(read)
		writer.CloseWithError(stream.send(ctx, writer))
	}()
	return reader, nil
}

// wait waits until no attempt reads the list: its iterator is called by one goroutine at a time, and not after the end of the call.
func (stream *listStream) wait(ctx context.Context) error {
	if stream.ended == nil {
		return nil
	}
	select {
	case <-stream.ended:
		return nil
	case <-ctx.Done():
		return ended(ctx, nil)
	}
}

// failure waits until the list is no longer read, and returns the error of the list.
func (stream *listStream) failure(ctx context.Context) error {
	if stream.ended == nil || stream.wait(ctx) != nil {
		return nil
	}
	return stream.err
}

func (stream *listStream) send(ctx context.Context, to io.Writer) error {
	text := &stream.lines.text
	for object, err := range stream.objects {
		if err == nil {
			err = stream.lines.add(object)
		} else {
			err = &listError{err}
		}
		if err != nil {
			stream.err = err
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if text.Len() >= 64<<10 {
			if _, err := text.WriteTo(to); err != nil {
				return err
			}
		}
	}
	stream.lines.end()
	_, err := text.WriteTo(to)
	return err
}

// explain puts the reasons for objects that could not be written into the reply, because the server has only received a broken line.
func (list *lines) explain(produced *Produced) {
	for index := range produced.InvalidObjects {
		invalid := &produced.InvalidObjects[index]
		if reason, ok := list.unfit[invalid.Index]; ok {
			invalid.Detail = reason
		}
	}
}
