// Package deltaqtest starts a real deltaq server for tests: in memory, on a free port of 127.0.0.1.
package deltaqtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	deltaq "example.com/deltaq/clients/go"
)

// outputMax is how long the output of a program that has ended is read on, if something that it has started holds it open.
const outputMax = time.Second

// Options are options of a server. The zero value of each field is its default.
type Options struct {
	// Binary is the program. Empty means the variable DELTAQ_BIN or, without it, deltaq in the PATH.
	Binary string
	// DataDir keeps the data of the server. Empty means in memory.
	DataDir string
	// Listen is the address of the server. Empty means a free port of 127.0.0.1.
	Listen string
	// Settings are settings of the server by their names in its configuration, such as server.max_wait.
	Settings map[string]string
	// Ready is how long the server may take until it takes calls. Zero means 30 s.
	Ready time.Duration
}

// Server is a running server.
type Server struct {
	// URL is for [deltaq.New].
	URL     string
	process *exec.Cmd
	log     *output
	ended   chan struct{}
	err     error
	folder  string
	// unguard ends the process that ends the server if this one ends without it.
	unguard func()
	// isKilled is true once the caller has killed the server.
	isKilled atomic.Bool
}

// Find returns the path of the program: DELTAQ_BIN or, without it, deltaq in the PATH.
func Find() (string, error) {
	if binary := os.Getenv("DELTAQ_BIN"); binary != "" {
		return binary, nil
	}
	binary, err := exec.LookPath("deltaq")
	if err != nil {
		return "", errors.New("deltaqtest: there is no deltaq program: install it, for example with pip install deltaq-server, and put it into the PATH, " +
			"or set DELTAQ_BIN to its path")
	}
	return binary, nil
}

// Start starts a server for a test, and stops it after the test. If the test fails, the log of the server is in its output.
func Start(t testing.TB, options *Options) *Server {
	t.Helper()
	server, err := Run(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("%v", err)
		}
		if log := server.Log(); t.Failed() && log != "" {
			t.Logf("the log of the deltaq server:\n%s", log)
		}
	})
	return server
}

// Run starts a server and waits until it takes calls. The caller stops it.
func Run(ctx context.Context, options *Options) (*Server, error) {
	if options == nil {
		options = &Options{}
	}
	binary := options.Binary
	if binary == "" {
		found, err := Find()
		if err != nil {
			return nil, err
		}
		binary = found
	}
	folder, err := os.MkdirTemp("", "deltaqtest-")
	if err != nil {
		return nil, fmt.Errorf("deltaqtest: %w", err)
	}
	ready := filepath.Join(folder, "ready")
	listen := options.Listen
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	arguments := []string{"serve", "--listen", listen, "--metrics-listen", "", "--ready-file", ready, "--log-level", "warn"}
	if options.DataDir == "" {
		arguments = append(arguments, "--in-memory")
	} else {
		arguments = append(arguments, "--data-dir", options.DataDir)
	}
	server := &Server{process: exec.Command(binary, arguments...), log: &output{}, ended: make(chan struct{}), folder: folder}
	server.process.Env = environment(options.Settings)
	server.process.Stdout, server.process.Stderr = server.log, server.log
	// What the program has started may hold its output open.
	server.process.WaitDelay = outputMax
	ownGroup(server.process)
	if err := server.process.Start(); err != nil {
		os.RemoveAll(folder)
		return nil, fmt.Errorf("deltaqtest: can't start %s: %w", binary, err)
	}
	server.unguard = guard(server.process.Process.Pid)
	go func() {
		if err := server.process.Wait(); !errors.Is(err, exec.ErrWaitDelay) {
			server.err = err
		}
		close(server.ended)
	}()
	patience := options.Ready
	if patience == 0 {
		patience = 30 * time.Second
	}
	if err := server.wait(ctx, ready, patience); err != nil {
		server.Kill()
		return nil, err
	}
	return server, nil
}

// environment is that of this process without the settings of other servers, and with these.
func environment(settings map[string]string) []string {
	var variables []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "DELTAQ_") {
			variables = append(variables, variable)
		}
	}
	// The end of a server does not wait for the keys that a test has leased.
	merged := map[string]string{"server.shutdown_timeout": "200ms"}
	maps.Copy(merged, settings)
	for name, value := range merged {
		name = strings.ToUpper(strings.ReplaceAll(name, ".", "__"))
		variables = append(variables, "DELTAQ_"+name+"="+value)
	}
	return variables
}

func (s *Server) wait(ctx context.Context, ready string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		if text, err := os.ReadFile(ready); err == nil {
			var addresses struct {
				API string `json:"api"`
			}
			if json.Unmarshal(text, &addresses) == nil && addresses.API != "" {
				s.URL = "http://" + addresses.API
				return nil
			}
		}
		select {
		case <-poll.C:
		case <-s.ended:
			return fmt.Errorf("deltaqtest: the server did not start: %v\n%s", s.err, s.Log())
		case <-ctx.Done():
			return fmt.Errorf("deltaqtest: the server is not ready: %w\n%s", ctx.Err(), s.Log())
		}
	}
}

// Client returns a new client of the server.
func (s *Server) Client() *deltaq.Client {
	client, err := deltaq.New(s.URL, nil)
	if err != nil {
		// The server has named its own address.
		panic(err)
	}
	return client
}

// Log returns what the server has written so far: warnings and errors.
func (s *Server) Log() string { return s.log.String() }

// Stop ends the server gracefully, as a deployment does, and waits for its end. After Kill, it does nothing.
func (s *Server) Stop() error {
	if s.isKilled.Load() {
		return nil
	}
	isRunning := true
	select {
	case <-s.ended:
		isRunning = false
	default:
	}
	if err := interrupt(s.process.Process.Pid); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.Kill()
		return fmt.Errorf("deltaqtest: %w", err)
	}
	<-s.ended
	waitForGroup(s.process.Process.Pid)
	s.unguard()
	os.RemoveAll(s.folder)
	if s.err != nil && !(isRunning && isInterrupt(s.err)) {
		return fmt.Errorf("deltaqtest: the server has ended: %w\n%s", s.err, s.Log())
	}
	return nil
}

// Kill ends the server at once, as a crash does, and waits for its end. If the program is a script that has started the server, both end.
func (s *Server) Kill() {
	s.isKilled.Store(true)
	killGroup(s.process.Process.Pid)
	// An error means that it has ended.
	_ = s.process.Process.Kill()
	<-s.ended
	s.unguard()
	os.RemoveAll(s.folder)
}

// output is what a process writes.
type output struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (o *output) Write(text []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.Write(text)
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.String()
}
