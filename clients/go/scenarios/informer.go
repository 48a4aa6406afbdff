package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	deltaq "example.com/deltaq/clients/go"
)

func inform(ctx context.Context, queue *deltaq.Queue) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resync, err := durationSetting("RESYNC")
	if err != nil {
		return err
	}
	bookmark, err := durationSetting("BOOKMARK")
	if err != nil {
		return err
	}
	options := &deltaq.InformerOptions{View: deltaq.View(os.Getenv("VIEW")), Resync: resync, Bookmark: bookmark}
	if name, pointer, isGiven := strings.Cut(os.Getenv("INDEX"), "="); isGiven {
		options.Indexes = map[string]deltaq.IndexFunc{name: deltaq.PointerIndex(pointer)}
	}
	informer := deltaq.NewInformer(queue, options)
	handlers := 0
	add := func() {
		handlers++
		number := handlers
		registration := informer.AddHandler(reporting(number))
		go func() {
			if deltaq.WaitForCacheSync(ctx, registration) == nil {
				report("synced", map[string]any{"handler": number})
			}
		}()
	}
	add()
	ended := make(chan error, 1)
	go func() { ended <- informer.Run(ctx) }()
	given := commands(ctx)
	for {
		select {
		case err := <-ended:
			return err
		case command, ok := <-given:
			if !ok {
				cancel()
				return <-ended
			}
			if command.Command == "handler" {
				add()
			} else {
				answer(ctx, informer, &command)
			}
		}
	}
}

func answer(ctx context.Context, informer *deltaq.Informer, command *command) {
	store := informer.Store()
	switch command.Command {
	case "store":
		objects := map[string]any{}
		for _, object := range store.List() {
			objects[object.Key] = object.Object
		}
		report("store", map[string]any{"objects": objects})
	case "index":
		keys := []string{}
		for _, object := range store.ByIndex(command.Name, command.Value) {
			keys = append(keys, object.Key)
		}
		report("index", map[string]any{"keys": keys})
	case "get":
		members := map[string]any{"object": nil}
		if object, ok := store.Get(command.Key); ok {
			members["object"] = object.Object
		}
		report("get", members)
	case "wait_for_sync":
		go func() {
			if deltaq.WaitForCacheSync(ctx, informer) == nil {
				report("cache_synced", map[string]any{})
			}
		}()
	default:
		fmt.Fprintf(os.Stderr, "unknown command %q\n", command.Command)
	}
}

func reporting(number int) deltaq.Handlers {
	return deltaq.Handlers{
		OnAdd: func(object *deltaq.Object, isInInitialList bool) {
			report("add", map[string]any{"handler": number, "key": object.Key, "object": object.Object, "is_in_initial_list": isInInitialList})
		},
		OnUpdate: func(old, new *deltaq.Object) {
			report("update", map[string]any{"handler": number, "key": new.Key, "old": old.Object, "new": new.Object})
		},
		OnDelete: func(object *deltaq.Object, isFinalStateUnknown bool) {
			report("delete", map[string]any{"handler": number, "key": object.Key, "object": object.Object, "final_state_unknown": isFinalStateUnknown})
		},
	}
}
