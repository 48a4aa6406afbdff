// Wire has readers and callers of a resource of a Kubernetes API, made with unmodified client-go and controller-runtime. The judge of the Kubernetes wire
// runs them on deltaq and on a real API server.
//
//	wire read KIND      keeps a store; each line "dump" on stdin prints it as a line of JSON; the end of stdin ends the program
//	wire calls          makes calls with all outcomes that matter, and prints the faults
//	wire pages          lists a resource in pages while the caller changes it, and prints the objects and the faults
//	wire load           creates objects, as many as -objects says, until so many exist
//	wire measure        runs many informers, and prints the time until they have synced, and the bytes
//
// KUBECONFIG names the server. KUBE_FEATURE_WatchListClient=true or false selects how client-go reads the initial objects.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

var (
	resource  = flag.String("resource", "prices", "plural name of the resource")
	namespace = flag.String("namespace", "", "namespace; empty for all")
	selector  = flag.String("selector", "", "label selector")
	server    = flag.String("server", "deltaq", "deltaq or real: some answers differ, and are meant to")
	page      = flag.Int64("page", 500, "objects in a page")
	informers = flag.Int("informers", 100, "informers that are measured")
	objects   = flag.Int("objects", 10_000, "objects that each of them must get")
)

// Kinds by their plural names.
var kinds = map[string]string{"prices": "Price", "rates": "Rate"}

func gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "shop.example", Version: "v1", Resource: *resource}
}

func main() {
	klog.InitFlags(nil)
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	check(err)
	// The judge asks for much in a short time.
	config.QPS, config.Burst = 10_000, 10_000
	switch flag.Arg(0) {
	case "read":
		read(config, flag.Arg(1))
	case "calls":
		calls(config)
	case "pages":
		pages(config)
	case "load":
		load(config)
	case "measure":
		measure(config)
	default:
		flag.Usage()
		os.Exit(2)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "wire:", err)
		os.Exit(1)
	}
}

// What a reader has, as it is printed.
type dump struct {
	Synced bool                      `json:"synced"`
	Store  map[string]map[string]any `json:"store"`
	Faults []string                  `json:"faults"`
	Counts map[string]int            `json:"counts"`
}

func read(config *rest.Config, kind string) {
	start, known := readers[kind]
	if !known {
		fmt.Fprintf(os.Stderr, "wire: no reader %q\n", kind)
		os.Exit(2)
	}
	state := start(config)
	lines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if lines.Text() == "dump" {
			check(out.Encode(state()))
		}
	}
}

func keyOf(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}

func waitUntil(seconds int, holds func() bool) bool {
	for range seconds * 20 {
		if holds() {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}
