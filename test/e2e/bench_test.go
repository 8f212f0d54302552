package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/daemontest"
)

// BenchmarkFollow is 50 000 records of a function, from the call to the last one at a
// follower; all of them have to come.
func BenchmarkFollow(b *testing.B) {
	const n = 50_000
	for _, kind := range []string{"log records", "printed lines"} {
		for name, follow := range map[string]func(*testing.B, *daemontest.Env, string, chan<- int){"gRPC": countGRPC, "NDJSON": countLines("application/x-ndjson"), "SSE": countLines("text/event-stream")} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				e := daemontest.Start(b, configure)
				if err := os.CopyFS(e.Project, os.DirFS("testdata/project")); err != nil {
					b.Fatal(err)
				}
				sandbox := e.Sandbox(b)
				callable := map[string]string{"log records": "writes::records", "printed lines": "writes::lines"}[kind]
				records := make(chan int, 1024)
				go follow(b, e, sandbox, records) // ends with its daemon
				<-records
				if _, err := e.Remote.Remote(b.Context(), &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: callable, Args: "[1]"}); err != nil {
					b.Fatal(err)
				}
				size := map[string]int{"log records": 1, "printed lines": 100}[kind]
				for got := 0; got < size; {
					got += <-records
				}
				b.ResetTimer()
				for range b.N {
					began := time.Now()
					go func() { // ends before its records were seen
						_, _ = e.Remote.Remote(b.Context(), &agentixv1.RemoteRequest{Sandbox: sandbox, Callable: callable, Args: fmt.Sprintf("[%d]", n)})
					}()
					for got := 0; got < n*size; {
						got += <-records
					}
					b.ReportMetric(n/time.Since(began).Seconds(), "records/s")
				}
			})
		}
	}
}

// count is how much an event has of what the benchmark waits for: log records, or bytes.
func count(e *agentixv1.Event) int {
	if e.GetLog() != nil {
		return 1
	}
	return len(e.GetOutput().GetData())
}

func countGRPC(b *testing.B, e *daemontest.Env, sandbox string, records chan<- int) {
	s, err := e.Events.StreamEvents(b.Context(), &agentixv1.StreamEventsRequest{Sandbox: sandbox, Follow: true, Start: &agentixv1.StreamEventsRequest_Tail{}})
	for err == nil {
		var response *agentixv1.StreamEventsResponse
		if response, err = s.Recv(); err == nil {
			n := 0
			for _, event := range response.GetEvents() {
				n += count(event)
			}
			records <- n
		}
	}
}

func countLines(accept string) func(*testing.B, *daemontest.Env, string, chan<- int) {
	return func(b *testing.B, e *daemontest.Env, sandbox string, records chan<- int) {
		request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, e.URL+"/v1/"+sandbox+"/events?follow=true&tail=0", nil)
		if err != nil {
			b.Error(err)
			return
		}
		request.Header.Set("Accept", accept)
		response, err := e.HTTP.Do(request)
		if err != nil {
			b.Error(err)
			return
		}
		defer response.Body.Close()
		records <- 0
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			line := lines.Bytes()
			if bytes.Contains(line, []byte(`"log":{`)) {
				records <- 1
			} else if i := bytes.Index(line, []byte(`"data":"`)); i >= 0 { // base64, four characters for three bytes
				text := line[i+len(`"data":"`):]
				text = text[:bytes.IndexByte(text, '"')]
				records <- len(text)/4*3 - bytes.Count(text, []byte("="))
			}
		}
	}
}
