//go:build faults && containerd

package faults

import (
	"context"
	"slices"
	"strings"
	"testing"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/agentixd/agentixd/internal/faulttest"
	"github.com/agentixd/agentixd/providers/containerd"
)

// TestR8_R9_DeathAtEachStepOnContainers is TestR8_R9_DeathAtEachStep with containerd, and the
// steps within it.
func TestR8_R9_DeathAtEachStepOnContainers(t *testing.T) {
	d, engine := onContainersWith(t, faulttest.Build(t, "failpoint"))
	c, err := client.New(engine.Address)
	check(t, err)
	defer c.Close() //nolint:errcheck // read only
	before := steps
	defer func() { steps = before }()
	making := []string{"create/afterRecord", "create/afterContainer", "create/afterTask", "create/beforeReady"}
	steps = map[string][]string{
		"create": making,
		"delete": {"delete/afterRecord", "delete/afterTask", "delete/afterContainer", "delete/afterSnapshot", "delete/beforeForget", "delete/afterForget"},
		"pause":  before["pause"], "resume": before["resume"], "take": before["take"], "restart": before["restart"],
		"refill": append(slices.Clone(making), "pool/beforeFreeze", "pause/afterRecord", "pause/afterFreeze", "pool/afterFreeze"),
	}
	l := &life{t: t, d: d, engs: func() []string { return engineHas(t, c) }}
	l.run(100)
}

// engineHas are the ids of everything that a sandbox has in containerd: container, lease, snapshot.
func engineHas(t *testing.T, c *client.Client) []string {
	ctx := namespaces.WithNamespace(context.WithoutCancel(t.Context()), containerd.Namespace)
	has := map[string]bool{}
	containers, err := c.ContainerService().List(ctx)
	check(t, err)
	for _, one := range containers {
		has[one.Labels["agentix.dev/sandbox"]] = true
	}
	leases, err := c.LeasesService().List(ctx)
	check(t, err)
	for _, one := range leases {
		if id := one.Labels["agentix.dev/sandbox"]; id != "" {
			has[id] = true
		}
	}
	check(t, c.SnapshotService("overlayfs").Walk(ctx, func(_ context.Context, one snapshots.Info) error {
		if id := one.Labels["agentix.dev/sandbox"]; id != "" && strings.HasPrefix(one.Name, "agx-") {
			has[id] = true
		}
		return nil
	}))
	var ids []string
	for id := range has {
		ids = append(ids, id)
	}
	return ids
}
