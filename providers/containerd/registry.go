package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"

	"github.com/agentixd/agentixd/internal/dockerconfig"
	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

const (
	maxReferenceBytes = 512
	maxRedirects      = 10
	dialTimeout       = 10 * time.Second
	headerTimeout     = 30 * time.Second
	stallTimeout      = 60 * time.Second // without a byte from the registry
)

// completeReference is a reference as docker completes it, and its registry.
func completeReference(field, text string) (full, host string, err error) {
	if text == "" || len(text) > maxReferenceBytes {
		return "", "", errs.Invalid(field, "must have from 1 to %d bytes", maxReferenceBytes)
	}
	named, err := reference.ParseDockerRef(text)
	if err != nil {
		return "", "", errs.Invalid(field, "must be like [HOST[:PORT]/]PATH[:TAG][@DIGEST]: %s", err).WithCause(err)
	}
	return named.String(), reference.Domain(named), nil
}

// isLoopback tells whether a registry's host is this machine, as far as its name says.
func isLoopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if name == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil && ip.IsLoopback()
}

// credentials are those of the pull, else those that the operator keeps for the registry.
func (p *Provider) credentials(ctx context.Context, pull providers.Pull, host string) (providers.RegistryCredentials, error) {
	if !pull.Credentials.Empty() || p.cfg.RegistryConfig == "" {
		return pull.Credentials, nil
	}
	config, err := dockerconfig.Load(p.cfg.RegistryConfig) // each time: it may have changed
	if err != nil {
		return providers.RegistryCredentials{}, err
	}
	found, _, err := config.For(ctx, host)
	return providers.RegistryCredentials(found), err
}

// newResolver speaks to one registry; the caller closes the transport's idle connections.
func newResolver(host string, pull providers.Pull, creds providers.RegistryCredentials) (remotes.Resolver, *http.Transport) {
	dialer := &net.Dialer{Timeout: dialTimeout, Control: refuseLinkLocal}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return stallingConn{conn}, nil
		},
		ForceAttemptHTTP2: true, TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: headerTimeout, MaxIdleConns: 8,
	}
	web := &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		switch {
		case len(via) >= maxRedirects:
			return fmt.Errorf("more than %d redirects", maxRedirects)
		case r.URL.Scheme != "https" && !pull.PlainHTTP:
			return errors.New("a redirect to a URL without TLS")
		}
		return nil
	}}
	authorizer := docker.NewDockerAuthorizer(docker.WithAuthClient(web), docker.WithAuthCreds(func(asking string) (string, string, error) {
		switch {
		case dockerconfig.Host(asking) != dockerconfig.Host(host):
			return "", "", nil
		case creds.IdentityToken != "":
			return "", creds.IdentityToken, nil
		}
		return creds.Username, creds.Password, nil
	}))
	return docker.NewResolver(docker.ResolverOptions{Hosts: docker.ConfigureDefaultRegistries(
		docker.WithAuthorizer(authorizer), docker.WithClient(web),
		docker.WithPlainHTTP(func(string) (bool, error) { return pull.PlainHTTP, nil }),
	)}), transport
}

// refuseLinkLocal keeps pulls away from addresses at which a host's metadata is served. It
// sees the address after the name was resolved.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dial %s: %w", address, err)
	}
	if ip := ap.Addr().Unmap(); ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
		return fmt.Errorf("dial %s: registries at such addresses are refused", ip)
	}
	return nil
}

// stallingConn ends a connection from which nothing comes any more.
type stallingConn struct{ net.Conn }

// Read fails once nothing came for stallTimeout.
func (c stallingConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// registryError says what a pull failed of. What the registry wrote is not repeated, and URLs
// are not: they can carry tokens.
func registryError(full, host string, err error) error {
	var status remoteerrors.ErrUnexpectedStatus
	var web *url.Error
	refused := errs.New(errs.PermissionDenied, errs.RegistryRefused,
		"registry %s refuses %s: it wants other credentials, or there is no such image", host, full).WithCause(err)
	unavailable := func(format string, args ...any) error {
		return errs.New(errs.Unavailable, errs.RegistryUnavailable, "registry %s: %s", host, shorten(fmt.Sprintf(format, args...))).
			WithCause(err).WithRetry(5 * time.Second)
	}
	switch {
	case errors.Is(err, docker.ErrInvalidAuthorization):
		return refused
	case errors.As(err, &status):
		switch status.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			return refused
		case http.StatusNotFound:
			return noSuchImage(full, host, err)
		}
		return unavailable("it answered %s", http.StatusText(status.StatusCode))
	case errors.As(err, &web):
		return unavailable("%s", web.Err)
	case errdefs.IsNotFound(err):
		return noSuchImage(full, host, err)
	case errdefs.IsFailedPrecondition(err), errors.Is(err, io.ErrUnexpectedEOF):
		return unavailable("it sent other content than its digest says")
	}
	return err
}

func noSuchImage(full, host string, err error) error {
	return errs.New(errs.NotFound, errs.ImageNotFound, "registry %s has no %s for this platform", host, full).WithCause(err).WithMeta("image", full)
}
