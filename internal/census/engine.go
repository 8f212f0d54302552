package census

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
)

// engine counts what one containerd has, in all its namespaces. Committed snapshots are the
// layers of images, which stay; so do leases that expire by themselves.
func engine(ctx context.Context, c Census, address string) error {
	if _, err := os.Stat(address); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	conn, err := client.New(address)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // read only
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("containerd does not answer"))
	defer cancel()
	spaces, err := conn.NamespaceService().List(ctx)
	if err != nil {
		return err
	}
	for _, space := range spaces {
		if err := engineNamespace(namespaces.WithNamespace(ctx, space), c, conn, space+"/"); err != nil {
			return err
		}
	}
	return nil
}

func engineNamespace(ctx context.Context, c Census, conn *client.Client, prefix string) error {
	containers, err := conn.ContainerService().List(ctx)
	if err != nil {
		return err
	}
	for _, container := range containers {
		c.add(Containers, prefix+container.ID)
	}
	running, err := conn.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return err
	}
	for _, task := range running.Tasks {
		c.add(Tasks, prefix+task.ID)
	}
	leases, err := conn.LeasesService().List(ctx)
	if err != nil {
		return err
	}
	for _, lease := range leases {
		if _, expires := lease.Labels["containerd.io/gc.expire"]; !expires {
			c.add(Leases, prefix+lease.ID)
		}
	}
	return conn.SnapshotService("overlayfs").Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if info.Kind != snapshots.KindCommitted {
			c.add(Snapshots, prefix+info.Name)
		}
		return nil
	})
}
