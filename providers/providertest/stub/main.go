// Command stub stands in for agentix-runtime in the provider contract: it serves GET /health
// and does on request what hostile or unlucky code in a sandbox might do. It needs no
// Python and no shell, so it is PID 1 of any image.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "stub:", err)
		os.Exit(1)
	}
}

func run() error {
	socket := flag.String("socket", "", "path of the socket")
	project := flag.String("project", "", "project directory")
	tokenStdin := flag.Bool("token-stdin", false, "read the token from standard input")
	_, _ = flag.String("python", "", "as the runtime has it"), flag.Bool("front", false, "as the runtime has it")
	sleep := flag.Bool("sleep", false, "do nothing until killed")
	flag.Parse()
	if *sleep {
		<-time.After(time.Hour) // killed long before
		return nil
	}
	token, secret := "", ""
	if *tokenStdin {
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		if err != nil {
			return fmt.Errorf("read token: %w", err)
		}
		var t struct {
			Token           string
			NeighbourSecret string `json:"neighbour_secret"`
		}
		if err := json.Unmarshal([]byte(line), &t); err != nil {
			return fmt.Errorf("read token: %w", err)
		}
		token, secret = t.Token, t.NeighbourSecret
	}
	if os.Getenv("STUB_FAIL") != "" {
		return errors.New("asked to fail: " + os.Getenv("STUB_FAIL"))
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", *socket)
	if err != nil {
		return err
	}
	s := &stub{socket: *socket, project: *project, token: token, secret: secret}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /info", s.info)
	mux.HandleFunc("GET /read", s.read)
	mux.HandleFunc("GET /list", s.list)
	mux.HandleFunc("GET /write", s.write)
	mux.HandleFunc("GET /exit", s.exit)
	mux.HandleFunc("GET /spawn", s.spawn)
	mux.HandleFunc("GET /hog", s.hog)
	mux.HandleFunc("GET /replace", s.replace)
	mux.HandleFunc("GET /fill", s.fill)
	mux.HandleFunc("GET /remove", s.remove)
	mux.HandleFunc("GET /open", s.open)
	mux.HandleFunc("GET /dial", s.dial)
	mux.HandleFunc("GET /hammer", s.hammer)
	mux.HandleFunc("GET /hold", s.hold)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	go func() { <-stop; os.Exit(0) }()
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return server.Serve(l)
}

type stub struct{ socket, project, token, secret string }

func (s *stub) health(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, `{"status":"ok","version":"stub","ready":true}`)
}

// info tells arguments, environment, token, and what the process may do.
func (s *stub) info(w http.ResponseWriter, _ *http.Request) {
	status, _ := os.ReadFile("/proc/self/status")
	host, _ := os.Hostname()
	var ifaces []string
	if all, err := net.Interfaces(); err == nil {
		for _, i := range all {
			ifaces = append(ifaces, i.Name)
		}
	}
	wd, _ := os.Getwd()
	_ = json.NewEncoder(w).Encode(map[string]any{
		"args": os.Args, "env": os.Environ(), "token": s.token, "neighbour_secret": s.secret, "project": s.project, "pid": os.Getpid(),
		"status": string(status), "hostname": host, "interfaces": ifaces, "cwd": wd,
	})
}

func (s *stub) read(w http.ResponseWriter, r *http.Request) {
	data, err := os.ReadFile(r.URL.Query().Get("path"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	_, _ = w.Write(data)
}

// list walks the names below a path, two levels deep.
func (s *stub) list(w http.ResponseWriter, r *http.Request) {
	root := r.URL.Query().Get("path")
	depth := strings.Count(root, "/") + 2
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Count(path, "/") >= depth {
			return filepath.SkipDir
		}
		_, _ = fmt.Fprintln(w, path)
		return nil
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

func (s *stub) write(w http.ResponseWriter, r *http.Request) {
	size, _ := strconv.Atoi(r.URL.Query().Get("size"))
	if err := os.WriteFile(r.URL.Query().Get("path"), make([]byte, size), 0o600); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

func (s *stub) exit(_ http.ResponseWriter, r *http.Request) {
	if sig, err := strconv.Atoi(r.URL.Query().Get("signal")); err == nil {
		_ = syscall.Kill(os.Getpid(), syscall.Signal(sig))
		select {}
	}
	code, _ := strconv.Atoi(r.URL.Query().Get("code"))
	os.Exit(code)
}

// spawn starts processes that try to survive: a child in a session of its own whose parent
// has gone. It answers how many could be started.
func (s *stub) spawn(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.URL.Query().Get("n"))
	self, err := os.Executable()
	if err != nil {
		self = "/proc/self/exe"
	}
	started := 0
	for range n {
		cmd := exec.Command(self, "--sleep") //nolint:noctx // it is to outlive everything
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if r.URL.Query().Get("noenv") != "" {
			cmd.Env = []string{"LEFT=1"}
		}
		if err := cmd.Start(); err != nil {
			_, _ = fmt.Fprintln(w, started, err)
			return
		}
		started++
	}
	_, _ = fmt.Fprintln(w, started)
}

// hog takes memory until it is killed for it.
func (s *stub) hog(http.ResponseWriter, *http.Request) {
	var held [][]byte
	for {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		held = append(held, b)
		_ = held
	}
}

// replace puts a symlink to ?target in the place of the socket.
func (s *stub) replace(w http.ResponseWriter, r *http.Request) {
	if err := os.Remove(s.socket); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	if err := os.Symlink(r.URL.Query().Get("target"), s.socket); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}
