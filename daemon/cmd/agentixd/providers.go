package main

// The providers of this build, one import each.
import (
	_ "github.com/agentixd/agentixd/providers/containerd"
	_ "github.com/agentixd/agentixd/providers/docker"
	_ "github.com/agentixd/agentixd/providers/external"
	_ "github.com/agentixd/agentixd/providers/process"
)
