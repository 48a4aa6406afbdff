// Informer runs an informer of client-go for a resource of a Kubernetes API, and prints the arrival of each object as a line of JSON. The judge of
// `deltaq reflect --kubernetes` compares it with deltaq.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// An arrival of an object, or of its deletion.
type arrival struct {
	Type            string `json:"type"`
	Key             string `json:"key"`
	ResourceVersion string `json:"resourceVersion"`
	// The member data.number, by which a change is known although versions may go back.
	Number string `json:"number"`
	// Seconds since 1970.
	Time float64 `json:"time"`
}

func main() {
	server := flag.String("server", "", "URL of the API server")
	authority := flag.String("ca-file", "", "certificate of its authority")
	token := flag.String("token-file", "", "file with the token")
	namespace := flag.String("namespace", "", "namespace; empty for all")
	resource := flag.String("resource", "configmaps", "resource of the API v1")
	flag.Parse()

	config := &rest.Config{Host: *server, BearerTokenFile: *token, TLSClientConfig: rest.TLSClientConfig{CAFile: *authority}}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	of := schema.GroupVersionResource{Version: "v1", Resource: *resource}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, of, *namespace, 0, cache.Indexers{}, nil).Informer()

	var lock sync.Mutex
	lines := json.NewEncoder(os.Stdout)
	arrives := func(kind string, object any) {
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		found, ok := object.(*unstructured.Unstructured)
		if !ok {
			log.Fatalf("an object of the type %T", object)
		}
		number, _, _ := unstructured.NestedString(found.Object, "data", "number")
		key := found.GetNamespace() + "/" + found.GetName()
		now := float64(time.Now().UnixMicro()) / 1e6
		lock.Lock()
		defer lock.Unlock()
		if err := lines.Encode(arrival{kind, key, found.GetResourceVersion(), number, now}); err != nil {
			log.Fatal(err)
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { arrives("Added", object) },
		UpdateFunc: func(_, object any) { arrives("Updated", object) },
		DeleteFunc: func(object any) { arrives("Deleted", object) },
	})
	if err != nil {
		log.Fatal(err)
	}

	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	stop := make(chan struct{})
	go func() {
		<-ended
		close(stop)
	}()
	informer.Run(stop)
}
