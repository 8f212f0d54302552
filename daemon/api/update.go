package api

import (
	"context"
	"strings"
	"time"

	"github.com/agentixd/agentixd/daemon/sandboxes"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
)

// maxMaskPaths bounds an update_mask.
const maxMaskPaths = 128

// UpdateSandbox changes labels, expiry and idle time-out.
func (s *sandboxService) UpdateSandbox(ctx context.Context, r *agentixv1.UpdateSandboxRequest) (*agentixv1.Sandbox, error) {
	id, err := parseSandbox("sandbox.name", r.GetSandbox().GetName())
	if err != nil {
		return nil, err
	}
	update, err := fromUpdate(r)
	if err != nil {
		return nil, err
	}
	changed, err := s.manager.Update(ctx, id, update)
	if err != nil {
		return nil, named(err, "sandbox", r.GetSandbox().GetName())
	}
	return toSandbox(changed, peerOf(ctx) != nil), nil
}

func fromUpdate(r *agentixv1.UpdateSandboxRequest) (u sandboxes.Update, err error) {
	want, paths := r.GetSandbox(), r.GetUpdateMask().GetPaths()
	if len(paths) > maxMaskPaths {
		return u, errs.Invalid("update_mask", "%d paths; at most %d are allowed", len(paths), maxMaskPaths)
	}
	if len(paths) == 0 {
		paths = setPaths(want)
	}
	for _, path := range paths {
		if known, camel := camelPaths[path]; camel {
			path = known
		}
		switch key, isLabel := strings.CutPrefix(path, "labels."); {
		case isLabel:
			if u.SetLabels == nil {
				u.SetLabels = map[string]*string{}
			}
			u.SetLabels[key] = nil
			if value, has := want.GetLabels()[key]; has {
				u.SetLabels[key] = &value
			}
		case path == "labels":
			labels := want.GetLabels()
			u.Labels = &labels
		case path == "expire_time":
			at := time.Time{}
			if want.GetExpireTime() != nil {
				at, err = fromTime("sandbox.expire_time", want.GetExpireTime())
			} else if want.GetTtl() != nil {
				err = errs.Invalid("update_mask", "names expire_time, but sandbox has ttl")
			}
			u.ExpireTime = &at
		case path == "ttl":
			if want.GetTtl() == nil {
				return u, errs.Invalid("sandbox.ttl", "must be set, since update_mask names it; for no end, name expire_time and leave it unset")
			}
			var ttl time.Duration
			ttl, err = fromDuration("sandbox.ttl", want.GetTtl())
			u.TTL = &ttl
		case path == "idle_timeout":
			idle := time.Duration(0)
			if want.GetIdleTimeout() != nil {
				idle, err = fromDuration("sandbox.idle_timeout", want.GetIdleTimeout())
			}
			u.IdleTimeout = &idle
		case path == "network.allow_cidrs":
			cidrs := want.GetNetwork().GetAllowCidrs()
			u.AllowCIDRs = &cidrs
		case path == "name":
		default:
			return u, errs.Invalid("update_mask", "%.80q cannot be changed; labels, labels.KEY, expire_time, ttl, idle_timeout and network.allow_cidrs can", path)
		}
		if err != nil {
			return u, err
		}
	}
	return u, nil
}

// camelPaths are the paths as they stand in JSON, where a query parameter may take them from.
var camelPaths = map[string]string{"expireTime": "expire_time", "idleTimeout": "idle_timeout", "network.allowCidrs": "network.allow_cidrs"}

// setPaths are the paths of a request without a mask.
func setPaths(want *agentixv1.Sandbox) (paths []string) {
	if len(want.GetLabels()) > 0 {
		paths = append(paths, "labels")
	}
	if want.GetExpireTime() != nil {
		paths = append(paths, "expire_time")
	}
	if want.GetTtl() != nil {
		paths = append(paths, "ttl")
	}
	if want.GetIdleTimeout() != nil {
		paths = append(paths, "idle_timeout")
	}
	if len(want.GetNetwork().GetAllowCidrs()) > 0 {
		paths = append(paths, "network.allow_cidrs")
	}
	return paths
}

// PauseSandbox freezes a sandbox.
func (s *sandboxService) PauseSandbox(ctx context.Context, r *agentixv1.PauseSandboxRequest) (*agentixv1.Sandbox, error) {
	return s.change(ctx, r.GetName(), s.manager.Pause)
}

// ResumeSandbox lets it go on.
func (s *sandboxService) ResumeSandbox(ctx context.Context, r *agentixv1.ResumeSandboxRequest) (*agentixv1.Sandbox, error) {
	return s.change(ctx, r.GetName(), s.manager.Resume)
}

func (s *sandboxService) change(ctx context.Context, name string, do func(context.Context, string) (sandboxes.Sandbox, error)) (*agentixv1.Sandbox, error) {
	id, err := parseSandbox("name", name)
	if err != nil {
		return nil, err
	}
	changed, err := do(ctx, id)
	if err != nil {
		return nil, named(err, "sandbox", name)
	}
	return toSandbox(changed, peerOf(ctx) != nil), nil
}

// DeleteMatchingSandboxes deletes what a filter selects.
func (s *sandboxService) DeleteMatchingSandboxes(ctx context.Context, r *agentixv1.DeleteMatchingSandboxesRequest) (*agentixv1.DeleteMatchingSandboxesResponse, error) {
	filter, err := sandboxes.ParseFilter(r.GetFilter())
	if err != nil {
		return nil, err
	}
	if filter == nil && strings.TrimSpace(r.GetFilter()) != "*" {
		return nil, errs.Invalid("filter", "must say what to delete; * is everything")
	}
	matched, err := s.manager.DeleteMatching(ctx, filter, r.GetDryRun())
	if err != nil {
		return nil, err
	}
	response := &agentixv1.DeleteMatchingSandboxesResponse{}
	for _, id := range matched.IDs {
		if why, failed := matched.Failures[id]; failed {
			response.Failures = append(response.Failures, &agentixv1.DeletionFailure{Name: sandboxName(id), Message: text(why)})
			continue
		}
		response.Sandboxes = append(response.Sandboxes, sandboxName(id))
	}
	return response, nil
}

// WatchSandboxes sends what there is and then each change.
func (s *sandboxService) WatchSandboxes(r *agentixv1.WatchSandboxesRequest, stream agentixv1.SandboxService_WatchSandboxesServer) error {
	filter, err := sandboxes.ParseFilter(r.GetFilter())
	if err != nil {
		return err
	}
	return s.manager.Observe(stream.Context(), filter, func(changes []sandboxes.Change, current bool) error {
		response := &agentixv1.WatchSandboxesResponse{Current: current}
		for _, c := range changes {
			response.Changes = append(response.Changes, &agentixv1.SandboxChange{
				Type:    agentixv1.SandboxChangeType(agentixv1.SandboxChangeType_value["SANDBOX_CHANGE_TYPE_"+string(c.Type)]),
				Sandbox: toSandbox(c.Sandbox, false),
			})
		}
		return stream.Send(response) //nolint:wrapcheck // Of gRPC, for gRPC.
	})
}
