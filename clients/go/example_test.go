package deltaq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"time"

	deltaq "example.com/deltaq/clients/go"
)

type Price struct {
	Key   string      `json:"key"`
	Price json.Number `json:"price,omitempty"`
}

func ExampleClient() {
	ctx := context.Background()
	client, err := deltaq.New(url, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	prices := client.Queue("prices")
	if _, err := prices.Add(ctx, Price{"sku-1", "1.10"}, nil); err != nil {
		log.Fatal(err)
	}
	list := []Price{{"sku-1", "1.10"}, {"sku-2", "7"}}
	reply, err := prices.Replace(ctx, deltaq.Objects(list), &deltaq.ReplaceOptions{Source: "erp", OnlyChanged: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Replaced, reply.Unchanged)
	for entry, err := range prices.Latest(ctx, nil) {
		if err != nil {
			log.Fatal(err)
		}
		price, err := deltaq.Decode[Price](entry.Object)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(entry.Key, price.Price)
	}
	_, err = prices.Add(ctx, map[string]int{"price": 3}, nil)
	var problem *deltaq.Problem
	if errors.As(err, &problem) {
		fmt.Println(problem.Status, problem.Code, errors.Is(err, deltaq.CodeNoKey))
	}
	// Output:
	// 1 1
	// sku-1 1.10
	// sku-2 7
	// 422 no-key true
}

func ExampleWorker() {
	ctx := context.Background()
	client, err := deltaq.New(url, nil)
	if err != nil {
		log.Fatal(err)
	}
	offers := client.Queue("offers")
	if _, err := offers.Add(ctx, []Price{{"sku-1", "10"}, {"sku-2", "-7"}}, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := offers.Close(ctx, nil); err != nil {
		log.Fatal(err)
	}
	handle := func(ctx context.Context, job *deltaq.Job) error {
		if job.IsDeleted() {
			fmt.Println("delete", job.Key)
			return nil
		}
		offer, err := deltaq.Decode[Price](job.Object())
		if err != nil {
			return err
		}
		if strings.HasPrefix(offer.Price.String(), "-") {
			return &deltaq.Reject{Err: errors.New("a negative price")}
		}
		fmt.Println("store", job.Key, offer.Price)
		return nil
	}
	if err := deltaq.NewWorker(offers, handle, nil).Run(ctx); err != nil {
		log.Fatal(err)
	}
	parked, err := offers.ItemsPage(ctx, &deltaq.ItemsOptions{States: []string{"parked"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(*parked.Items[0].LastError)
	// Output:
	// store sku-1 10
	// a negative price
}

func ExampleQueue_PatchSettings() {
	ctx := context.Background()
	client, err := deltaq.New(url, nil)
	if err != nil {
		log.Fatal(err)
	}
	mails := client.Queue("mails")
	seen, err := mails.PutSettings(ctx, deltaq.QueueSettings{MaxFailures: deltaq.Ptr(int64(3))}, nil)
	if err != nil {
		log.Fatal(err)
	}
	longer := deltaq.QueueSettings{Lease: deltaq.Duration(2 * time.Minute)}
	changed, err := mails.PatchSettings(ctx, longer, &deltaq.PatchOptions{IfMatch: seen.ETag})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(changed.Settings.Lease, *changed.Settings.MaxFailures)
	_, err = mails.PatchSettings(ctx, longer, &deltaq.PatchOptions{IfMatch: seen.ETag})
	fmt.Println(errors.Is(err, deltaq.CodePreconditionFailed))
	// Output:
	// 2m0s 3
	// true
}

func ExampleInformer() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client, err := deltaq.New(url, nil)
	if err != nil {
		log.Fatal(err)
	}
	cities := client.Queue("cities")
	list := []map[string]string{{"key": "rome", "country": "it"}, {"key": "oslo", "country": "no"}, {"key": "pisa", "country": "it"}}
	if _, err := cities.Add(ctx, list, nil); err != nil {
		log.Fatal(err)
	}
	informer := deltaq.NewInformer(cities, &deltaq.InformerOptions{
		Indexes: map[string]deltaq.IndexFunc{"by_country": deltaq.PointerIndex("/country")},
	})
	handlers := informer.AddHandler(deltaq.Handlers{
		OnAdd: func(object *deltaq.Object, isInInitialList bool) { fmt.Println("add", object.Key) },
	})
	go func() {
		if err := informer.Run(ctx); err != nil {
			log.Fatal(err)
		}
	}()
	if err := deltaq.WaitForCacheSync(ctx, informer, handlers); err != nil {
		log.Fatal(err)
	}
	for _, object := range informer.Store().ByIndex("by_country", "it") {
		fmt.Println(object.Key)
	}
	// Output:
	// add oslo
	// add pisa
	// add rome
	// pisa
	// rome
}

func ExampleReflector() {
	ctx := context.Background()
	client, err := deltaq.New(url, nil)
	if err != nil {
		log.Fatal(err)
	}
	hosts := client.Queue("hosts")
	type Host struct {
		Key string `json:"key"`
		Up  bool   `json:"up"`
	}
	source := deltaq.NewReflector(hosts, "inventory", nil)
	if _, err := source.Replace(ctx, deltaq.Objects([]Host{{"web-1", false}, {"web-2", false}})); err != nil {
		log.Fatal(err)
	}
	up := deltaq.DeltaCall{Type: deltaq.Updated, Object: Host{"web-1", true}}
	gone := deltaq.DeltaCall{Type: deltaq.Deleted, Key: "web-2"}
	if _, err := source.Apply(ctx, up, gone); err != nil {
		log.Fatal(err)
	}
	for entry, err := range hosts.Latest(ctx, nil) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(entry.Object))
	}
	// Output:
	// {"key":"web-1","up":true}
}

func ExampleQueue_Watch() {
	ctx := context.Background()
	client, err := deltaq.New(url, nil)
	if err != nil {
		log.Fatal(err)
	}
	rooms := client.Queue("rooms")
	if _, err := rooms.Add(ctx, []Price{{Key: "a"}, {Key: "b"}}, nil); err != nil {
		log.Fatal(err)
	}
	var keys []string
	for row, err := range rooms.Watch(ctx, nil) {
		if err != nil {
			log.Fatal(err)
		}
		if row.InitialEventsEnd {
			break
		}
		keys = append(keys, row.Key)
	}
	slices.Sort(keys)
	fmt.Println(keys)
	// Output: [a b]
}
