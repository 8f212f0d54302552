package archtest

// arrows says which packages of the project each package may import; tests may import what
// is listed for them besides. A name that ends in `/...` stands for all packages below it.
// The table is that of docs/architecture.md: an arrow is added here and there at once, with
// a reason that holds for the next one, too.
var arrows = []arrow{
	// Commands: flags in, exit code out.
	{from: "daemon/cmd/agentixd", to: []string{"daemon", "daemon/config", "providers/containerd", "providers/docker", "providers/external", "providers/process"}},
	{from: "daemon/cmd/agentix", to: []string{"gen/...", "internal/bundlebuild", "internal/dockerconfig"}}, // public API only

	// The daemon from its outside to its inside. Only what clients see knows protobuf; the
	// daemon itself names the services for its health.
	{
		from: "daemon",
		to: []string{
			"daemon/api", "daemon/auth", "daemon/bundles", "daemon/config", "daemon/dispatch", "daemon/events", "daemon/gateway",
			"daemon/sandboxes", "daemon/store", "gen/...", "providers", "runtime/wire",
		},
		tests: []string{"providers/containerd"},
	},
	{from: "daemon/api", to: []string{"daemon/auth", "daemon/bundles", "daemon/dispatch", "daemon/events", "daemon/sandboxes", "gen/...", "providers", "runtime/wire"}},
	{from: "daemon/gateway", to: []string{"gen/...", "runtime/wire"}},
	{from: "daemon/auth"},
	{from: "daemon/bundles", to: []string{"providers"}},
	{from: "daemon/config"},
	{
		from:  "daemon/sandboxes", // the only user of providers
		to:    []string{"daemon/events", "daemon/link", "daemon/relay", "daemon/store", "providers", "runtime/wire"},
		tests: []string{"providers/containerd", "providers/process", "providers/providertest"},
	},
	{from: "daemon/dispatch", to: []string{"daemon/calls", "daemon/events", "daemon/link", "daemon/store", "runtime/pickle", "runtime/wire"}},
	{from: "daemon/events", to: []string{"daemon/store", "runtime/wire"}},
	{from: "daemon/calls", to: []string{"runtime/wire"}},
	{from: "daemon/link", to: []string{"runtime/wire"}, tests: []string{"runtime/wire/wiretest"}},
	{from: "daemon/relay", tests: []string{"internal/await"}},
	{from: "daemon/store", to: []string{"runtime/wire"}},

	// Providers never meet each other, and never the daemon.
	{from: "providers"},
	{from: "providers/containerd", to: []string{"internal/dockerconfig", "providers"}, tests: []string{"providers/providertest"}},
	{from: "providers/docker", to: []string{"providers"}, tests: []string{"internal/await", "providers/providertest"}},
	{from: "providers/external", to: []string{"providers"}, tests: []string{"internal/await", "providers/providertest"}},
	{from: "providers/process", to: []string{"providers"}, tests: []string{"providers/providertest"}},
	{from: "providers/providertest", to: []string{"internal/await", "providers"}},
	{from: "providers/providertest/stub"},

	// The runtime never knows the daemon; the wire knows neither end. Pickles are data for
	// the dispatcher only.
	{from: "runtime/cmd/agentix-runtime", to: []string{"runtime", "runtime/bundled", "runtime/keeper"}, tests: []string{"runtime/siotest", "runtime/wire"}},
	{
		from:  "runtime",
		to:    []string{"runtime/calltable", "runtime/output", "runtime/reaper", "runtime/stream", "runtime/wire", "runtime/workerproc", "worker"},
		tests: []string{"runtime/keeper", "runtime/siotest", "runtime/wire/wiretest"},
	},
	{from: "runtime/bundled", to: []string{"runtime/reaper"}, tests: []string{"internal/await"}},
	{from: "runtime/calltable", to: []string{"runtime/wire"}},
	{from: "runtime/output", to: []string{"runtime/wire"}},
	{from: "runtime/pickle", to: []string{"runtime/wire"}, tests: []string{"runtime/wire/wiretest"}},
	{from: "runtime/reaper"},
	{from: "runtime/siotest", to: []string{"internal/await", "runtime/wire"}},
	{from: "runtime/stream", to: []string{"runtime/wire"}},
	{from: "runtime/keeper", to: []string{"runtime/reaper"}},
	{from: "runtime/workerproc", to: []string{"runtime/keeper", "runtime/output", "runtime/reaper", "runtime/wire"}, tests: []string{"runtime/wire/wiretest", "worker"}},
	{from: "runtime/wire", tests: []string{"runtime/wire/wiretest"}},
	{from: "runtime/wire/wiretest"},
	{from: "worker"},

	// Small things that know nothing of the project, and what tests start.
	{from: "internal/archtest"},
	{from: "internal/await"},
	{from: "internal/clock"},
	{from: "internal/dockerconfig"},
	{from: "internal/errs"},
	{from: "internal/failpoint"},
	{from: "internal/mutant"},
	{from: "internal/bundlebuild"},
	{from: "internal/census", tests: []string{"providers/..."}},
	{from: "internal/containerdtest", to: []string{"internal/await"}},
	{from: "internal/faulttest", to: []string{"gen/..."}},
	{from: "internal/daemontest", to: []string{"daemon", "daemon/config", "gen/...", "internal/await", "internal/containerdtest", "providers/containerd", "providers/external", "providers/process"}},
	{from: "test/census", to: []string{"internal/census"}},
	{from: "test/external", tests: []string{"daemon", "gen/...", "internal/faulttest", "runtime/wire"}},
	{from: "test/faults", tests: []string{"gen/...", "internal/failpoint", "internal/mutant", "internal/containerdtest", "internal/faulttest", "providers/containerd"}},
	{from: "test/e2e", tests: []string{"daemon", "gen/...", "providers/...", "runtime/wire"}},
}

