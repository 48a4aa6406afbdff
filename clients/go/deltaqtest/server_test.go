package deltaqtest_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	deltaq "example.com/deltaq/clients/go"
	"example.com/deltaq/clients/go/deltaqtest"
)

func find(t *testing.T) {
	t.Helper()
	if _, err := deltaqtest.Find(); err != nil {
		t.Skip(err)
	}
}

func TestAServerKeepsNothingUnlessItHasAFolder(t *testing.T) {
	find(t)
	ctx := context.Background()
	for _, folder := range []string{"", t.TempDir()} {
		first := deltaqtest.Start(t, &deltaqtest.Options{DataDir: folder})
		if _, err := first.Client().Queue("q").Add(ctx, map[string]string{"key": "a"}, nil); err != nil {
			t.Fatal(err)
		}
		first.Kill()
		second, err := deltaqtest.Run(ctx, &deltaqtest.Options{DataDir: folder})
		if err != nil {
			t.Fatal(err)
		}
		_, err = second.Client().Queue("q").Get(ctx)
		if isKept := err == nil; isKept != (folder != "") {
			t.Errorf("in the folder %q: %v", folder, err)
		}
		if err := second.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestSettingsReachTheServer(t *testing.T) {
	find(t)
	server := deltaqtest.Start(t, &deltaqtest.Options{Settings: map[string]string{"queues.auto_create": "false"}})
	if _, err := server.Client().Queue("q").Add(context.Background(), map[string]string{"key": "a"}, nil); !errors.Is(err, deltaq.CodeQueueNotFound) {
		t.Error(err)
	}
}

func TestAServerThatDoesNotStartSaysWhy(t *testing.T) {
	find(t)
	_, err := deltaqtest.Run(context.Background(), &deltaqtest.Options{Settings: map[string]string{"server.max_wait": "soon"}})
	if err == nil || !strings.Contains(err.Error(), "max_wait") {
		t.Error(err)
	}
	if _, err := deltaqtest.Run(context.Background(), &deltaqtest.Options{Binary: "/nowhere/deltaq"}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestAScriptThatStartsTheServerEndsWithIt(t *testing.T) {
	find(t)
	binary, err := deltaqtest.Find()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "deltaq")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n'"+binary+"' \"$@\"\nexit $?\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(*deltaqtest.Server) error{
		"kill": func(server *deltaqtest.Server) error { server.Kill(); return nil },
		"stop": (*deltaqtest.Server).Stop,
	} {
		t.Setenv("DELTAQ_BIN", "")
		t.Setenv("PATH", filepath.Dir(script)+":"+os.Getenv("PATH"))
		server, err := deltaqtest.Run(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := end(server); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s took %v", name, took)
		}
		if reply, err := http.Get(server.URL + "/livez"); err == nil {
			reply.Body.Close()
			t.Errorf("after %s the server still runs", name)
		}
	}
}

func TestWithoutAProgramTheErrorSaysHowToGetIt(t *testing.T) {
	t.Setenv("DELTAQ_BIN", "")
	t.Setenv("PATH", t.TempDir())
	if _, err := deltaqtest.Run(context.Background(), nil); err == nil || !strings.Contains(err.Error(), "DELTAQ_BIN") || !strings.Contains(err.Error(), "PATH") {
		t.Error(err)
	}
}

func TestAServerEndsWithTheProcessThatHasStartedIt(t *testing.T) {
	find(t)
	const variable = "TEST_STARTS_A_SERVER"
	if os.Getenv(variable) != "" {
		server, err := deltaqtest.Run(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString(server.URL + "\n")
		os.Exit(0)
	}
	command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	command.Env = append(os.Environ(), variable+"=1")
	text, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(string(text))
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		reply, err := http.Get(url + "/livez")
		if err != nil {
			return
		}
		reply.Body.Close()
		if time.Now().After(end) {
			t.Fatal("the server still runs")
		}
	}
}
