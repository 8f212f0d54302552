package api

import (
	"context"
	"maps"

	"github.com/agentixd/agentixd/daemon/sandboxes"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// templateService serves TemplateService from the manager.
type templateService struct {
	agentixv1.UnimplementedTemplateServiceServer
	manager *sandboxes.Manager
}

// CreateTemplate keeps a template and begins to fill its pool.
func (s *templateService) CreateTemplate(ctx context.Context, r *agentixv1.CreateTemplateRequest) (*agentixv1.Template, error) {
	want := r.GetTemplate()
	if want.GetSandbox() == nil {
		return nil, errs.Invalid("template.sandbox", "is required")
	}
	request, err := fromSandbox(ctx, want.GetSandbox())
	if err != nil {
		return nil, err
	}
	request.Template = want.GetSandbox().GetTemplate() // for the domain to refuse
	made, err := s.manager.CreateTemplate(ctx, sandboxes.Template{
		ID: r.GetTemplateId(), Sandbox: request, Preload: want.GetPreload(), Size: int(want.GetSize()),
	})
	if err != nil {
		return nil, err
	}
	return toTemplate(made), nil
}

// GetTemplate returns one template.
func (s *templateService) GetTemplate(ctx context.Context, r *agentixv1.GetTemplateRequest) (*agentixv1.Template, error) {
	id, err := parseTemplate("name", r.GetName())
	if err != nil {
		return nil, err
	}
	found, err := s.manager.GetTemplate(ctx, id)
	if err != nil {
		return nil, named(err, "template", r.GetName())
	}
	return toTemplate(found), nil
}

// ListTemplates returns all templates.
func (s *templateService) ListTemplates(ctx context.Context, _ *agentixv1.ListTemplatesRequest) (*agentixv1.ListTemplatesResponse, error) {
	all, err := s.manager.Templates(ctx)
	if err != nil {
		return nil, err
	}
	response := &agentixv1.ListTemplatesResponse{}
	for _, t := range all {
		response.Templates = append(response.Templates, toTemplate(t))
	}
	return response, nil
}

// UpdateTemplate changes the size of a pool.
func (s *templateService) UpdateTemplate(ctx context.Context, r *agentixv1.UpdateTemplateRequest) (*agentixv1.Template, error) {
	id, err := parseTemplate("template.name", r.GetTemplate().GetName())
	if err != nil {
		return nil, err
	}
	for _, path := range r.GetUpdateMask().GetPaths() {
		if path != "size" {
			return nil, errs.Invalid("update_mask", "%.80q cannot be changed; size can", path)
		}
	}
	changed, err := s.manager.ResizeTemplate(ctx, id, int(r.GetTemplate().GetSize()))
	if err != nil {
		return nil, named(err, "template", r.GetTemplate().GetName())
	}
	return toTemplate(changed), nil
}

// DeleteTemplate deletes a template and its pool.
func (s *templateService) DeleteTemplate(ctx context.Context, r *agentixv1.DeleteTemplateRequest) (*emptypb.Empty, error) {
	id, err := parseTemplate("name", r.GetName())
	if err != nil {
		return nil, err
	}
	if err := s.manager.DeleteTemplate(ctx, id, r.GetAllowMissing()); err != nil {
		return nil, named(err, "template", r.GetName())
	}
	return &emptypb.Empty{}, nil
}

func toTemplate(t sandboxes.Template) *agentixv1.Template {
	want := t.Sandbox
	sandbox := toSandbox(sandboxes.Sandbox{
		Image: want.Image, Bundle: want.Bundle, Project: want.Project, Provider: want.Provider, Labels: maps.Clone(want.Labels), Env: want.Env,
		Resources: want.Resources, Workers: want.Workers, Network: want.Network, Security: want.Security, IdleTimeout: want.IdleTimeout,
	}, false)
	sandbox.Name, sandbox.State = "", agentixv1.SandboxState_SANDBOX_STATE_UNSPECIFIED
	if want.TTL > 0 {
		sandbox.Expiration = &agentixv1.Sandbox_Ttl{Ttl: durationpb.New(want.TTL)}
	}
	return &agentixv1.Template{
		Name: templatePrefix + t.ID, Sandbox: sandbox, Preload: t.Preload, Size: int32(t.Size), CreateTime: toTime(t.CreateTime),
		Ready: int32(t.Ready), Starting: int32(t.Starting), Hits: int64(t.Hits), Misses: int64(t.Misses),
		Message: text(t.Message), RetryTime: toTime(t.RetryTime),
	}
}
