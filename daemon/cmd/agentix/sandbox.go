package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newSandbox(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:     "sandbox",
		Aliases: []string{"sandboxes"},
		Short:   "Create, list, change, pause and remove sandboxes",
		Args:    cobra.NoArgs,
	}
	command.AddCommand(newSandboxCreate(a), newSandboxList(a), newSandboxSnapshot(a), newSandboxRemove(a), newSandboxUpdate(a), newSandboxWatch(a),
		newSandboxPause(a), newSandboxResume(a))
	return command
}

// createFlags are the options of sandbox create.
type createFlags struct {
	id, requestID, image, bundle, project, memory string
	env, labels                                   []string
	cpus                                          float64
	pids                                          int64
	workers                                       int32
	provider, runtimeURL                          string
	expose                                        bool
	template                                      string
	expiryFlags
	isolationFlags
}

func newSandboxCreate(a *app) *cobra.Command {
	var f createFlags
	command := &cobra.Command{
		Use:     "create",
		Short:   "Create a sandbox and print its id when it can be called",
		Args:    cobra.NoArgs,
		Example: "  agentix sandbox create --image python --project ./project",
		RunE: func(cmd *cobra.Command, _ []string) error {
			request, err := f.request()
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			made, err := c.sandboxes.CreateSandbox(cmd.Context(), request)
			if err != nil {
				return fmt.Errorf("create sandbox: %w", err)
			}
			if a.output == "json" {
				return writeJSON(cmd.OutOrStdout(), made)
			}
			writeln(cmd.OutOrStdout(), oneLine(sandboxID(made.GetName())))
			if f.expose {
				writeln(cmd.OutOrStdout(), oneLine(made.GetRuntime().GetUrl()))
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&f.id, "id", "", "id of the sandbox (default: a random one)")
	flags.StringVar(&f.runtimeURL, "runtime-url", "", "runtime to join: http(s)://[user:password@]host:port or unix:///path; implies --provider external")
	flags.BoolVar(&f.expose, "expose-runtime", false, "let clients of the public protocol reach the runtime at the URL that is printed")
	f.addSandbox(flags)
	flags.StringVar(&f.template, "template", "", "take a sandbox that waits in this template's pool, or start one from it")
	flags.StringVar(&f.requestID, "request-id", "", "the same id again returns the sandbox made by the first request")
	return command
}

// addSandbox adds what says how a sandbox is to be.
func (f *createFlags) addSandbox(flags *pflag.FlagSet) {
	flags.StringVar(&f.bundle, "bundle", "", "bundle to mount at /nix; its Python runs the code")
	flags.StringVar(&f.image, "image", "", "name of an imported image")
	flags.StringVar(&f.project, "project", "", "host directory, mounted read-only and first on the Python path")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "NAME=VALUE for the user's code; repeatable")
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "NAME=VALUE label; repeatable")
	flags.Float64Var(&f.cpus, "cpus", 0, "processors, for example 1.5 (default: the daemon's)")
	flags.StringVar(&f.memory, "memory", "", "memory in bytes, or with k, m, g, for example 512m (default: the daemon's)")
	flags.Int64Var(&f.pids, "pids", 0, "processes and threads (default: the daemon's)")
	flags.Int32Var(&f.workers, "workers", 0, "worker processes that run calls side by side, at most 64 (default 1)")
	f.isolationFlags.add(flags)
	flags.StringVar(&f.provider, "provider", "", "what runs it (default: the daemon's); external joins the runtime at --runtime-url")
	f.expiryFlags.add(flags)
}

func (f *createFlags) request() (*agentixv1.CreateSandboxRequest, error) {
	env, err := pairs("--env", f.env)
	if err != nil {
		return nil, err
	}
	labels, err := pairs("--label", f.labels)
	if err != nil {
		return nil, err
	}
	memory, err := parseBytes("--memory", f.memory)
	if err != nil {
		return nil, err
	}
	project := f.project
	if project != "" {
		// The daemon has another working directory.
		if project, err = filepath.Abs(project); err != nil {
			return nil, fmt.Errorf("find project: %w", err)
		}
	}
	sandbox := &agentixv1.Sandbox{Image: f.image, Bundle: bundleName(f.bundle), Project: project, Env: env, Labels: labels}
	if f.cpus != 0 || memory != 0 || f.pids != 0 {
		sandbox.Resources = &agentixv1.Resources{Cpus: f.cpus, MemoryBytes: memory, Pids: f.pids}
	}
	if err := f.isolationFlags.apply(sandbox); err != nil {
		return nil, err
	}
	sandbox.Provider, sandbox.ExposeRuntime, sandbox.Workers = f.provider, f.expose, f.workers
	if f.template != "" {
		sandbox.Template = templateName(f.template)
	}
	if err := f.set(sandbox); err != nil {
		return nil, err
	}
	if f.runtimeURL != "" {
		sandbox.Runtime = &agentixv1.Runtime{Url: f.runtimeURL}
		if sandbox.Provider == "" {
			sandbox.Provider = "external"
		}
	}
	return &agentixv1.CreateSandboxRequest{Sandbox: sandbox, SandboxId: f.id, RequestId: f.requestID}, nil
}

