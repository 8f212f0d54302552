package api

import (
	"time"

	"github.com/agentixd/agentixd/daemon/sandboxes"
	agentixv1 "github.com/agentixd/agentixd/gen/go/agentix/v1"
	"github.com/agentixd/agentixd/internal/errs"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// fromDuration reads a duration that is set; the domain bounds it.
func fromDuration(field string, d *durationpb.Duration) (time.Duration, error) {
	if err := d.CheckValid(); err != nil {
		return 0, errs.Invalid(field, "is no valid duration").WithCause(err)
	}
	return d.AsDuration(), nil
}

func fromTime(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if err := t.CheckValid(); err != nil {
		return time.Time{}, errs.Invalid(field, "is no valid time").WithCause(err)
	}
	return t.AsTime(), nil
}

// setExpiry takes what a create says about the end of the sandbox.
func setExpiry(request *sandboxes.CreateRequest, want *agentixv1.Sandbox) (err error) {
	switch end := want.GetExpiration().(type) {
	case *agentixv1.Sandbox_ExpireTime:
		request.ExpireTime, err = fromTime("sandbox.expire_time", end.ExpireTime)
	case *agentixv1.Sandbox_Ttl:
		request.TTL, err = fromDuration("sandbox.ttl", end.Ttl)
		if err == nil && request.TTL == 0 {
			err = errs.Invalid("sandbox.ttl", "must be at least 1s")
		}
	}
	if err == nil && want.GetIdleTimeout() != nil {
		request.IdleTimeout, err = fromDuration("sandbox.idle_timeout", want.GetIdleTimeout())
	}
	return err
}
