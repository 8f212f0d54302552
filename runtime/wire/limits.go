package wire

// The limits of the project, in one table. Each has its unit; each refusal names its limit.
const (
	MaxFrameBytes     = 268435456 // 256 MiB: one worker frame; keep equal to _agentix_worker.framing.MAX_FRAME_BYTES
	MaxMessageBytes   = 268435456 // 256 MiB: one WebSocket message, either way
	MaxArgumentsBytes = 268431360 // 256 MiB - 4 KiB: arguments of a call, so that its frame fits; RESOURCE_EXHAUSTED "arguments_bytes"
	MaxValueBytes     = 268431360 // 256 MiB - 4 KiB: result of a call; error FrameTooLarge
	MaxEventBytes     = 16777216  // 16 MiB: one record or plugin event
	MaxDepth          = 200       // nesting of JSON and msgpack; INVALID_ARGUMENT
	MaxCallableBytes  = 1024      // module::qualname; INVALID_ARGUMENT
	MaxCallIDBytes    = 63        // [a-z0-9-]{1,63}; INVALID_ARGUMENT
	MaxErrorTextBytes = 1048576   // 1 MiB: message and traceback each of an error from a sandbox; cut
	MaxRetained       = 4096      // retained results of a runtime, entries
	MaxRetainedBytes  = 536870912 // 512 MiB: the same in bytes
	MaxStreamRing     = 10000     // unacked events that a neighbour's worker keeps, and may send again
	MaxHostEvents     = 100000    // unacked events that a runtime keeps for neighbours' hosts, by default; a gap tells what was lost
	MaxStreamBytes    = 33554432  // 32 MiB: unacked records kept in a runtime
	StreamWindowBytes = 4194304   // 4 MiB: records sent to the daemon and not acked yet
	MaxLineBytes      = 65536     // one captured line for a neighbour's host
	MaxBatchRecords   = 1024      // records in one Batch
	MaxBatchBytes     = 1048576   // 1 MiB: records in one Batch, unless a single one is larger
	MaxAttachments    = 10        // of one Socket.IO packet
	MaxPollingPackets = 16        // in one polling payload
	MaxCallIDs        = 100000    // in one resume; open calls of a daemon; RESOURCE_EXHAUSTED "open_calls"

	MaxBaggageEntries = 64         // of one call; INVALID_ARGUMENT
	MaxBaggageBytes   = 8192       // 8 KiB: keys and values of one call; INVALID_ARGUMENT
	MaxInflightBytes  = 1073741824 // 1 GiB: arguments of all open calls of a daemon; RESOURCE_EXHAUSTED "inflight_bytes"
	MaxRowValueBytes  = 262144     // 256 KiB: a result that the store keeps in its row; a larger one is a file of its own
	MaxKeptOutcomes   = 10000      // outcomes of named and submitted calls that the store keeps; the oldest go
	MaxCallRecords    = 1000000    // finished calls without a name that the store remembers for an hour; the oldest go
	MaxKeptBytes      = 1073741824 // 1 GiB: the same in bytes
	MaxRPCBytes       = 536870912  // 512 MiB: one gRPC message to the daemon; above every other limit, so that those answer with their names
	MaxBodyBytes      = 402653184  // 384 MiB: one HTTP request body, room for base64 of MaxArgumentsBytes; RESOURCE_EXHAUSTED "body_bytes"
	MaxEventStreams   = 1024       // StreamEvents at once of one principal; RESOURCE_EXHAUSTED "event_streams"
	MaxConnStreams    = 250        // requests at once on one gRPC connection over TCP
	MaxTextBytes      = 1048576    // 1 MiB: one text or attribute map of an event; cut with a count, so that an event stays below gRPC's 4 MiB
	MaxShortTextBytes = 4096       // 4 KiB: one path or status description of an event; cut
	MaxNameBytes      = 512        // one name in an event: logger, function, span, namespace; cut
	MaxOutputBytes    = 262144     // 256 KiB: one output event; longer output is several events
	MaxStreamIDBytes  = 64         // the id of a runtime's record stream; cut
	MaxJournalQueue   = 33554432   // 32 MiB: events of all sandboxes that wait for a commit; beyond it runtimes wait
	MaxSandboxQueue   = 8388608    // 8 MiB: the same of one sandbox, so that one that floods holds up no other
	MaxTextLogBytes   = 67108864   // 64 MiB: a text log is rotated, by default

	MaxWorkers  = 64 // worker processes of a sandbox; INVALID_ARGUMENT
	MaxIsolated = 64 // calls with a worker of their own at once in one sandbox; further ones wait
)
