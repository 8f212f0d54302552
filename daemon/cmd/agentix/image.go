package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/spf13/cobra"
)

const chunkBytes = 1 << 20 // 1 MiB, the most that one message of an import may carry

func newImage(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:     "image",
		Aliases: []string{"images"},
		Short:   "Pull, import, export, list and remove images",
		Args:    cobra.NoArgs,
	}
	command.AddCommand(newImagePull(a), newImageImport(a), newImageExport(a), newImageList(a), newImageRemove(a))
	return command
}

func newImageImport(a *app) *cobra.Command {
	var name string
	var rootfs bool
	command := &cobra.Command{
		Use:   "import FILE",
		Short: "Import an archive of images, or a root file system, and print the names",
		Long: "import reads an OCI or docker archive, or with --rootfs a tar of a root file system,\n" +
			"from FILE or, for -, from standard input.",
		Example: "  agentix image import --rootfs --name python rootfs.tar",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			source := a.stdin
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return fmt.Errorf("open archive: %w", err)
				}
				defer func() { _ = file.Close() }() // only read from
				source = file
			}
			header := &agentixv1.ImportImageHeader{Name: name, Format: agentixv1.ImageFormat_IMAGE_FORMAT_ARCHIVE}
			if rootfs {
				header.Format = agentixv1.ImageFormat_IMAGE_FORMAT_ROOTFS
			}
			return a.importImage(cmd, header, source)
		},
	}
	command.Flags().StringVar(&name, "name", "", "name of the image; required with --rootfs")
	command.Flags().BoolVar(&rootfs, "rootfs", false, "FILE is a tar of a root file system")
	return command
}

func (a *app) importImage(cmd *cobra.Command, header *agentixv1.ImportImageHeader, source io.Reader) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.close()
	response, err := upload(cmd.Context(), c, header, source)
	if err != nil {
		return fmt.Errorf("import image: %w", err)
	}
	for _, image := range response.GetImages() {
		if a.output == "json" {
			if err := writeJSON(cmd.OutOrStdout(), image); err != nil {
				return err
			}
			continue
		}
		writeln(cmd.OutOrStdout(), oneLine(image.GetName()))
	}
	return nil
}

func upload(ctx context.Context, c *client, header *agentixv1.ImportImageHeader, source io.Reader) (*agentixv1.ImportImageResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the import has ended"))
	stream, err := c.images.ImportImage(ctx)
	if err != nil {
		return nil, err
	}
	message := &agentixv1.ImportImageRequest{Message: &agentixv1.ImportImageRequest_Header{Header: header}}
	err = stream.Send(message)
	buffer := make([]byte, chunkBytes)
	for err == nil {
		var n int
		n, err = io.ReadFull(source, buffer)
		if n > 0 {
			chunk := &agentixv1.ImportImageRequest_Chunk{Chunk: buffer[:n]}
			if sendErr := stream.Send(&agentixv1.ImportImageRequest{Message: chunk}); sendErr != nil {
				break // the answer says why
			}
		}
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	return stream.CloseAndRecv()
}

func newImageList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List images in the order of their names",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			response, err := c.images.ListImages(cmd.Context(), &agentixv1.ListImagesRequest{})
			if err != nil {
				return fmt.Errorf("list images: %w", err)
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			if a.output == "text" {
				writeln(table, "NAME\tSIZE\tDIGEST")
			}
			for _, image := range response.GetImages() {
				if a.output == "json" {
					if err := writeJSON(cmd.OutOrStdout(), image); err != nil {
						return err
					}
					continue
				}
				writeln(table, strings.Join([]string{
					oneLine(image.GetName()), strconv.FormatInt(image.GetSizeBytes(), 10), oneLine(image.GetDigest()),
				}, "\t"))
			}
			if a.output == "json" {
				return nil
			}
			return table.Flush()
		},
	}
}
