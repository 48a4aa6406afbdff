package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"

	deltaq "example.com/deltaq/clients/go"
)

func produce(ctx context.Context, queue *deltaq.Queue) error {
	for command := range commands(ctx) {
		queued, isDuplicate, err := produceOnce(ctx, queue, &command)
		var problem *deltaq.Problem
		switch {
		case err == nil:
			report("reply", map[string]any{"queued": queued, "duplicate": isDuplicate})
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &problem):
			report("error", map[string]any{"code": problem.Code, "status": problem.Status, "retryable": problem.Retryable})
		default:
			report("error", map[string]any{"code": nil, "status": nil, "retryable": deltaq.IsRetryable(err)})
		}
	}
	return nil
}

func produceOnce(ctx context.Context, queue *deltaq.Queue, command *command) (queued int64, isDuplicate bool, err error) {
	options := &deltaq.ProduceOptions{}
	if command.Sequence != "" {
		if options.Sequence, err = strconv.ParseInt(command.Sequence, 10, 64); err != nil {
			return 0, false, err
		}
		options.Source = os.Getenv("SOURCE")
	}
	var produced *deltaq.Produced
	switch command.Command {
	case "add":
		produced, err = queue.Add(ctx, command.Objects, options)
	case "update":
		produced, err = queue.Update(ctx, command.Objects, options)
	case "delete":
		produced, err = queue.DeleteKey(ctx, command.Key, options)
	case "purge":
		_, err = queue.Purge(ctx)
		return 0, false, err
	case "remove":
		return 0, false, queue.DeleteQueue(ctx, nil)
	default:
		replaced, err := queue.Replace(ctx, deltaq.Objects(command.Objects), &deltaq.ReplaceOptions{Source: options.Source, Sequence: options.Sequence})
		if err != nil {
			return 0, false, err
		}
		return replaced.Queued, replaced.Duplicate, nil
	}
	if err != nil {
		return 0, false, err
	}
	return produced.Queued, produced.Duplicate, nil
}

func read(ctx context.Context, queue *deltaq.Queue) error {
	for command := range commands(ctx) {
		key, object, err := readOnce(ctx, queue, &command)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, deltaq.CodeKeyNotFound):
			report("read", map[string]any{"key": nil, "object": nil})
		case err != nil:
			return err
		default:
			report("read", map[string]any{"key": key, "object": object})
		}
	}
	return nil
}

// readOnce returns the key and the object of a reply.
func readOnce(ctx context.Context, queue *deltaq.Queue, command *command) (key *string, object json.RawMessage, err error) {
	switch command.Command {
	case "item":
		item, err := queue.Item(ctx, command.Key, nil)
		if err != nil {
			return nil, nil, err
		}
		return &item.Key, item.Deltas[len(item.Deltas)-1].Object, nil
	case "latest", "known":
		object := queue.LatestObject
		if command.Command == "known" {
			object = queue.KnownObject
		}
		found, _, err := object(ctx, command.Key, nil)
		if err != nil {
			return nil, nil, err
		}
		return &found.Key, found.Object, nil
	case "explain":
		explanation, err := queue.Explain(ctx, command.Key)
		if err != nil {
			return nil, nil, err
		}
		return &explanation.Key, nil, nil
	default:
		for event, err := range queue.History(ctx, command.Key, nil) {
			if err != nil {
				return nil, nil, err
			}
			if event.Event == "appended" {
				return nil, event.Object, nil
			}
		}
		return nil, nil, nil
	}
}
