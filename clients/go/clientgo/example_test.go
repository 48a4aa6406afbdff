package clientgo_test

import (
	"context"
	"fmt"
	"log"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	deltaq "example.com/deltaq/clients/go"
	"example.com/deltaq/clients/go/clientgo"
)

func ExampleQueue() {
	ctx := context.Background()
	client, err := deltaq.New(url, nil)
	if err != nil {
		log.Fatal(err)
	}
	queue := clientgo.NewQueue(ctx, client.Queue("orders"), nil)
	queue.Add("order-1")
	for {
		key, shutdown := queue.Get()
		if shutdown {
			break
		}
		if queue.NumRequeues(key) < 2 {
			fmt.Println(key, "fails")
			queue.AddRateLimited(key)
		} else {
			fmt.Println(key, "is delivered")
			queue.Forget(key)
			queue.ShutDown()
		}
		queue.Done(key)
	}
	// Output:
	// order-1 fails
	// order-1 fails
	// order-1 is delivered
}

func ExampleNewListWatch() {
	client, err := deltaq.New(url, nil)
	if err != nil {
		log.Fatal(err)
	}
	cities := client.Queue("cities")
	list := []map[string]string{{"key": "rome", "country": "it"}, {"key": "oslo", "country": "no"}, {"key": "pisa", "country": "it"}}
	if _, err := cities.Add(context.Background(), list, nil); err != nil {
		log.Fatal(err)
	}
	byCountry := cache.Indexers{"country": func(object any) ([]string, error) {
		country, _, err := unstructured.NestedString(object.(*unstructured.Unstructured).Object, "country")
		return []string{country}, err
	}}
	informer := cache.NewSharedIndexInformer(clientgo.NewListWatch(cities, nil), &unstructured.Unstructured{}, 0, byCountry)
	stop := make(chan struct{})
	defer close(stop)
	go informer.Run(stop)
	cache.WaitForCacheSync(stop, informer.HasSynced)
	italian, err := informer.GetIndexer().IndexKeys("country", "it")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(italian), "of", len(informer.GetStore().ListKeys()))
	// Output:
	// 2 of 3
}
