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
	for entry, err := range prices.Objects(ctx, deltaq.Latest, nil) {
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
