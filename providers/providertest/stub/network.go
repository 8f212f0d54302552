package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const dialTimeout = time.Second

// reach connects to an address and reads what it says first.
func reach(network, address string) error {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).Dial(network, address) //nolint:noctx // bounded
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	if network == "udp" {
		if _, err := io.WriteString(conn, "hello"); err != nil {
			return err
		}
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// dial tells of each ?addr=, by ?network= (default tcp), on a line of its own, "ok" or the error.
func (s *stub) dial(w http.ResponseWriter, r *http.Request) {
	network := r.URL.Query().Get("network")
	if network == "" {
		network = "tcp"
	}
	for _, address := range r.URL.Query()["addr"] {
		if err := reach(network, address); err != nil {
			_, _ = fmt.Fprintln(w, address, err)
			continue
		}
		_, _ = fmt.Fprintln(w, address, "ok")
	}
}

// hammer connects to all ?never= and ?always= addresses again and again until the request ends
// or ?until= seconds passed, and tells how often never was reached and always was not.
func (s *stub) hammer(w http.ResponseWriter, r *http.Request) {
	seconds, err := time.ParseDuration(r.URL.Query().Get("for"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	end := time.Now().Add(seconds)
	var tries, holes, gaps atomic.Int64
	var last atomic.Value
	var group sync.WaitGroup
	run := func(address string, count *atomic.Int64, bad func(error) bool) {
		group.Go(func() {
			for time.Now().Before(end) {
				tries.Add(1)
				if err := reach("tcp", address); bad(err) {
					count.Add(1)
					last.Store(fmt.Sprint(address, " ", err))
				}
			}
		})
	}
	for _, address := range r.URL.Query()["never"] {
		run(address, &holes, func(err error) bool { return err == nil })
	}
	for _, address := range r.URL.Query()["always"] {
		run(address, &gaps, func(err error) bool { return err != nil })
	}
	group.Wait()
	_, _ = fmt.Fprintln(w, tries.Load(), holes.Load(), gaps.Load(), last.Load())
}

// hold keeps a connection to ?addr= that echoes until it is cut, at most ?for=, and tells how it ended.
func (s *stub) hold(w http.ResponseWriter, r *http.Request) {
	seconds, _ := time.ParseDuration(r.URL.Query().Get("for"))
	conn, err := (&net.Dialer{Timeout: dialTimeout}).Dial("tcp", r.URL.Query().Get("addr")) //nolint:noctx // bounded
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	defer conn.Close()
	buf := make([]byte, 16)
	for end := time.Now().Add(seconds); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		_ = conn.SetDeadline(time.Now().Add(dialTimeout))
		if _, err = conn.Write([]byte("x")); err == nil {
			_, err = conn.Read(buf)
		}
		if err != nil {
			_, _ = fmt.Fprintln(w, "cut", err)
			return
		}
	}
	_, _ = fmt.Fprintln(w, "held")
}
