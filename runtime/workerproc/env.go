package workerproc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Names of variables that pass between runtime and worker.
const (
	envImportRoot = "AGENTIX_WORKER_IMPORT_ROOT"
	envProject    = "AGENTIX_WORKER_PROJECT"
	envWorkerID   = "AGENTIX_WORKER_ID"
	envFDs        = "AGENTIX_WORKER_FDS"
	envSaved      = "AGENTIX_SAVED_"
	envAdded      = "AGENTIX_ADDED_"
)

// bundleRoot is where a bundle is mounted.
const bundleRoot = "/nix/runtime"

// bundlePaths says what a bundle adds to the search path variables.
var bundlePaths = []struct {
	name string
	dirs []string
}{
	{"LD_LIBRARY_PATH", []string{"lib"}},
	{"LIBRARY_PATH", []string{"lib"}},
	{"CPATH", []string{"include"}},
	{"C_INCLUDE_PATH", []string{"include"}},
	{"CPLUS_INCLUDE_PATH", []string{"include"}},
	{"PKG_CONFIG_PATH", []string{"lib/pkgconfig", "share/pkgconfig"}},
	{"CMAKE_PREFIX_PATH", []string{""}},
}

// hidden reports whether a variable of the runtime must not reach the worker's interpreter.
func hidden(name string) bool {
	switch name {
	case "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "LOCALE_ARCHIVE", "SSL_CERT_FILE":
		return true
	}
	return strings.HasPrefix(name, "NIX_") || strings.HasPrefix(name, "FONTCONFIG_")
}

// workerEnv makes the environment of a worker out of that of the runtime, as wire §9.1
// describes; image_env() in the sandbox reverses it.
func workerEnv(parent []string, python, id string, set map[string]string) []string {
	vars := map[string]string{}
	for _, kv := range parent {
		name, value, ok := strings.Cut(kv, "=")
		if ok && name != envFDs && name != envProject {
			vars[name] = value
		}
	}
	for name, value := range vars {
		if hidden(name) {
			vars[envSaved+name] = value
			delete(vars, name)
		}
	}
	prepend(vars, "PATH", filepath.Dir(python), bundleRoot+"/bin")
	for _, p := range bundlePaths {
		var dirs []string
		for _, dir := range p.dirs {
			if dir := filepath.Join(bundleRoot, dir); isDir(dir) {
				dirs = append(dirs, dir)
			}
		}
		if len(dirs) > 0 {
			prepend(vars, p.name, dirs...)
		}
	}
	vars[envWorkerID] = id
	vars["AGENTIX_LOG_CONTEXT"] = logContext(vars["AGENTIX_WORKER_LOG_CONTEXT"], id)
	if format := vars["AGENTIX_WORKER_LOG_FORMAT"]; format != "" {
		vars["AGENTIX_LOG_FORMAT"] = format
	}
	for name, value := range set {
		vars[name] = value
	}
	env := make([]string, 0, len(vars))
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

func logContext(given, id string) string {
	if given != "" {
		return given
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return "sandbox-" + host + "-worker-" + id
}

// prepend puts dirs before the entries of a path variable and records them in its
// AGENTIX_ADDED_ twin; duplicates and empty entries go, the first one stays.
func prepend(vars map[string]string, name string, dirs ...string) {
	vars[name] = joinPath(append(slices.Clone(dirs), strings.Split(vars[name], ":")...))
	added := envAdded + name
	vars[added] = joinPath(append(strings.Split(vars[added], ":"), dirs...))
}

func joinPath(entries []string) string {
	var kept []string
	for _, e := range entries {
		if e != "" && !slices.Contains(kept, e) {
			kept = append(kept, e)
		}
	}
	return strings.Join(kept, ":")
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
