package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/dockerconfig"
	"github.com/spf13/cobra"
)

// maxPasswordBytes bounds what --password-stdin reads: 64 KiB.
const maxPasswordBytes = 65536

// pullFlags are the options of image pull.
type pullFlags struct {
	name, username, config string
	passwordStdin          bool
	plainHTTP              bool
}

func newImagePull(a *app) *cobra.Command {
	var f pullFlags
	command := &cobra.Command{
		Use:   "pull REFERENCE",
		Short: "Pull an image from a registry and print its name",
		Long: "pull completes REFERENCE as docker does: python means docker.io/library/python:latest.\n\n" +
			"Credentials are those of --username, else what docker login keeps for the registry in\n" +
			"$DOCKER_CONFIG/config.json or ~/.docker/config.json or a credential helper named there,\n" +
			"else what the daemon has for it.",
		Example: "  agentix image pull python:3.12-slim\n  agentix image pull --plain-http localhost:5000/team/app:1",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			credentials, err := f.credentials(cmd.Context(), args[0], a.stdin)
			if err != nil {
				return err
			}
			request := &agentixv1.PullImageRequest{Reference: args[0], Name: f.name, PlainHttp: f.plainHTTP, Credentials: credentials}
			image, err := a.pull(cmd, request)
			if err != nil {
				return fmt.Errorf("pull %s: %w", args[0], err)
			}
			if a.output == "json" {
				return writeJSON(cmd.OutOrStdout(), image)
			}
			writeln(cmd.OutOrStdout(), oneLine(image.GetName()))
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&f.name, "name", "", "name of the image here (default: the completed reference)")
	flags.StringVarP(&f.username, "username", "u", "", "user at the registry; needs --password-stdin")
	flags.BoolVar(&f.passwordStdin, "password-stdin", false, "read the password of --username from standard input")
	flags.StringVar(&f.config, "docker-config", dockerconfig.DefaultPath(), "file that docker login keeps credentials in")
	flags.BoolVar(&f.plainHTTP, "plain-http", false, "HTTP without TLS; only for a registry at a loopback address")
	flags.Lookup("docker-config").DefValue = ""
	return command
}

// credentials are what to show to the registry; nil = none.
func (f *pullFlags) credentials(ctx context.Context, reference string, stdin io.Reader) (*agentixv1.RegistryCredentials, error) {
	if (f.username != "") != f.passwordStdin {
		return nil, errors.New("--username and --password-stdin go together")
	}
	if f.passwordStdin {
		password, err := io.ReadAll(io.LimitReader(stdin, maxPasswordBytes))
		if err != nil {
			return nil, fmt.Errorf("read the password: %w", err)
		}
		return &agentixv1.RegistryCredentials{Username: f.username, Password: strings.TrimRight(string(password), "\r\n")}, nil
	}
	config, err := dockerconfig.Load(f.config)
	if err != nil {
		return nil, err
	}
	found, ok, err := config.For(ctx, dockerconfig.RegistryOf(reference))
	if err != nil || !ok {
		return nil, err
	}
	return &agentixv1.RegistryCredentials{Username: found.Username, Password: found.Password, IdentityToken: found.IdentityToken}, nil
}

// pull follows a pull to its end and shows how far it is on the standard error.
func (a *app) pull(cmd *cobra.Command, request *agentixv1.PullImageRequest) (*agentixv1.Image, error) {
	c, err := a.connect()
	if err != nil {
		return nil, err
	}
	defer c.close()
	stream, err := c.images.PullImage(cmd.Context(), request)
	if err != nil {
		return nil, err
	}
	shown := progressLine{out: cmd.ErrOrStderr(), terminal: isTerminal(cmd.ErrOrStderr())}
	defer shown.end()
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the daemon sent no image")
		}
		if err != nil {
			return nil, err
		}
		if image := response.GetImage(); image != nil {
			return image, nil
		}
		shown.show(response.GetProgress())
	}
}

// progressLine shows progress: on a terminal in one line, else only new phases.
type progressLine struct {
	out      io.Writer
	terminal bool
	last     string
}

func (l *progressLine) show(p *agentixv1.PullProgress) {
	phase := strings.ToLower(enumText(p.GetPhase().String(), "PULL_PHASE_"))
	if !l.terminal {
		if phase != l.last {
			writeln(l.out, phase)
		}
		l.last = phase
		return
	}
	const mega = 1e6
	l.last = fmt.Sprintf("%-10s %.1f of %.1f MB", phase, float64(p.GetDoneBytes())/mega, float64(p.GetTotalBytes())/mega)
	write(l.out, "\r\x1b[K"+l.last)
}

func (l *progressLine) end() {
	if l.terminal && l.last != "" {
		write(l.out, "\r\x1b[K")
	}
}

func isTerminal(w any) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
