// Package worker carries the Python side of a sandbox into the runtime: the worker itself
// (_agentix_worker), the package that user code imports (agentix) and the bootstrap text
// for `python -c`. Everything is standard-library Python, its msgpack codec included, so a
// sandbox image needs python3 (3.9 or newer) and nothing else.
package worker

import (
	"embed"
	"io/fs"
)

//go:embed src/_agentix_worker/*.py src/agentix/*.py src/agentix/py.typed src/agentix/utils/*.py
var files embed.FS

// FS is the import root of the worker: the directories _agentix_worker and agentix.
var FS = mustSub(files, "src")

// Bootstrap is the program text for `python -c`. It reads AGENTIX_WORKER_IMPORT_ROOT (the
// directory that FS was unpacked to), AGENTIX_WORKER_PROJECT and AGENTIX_WORKER_FDS.
//
//go:embed bootstrap.py
var Bootstrap string

func mustSub(f embed.FS, dir string) fs.FS {
	sub, err := fs.Sub(f, dir)
	if err != nil {
		panic(err) // the directory is compiled in
	}
	return sub
}
