//go:build faults

// Package faults kills, cuts, stops and starves real daemons, runtimes and workers under
// load, and checks with internal/faulttest that each call still has one outcome, ran at most
// once, and that the journal tells all of it once and in order.
//
// It needs the build tag faults; `make test-faults` runs it. AGENTIX_FAULTS=long is the long
// form, AGENTIX_FAULTS_SEED repeats the random choices of a run.
package faults

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/agentixd/agentixd/internal/faulttest"
	"github.com/agentixd/agentixd/internal/mutant"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

// long tells whether the long form was asked for.
func long() bool { return os.Getenv("AGENTIX_FAULTS") == "long" }

// random is the source of all choices of a test. Its seed is told, so that they can be made again.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("AGENTIX_FAULTS_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano()) % 1e9
	}
	t.Logf("AGENTIX_FAULTS_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // to be repeated, not to be secret
}

// start runs a daemon.
func start(t *testing.T) *faulttest.Daemon {
	t.Helper()
	d := prepare(t)
	d.Start()
	return d
}

// prepare is start without the start. TestMutants runs these tests with a planted fault.
func prepare(t *testing.T) *faulttest.Daemon {
	t.Helper()
	planted := os.Getenv(plantedEnv)
	if planted == "" {
		return faulttest.NewDaemon(t, faulttest.Build(t))
	}
	d := faulttest.NewDaemon(t, faulttest.Build(t, "mutant"))
	d.Env = append(d.Env, mutant.EnvVar+"="+planted)
	d.Binaries = d.Binaries.WithEnv(t, d.Dir, mutant.EnvVar+"="+planted)
	d.Forget = true
	return d
}

// assertClean fails the test for each violation.
func assertClean(t *testing.T, r faulttest.Report) {
	t.Helper()
	if len(r.Violations) > 0 {
		t.Errorf("%s", r.Text())
	}
}
