//go:build containerd

package e2e

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// TestBridgedSandbox: asked for by gRPC, changed by gRPC and REST, seen from Python. That the rules hold
// is tested with the provider.
func TestBridgedSandbox(t *testing.T) {
	const forward = "/proc/sys/net/ipv4/ip_forward"
	old, err := os.ReadFile(forward)
	if err == nil {
		err = os.WriteFile(forward, []byte("1"), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(forward, old, 0) })
	e, plain := start(t)
	bridge := func(cidrs ...string) *agentixv1.Network {
		return &agentixv1.Network{Mode: agentixv1.NetworkMode_NETWORK_MODE_BRIDGE, AllowCidrs: cidrs}
	}
	sandbox := &agentixv1.Sandbox{Image: e.Template.GetImage(), Project: e.Project, Network: bridge("198.51.100.2/32", "198.51.100.53/32")}
	sandbox.Network.DnsServers = []string{"198.51.100.53"}
	made, err := e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: sandbox, SandboxId: "bridged"})
	if err != nil {
		t.Fatal(err)
	}
	name := made.GetName()
	isValue(`"nameserver 198.51.100.53\n"`)(t, call(t, e, name, "hostile::read", `["/etc/resolv.conf"]`))
	for _, address := range []string{"198.51.100.3", "169.254.169.254", "192.0.2.1"} {
		if a := call(t, e, name, "hostile::connect", `["`+address+`", 80]`); a.value == `"ok"` || a.st.Code() != codes.OK {
			t.Errorf("%s: %+v", address, a)
		}
	}
	update := func(name string, n *agentixv1.Network) error {
		_, err := e.Sandboxes.UpdateSandbox(t.Context(), &agentixv1.UpdateSandboxRequest{
			Sandbox:    &agentixv1.Sandbox{Name: name, Network: n},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"network.allow_cidrs"}},
		})
		return err
	}
	if err := update(name, &agentixv1.Network{AllowCidrs: []string{"198.51.100.53/32", "198.51.101.0/24"}}); err != nil {
		t.Error(err)
	}
	isStatus(codes.InvalidArgument, 400, "INVALID_FIELD", "sandbox.network.allow_cidrs")(t, answer{st: status.Convert(update(name, bridge("169.254.0.0/16")))})
	isStatus(codes.InvalidArgument, 400, "INVALID_FIELD", "sandbox.network.dns_servers")(t, answer{st: status.Convert(update(name, bridge("10.0.0.0/8")))})
	isStatus(codes.InvalidArgument, 400, "INVALID_FIELD", "sandbox.network.allow_cidrs")(t, answer{st: status.Convert(update(plain, bridge("10.0.0.0/8")))})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, e.URL+"/v1/"+name, strings.NewReader(`{"network": {"allowCidrs": ["198.51.100.53/32", "203.0.113.0/24"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	response, err := e.HTTP.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(body), "203.0.113.0/24") {
		t.Errorf("PATCH: %s %s, %v", response.Status, body, err)
	}
	got, err := e.Sandboxes.GetSandbox(t.Context(), &agentixv1.GetSandboxRequest{Name: name})
	if err != nil || strings.Join(got.GetNetwork().GetAllowCidrs(), " ") != "198.51.100.53/32 203.0.113.0/24" {
		t.Errorf("got %v, %v", got.GetNetwork(), err)
	}
	_, err = e.Sandboxes.CreateSandbox(t.Context(), &agentixv1.CreateSandboxRequest{Sandbox: &agentixv1.Sandbox{
		Image: e.Template.GetImage(), Network: &agentixv1.Network{Mode: agentixv1.NetworkMode_NETWORK_MODE_HOST},
	}})
	isStatus(codes.FailedPrecondition, 400, "UNSUPPORTED")(t, answer{st: status.Convert(err)})
}
