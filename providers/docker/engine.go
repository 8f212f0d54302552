package docker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agentixd/agentixd/internal/errs"
)

const (
	apiVersion     = "/v1.41" // of Docker 20.10; later engines know it, too
	maxAnswerBytes = 64 << 20 // 64 MiB: the longest answer that is read as a whole
	maxErrorBytes  = 300      // of what the engine says, in our errors
)

// engine is a client of the Engine API: the few requests that sandboxes need.
type engine struct {
	socket string
	client *http.Client
}

func newEngine(socket string) *engine {
	e := &engine{socket: socket}
	e.client = &http.Client{Transport: &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return e.dial(ctx) },
		MaxIdleConns:    8,
		IdleConnTimeout: 30 * time.Second,
	}}
	return e
}

func (e *engine) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", e.socket)
}

func (e *engine) close() { e.client.CloseIdleConnections() }

// statusError is an answer of the engine that is no success.
type statusError struct {
	code    int
	message string
}

// Error is what the engine said.
func (s *statusError) Error() string { return fmt.Sprintf("docker answered %d: %s", s.code, s.message) }

// answered tells whether err is an answer of the engine with this status.
func answered(err error, code int) bool {
	var s *statusError
	return errors.As(err, &s) && s.code == code
}

// translate gives the engine's errors our kinds.
func translate(err error) error {
	var known *errs.Error
	var s *statusError
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.As(err, &s):
		if s.code == http.StatusBadRequest {
			return errs.New(errs.FailedPrecondition, errs.Unsupported, "docker refuses it: %s", s.message).WithCause(err)
		}
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	var netErr *net.OpError
	if errors.As(err, &netErr) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errs.New(errs.Unavailable, errs.ProviderUnavailable, "the Docker Engine does not answer").WithCause(err).WithRetry(time.Second)
	}
	return err
}

// do sends a request; the caller closes the answer's body. An answer that is no success is an error.
func (e *engine) do(ctx context.Context, method, path string, query url.Values, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://docker"+apiVersion+path, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.URL.RawQuery = query.Encode()
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := e.client.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, fmt.Errorf("ask docker: %w", errors.Join(cause, err))
		}
		return nil, fmt.Errorf("ask docker: %w", err)
	}
	if err := checkStatus(resp); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

func checkStatus(resp *http.Response) error {
	if resp.StatusCode < 300 || resp.StatusCode == http.StatusNotModified {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		data = nil
	}
	var answer struct{ Message string }
	if json.Unmarshal(data, &answer) != nil || answer.Message == "" {
		answer.Message = strings.TrimSpace(string(data))
	}
	return &statusError{code: resp.StatusCode, message: shorten(answer.Message)}
}

func shorten(s string) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "\uFFFD")
	if len(s) > maxErrorBytes {
		return strings.ToValidUTF8(s[:maxErrorBytes], "") + "…"
	}
	return s
}

// get asks for an object.
func (e *engine) get(ctx context.Context, path string, query url.Values, answer any) error {
	return e.call(ctx, http.MethodGet, path, query, nil, answer)
}

// post asks for something to be done.
func (e *engine) post(ctx context.Context, path string, query url.Values, body, answer any) error {
	return e.call(ctx, http.MethodPost, path, query, body, answer)
}

// call sends an object, if there is one, and reads one, if it is wanted.
func (e *engine) call(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	var r io.Reader
	header := http.Header{}
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		r = bytes.NewReader(data)
		header.Set("Content-Type", "application/json")
	}
	resp, err := e.do(ctx, method, path, query, header, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	if answer == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswerBytes))
		return err
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswerBytes)).Decode(answer); err != nil {
		return fmt.Errorf("read docker's answer: %w", err)
	}
	return nil
}

// message is one of the objects that tell how far a long request is.
type message struct {
	Stream      string
	Status      string
	Error       string
	ErrorDetail struct{ Message string }
}

// upload sends a tar and calls told with each message. An error among them is a statusError of 400.
func (e *engine) upload(ctx context.Context, path string, query url.Values, body io.Reader, told func(message)) error {
	resp, err := e.do(ctx, http.MethodPost, path, query, http.Header{"Content-Type": {"application/x-tar"}}, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	d := json.NewDecoder(io.LimitReader(resp.Body, maxAnswerBytes))
	for {
		var m message
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read docker's answer: %w", err)
		}
		if m.Error != "" || m.ErrorDetail.Message != "" {
			text := m.ErrorDetail.Message
			if text == "" {
				text = m.Error
			}
			return &statusError{code: http.StatusBadRequest, message: shorten(text)}
		}
		told(m)
	}
}

// attachStdin opens a container's standard input. The end of the connection is the end of
// that input.
func (e *engine) attachStdin(ctx context.Context, container string) (*net.UnixConn, error) {
	plain, err := e.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask docker: %w", err)
	}
	conn := plain.(*net.UnixConn)
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	_, err = fmt.Fprintf(conn, "POST %s/containers/%s/attach?stream=1&stdin=1 HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n",
		apiVersion, url.PathEscape(container))
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("attach to standard input: %w", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // of a connection that is not HTTP any more
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("attach to standard input: %w", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols && resp.StatusCode != http.StatusOK {
		err := checkStatus(resp)
		_ = conn.Close()
		return nil, fmt.Errorf("attach to standard input: %w", err)
	}
	return conn, nil
}
