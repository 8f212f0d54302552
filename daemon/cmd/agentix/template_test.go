package main

import (
	"context"
	"strings"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// templates is a TemplateService that keeps what it was asked.
type templates struct {
	agentixv1.UnimplementedTemplateServiceServer
	got []proto.Message
}

func (s *templates) CreateTemplate(_ context.Context, r *agentixv1.CreateTemplateRequest) (*agentixv1.Template, error) {
	s.got = append(s.got, proto.CloneOf(r))
	return &agentixv1.Template{Name: "templates/warm"}, nil
}

func (s *templates) ListTemplates(context.Context, *agentixv1.ListTemplatesRequest) (*agentixv1.ListTemplatesResponse, error) {
	return &agentixv1.ListTemplatesResponse{Templates: []*agentixv1.Template{
		{Name: "templates/warm", Ready: 1, Starting: 2, Size: 3, Hits: 4, Misses: 5, Message: "no\x1b image"},
	}}, nil
}

func (s *templates) UpdateTemplate(_ context.Context, r *agentixv1.UpdateTemplateRequest) (*agentixv1.Template, error) {
	s.got = append(s.got, proto.CloneOf(r))
	return &agentixv1.Template{}, nil
}

func (s *templates) DeleteTemplate(_ context.Context, r *agentixv1.DeleteTemplateRequest) (*emptypb.Empty, error) {
	s.got = append(s.got, proto.CloneOf(r))
	return &emptypb.Empty{}, nil
}

func TestTemplates(t *testing.T) {
	service := &templates{}
	address := serve(t, &daemon{templates: service})
	for _, c := range []struct{ args, out string }{
		{"create --id warm --image python --preload app --preload numpy --size 4 --ttl 1h", "warm\n"},
		{"resize warm 7", ""},
		{"rm warm", ""},
	} {
		ran := execute(t, "", append([]string{"--address", address, "template"}, strings.Fields(c.args)...)...)
		if diff := cmp.Diff(ran, result{0, c.out, ""}); diff != "" {
			t.Error(diff)
		}
	}
	made := service.got[0].(*agentixv1.CreateTemplateRequest)
	if made.GetTemplateId() != "warm" || made.GetTemplate().GetSize() != 4 || made.GetTemplate().GetSandbox().GetImage() != "python" ||
		made.GetTemplate().GetSandbox().GetTtl().AsDuration().Hours() != 1 || len(made.GetTemplate().GetPreload()) != 2 {
		t.Errorf("asked for %v", made)
	}
	want := []proto.Message{
		&agentixv1.UpdateTemplateRequest{Template: &agentixv1.Template{Name: "templates/warm", Size: 7}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"size"}}},
		&agentixv1.DeleteTemplateRequest{Name: "templates/warm"},
	}
	if diff := cmp.Diff(service.got[1:], want, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	listed := execute(t, "", "--address", address, "template", "ls")
	if fields := strings.Fields(listed.Stdout); listed.Code != 0 || !cmp.Equal(fields[7:], []string{"warm", "1", "2", "3", "4", "5", `no\x1b`, "image"}) {
		t.Errorf("%+v", listed)
	}
	if ran := execute(t, "", "--address", address, "template", "resize", "warm", "many"); ran.Code != 2 {
		t.Errorf("%+v", ran)
	}
}
