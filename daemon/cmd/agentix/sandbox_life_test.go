package main

import (
	"context"
	"strings"
	"testing"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestSandboxUpdate(t *testing.T) {
	var got *agentixv1.UpdateSandboxRequest
	address := serve(t, &daemon{change: func(_ context.Context, r *agentixv1.UpdateSandboxRequest) (*agentixv1.Sandbox, error) {
		got = proto.CloneOf(r)
		return r.GetSandbox(), nil
	}})
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		args  []string
		want  *agentixv1.Sandbox
		paths []string
	}{
		{[]string{"--ttl", "90m", "-l", "team=x", "--unlabel", "old"}, &agentixv1.Sandbox{
			Labels: map[string]string{"team": "x"}, Expiration: &agentixv1.Sandbox_Ttl{Ttl: durationpb.New(90 * time.Minute)},
		}, []string{"labels.team", "labels.old", "ttl"}},
		{[]string{"--expire-time", "2026-11-29T13:00:00+01:00", "--idle-timeout", "0"}, &agentixv1.Sandbox{
			Expiration: &agentixv1.Sandbox_ExpireTime{ExpireTime: timestamppb.New(noon)},
		}, []string{"expire_time", "idle_timeout"}},
		{[]string{"--allow-cidr", "10.0.0.0/8", "--allow-cidr", "::/0"}, &agentixv1.Sandbox{
			Network: &agentixv1.Network{AllowCidrs: []string{"10.0.0.0/8", "::/0"}},
		}, []string{"network.allow_cidrs"}},
		{[]string{"--allow-nothing"}, &agentixv1.Sandbox{Network: &agentixv1.Network{}}, []string{"network.allow_cidrs"}},
		{[]string{"--never-expire"}, &agentixv1.Sandbox{}, []string{"expire_time"}},
	} {
		ran := execute(t, "", append([]string{"--address", address, "sandbox", "update", "box"}, c.args...)...)
		if diff := cmp.Diff(ran, result{0, "", ""}); diff != "" {
			t.Error(diff)
		}
		c.want.Name = "sandboxes/box"
		want := &agentixv1.UpdateSandboxRequest{Sandbox: c.want, UpdateMask: &fieldmaskpb.FieldMask{Paths: c.paths}}
		if diff := cmp.Diff(got, want, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
	for _, args := range [][]string{
		nil, {"--ttl", "1h", "--expire-time", "2026-11-29T13:00:00Z"}, {"--ttl", "1h", "--never-expire"}, {"--expire-time", "noon"}, {"-l", "x"},
	} {
		if ran := execute(t, "", append([]string{"--address", address, "sandbox", "update", "box"}, args...)...); ran.Code != 2 {
			t.Errorf("%q: %+v", args, ran)
		}
	}
}

func TestSandboxRemoveByFilter(t *testing.T) {
	var got *agentixv1.DeleteMatchingSandboxesRequest
	address := serve(t, &daemon{prune: func(_ context.Context, r *agentixv1.DeleteMatchingSandboxesRequest) (*agentixv1.DeleteMatchingSandboxesResponse, error) {
		got = proto.CloneOf(r)
		return &agentixv1.DeleteMatchingSandboxesResponse{
			Sandboxes: []string{"sandboxes/a", "sandboxes/b"}, Failures: []*agentixv1.DeletionFailure{{Name: "sandboxes/c", Message: "busy"}},
		}, nil
	}})
	ran := execute(t, "", "--address", address, "sandbox", "rm", "--filter", "labels:x", "--dry-run")
	if diff := cmp.Diff(ran, result{2, "a\nb\n", "agentix: not removed: c: busy\n"}); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(got, &agentixv1.DeleteMatchingSandboxesRequest{Filter: "labels:x", DryRun: true}, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	for _, args := range [][]string{nil, {"box", "--filter", "*"}, {"box", "--dry-run"}} {
		if ran := execute(t, "", append([]string{"--address", address, "sandbox", "rm"}, args...)...); ran.Code != 2 {
			t.Errorf("%q: %+v", args, ran)
		}
	}
}

func TestSandboxWatch(t *testing.T) {
	address := serve(t, &daemon{watch: func(r *agentixv1.WatchSandboxesRequest, s grpc.ServerStreamingServer[agentixv1.WatchSandboxesResponse]) error {
		if r.GetFilter() != "labels:x" {
			t.Errorf("filter %q", r.GetFilter())
		}
		return s.Send(&agentixv1.WatchSandboxesResponse{Changes: []*agentixv1.SandboxChange{{
			Type:    agentixv1.SandboxChangeType_SANDBOX_CHANGE_TYPE_ADDED,
			Sandbox: &agentixv1.Sandbox{Name: "sandboxes/a\x1b", State: agentixv1.SandboxState_SANDBOX_STATE_PAUSED},
		}}})
	}})
	ran := execute(t, "", "--address", address, "sandbox", "watch", "--filter", "labels:x")
	if diff := cmp.Diff(ran, result{0, "ADDED\ta\\x1b\tPAUSED\t-\n", ""}); diff != "" {
		t.Error(diff)
	}
	asJSON := execute(t, "", "--address", address, "sandbox", "watch", "--filter", "labels:x", "-o", "json")
	if strings.Count(asJSON.Stdout, "\n") != 1 || asJSON.Code != 0 {
		t.Errorf("%+v", asJSON)
	}
}

func TestSandboxPauseAndResume(t *testing.T) {
	var got []string
	address := serve(t, &daemon{
		pause: func(_ context.Context, r *agentixv1.PauseSandboxRequest) (*agentixv1.Sandbox, error) {
			got = append(got, "pause "+r.GetName())
			return &agentixv1.Sandbox{}, nil
		},
		resume: func(_ context.Context, r *agentixv1.ResumeSandboxRequest) (*agentixv1.Sandbox, error) {
			got = append(got, "resume "+r.GetName())
			return &agentixv1.Sandbox{}, nil
		},
	})
	for _, verb := range []string{"pause", "resume"} {
		if diff := cmp.Diff(execute(t, "", "--address", address, "sandbox", verb, "a", "sandboxes/b"), result{0, "", ""}); diff != "" {
			t.Error(diff)
		}
	}
	if diff := cmp.Diff(got, []string{"pause sandboxes/a", "pause sandboxes/b", "resume sandboxes/a", "resume sandboxes/b"}); diff != "" {
		t.Error(diff)
	}
}