// common may be imported by every package but the wire and these themselves.
var common = []string{"internal/clock", "internal/errs", "internal/failpoint", "internal/mutant"}

// bare packages are at the bottom: they may import nothing of the project.
var bare = []string{"runtime/wire", "runtime/reaper", "worker", "internal/archtest", "internal/await", "internal/clock", "internal/errs", "internal/failpoint", "internal/mutant"}

// outside says who alone may import a foreign module or a package of the standard library.
// Tests may import all of them.
var outside = []owner{
	{module: "google.golang.org/grpc", by: []string{"daemon", "daemon/api", "daemon/auth", "daemon/cmd/agentix", "daemon/gateway", "internal/daemontest", "internal/faulttest"}},
	{module: "google.golang.org/protobuf", by: []string{"daemon/api", "daemon/cmd/agentix", "daemon/gateway", "internal/faulttest"}},
	{module: "google.golang.org/genproto", by: []string{"daemon/api", "daemon/cmd/agentix", "daemon/gateway", "internal/faulttest"}},
	{module: "github.com/grpc-ecosystem/grpc-gateway", by: []string{"daemon", "daemon/gateway"}},
	{module: "modernc.org/sqlite", by: []string{"daemon/store"}},
	{module: "database/sql", by: []string{"daemon/store"}},
	{module: "github.com/coder/websocket", by: []string{"daemon/link", "runtime/siotest"}},
	{module: "github.com/zishang520/socket.io", by: []string{"runtime"}},
	{module: "github.com/containerd/containerd", by: []string{"internal/census", "internal/containerdtest", "providers/containerd"}},
	{module: "github.com/prometheus/client_golang", by: []string{"daemon"}},
	{module: "github.com/spf13/cobra", by: []string{"daemon/cmd/agentix"}},
	{module: "github.com/vmihailenco/msgpack", by: []string{"daemon/dispatch", "daemon/events", "daemon/link", "runtime", "runtime/stream", "runtime/wire", "runtime/workerproc"}},
}

// pure packages do no input or output of their own: state machines that a model can check.
var pure = []string{"daemon/calls", "runtime/pickle"}

var inputOutput = []string{"database/sql", "io/fs", "io/ioutil", "log", "log/slog", "net", "net/http", "os", "os/exec", "syscall"}
