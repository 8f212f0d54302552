// Package census counts what sandboxes use on a host: containers, tasks, snapshots, leases,
// mounts, cgroups, network namespaces, loop devices, sockets, directories and processes.
// Taken before and after, it shows what was left behind (R9).
package census

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The kinds of things that are counted.
const (
	Containers  = "containers"
	Tasks       = "tasks"
	Snapshots   = "snapshots"
	Leases      = "leases"
	Mounts      = "mounts"
	CGroups     = "cgroups"
	NetNS       = "netns"
	LoopDevices = "loop devices"
	Sockets     = "sockets"
	Directories = "directories"
	PIDs        = "pids"
	Devices     = "network devices"
)

// Kinds lists all kinds in the order in which they are shown.
var Kinds = []string{Containers, Tasks, Snapshots, Leases, Mounts, CGroups, NetNS, LoopDevices, Sockets, Directories, PIDs, Devices}

// Census is what there is, by kind; the items are sorted.
type Census map[string][]string

// Take looks once. Each address is a containerd to ask; one that does not exist has nothing.
func Take(ctx context.Context, containerd ...string) (Census, error) {
	c := Census{}
	for _, look := range []func(Census) error{mounts, cgroups, netNamespaces, loopDevices, sockets, directories, processes, devices} {
		if err := look(c); err != nil {
			return nil, fmt.Errorf("take census: %w", err)
		}
	}
	for _, address := range containerd {
		if err := engine(ctx, c, address); err != nil {
			return nil, fmt.Errorf("take census of containerd at %s: %w", address, err)
		}
	}
	for _, kind := range Kinds {
		slices.Sort(c[kind])
	}
	return c, nil
}

func (c Census) add(kind, item string) { c[kind] = append(c[kind], item) }

// Counts is the census in numbers; every kind is there.
func (c Census) Counts() map[string]int {
	counts := map[string]int{}
	for _, kind := range Kinds {
		counts[kind] = len(c[kind])
	}
	return counts
}

// Diff tells what differs from an earlier census, one line for each item: "+ kind item"
// for what is new, "- kind item" for what is gone.
func (c Census) Diff(before Census) []string {
	var lines []string
	for _, kind := range Kinds {
		change := map[string]int{}
		for _, item := range c[kind] {
			change[item]++
		}
		for _, item := range before[kind] {
			change[item]--
		}
		for _, item := range slices.Sorted(maps.Keys(change)) {
			for range change[item] {
				lines = append(lines, "+ "+kind+" "+item)
			}
			for range -change[item] {
				lines = append(lines, "- "+kind+" "+item)
			}
		}
	}
	return lines
}

// Settle takes a census until it equals before, for at most patience: the kernel buries
// processes and their cgroups a moment later. It returns the last difference.
func Settle(ctx context.Context, before Census, patience time.Duration, containerd ...string) (after Census, diff []string, err error) {
	deadline := time.Now().Add(patience)
	for {
		if after, err = Take(ctx, containerd...); err != nil {
			return nil, nil, err
		}
		diff = after.Diff(before)
		if len(diff) == 0 || time.Now().After(deadline) {
			return after, diff, nil
		}
		select {
		case <-ctx.Done():
			return after, diff, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
