package sandboxes_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentixd/agentixd/daemon/sandboxes"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

func TestInvalidRequests(t *testing.T) {
	r := newStubRig(t)
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprintf("k%d", i)] = ""
	}
	env := func(k, v string) sandboxes.CreateRequest {
		return sandboxes.CreateRequest{Env: map[string]string{k: v}}
	}
	label := func(k, v string) sandboxes.CreateRequest {
		return sandboxes.CreateRequest{Labels: map[string]string{k: v}}
	}
	limit := func(l providers.Limits) sandboxes.CreateRequest { return sandboxes.CreateRequest{Resources: l} }
	for name, tt := range map[string]struct {
		req   sandboxes.CreateRequest
		field string
	}{
		"id upper case":     {sandboxes.CreateRequest{ID: "Alpha"}, "sandbox_id"},
		"id with a slash":   {sandboxes.CreateRequest{ID: "../x"}, "sandbox_id"},
		"id begins with -":  {sandboxes.CreateRequest{ID: "-x"}, "sandbox_id"},
		"id of 64":          {sandboxes.CreateRequest{ID: strings.Repeat("a", 64)}, "sandbox_id"},
		"request id of 129": {sandboxes.CreateRequest{RequestID: strings.Repeat("a", 129)}, "request_id"},
		"image as a flag":   {sandboxes.CreateRequest{Image: "--privileged"}, "sandbox.image"},
		"image of 256":      {sandboxes.CreateRequest{Image: strings.Repeat("a", 256)}, "sandbox.image"},
		"65 labels":         {sandboxes.CreateRequest{Labels: many}, "sandbox.labels"},
		"label key":         {label("a=b", ""), "sandbox.labels"},
		"label value 257":   {label("a", strings.Repeat("x", 257)), "sandbox.labels"},
		"label not UTF-8":   {label("a", "\xff"), "sandbox.labels"},
		"env with =":        {env("A=B", ""), "sandbox.env"},
		"env empty name":    {env("", ""), "sandbox.env"},
		"env NUL":           {env("A", "a\x00b"), "sandbox.env"},
		"env reserved":      {env("AGENTIX_BIND_PORT", "1"), "sandbox.env"},
		"env too large":     {env("A", strings.Repeat("x", 65536)), "sandbox.env"},
		"cpu -1":            {limit(providers.Limits{CPUs: -1}), "sandbox.resources.cpus"},
		"cpu NaN":           {limit(providers.Limits{CPUs: math.NaN()}), "sandbox.resources.cpus"},
		"cpu infinite":      {limit(providers.Limits{CPUs: math.Inf(1)}), "sandbox.resources.cpus"},
		"memory 2^63-1":     {limit(providers.Limits{MemoryBytes: math.MaxInt64}), "sandbox.resources.memory_bytes"},
		"memory -1":         {limit(providers.Limits{MemoryBytes: -1}), "sandbox.resources.memory_bytes"},
		"memory 1":          {limit(providers.Limits{MemoryBytes: 1}), "sandbox.resources.memory_bytes"},
		"65 workers":        {sandboxes.CreateRequest{Workers: 65}, "sandbox.workers"},
		"-1 workers":        {sandboxes.CreateRequest{Workers: -1}, "sandbox.workers"},
		"pids 1":            {limit(providers.Limits{PIDs: 1}), "sandbox.resources.pids"},
		"open files 63":     {limit(providers.Limits{OpenFiles: 63}), "sandbox.resources.open_files"},
		"open files 2^31":   {limit(providers.Limits{OpenFiles: 1 << 31}), "sandbox.resources.open_files"},
		"disk 1 MiB":        {limit(providers.Limits{DiskBytes: 1 << 20}), "sandbox.resources.disk_bytes"},
		"disk -1":           {limit(providers.Limits{DiskBytes: -1}), "sandbox.resources.disk_bytes"},
		"runtime handler":   {sandboxes.CreateRequest{Security: providers.Security{RuntimeHandler: "kata"}}, "sandbox.security.runtime_handler"},
		"network mode":      {sandboxes.CreateRequest{Network: providers.Network{Mode: "4"}}, "sandbox.network.mode"},
		"ranges, no bridge": {sandboxes.CreateRequest{Network: providers.Network{AllowCIDRs: []string{"10.0.0.0/8"}}}, "sandbox.network.allow_cidrs"},
	} {
		_, err := r.Create(t.Context(), tt.req)
		e := refusal(t, err, errs.InvalidArgument, errs.InvalidField)
		if len(e.Violations) != 1 || e.Violations[0].Field != tt.field {
			t.Errorf("%s: violations = %v, want %s", name, e.Violations, tt.field)
		}
	}
	r.assertNothingLeft()
}

