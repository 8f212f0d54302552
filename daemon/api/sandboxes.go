package api

import (
	"context"

	"github.com/agentixd/agentixd/daemon/sandboxes"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"google.golang.org/protobuf/types/known/emptypb"
)

// sandboxService serves SandboxService from the manager.
type sandboxService struct {
	agentixv1.UnimplementedSandboxServiceServer
	manager *sandboxes.Manager
}

// CreateSandbox creates a sandbox and waits until it is READY.
func (s *sandboxService) CreateSandbox(ctx context.Context, r *agentixv1.CreateSandboxRequest) (*agentixv1.Sandbox, error) {
	want := r.GetSandbox()
	request, err := fromSandbox(ctx, want)
	if err != nil {
		return nil, err
	}
	request.ID, request.RequestID = r.GetSandboxId(), r.GetRequestId()
	if want.GetTemplate() != "" {
		if request.Template, err = parseTemplate("sandbox.template", want.GetTemplate()); err != nil {
			return nil, err
		}
	}
	made, err := s.manager.Create(ctx, request)
	if err != nil {
		return nil, named(err, "image", want.GetImage())
	}
	return toSandbox(made, true), nil
}

// fromSandbox reads what kind of sandbox is wanted.
func fromSandbox(ctx context.Context, want *agentixv1.Sandbox) (sandboxes.CreateRequest, error) {
	if r := want.GetRuntime(); r.GetVersion() != "" || r.GetPython() != "" || len(r.GetCapabilities()) > 0 {
		return sandboxes.CreateRequest{}, errs.Invalid("sandbox.runtime", "only url may be set")
	}
	bundle, err := parseBundle("sandbox.bundle", want.GetBundle())
	if err != nil && want.GetBundle() != "" {
		return sandboxes.CreateRequest{}, err
	}
	request := sandboxes.CreateRequest{
		Image: want.GetImage(), Bundle: bundle, Project: want.GetProject(),
		Labels: want.GetLabels(), Env: want.GetEnv(),
		Provider: want.GetProvider(), RuntimeURL: want.GetRuntime().GetUrl(), Expose: want.GetExposeRuntime(), Workers: int(want.GetWorkers()),
		Resources: fromResources(want.GetResources()), Network: fromNetwork(want.GetNetwork()), Security: fromSecurity(want.GetSecurity()),
	}
	if err := setExpiry(&request, want); err != nil {
		return request, err
	}
	if peer := peerOf(ctx); peer != nil {
		request.Peer = &sandboxes.Peer{UID: peer.UID, GID: peer.GID, PID: peer.PID}
	}
	return request, nil
}

// SnapshotSandbox makes an image of a sandbox.
func (s *sandboxService) SnapshotSandbox(ctx context.Context, r *agentixv1.SnapshotSandboxRequest) (*agentixv1.Image, error) {
	id, err := parseSandbox("name", r.GetName())
	if err != nil {
		return nil, err
	}
	image, err := s.manager.Snapshot(ctx, id, r.GetImage())
	if err != nil {
		return nil, named(err, "sandbox", r.GetName())
	}
	return toImage(image), nil
}

// GetSandbox returns one sandbox.
func (s *sandboxService) GetSandbox(ctx context.Context, r *agentixv1.GetSandboxRequest) (*agentixv1.Sandbox, error) {
	id, err := parseSandbox("name", r.GetName())
	if err != nil {
		return nil, err
	}
	found, err := s.manager.Get(ctx, id)
	if err != nil {
		return nil, named(err, "sandbox", r.GetName())
	}
	return toSandbox(found, peerOf(ctx) != nil), nil
}

// ListSandboxes returns one page.
func (s *sandboxService) ListSandboxes(ctx context.Context, r *agentixv1.ListSandboxesRequest) (*agentixv1.ListSandboxesResponse, error) {
	if r.GetPageSize() < 0 {
		return nil, errs.Invalid("page_size", "must not be negative")
	}
	filter, err := sandboxes.ParseFilter(r.GetFilter())
	if err != nil {
		return nil, err
	}
	page, next, err := s.manager.List(ctx, filter, int(r.GetPageSize()), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	response := &agentixv1.ListSandboxesResponse{NextPageToken: next}
	for _, one := range page {
		response.Sandboxes = append(response.Sandboxes, toSandbox(one, false))
	}
	return response, nil
}

// DeleteSandbox removes a sandbox.
func (s *sandboxService) DeleteSandbox(ctx context.Context, r *agentixv1.DeleteSandboxRequest) (*emptypb.Empty, error) {
	id, err := parseSandbox("name", r.GetName())
	if err != nil {
		return nil, err
	}
	if err := s.manager.Delete(ctx, id, r.GetAllowMissing()); err != nil {
		return nil, named(err, "sandbox", r.GetName())
	}
	return &emptypb.Empty{}, nil
}
