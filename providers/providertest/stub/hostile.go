package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
)

// fill writes to ?path until it fails, and answers how much went in and why no more did.
func (s *stub) fill(w http.ResponseWriter, r *http.Request) {
	f, err := os.Create(r.URL.Query().Get("path"))
	if err != nil {
		_, _ = fmt.Fprintln(w, 0, err)
		return
	}
	defer f.Close()
	total, size := 0, 1<<20
	for block := make([]byte, size); size >= 512; { // the smaller blocks find the last corner
		n, err := f.Write(block[:size])
		total += n
		if err == nil && total < 1<<30 {
			continue
		}
		if size /= 2; size < 512 {
			_, _ = fmt.Fprintln(w, total, err)
		}
	}
}

// remove removes ?path.
func (s *stub) remove(w http.ResponseWriter, r *http.Request) {
	if err := os.Remove(r.URL.Query().Get("path")); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

// open opens ?n files at once and answers how many it got.
func (s *stub) open(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.URL.Query().Get("n"))
	var files []io.Closer
	for range n {
		f, err := os.Open("/")
		if err != nil {
			break
		}
		files = append(files, f)
	}
	for _, f := range files {
		_ = f.Close()
	}
	_, _ = fmt.Fprintln(w, len(files))
}