// TestDefaultLimits: they go to providers that enforce limits, and to no others.
func TestDefaultLimits(t *testing.T) {
	var got providers.Limits
	refuse := func(_ context.Context, spec providers.Spec) (providers.Handle, error) {
		got = spec.Limits
		return nil, errs.New(errs.FailedPrecondition, errs.Unsupported, "seen enough")
	}
	r := newStubRig(t, func(o *sandboxes.Options) { o.Provider = limiting{o.Provider.(*faulty)} })
	r.provider.create = refuse
	_, err := r.Create(t.Context(), sandboxes.CreateRequest{Resources: providers.Limits{CPUs: 2, PIDs: 50}})
	wantReason(t, err, errs.FailedPrecondition, errs.Unsupported)
	if want := (providers.Limits{CPUs: 2, MemoryBytes: 1 << 30, PIDs: 50}); got != want {
		t.Errorf("limits = %+v, want %+v", got, want)
	}
	plain := newStubRig(t)
	plain.provider.create = refuse
	_, err = plain.Create(t.Context(), sandboxes.CreateRequest{})
	wantReason(t, err, errs.FailedPrecondition, errs.Unsupported)
	if got != (providers.Limits{}) {
		t.Errorf("limits = %+v, want none", got)
	}
	_, err = plain.Images()
	wantReason(t, err, errs.FailedPrecondition, errs.Unsupported)
}

// TestHostPath: only for peers, below a prefix, without symlinks, as the peer's user.
func TestHostPath(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	allowed := filepath.Join(root, "allowed")
	for path, mode := range map[string]os.FileMode{
		"allowed": 0o755, "allowed/open": 0o755, "allowed/open/deep": 0o755, "allowed/closed": 0o700,
		"allowed/closed/inner": 0o755, "outside": 0o755, "allowed-not": 0o755,
	} {
		if err := os.MkdirAll(filepath.Join(root, path), 0o755); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.Chmod(filepath.Join(root, path), mode); err != nil {
				t.Error(err)
			}
		}()
	}
	for link, target := range map[string]string{
		"allowed/link": "open", "allowed/out": "../outside", "allowed/open/up": "..", "allowed/abs": "/etc", "prefix": "allowed",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(allowed, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(allowed, "closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	rootPeer, other := &sandboxes.Peer{}, &sandboxes.Peer{UID: 54321, GID: 54321}
	if os.Geteuid() != 0 {
		rootPeer = &sandboxes.Peer{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	}

	seen := ""
	r := newStubRig(t, func(o *sandboxes.Options) {
		o.AllowHostPath = []string{allowed + "/", filepath.Join(root, "prefix"), "relative"}
	})
	r.provider.create = func(_ context.Context, spec providers.Spec) (providers.Handle, error) {
		target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", spec.Project.FD))
		if err != nil {
			t.Error(err)
		}
		seen = target
		return nil, errs.New(errs.FailedPrecondition, errs.Unsupported, "seen enough")
	}
	create := func(path string, peer *sandboxes.Peer) error {
		seen = ""
		_, err := r.Create(t.Context(), sandboxes.CreateRequest{Project: path, Peer: peer})
		return err
	}

	for path, want := range map[string]string{
		allowed:                                 allowed,
		allowed + "/open/deep":                  allowed + "/open/deep",
		filepath.Join(root, "prefix") + "/open": allowed + "/open", // a prefix may be a symlink itself
	} {
		wantReason(t, create(path, rootPeer), errs.FailedPrecondition, errs.Unsupported)
		if seen != want {
			t.Errorf("%s: opened %q, want %q", path, seen, want)
		}
	}
	wantReason(t, create(allowed+"/closed/inner", rootPeer), errs.FailedPrecondition, errs.Unsupported)
	wantReason(t, create(allowed+"/open", other), errs.FailedPrecondition, errs.Unsupported)

	for name, tt := range map[string]struct {
		path string
		peer *sandboxes.Peer
	}{
		"no peer":              {allowed + "/open", nil},
		"/root":                {"/root", rootPeer},
		"/":                    {"/", rootPeer},
		"beside the prefix":    {allowed + "-not", rootPeer},
		"outside":              {root + "/outside", rootPeer},
		"symlink":              {allowed + "/link", rootPeer},
		"below a symlink":      {allowed + "/link/deep", rootPeer},
		"symlink to outside":   {allowed + "/out", rootPeer},
		"absolute symlink":     {allowed + "/abs", rootPeer},
		"symlink up":           {allowed + "/open/up/open", rootPeer},
		"a file":               {allowed + "/file", rootPeer},
		"another's directory":  {allowed + "/closed", other},
		"below another's":      {allowed + "/closed/inner", other},
		"missing in another's": {allowed + "/closed/missing", other},
	} {
		err := create(tt.path, tt.peer)
		if !errs.Is(err, errs.PermissionDenied) || seen != "" {
			t.Errorf("%s: %v, opened %q; want PermissionDenied", name, err, seen)
		}
	}
	for _, path := range []string{"relative", allowed + "/../outside", allowed + "//open", allowed + "/open/.", allowed + "/a\x00b", allowed + "/missing", "/" + strings.Repeat("x", 4096)} {
		wantReason(t, create(path, rootPeer), errs.InvalidArgument, errs.InvalidField)
	}
	r.assertNothingLeft()
}
