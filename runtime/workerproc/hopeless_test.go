package workerproc

import "testing"

// TestOneFailedStartLeavesHope: while another place may still start a worker, calls wait.
func TestOneFailedStartLeavesHope(t *testing.T) {
	p := New(Config{Workers: 2})
	p.tried, p.failure, p.failures = 2, &BootError{Type: "RuntimeError", Message: "killed"}, 1
	p.waiting = []queued{{call: true, callID: "c"}}
	if failed := p.hopeless(); len(failed.Calls) != 0 || len(p.waiting) != 1 {
		t.Errorf("after one failure of two places: %v end, %d wait", failed.Calls, len(p.waiting))
	}
	p.failures = 2
	if failed := p.hopeless(); len(failed.Calls) != 1 || len(p.waiting) != 0 {
		t.Errorf("after two: %v end, %d wait", failed.Calls, len(p.waiting))
	}
}