func pairs(flag string, values []string) (map[string]string, error) {
	found := make(map[string]string, len(values))
	for _, value := range values {
		name, text, ok := strings.Cut(value, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%s takes NAME=VALUE, not %q", flag, value)
		}
		found[name] = text
	}
	return found, nil
}

// parseBytes reads a number of bytes with an optional k, m or g (powers of 1024).
func parseBytes(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	digits, unit := strings.ToLower(text), int64(1)
	for suffix, size := range map[string]int64{"k": 1 << 10, "m": 1 << 20, "g": 1 << 30} {
		if cut, ok := strings.CutSuffix(digits, suffix); ok {
			digits, unit = cut, size
			break
		}
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || number <= 0 || number > (1<<62)/unit {
		return 0, fmt.Errorf("%s is a number of bytes like 512m, not %q", flag, text)
	}
	return number * unit, nil
}

func newSandboxList(a *app) *cobra.Command {
	var filter string
	command := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List sandboxes in order of creation",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			if a.output == "text" {
				writeln(table, "ID\tSTATE\tREASON\tIMAGE\tPROVIDER\tCREATED")
			}
			for token := ""; ; {
				page, err := c.sandboxes.ListSandboxes(cmd.Context(), &agentixv1.ListSandboxesRequest{PageToken: token, Filter: filter})
				if err != nil {
					return fmt.Errorf("list sandboxes: %w", err)
				}
				for _, s := range page.GetSandboxes() {
					if a.output == "json" {
						if err := writeJSON(cmd.OutOrStdout(), s); err != nil {
							return err
						}
						continue
					}
					writeln(table, strings.Join([]string{
						oneLine(sandboxID(s.GetName())), enumText(s.GetState().String(), "SANDBOX_STATE_"),
						enumText(s.GetReason().String(), "SANDBOX_REASON_"), oneLine(s.GetImage()), oneLine(s.GetProvider()),
						s.GetCreateTime().AsTime().Local().Format(time.DateTime),
					}, "\t"))
				}
				if token = page.GetNextPageToken(); token == "" {
					break
				}
			}
			if a.output == "json" {
				return nil
			}
			return table.Flush()
		},
	}
	command.Flags().StringVar(&filter, "filter", "", filterHelp)
	return command
}

const filterHelp = `only those that match, for example 'state = READY AND labels.team = "x"'`

// enumText returns the name of an enum value without its prefix; "-" for the unspecified one.
func enumText(name, prefix string) string {
	if text := strings.TrimPrefix(name, prefix); text != "UNSPECIFIED" {
		return text
	}
	return "-"
}

func newSandboxRemove(a *app) *cobra.Command {
	var allowMissing, dryRun bool
	var filter string
	command := &cobra.Command{
		Use:     "rm SANDBOX... | rm --filter FILTER",
		Aliases: []string{"delete"},
		Short:   "Remove sandboxes and all that they had on the host",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch byFilter := cmd.Flags().Changed("filter"); {
			case byFilter == (len(args) > 0):
				return fmt.Errorf("name sandboxes, or select them by --filter")
			case dryRun && !byFilter:
				return fmt.Errorf("--dry-run goes with --filter")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			if len(args) == 0 {
				return removeMatching(cmd, a, c, &agentixv1.DeleteMatchingSandboxesRequest{Filter: filter, DryRun: dryRun})
			}
			for _, id := range args {
				request := &agentixv1.DeleteSandboxRequest{Name: sandboxName(id), AllowMissing: allowMissing}
				if _, err := c.sandboxes.DeleteSandbox(cmd.Context(), request); err != nil {
					return fmt.Errorf("remove %s: %w", id, err)
				}
			}
			return nil
		},
	}
	command.Flags().BoolVar(&allowMissing, "allow-missing", false, "a sandbox that does not exist is no error")
	command.Flags().StringVar(&filter, "filter", "", `all that match, for example 'labels.team = "x"'; '*' is everything`)
	command.Flags().BoolVar(&dryRun, "dry-run", false, "with --filter: print what would be removed")
	return command
}

func newSandboxSnapshot(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "snapshot SANDBOX IMAGE",
		Short: "Make an image of a sandbox's file system as it is now, and print its name",
		Long: "snapshot keeps what is on the sandbox's root file system, not its memory and not what is mounted\n" +
			"into it. sandbox create --image IMAGE forks from it as often as wanted.",
		Args: exactly(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			request := &agentixv1.SnapshotSandboxRequest{Name: sandboxName(args[0]), Image: args[1]}
			image, err := c.sandboxes.SnapshotSandbox(cmd.Context(), request)
			if err != nil {
				return fmt.Errorf("snapshot %s: %w", args[0], err)
			}
			if a.output == "json" {
				return writeJSON(cmd.OutOrStdout(), image)
			}
			writeln(cmd.OutOrStdout(), oneLine(image.GetName()))
			return nil
		},
	}
}
