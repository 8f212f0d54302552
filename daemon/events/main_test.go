package events

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimEnv); dir != "" {
		appendUntilKilled(dir)
		return
	}
	goleak.VerifyTestMain(m)
}
