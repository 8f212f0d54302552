package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// expiryFlags are when a sandbox ends by itself.
type expiryFlags struct {
	ttl, idleTimeout time.Duration
	expireTime       string
}

func (f *expiryFlags) add(flags *pflag.FlagSet) {
	flags.DurationVar(&f.ttl, "ttl", 0, "delete it after this time, for example 90m (default: never); an update never shortens by it")
	flags.StringVar(&f.expireTime, "expire-time", "", "delete it at this time, for example 2026-11-29T12:00:00Z")
	flags.DurationVar(&f.idleTimeout, "idle-timeout", 0, "delete it after this long without a call (default: never)")
}

// set takes the flags over into a message.
func (f *expiryFlags) set(s *agentixv1.Sandbox) error {
	switch {
	case f.ttl != 0 && f.expireTime != "":
		return errors.New("--ttl and --expire-time exclude each other")
	case f.ttl != 0:
		s.Expiration = &agentixv1.Sandbox_Ttl{Ttl: durationpb.New(f.ttl)}
	case f.expireTime != "":
		at, err := time.Parse(time.RFC3339, f.expireTime)
		if err != nil {
			return fmt.Errorf("--expire-time is a time like 2026-11-29T12:00:00Z, not %q", f.expireTime)
		}
		s.Expiration = &agentixv1.Sandbox_ExpireTime{ExpireTime: timestamppb.New(at)}
	}
	if f.idleTimeout != 0 {
		s.IdleTimeout = durationpb.New(f.idleTimeout)
	}
	return nil
}

func newSandboxUpdate(a *app) *cobra.Command {
	var f expiryFlags
	var labels, unlabel []string
	var never, allowNothing bool
	var allow []string
	command := &cobra.Command{
		Use:     "update SANDBOX",
		Short:   "Change labels, expiry and network of a sandbox",
		Args:    exactly(1),
		Example: "  agentix sandbox update box --ttl 1h --label team=x --unlabel old",
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := pairs("--label", labels)
			if err != nil {
				return err
			}
			s := &agentixv1.Sandbox{Name: sandboxName(args[0]), Labels: set}
			if err := f.set(s); err != nil {
				return err
			}
			if never && s.GetExpiration() != nil {
				return errors.New("--never-expire excludes --ttl and --expire-time")
			}
			var paths []string
			for _, key := range append(slices.Sorted(maps.Keys(set)), unlabel...) {
				paths = append(paths, "labels."+key)
			}
			if f.ttl != 0 {
				paths = append(paths, "ttl")
			}
			if f.expireTime != "" || never {
				paths = append(paths, "expire_time")
			}
			if cmd.Flags().Changed("idle-timeout") {
				paths = append(paths, "idle_timeout")
			}
			if len(allow) > 0 || allowNothing {
				if len(allow) > 0 && allowNothing {
					return errors.New("--allow-nothing excludes --allow-cidr")
				}
				s.Network = &agentixv1.Network{AllowCidrs: allow}
				paths = append(paths, "network.allow_cidrs")
			}
			if len(paths) == 0 {
				return errors.New("nothing to change; see agentix sandbox update --help")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			changed, err := c.sandboxes.UpdateSandbox(cmd.Context(), &agentixv1.UpdateSandboxRequest{
				Sandbox: s, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths},
			})
			if err != nil {
				return fmt.Errorf("update %s: %w", args[0], err)
			}
			if a.output == "json" {
				return writeJSON(cmd.OutOrStdout(), changed)
			}
			return nil
		},
	}
	flags := command.Flags()
	f.add(flags)
	flags.Lookup("idle-timeout").Usage = "delete it after this long without a call; 0 = never"
	flags.BoolVar(&never, "never-expire", false, "take its expire time away")
	flags.StringArrayVar(&allow, "allow-cidr", nil, "range that a bridged sandbox may reach, instead of those before; repeatable")
	flags.BoolVar(&allowNothing, "allow-nothing", false, "a bridged sandbox reaches nothing")
	flags.StringArrayVarP(&labels, "label", "l", nil, "NAME=VALUE label to set; repeatable")
	flags.StringArrayVar(&unlabel, "unlabel", nil, "NAME of a label to remove; repeatable")
	return command
}

func removeMatching(cmd *cobra.Command, a *app, c *client, request *agentixv1.DeleteMatchingSandboxesRequest) error {
	matched, err := c.sandboxes.DeleteMatchingSandboxes(cmd.Context(), request)
	if err != nil {
		return fmt.Errorf("remove matching sandboxes: %w", err)
	}
	if a.output == "json" {
		if err := writeJSON(cmd.OutOrStdout(), matched); err != nil {
			return err
		}
	} else {
		for _, name := range matched.GetSandboxes() {
			writeln(cmd.OutOrStdout(), oneLine(sandboxID(name)))
		}
	}
	var failures []string
	for _, failure := range matched.GetFailures() {
		failures = append(failures, fmt.Sprintf("%s: %s", oneLine(sandboxID(failure.GetName())), oneLine(failure.GetMessage())))
	}
	if len(failures) > 0 {
		return fmt.Errorf("not removed: %s", strings.Join(failures, "; "))
	}
	return nil
}

func newSandboxWatch(a *app) *cobra.Command {
	var filter string
	command := &cobra.Command{
		Use:   "watch",
		Short: "Show sandboxes and each change to one, until interrupted",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			stream, err := c.sandboxes.WatchSandboxes(cmd.Context(), &agentixv1.WatchSandboxesRequest{Filter: filter})
			for err == nil {
				var response *agentixv1.WatchSandboxesResponse
				if response, err = stream.Recv(); err != nil {
					break
				}
				for _, change := range response.GetChanges() {
					if a.output == "json" {
						if err := writeJSON(cmd.OutOrStdout(), change); err != nil {
							return err
						}
						continue
					}
					s := change.GetSandbox()
					writeln(cmd.OutOrStdout(), strings.Join([]string{
						enumText(change.GetType().String(), "SANDBOX_CHANGE_TYPE_"), oneLine(sandboxID(s.GetName())),
						enumText(s.GetState().String(), "SANDBOX_STATE_"), enumText(s.GetReason().String(), "SANDBOX_REASON_"),
					}, "\t"))
				}
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("watch sandboxes: %w", err)
		},
	}
	command.Flags().StringVar(&filter, "filter", "", filterHelp)
	return command
}

func newSandboxPause(a *app) *cobra.Command {
	return eachSandbox(a, "pause SANDBOX...", "Freeze sandboxes; calls are refused until they are resumed",
		func(cmd *cobra.Command, c *client, name string) error {
			_, err := c.sandboxes.PauseSandbox(cmd.Context(), &agentixv1.PauseSandboxRequest{Name: name})
			return err //nolint:wrapcheck // eachSandbox does.
		})
}

func newSandboxResume(a *app) *cobra.Command {
	return eachSandbox(a, "resume SANDBOX...", "Let paused sandboxes go on",
		func(cmd *cobra.Command, c *client, name string) error {
			_, err := c.sandboxes.ResumeSandbox(cmd.Context(), &agentixv1.ResumeSandboxRequest{Name: name})
			return err //nolint:wrapcheck // eachSandbox does.
		})
}

// eachSandbox is a command that does one thing to each sandbox of its arguments.
func eachSandbox(a *app, use, short string, do func(cmd *cobra.Command, c *client, name string) error) *cobra.Command {
	verb, _, _ := strings.Cut(use, " ")
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			for _, id := range args {
				if err := do(cmd, c, sandboxName(id)); err != nil {
					return fmt.Errorf("%s %s: %w", verb, id, err)
				}
			}
			return nil
		},
	}
}
