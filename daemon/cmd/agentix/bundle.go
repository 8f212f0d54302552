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

const bundlePrefix = "bundles/"

func newBundle(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:     "bundle",
		Aliases: []string{"bundles"},
		Short:   "Build, import, list and remove bundles: a Python and code for any image",
		Args:    cobra.NoArgs,
	}
	command.AddCommand(newBundleBuild(), newBundleEnter(), newBundleImport(a), newBundleList(a), newBundleRemove(a))
	return command
}

// bundleName accepts a digest or a resource name.
func bundleName(digest string) string {
	if digest == "" || strings.HasPrefix(digest, bundlePrefix) {
		return digest
	}
	return bundlePrefix + strings.TrimPrefix(digest, "sha256:")
}

func newBundleImport(a *app) *cobra.Command {
	var digest string
	command := &cobra.Command{
		Use:     "import FILE",
		Short:   "Import a bundle from a tar, or from standard input for -, and print its name",
		Example: "  agentix bundle import app.bundle.tar",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			source := a.stdin
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return fmt.Errorf("open bundle: %w", err)
				}
				defer func() { _ = file.Close() }() // only read from
				source = file
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			made, err := uploadBundle(cmd.Context(), c, digest, source)
			if err != nil {
				return fmt.Errorf("import bundle: %w", err)
			}
			if a.output == "json" {
				return writeJSON(cmd.OutOrStdout(), made)
			}
			writeln(cmd.OutOrStdout(), oneLine(made.GetName()))
			return nil
		},
	}
	command.Flags().StringVar(&digest, "digest", "", "digest that the bundle must have (default: any)")
	return command
}

func uploadBundle(ctx context.Context, c *client, digest string, source io.Reader) (*agentixv1.Bundle, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the import has ended"))
	stream, err := c.bundles.ImportBundle(ctx)
	if err != nil {
		return nil, err
	}
	header := &agentixv1.ImportBundleHeader{Digest: digest}
	err = stream.Send(&agentixv1.ImportBundleRequest{Message: &agentixv1.ImportBundleRequest_Header{Header: header}})
	buffer := make([]byte, chunkBytes)
	for err == nil {
		var n int
		n, err = io.ReadFull(source, buffer)
		if n > 0 {
			chunk := &agentixv1.ImportBundleRequest_Chunk{Chunk: buffer[:n]}
			if sendErr := stream.Send(&agentixv1.ImportBundleRequest{Message: chunk}); sendErr != nil {
				break // the answer says why
			}
		}
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	return stream.CloseAndRecv()
}

func newBundleList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List bundles in the order of their names",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			response, err := c.bundles.ListBundles(cmd.Context(), &agentixv1.ListBundlesRequest{})
			if err != nil {
				return fmt.Errorf("list bundles: %w", err)
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			if a.output == "text" {
				writeln(table, "NAME\tTITLE\tSIZE\tRUN BY")
			}
			for _, b := range response.GetBundles() {
				if a.output == "json" {
					if err := writeJSON(cmd.OutOrStdout(), b); err != nil {
						return err
					}
					continue
				}
				by := b.GetPython()
				if b.GetServer() {
					by = "its own server"
				}
				writeln(table, strings.Join([]string{
					oneLine(b.GetName()), oneLine(b.GetTitle()), strconv.FormatInt(b.GetSizeBytes(), 10), oneLine(by),
				}, "\t"))
			}
			if a.output == "json" {
				return nil
			}
			return table.Flush()
		},
	}
}

func newBundleRemove(a *app) *cobra.Command {
	var allowMissing bool
	command := &cobra.Command{
		Use:     "rm BUNDLE...",
		Aliases: []string{"delete"},
		Short:   "Remove bundles that no sandbox has",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			for _, name := range args {
				request := &agentixv1.DeleteBundleRequest{Name: bundleName(name), AllowMissing: allowMissing}
				if _, err := c.bundles.DeleteBundle(cmd.Context(), request); err != nil {
					return fmt.Errorf("remove %s: %w", name, err)
				}
			}
			return nil
		},
	}
	command.Flags().BoolVar(&allowMissing, "allow-missing", false, "a bundle that does not exist is no error")
	return command
}
