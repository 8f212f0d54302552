package containerd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentixd/agentixd/internal/errs"
)

// TestLookUp: an image's user is read from its own files as docker does, and these lead nowhere.
func TestLookUp(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\nbroken\napp:x:1500:1600::/home/app:/bin/sh\nhuge:x:4000000:1::/:/\n",
		"group":  "root:x:0:\napp:x:1600:\nextra:x:1700:other,app\nstaff:x:50:other\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	for user, want := range map[string]account{
		"app":       {uid: 1500, gid: 1600, groups: []uint32{1700}, home: "/home/app"},
		"1500":      {uid: 1500, gid: 1600, groups: []uint32{1700}, home: "/home/app"},
		"app:staff": {uid: 1500, gid: 50, home: "/home/app"},
		"app:7":     {uid: 1500, gid: 7, home: "/home/app"},
		"1234":      {uid: 1234},
		"1234:1234": {uid: 1234, gid: 1234},
	} {
		if got, err := lookUp(root, user); err != nil || !cmp.Equal(got, want, cmp.AllowUnexported(account{})) {
			t.Errorf("%s: %+v, %v; want %+v", user, got, err, want)
		}
	}
	for _, user := range []string{"nobody-here", "app:none", "huge", "4000000000", "-1"} {
		if got, err := lookUp(root, user); !errs.Is(err, errs.FailedPrecondition) {
			t.Errorf("%s: %+v, %v; want FailedPrecondition", user, got, err)
		}
	}
	// A link out of the image is not followed.
	if err := os.Remove(filepath.Join(dir, "etc", "passwd")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "etc", "passwd")); err != nil {
		t.Fatal(err)
	}
	if got, err := lookUp(root, "daemon"); err == nil {
		t.Errorf("the host's user: %+v", got)
	}
}
