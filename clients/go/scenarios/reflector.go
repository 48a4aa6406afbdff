package main

import (
	"context"
	"errors"
	"os"

	deltaq "example.com/deltaq/clients/go"
)

func reflect(ctx context.Context, queue *deltaq.Queue) error {
	reflector := deltaq.NewReflector(queue, os.Getenv("SOURCE"), nil)
	for command := range commands(ctx) {
		reply, err := reflectOnce(ctx, reflector, &command)
		var problem *deltaq.Problem
		var lost *deltaq.LostError
		switch {
		case err == nil:
			report("applied", map[string]any{"duplicate": reply.Duplicate, "invalid": reply.Invalid})
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &lost):
			report("lost", map[string]any{})
		case errors.As(err, &problem) && !problem.Retryable:
			report("refused", map[string]any{"code": problem.Code})
		default:
			return err
		}
	}
	return nil
}

func reflectOnce(ctx context.Context, reflector *deltaq.Reflector, command *command) (*deltaq.Produced, error) {
	if command.Command == "list" {
		return reflector.Replace(ctx, deltaq.Objects(command.Objects))
	}
	var changes []deltaq.DeltaCall
	for _, delta := range command.Deltas {
		change := deltaq.DeltaCall{Type: delta.Type, Key: delta.Key}
		if delta.Object != nil {
			change.Object = delta.Object
		}
		changes = append(changes, change)
	}
	return reflector.Apply(ctx, changes...)
}
