package api

import (
	"context"
	"errors"
	"io"

	"github.com/agentixd/agentixd/daemon/bundles"
	"github.com/agentixd/agentixd/daemon/sandboxes"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"google.golang.org/protobuf/types/known/emptypb"
)

// bundleService serves BundleService from the cache; the manager knows which are in use.
type bundleService struct {
	agentixv1.UnimplementedBundleServiceServer
	store   *bundles.Store
	manager *sandboxes.Manager
}

// ImportBundle reads a bundle chunk by chunk.
func (s *bundleService) ImportBundle(stream agentixv1.BundleService_ImportBundleServer) error {
	first, err := stream.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return err //nolint:wrapcheck // A status or a check's error.
	}
	header := first.GetHeader()
	if header == nil {
		return errs.Invalid("header", "the first message must have it")
	}
	chunks := &chunkReader{recv: func() (*[]byte, error) {
		message, err := stream.Recv()
		if chunk, ok := message.GetMessage().(*agentixv1.ImportBundleRequest_Chunk); ok && err == nil {
			return &chunk.Chunk, nil
		}
		return nil, err //nolint:wrapcheck // A status or a check's error.
	}}
	made, err := s.store.Import(stream.Context(), header.GetDigest(), chunks)
	if chunks.err != nil && !errors.Is(chunks.err, io.EOF) {
		return chunks.err // what the caller sent wrong, rather than what that did to the cache
	}
	if err != nil {
		return err //nolint:wrapcheck // Of package errs.
	}
	return stream.SendAndClose(toBundle(made)) //nolint:wrapcheck // A status.
}

// ListBundles returns all bundles.
func (s *bundleService) ListBundles(context.Context, *agentixv1.ListBundlesRequest) (*agentixv1.ListBundlesResponse, error) {
	all, err := s.store.List()
	if err != nil {
		return nil, err //nolint:wrapcheck // Of package errs.
	}
	response := &agentixv1.ListBundlesResponse{}
	for _, b := range all {
		response.Bundles = append(response.Bundles, toBundle(b))
	}
	return response, nil
}

// GetBundle returns one bundle.
func (s *bundleService) GetBundle(_ context.Context, r *agentixv1.GetBundleRequest) (*agentixv1.Bundle, error) {
	digest, err := parseBundle("name", r.GetName())
	if err != nil {
		return nil, err
	}
	found, err := s.store.Get(digest)
	if err != nil {
		return nil, err //nolint:wrapcheck // Of package errs.
	}
	return toBundle(found), nil
}

// DeleteBundle removes a bundle that no sandbox has.
func (s *bundleService) DeleteBundle(ctx context.Context, r *agentixv1.DeleteBundleRequest) (*emptypb.Empty, error) {
	digest, err := parseBundle("name", r.GetName())
	if err != nil {
		return nil, err
	}
	select { // before, not all users are known
	case <-s.manager.Ready():
	case <-ctx.Done():
		return nil, ctx.Err() //nolint:wrapcheck // The chain knows it.
	}
	err = s.store.Delete(ctx, digest, s.manager.BundleUser)
	if err != nil && (!r.GetAllowMissing() || !errs.Is(err, errs.NotFound)) {
		return nil, err //nolint:wrapcheck // Of package errs.
	}
	return &emptypb.Empty{}, nil
}
