package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/spf13/cobra"
)

func newImageExport(a *app) *cobra.Command {
	var path string
	command := &cobra.Command{
		Use:     "export NAME",
		Aliases: []string{"save"},
		Short:   "Write an image as an archive that docker load and agentix image import read",
		Long: "export writes a tar that is an OCI image layout and a docker save archive at once, to the\n" +
			"file of -o or to standard output.",
		Example: "  agentix image export python -o python.tar",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeFile(cmd.OutOrStdout(), path, func(w io.Writer) error { return a.exportImage(cmd.Context(), args[0], w) })
		},
	}
	command.Flags().StringVarP(&path, "output", "o", "-", "file to write; - = standard output")
	return command
}

func (a *app) exportImage(ctx context.Context, name string, w io.Writer) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.close()
	stream, err := c.images.ExportImage(ctx, &agentixv1.ExportImageRequest{Name: name})
	for err == nil {
		var response *agentixv1.ExportImageResponse
		if response, err = stream.Recv(); err == nil {
			_, err = w.Write(response.GetChunk())
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("export %s: %w", name, err)
}

// writeFile fills a file, which appears under its name only once it is whole; - is standard output.
func writeFile(stdout io.Writer, path string, fill func(io.Writer) error) error {
	if path == "-" {
		if isTerminal(stdout) {
			return errors.New("an archive is nothing for a terminal; name a file with -o")
		}
		return fill(stdout)
	}
	part := path + ".part"
	file, err := os.OpenFile(part, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o666) //nolint:gosec // As the user's umask says.
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	err = errors.Join(fill(file), file.Close())
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		_ = os.Remove(part)
	}
	return err
}

func newImageRemove(a *app) *cobra.Command {
	var allowMissing bool
	command := &cobra.Command{
		Use:     "rm NAME...",
		Aliases: []string{"delete"},
		Short:   "Remove images, and what no other image and no sandbox needs",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			for _, name := range args {
				request := &agentixv1.DeleteImageRequest{Name: name, AllowMissing: allowMissing}
				if _, err := c.images.DeleteImage(cmd.Context(), request); err != nil {
					return fmt.Errorf("remove %s: %w", name, err)
				}
			}
			return nil
		},
	}
	command.Flags().BoolVar(&allowMissing, "allow-missing", false, "an image that does not exist is no error")
	return command
}
