package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	deltaq "example.com/deltaq/clients/go"
)

// plan is what the target says about the end of a handler.
type plan struct {
	As          string `json:"as"`
	Hold        string `json:"hold"`
	HoldScope   string `json:"hold_scope"`
	Delay       string `json:"delay"`
	Floor       bool   `json:"floor"`
	Error       string `json:"error"`
	Message     string `json:"message"`
	BeforeWrite bool   `json:"before_write"`
}

// target sends each request on a connection of its own, once, and without the context of the handler: its reply may take 30 s.
var target = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func work(ctx context.Context, queue *deltaq.Queue) error {
	lease, err := durationSetting("LEASE")
	if err != nil {
		return err
	}
	concurrency, err := strconv.Atoi(os.Getenv("CONCURRENCY"))
	if err != nil {
		return err
	}
	batch, err := strconv.Atoi(os.Getenv("BATCH"))
	if err != nil {
		return err
	}
	// Without the variable, it is 0.
	breaker, _ := strconv.Atoi(os.Getenv("BREAKER"))
	var group *string
	if name, ok := os.LookupEnv("GROUP"); ok {
		group = &name
	}
	return deltaq.NewWorker(queue, handle, &deltaq.WorkerOptions{
		Name:          os.Getenv("WORKER_NAME"),
		Concurrency:   concurrency,
		Batch:         batch,
		Breaker:       breaker,
		Group:         group,
		LeaseDuration: lease,
		Grace:         10 * time.Second,
	}).Run(ctx)
}

func handle(ctx context.Context, job *deltaq.Job) error {
	body, err := json.Marshal(describe(job))
	if err != nil {
		return err
	}
	reply, err := post("start", body)
	if err != nil {
		return err
	}
	var wanted plan
	if err := json.Unmarshal(reply, &wanted); err != nil {
		return err
	}
	if wanted.BeforeWrite {
		panic(wanted.Message)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, err := post("write", body); err != nil {
		return err
	}
	return outcome(&wanted)
}

func outcome(wanted *plan) error {
	var delay time.Duration
	if text := wanted.Delay + wanted.Hold; text != "" {
		parsed, err := deltaq.ParseDuration(text)
		if err != nil {
			return err
		}
		delay = parsed
	}
	var reason error
	if wanted.Error != "" {
		reason = errors.New(wanted.Error)
	}
	switch wanted.As {
	case "ack":
		return nil
	case "nack":
		return &deltaq.Nack{Err: reason, Delay: delay, Floor: wanted.Floor}
	case "release":
		return &deltaq.Release{Hold: delay, HoldScope: wanted.HoldScope}
	case "reject":
		return &deltaq.Reject{Err: reason}
	case "done":
		return &deltaq.Done{Delay: delay}
	default:
		panic(wanted.Message)
	}
}

func post(path string, body []byte) ([]byte, error) {
	response, err := target.Post(os.Getenv("TARGET_URL")+"/"+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("the target replied %s: %s", response.Status, text)
	}
	return text, err
}

func describe(job *deltaq.Job) map[string]any {
	versions := []string{}
	for _, delta := range job.Deltas {
		versions = append(versions, strconv.FormatInt(delta.ResourceVersion, 10))
	}
	body := map[string]any{
		"worker":   os.Getenv("WORKER_NAME"),
		"key":      job.Key,
		"token":    strconv.FormatInt(job.Token(), 10),
		"attempt":  job.Attempt,
		"lease_id": job.Lease.ID,
		"versions": versions,
		"type":     nil,
		"object":   job.Object(),
	}
	if newest := job.Newest(); newest != nil {
		body["type"] = newest.Type
	}
	return body
}
