package api

import (
	"fmt"

	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // The codec below it.
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// NewCodec is gRPC's codec for protocol buffers, but for responses of event streams, of which
// each client that does not read keeps two: gRPC's own would put them into buffers of 1 MiB,
// whatever their size.
func NewCodec() (encoding.CodecV2, error) {
	pool, err := mem.NewBinaryTieredBufferPool(12, 13, 14, 15, 16, 17, 18, 19, 20)
	if err != nil {
		return nil, fmt.Errorf("make buffers of event streams: %w", err)
	}
	return &codec{CodecV2: encoding.GetCodecV2("proto"), pool: pool}, nil
}

type codec struct {
	encoding.CodecV2
	pool mem.BufferPool
}

// Marshal writes a message.
func (c *codec) Marshal(v any) (mem.BufferSlice, error) {
	response, ok := v.(*agentixv1.StreamEventsResponse)
	if !ok {
		return c.CodecV2.Marshal(v) //nolint:wrapcheck // For gRPC.
	}
	buffer := c.pool.Get(proto.Size(response))
	data, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buffer)[:0], response)
	if err != nil {
		c.pool.Put(buffer)
		return nil, fmt.Errorf("write events: %w", err)
	}
	*buffer = data
	return mem.BufferSlice{mem.NewBuffer(buffer, c.pool)}, nil
}
