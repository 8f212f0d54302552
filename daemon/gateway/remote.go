package gateway

import (
	"context"
	"io"
	"net/http"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// handleRemote serves Remote, in place of the generated handler, which knows no Prefer header.
func (g *gateway) handleRemote() error {
	return g.route(http.MethodPost, "/v1/{sandbox=sandboxes/*}:remote", agentixv1.RemoteService_Remote_FullMethodName,
		func(ctx context.Context, w http.ResponseWriter, r *http.Request, path map[string]string) error {
			request := &agentixv1.RemoteRequest{}
			if err := decodeBody(r.Body, request); err != nil {
				return err
			}
			request.Sandbox = path["sandbox"]
			_, _ = io.Copy(io.Discard, r.Body)
			c := &remoteCall{gateway: g, client: agentixv1.NewRemoteServiceClient(g.Conn), w: w, prefer: parsePrefer(r.Header.Values("Prefer"))}
			if err := c.serve(ctx, request); err != nil { // answered here: with the headers of the RPC
				g.rpcError(runtime.NewServerMetadataContext(ctx, c.metadata), g.mux, marshaler{}, w, r, err)
			}
			return nil
		})
}

// remoteCall is one request to Remote.
type remoteCall struct {
	*gateway
	client   agentixv1.RemoteServiceClient
	w        http.ResponseWriter
	prefer   prefer
	metadata runtime.ServerMetadata
}

func (c *remoteCall) serve(ctx context.Context, request *agentixv1.RemoteRequest) error {
	if !c.prefer.async {
		return c.remote(ctx, request)
	}
	call, err := c.client.SubmitCall(ctx, &agentixv1.SubmitCallRequest{Call: request}, grpc.Header(&c.metadata.HeaderMD))
	if err != nil {
		return err
	}
	header := c.w.Header()
	header.Set("Preference-Applied", c.prefer.applied(true))
	if c.prefer.wait > 0 {
		name := call.GetName()
		if call, err = c.client.WaitCall(ctx, &agentixv1.WaitCallRequest{Name: name, Timeout: durationpb.New(c.prefer.wait)}); err != nil {
			return err
		}
		if call.GetState() != agentixv1.CallState_CALL_STATE_RUNNING {
			header.Set("Preference-Applied", c.prefer.applied(false))
			// Remote joins the call and has the answer in its own terms.
			request.CallId = name[len(request.GetSandbox()+"/calls/"):]
			return c.remote(ctx, request)
		}
	}
	header.Set("Location", "/v1/"+call.GetName())
	return c.answer(http.StatusAccepted, call)
}

func (c *remoteCall) remote(ctx context.Context, request *agentixv1.RemoteRequest) error {
	response, err := c.client.Remote(ctx, request, grpc.Header(&c.metadata.HeaderMD))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, response)
}

// answer writes a message as the generated handlers do.
func (c *remoteCall) answer(code int, message proto.Message) error {
	text, err := marshaler{}.Marshal(message)
	if err != nil {
		return err
	}
	for _, id := range c.metadata.HeaderMD.Get("x-request-id") {
		c.w.Header().Set("X-Request-Id", id)
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(code)
	_, _ = c.w.Write(text)
	return nil
}
