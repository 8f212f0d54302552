package api

import (
	"context"
	"errors"
	"io"

	"github.com/agentixd/agentixd/daemon/sandboxes"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// maxChunkBytes bounds one chunk of an archive: 1 MiB.
const maxChunkBytes = 1048576

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
	imager, err := s.manager.Images()
	if err != nil {
		return err
	}
	chunks := &chunkReader{recv: stream.Recv}
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

// chunkReader is the archive in the messages after the header.
type chunkReader struct {
	recv func() (*agentixv1.ImportImageRequest, error)
	rest []byte
	err  error
}

// Read returns the next bytes of the archive.
func (r *chunkReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		message, err := r.recv()
		switch chunk := message.GetMessage().(type) {
		case nil:
			if err == nil {
				err = errs.Invalid("chunk", "a message is empty")
			}
			r.err = err
		case *agentixv1.ImportImageRequest_Chunk:
			if r.rest, r.err = chunk.Chunk, err; len(r.rest) > maxChunkBytes {
				r.rest, r.err = nil, errs.OverLimit("chunk_bytes", maxChunkBytes, int64(len(chunk.Chunk)))
			}
		default:
			r.err = errs.Invalid("header", "only the first message may have it")
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
