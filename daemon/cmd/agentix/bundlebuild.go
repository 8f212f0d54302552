package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/agentixd/agentixd/internal/bundlebuild"
	"github.com/spf13/cobra"
)

var notInName = regexp.MustCompile(`[^a-z0-9._-]+`)

// enterName is the hidden command by which the builder starts itself in a namespace.
const enterName = "enter-namespace"

func newBundleBuild() *cobra.Command {
	var python, project, name, tag, path string
	command := &cobra.Command{
		Use:   "build",
		Short: "Make a bundle of an interpreter, its packages and a project",
		Long: "build copies the CPython of --python with its libraries and its dynamic loader, the packages of\n" +
			"its virtual environment if it is that of one, and the project, into a tree for /nix, and writes\n" +
			"it as a tar. The bundle runs in any image for this processor, without or with another Python or C\n" +
			"library. Nothing is downloaded. It wants root, or a host that lets users make user namespaces.",
		Example: "  agentix bundle build --python .venv/bin/python --project . -o app.bundle.tar",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			if name == "" {
				name = defaultName(project)
			}
			options := bundlebuild.Options{
				Python: python, Project: project, Name: name, Tag: tag, Enter: []string{self, "bundle", enterName, "--"},
				Warn: func(format string, args ...any) {
					writeln(cmd.ErrOrStderr(), "agentix: "+oneLine(fmt.Sprintf(format, args...)))
				},
			}
			return writeFile(cmd.OutOrStdout(), path, func(w io.Writer) error { return bundlebuild.Build(cmd.Context(), options, w) })
		},
	}
	flags := command.Flags()
	flags.StringVar(&python, "python", "python3", "interpreter; that of a virtual environment brings its packages")
	flags.StringVar(&project, "project", "", "directory with code that can be imported in the sandbox")
	flags.StringVar(&name, "name", "", "what the bundle calls itself (default: the project's directory)")
	flags.StringVar(&tag, "tag", "latest", "tag of the name")
	flags.StringVarP(&path, "output", "o", "-", "file to write; - = standard output")
	return command
}

func defaultName(project string) string {
	if abs, err := filepath.Abs(project); err == nil && project != "" {
		if name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(filepath.Base(abs)), "-"), "-._"); name != "" {
			return name
		}
	}
	return "bundle"
}

func newBundleEnter() *cobra.Command {
	return &cobra.Command{
		Use:    enterName + " ROOT NIX PROGRAM ARGUMENT...",
		Hidden: true,
		Args:   cobra.MinimumNArgs(3),
		RunE: func(_ *cobra.Command, args []string) error {
			return bundlebuild.Enter(args[0], args[1], args[2:])
		},
	}
}
