package api

import (
	"bufio"
	"context"
	"errors"
	"io"
	"regexp"

	"github.com/agentixd/agentixd/daemon/sandboxes"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
	"google.golang.org/protobuf/types/known/emptypb"
)

// imageService serves ImageService from the provider.
type imageService struct {
	agentixv1.UnimplementedImageServiceServer
	manager *sandboxes.Manager
}

// ImportImage reads an archive chunk by chunk; nothing of it is held longer than needed.
func (s *imageService) ImportImage(stream agentixv1.ImageService_ImportImageServer) error {
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return errs.Invalid("header", "the first message must have it")
	}
	if err != nil {
		return err //nolint:wrapcheck // A status or a check's error.
	}
	header := first.GetHeader()
	if header == nil {
		return errs.Invalid("header", "the first message must have it")
	}
	if header.GetName() != "" {
		if err := checkImageName("header.name", header.GetName()); err != nil {
			return err
		}
	}
	imager, err := s.manager.Images()
	if err != nil {
		return err
	}
	chunks := &chunkReader{recv: func() (*[]byte, error) { return chunkOf(stream.Recv()) }}
	images, err := importImage(stream.Context(), imager, header, chunks)
	if chunks.err != nil && !errors.Is(chunks.err, io.EOF) {
		return chunks.err // what the caller sent wrong, rather than what that did to the provider
	}
	if err != nil {
		return err
	}
	response := &agentixv1.ImportImageResponse{}
	for _, image := range images {
		response.Images = append(response.Images, toImage(image))
	}
	return stream.SendAndClose(response) //nolint:wrapcheck // A status.
}

// PullImage pulls an image and tells of progress.
func (s *imageService) PullImage(r *agentixv1.PullImageRequest, stream agentixv1.ImageService_PullImageServer) error {
	if r.GetName() != "" {
		if err := checkImageName("name", r.GetName()); err != nil {
			return err
		}
	}
	if c := r.GetCredentials(); c.GetIdentityToken() != "" && c.GetUsername()+c.GetPassword() != "" {
		return errs.Invalid("credentials", "must have either username and password or identity_token")
	}
	imager, err := s.manager.Images()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	image, err := imager.PullImage(ctx, toPull(r), func(p providers.PullProgress) {
		message := &agentixv1.PullImageResponse_Progress{Progress: &agentixv1.PullProgress{
			Phase:     agentixv1.PullPhase(agentixv1.PullPhase_value["PULL_PHASE_"+string(p.Phase)]),
			DoneBytes: p.DoneBytes, TotalBytes: p.TotalBytes,
		}}
		if err := stream.Send(&agentixv1.PullImageResponse{Message: message}); err != nil {
			cancel(err)
		}
	})
	if err != nil {
		return err //nolint:wrapcheck // Of package errs.
	}
	return stream.Send(&agentixv1.PullImageResponse{Message: &agentixv1.PullImageResponse_Image{Image: toImage(image)}}) //nolint:wrapcheck // A status.
}

// chunkOf is the chunk of a message; nil if it has none.
func chunkOf(message *agentixv1.ImportImageRequest, err error) (*[]byte, error) {
	if chunk, ok := message.GetMessage().(*agentixv1.ImportImageRequest_Chunk); ok && err == nil {
		return &chunk.Chunk, nil
	}
	return nil, err
}

func toPull(r *agentixv1.PullImageRequest) providers.Pull {
	return providers.Pull{
		Reference: r.GetReference(), Name: r.GetName(), PlainHTTP: r.GetPlainHttp(),
		Credentials: providers.RegistryCredentials{
			Username: r.GetCredentials().GetUsername(), Password: r.GetCredentials().GetPassword(), IdentityToken: r.GetCredentials().GetIdentityToken(),
		},
	}
}

// ExportImage sends an archive chunk by chunk.
func (s *imageService) ExportImage(r *agentixv1.ExportImageRequest, stream agentixv1.ImageService_ExportImageServer) error {
	imager, err := s.manager.Images()
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(chunkWriter(func(chunk []byte) error {
		return stream.Send(&agentixv1.ExportImageResponse{Chunk: chunk})
	}), maxChunkBytes)
	if err := imager.ExportImage(stream.Context(), r.GetName(), w); err != nil {
		return err //nolint:wrapcheck // Of package errs.
	}
	return w.Flush() //nolint:wrapcheck // A status.
}

// GetImage returns one image.
func (s *imageService) GetImage(ctx context.Context, r *agentixv1.GetImageRequest) (*agentixv1.Image, error) {
	imager, err := s.manager.Images()
	if err != nil {
		return nil, err
	}
	image, err := imager.GetImage(ctx, r.GetName())
	if err != nil {
		return nil, named(err, "image", r.GetName())
	}
	return toImage(image), nil
}

// DeleteImage removes an image.
func (s *imageService) DeleteImage(ctx context.Context, r *agentixv1.DeleteImageRequest) (*emptypb.Empty, error) {
	imager, err := s.manager.Images()
	if err != nil {
		return nil, err
	}
	err = imager.DeleteImage(ctx, r.GetName())
	if err != nil && (!r.GetAllowMissing() || !errs.Is(err, errs.NotFound)) {
		return nil, named(err, "image", r.GetName())
	}
	return &emptypb.Empty{}, nil
}

// imageName is what images may be called here; daemon/sandboxes takes no others.
var imageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}$`)

func checkImageName(field, name string) error {
	if !imageName.MatchString(name) {
		return errs.Invalid(field, "must match %s", imageName)
	}
	return nil
}

func importImage(ctx context.Context, imager providers.Imager, header *agentixv1.ImportImageHeader, archive io.Reader) ([]providers.Image, error) {
	switch header.GetFormat() {
	case agentixv1.ImageFormat_IMAGE_FORMAT_UNSPECIFIED, agentixv1.ImageFormat_IMAGE_FORMAT_ARCHIVE:
		return imager.ImportArchive(ctx, header.GetName(), archive) //nolint:wrapcheck // Of package errs.
	case agentixv1.ImageFormat_IMAGE_FORMAT_ROOTFS:
		if header.GetName() == "" {
			return nil, errs.Invalid("header.name", "is required for a root file system")
		}
		image, err := imager.ImportRootFS(ctx, header.GetName(), archive)
		return []providers.Image{image}, err //nolint:wrapcheck // Of package errs.
	default:
		return nil, errs.Invalid("header.format", "%d is no format", header.GetFormat())
	}
}

// ListImages returns all images.
func (s *imageService) ListImages(ctx context.Context, _ *agentixv1.ListImagesRequest) (*agentixv1.ListImagesResponse, error) {
	imager, err := s.manager.Images()
	if err != nil {
		return nil, err
	}
	images, err := imager.ListImages(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // Of package errs.
	}
	response := &agentixv1.ListImagesResponse{}
	for _, image := range images {
		response.Images = append(response.Images, toImage(image))
	}
	return response, nil
}
