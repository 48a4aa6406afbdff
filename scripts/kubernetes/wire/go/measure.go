package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var received atomic.Int64

type counted struct{ net.Conn }

func (c counted) Read(buffer []byte) (int, error) {
	count, err := c.Conn.Read(buffer)
	received.Add(int64(count))
	return count, err
}

// Many informers, each with a connection of its own, as if each were a process. They keep little of an object, so that the memory of this program does
// not limit them.
func measure(config *rest.Config) {
	began, stop := time.Now(), make(chan struct{})
	synced := make(chan time.Duration, *informers)
	for range *informers {
		own := rest.CopyConfig(config)
		// A dialer makes the transport its own.
		own.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			connection, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return counted{connection}, nil
		}
		informer := measured(own)
		check(informer.SetTransform(func(object any) (any, error) { return small(object), nil }))
		go informer.Run(stop)
		go func() {
			for !informer.HasSynced() || len(informer.GetStore().ListKeys()) < *objects {
				time.Sleep(10 * time.Millisecond)
			}
			synced <- time.Since(began)
		}()
	}
	var first, last time.Duration
	for number := range *informers {
		select {
		case last = <-synced:
		case <-time.After(10 * time.Minute):
			check(io.ErrNoProgress)
		}
		if number == 0 {
			first = last
		}
	}
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"first_s": first.Seconds(), "last_s": last.Seconds(), "received_bytes": received.Load(), "protocol": protocol(config),
	}))
	// The driver reads the figures of the servers before it ends the informers.
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func small(object any) any {
	meta, ok := object.(metav1.Object)
	if !ok {
		return object
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: meta.GetName(), Namespace: meta.GetNamespace(), ResourceVersion: meta.GetResourceVersion(),
	}}
}

func measured(config *rest.Config) cache.SharedIndexInformer {
	if os.Getenv("WIRE_METADATA") != "" {
		client, err := metadata.NewForConfig(config)
		check(err)
		return metadatainformer.NewFilteredMetadataInformer(client, gvr(), *namespace, 0, cache.Indexers{}, nil).Informer()
	}
	client, err := dynamic.NewForConfig(config)
	check(err)
	return dynamicinformer.NewFilteredDynamicInformer(client, gvr(), *namespace, 0, cache.Indexers{}, nil).Informer()
}

// The version of HTTP that the server speaks with client-go.
func protocol(config *rest.Config) string {
	client, err := rest.HTTPClientFor(config)
	check(err)
	reply, err := client.Do(must(http.NewRequest(http.MethodGet, config.Host+"/version", nil)))
	check(err)
	defer func() { _ = reply.Body.Close() }()
	return reply.Proto
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

// Creates objects, 50 at once.
func load(config *rest.Config) {
	api, numbers, done := client(config), make(chan int), make(chan struct{})
	for range 50 {
		go func() {
			for number := range numbers {
				object := priced(fmt.Sprintf("load-%06d", number), int64(number))
				check(unstructured.SetNestedField(object.Object, strings.Repeat(fmt.Sprintf("%06d ", number*7919%1_000_000), 40), "spec", "text"))
				_, err := api.Create(context.Background(), object, metav1.CreateOptions{})
				if !apierrors.IsAlreadyExists(err) {
					check(err)
				}
			}
			done <- struct{}{}
		}()
	}
	for number := range *objects {
		numbers <- number
	}
	close(numbers)
	for range 50 {
		<-done
	}
}
