//go:build failpoint

package failpoint

import "testing"

func TestEnableSetsAndDisables(t *testing.T) {
	disable, err := Enable("store/beforeCommit", "error(no)")
	if err != nil {
		t.Fatal(err)
	}
	if err := Inject("store/beforeCommit"); err == nil {
		t.Error("set point: got no error")
	}
	if err := Inject("store/other"); err != nil {
		t.Errorf("other point: got %v", err)
	}
	disable()
	if err := Inject("store/beforeCommit"); err != nil {
		t.Errorf("after disable: got %v", err)
	}
	if _, err := Enable("store/beforeCommit", "nonsense"); err == nil {
		t.Error("bad terms: got no error")
	}
}
