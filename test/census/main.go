// Command census prints what sandboxes use on this host, as JSON: the counts, and each item
// by kind. With --compare it compares with an earlier output and exits 1 on a difference:
//
//	census > before.json; make demo; census --compare before.json
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/agentixd/agentixd/internal/census"
)

// output is the JSON that is printed, and read by --compare.
type output struct {
	Counts map[string]int `json:"counts"`
	Items  census.Census  `json:"items"`
}

var errDiffers = errors.New("the census differs")

func main() {
	err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "census:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("census", flag.ContinueOnError)
	flags.SetOutput(stderr)
	compare := flags.String("compare", "", "earlier output to compare with")
	patience := flags.Duration("patience", 10*time.Second, "how long a difference may last before it counts")
	address := flags.String("containerd", "/run/containerd/containerd.sock", "socket of the containerd to ask, if it exists")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *compare == "" {
		c, err := census.Take(ctx, *address)
		if err != nil {
			return err
		}
		return show(stdout, c)
	}
	data, err := os.ReadFile(*compare)
	if err != nil {
		return err
	}
	var before output
	if err := json.Unmarshal(data, &before); err != nil {
		return fmt.Errorf("read %s: %w", *compare, err)
	}
	after, diff, err := census.Settle(ctx, before.Items, *patience, *address)
	if err != nil {
		return err
	}
	for _, kind := range census.Kinds {
		if _, err := fmt.Fprintf(stdout, "%-13s %4d  %4d\n", kind, len(before.Items[kind]), len(after[kind])); err != nil {
			return err
		}
	}
	for _, line := range diff {
		if _, err := fmt.Fprintln(stdout, line); err != nil {
			return err
		}
	}
	if len(diff) > 0 {
		return errDiffers
	}
	return nil
}

func show(w io.Writer, c census.Census) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(output{Counts: c.Counts(), Items: c})
}
