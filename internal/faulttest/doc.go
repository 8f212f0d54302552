// Package faulttest kills, cuts, stops and starves real processes (agentixd, agentix-runtime,
// a Python worker, containerd) under load, and checks what came of it.
//
// Three sources tell of each call: a file that the called function writes before all else
// (what ran), the history of each client (what was told), and the journal (what is kept).
// Check compares them. It knows nothing of how the system works: only what was promised.
package faulttest
