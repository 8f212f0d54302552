package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

func newTemplate(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:     "template",
		Aliases: []string{"templates"},
		Short:   "Keep sandboxes ready ahead: create, list, resize and remove warm pools",
		Args:    cobra.NoArgs,
	}
	command.AddCommand(newTemplateCreate(a), newTemplateList(a), newTemplateResize(a), newTemplateRemove(a))
	return command
}

// templateName accepts an id or a resource name.
func templateName(id string) string {
	if strings.HasPrefix(id, "templates/") {
		return id
	}
	return "templates/" + id
}

func newTemplateCreate(a *app) *cobra.Command {
	var f createFlags
	var preload []string
	var size int32
	command := &cobra.Command{
		Use:     "create",
		Short:   "Keep a template and fill its pool in the background; print its id",
		Args:    cobra.NoArgs,
		Example: "  agentix template create --id warm --image python --project ./project --preload app --size 4\n  agentix sandbox create --template warm",
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
			made, err := c.templates.CreateTemplate(cmd.Context(), &agentixv1.CreateTemplateRequest{
				TemplateId: f.id, Template: &agentixv1.Template{Sandbox: request.GetSandbox(), Preload: preload, Size: size},
			})
			if err != nil {
				return fmt.Errorf("create template: %w", err)
			}
			if a.output == "json" {
				return writeJSON(cmd.OutOrStdout(), made)
			}
			writeln(cmd.OutOrStdout(), oneLine(strings.TrimPrefix(made.GetName(), "templates/")))
			return nil
		},
	}
	flags := command.Flags()
	f.addSandbox(flags)
	flags.StringVar(&f.id, "id", "", "id of the template (default: a random one)")
	flags.StringArrayVar(&preload, "preload", nil, "module that each worker imports ahead; repeatable")
	flags.Int32Var(&size, "size", 1, "how many sandboxes wait, with all their memory")
	return command
}

func newTemplateList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List templates and how it stands with their pools",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			list, err := c.templates.ListTemplates(cmd.Context(), &agentixv1.ListTemplatesRequest{})
			if err != nil {
				return fmt.Errorf("list templates: %w", err)
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			if a.output == "text" {
				writeln(table, "ID\tREADY\tSTARTING\tSIZE\tHITS\tMISSES\tMESSAGE")
			}
			for _, t := range list.GetTemplates() {
				if a.output == "json" {
					if err := writeJSON(cmd.OutOrStdout(), t); err != nil {
						return err
					}
					continue
				}
				writeln(table, fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d\t%s", oneLine(strings.TrimPrefix(t.GetName(), "templates/")),
					t.GetReady(), t.GetStarting(), t.GetSize(), t.GetHits(), t.GetMisses(), oneLine(t.GetMessage())))
			}
			if a.output == "json" {
				return nil
			}
			return table.Flush()
		},
	}
}

func newTemplateResize(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "resize TEMPLATE SIZE",
		Short: "Change how many sandboxes wait; also ends the pause after failures",
		Args:  exactly(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := strconv.ParseInt(args[1], 10, 32)
			if err != nil {
				return errors.New("SIZE is a number of sandboxes")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			_, err = c.templates.UpdateTemplate(cmd.Context(), &agentixv1.UpdateTemplateRequest{
				Template: &agentixv1.Template{Name: templateName(args[0]), Size: int32(size)}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"size"}},
			})
			if err != nil {
				return fmt.Errorf("resize %s: %w", args[0], err)
			}
			return nil
		},
	}
}

func newTemplateRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "rm TEMPLATE...",
		Aliases: []string{"delete"},
		Short:   "Remove templates and what waits in their pools; what was taken stays",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.close()
			for _, id := range args {
				if _, err := c.templates.DeleteTemplate(cmd.Context(), &agentixv1.DeleteTemplateRequest{Name: templateName(id)}); err != nil {
					return fmt.Errorf("remove %s: %w", id, err)
				}
			}
			return nil
		},
	}
}
