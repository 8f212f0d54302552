package runtime

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/agentixd/agentixd/runtime/calltable"
	"github.com/agentixd/agentixd/runtime/wire"
)

// handler is the HTTP side: /health, /call and, under /socket.io/, the Socket.IO server.
func (r *Runtime) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", r.serveHealth)
	mux.HandleFunc("POST /call", r.serveCall)
	sio := r.guardSocketIO(r.sio.server)
	mux.Handle("/socket.io/", sio)
	mux.Handle("/socket.io", sio)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := checkOrigin(req); err != nil {
			http.Error(w, "foreign origin", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, req)
	})
}

func (r *Runtime) serveHealth(w http.ResponseWriter, req *http.Request) {
	var body any = r.health()
	if r.callerOf(req) == stranger {
		body = struct {
			Status  string `json:"status"`
			Version string `json:"version"`
		}{"ok", Version}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the client may have left
}

// health is what GET /health tells.
func (r *Runtime) health() wire.Health {
	state := r.readyState()
	return wire.Health{
		Status: "ok", Version: Version, Runtime: Name, Protocol: 1,
		Ready: state.WorkerOK, Error: state.Error, Python: state.Python, Capabilities: Capabilities,
	}
}

// maxBody bounds a POST body: the largest call and its envelope.
const maxBody = wire.MaxMessageBytes + messageSlack

func (r *Runtime) serveCall(w http.ResponseWriter, req *http.Request) {
	if r.callerOf(req) == stranger {
		w.Header().Set("WWW-Authenticate", `Basic realm="agentix-runtime"`)
		writeMsgpack(w, http.StatusUnauthorized, failure(&wire.Error{Type: "Unauthorized", Message: "the token is missing or wrong"}))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		writeMsgpack(w, http.StatusOK, failure(&wire.Error{
			Type: wire.ErrFrameTooLarge, Message: "the call is too large", Limit: wire.MaxArgumentsBytes, Size: max(req.ContentLength, maxBody),
		}))
		return
	case err != nil:
		return // the client left
	case len(body) > 0 && wire.Check(body, wire.MaxDepth) != nil:
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		return
	}
	call, refusal := parseCall(body)
	switch {
	case call == nil:
		writeMsgpack(w, http.StatusBadRequest, failure(&wire.Error{Type: wire.ErrBadRequest, Message: "missing or invalid call_id"}))
	case refusal != nil:
		writeMsgpack(w, http.StatusOK, failure(refusal))
	default:
		r.runCall(w, req, call)
	}
}

func (r *Runtime) runCall(w http.ResponseWriter, req *http.Request, call *wire.Call) {
	wait, shown := waitBudget(req.Header.Values("Prefer"))
	owner, session := calltable.Neighbour, r.hub.soleNeighbour()
	if r.callerOf(req) == ourDaemon {
		owner, session = calltable.Nobody, noNeighbour
	}
	done := make(chan calltable.Outcome, 1)
	verdict, outcome := r.calls.start(call, owner, session, done)
	w.Header().Set("Preference-Applied", "wait="+shown)
	switch verdict {
	case calltable.New:
		defer r.calls.unwait(call.CallID, done)
		timer := time.NewTimer(wait)
		defer timer.Stop()
		if wait == 0 {
			select {
			case o := <-done:
				writeOutcome(w, o)
			default:
				writeAccepted(w, call.CallID)
			}
			return
		}
		select {
		case o := <-done:
			writeOutcome(w, o)
		case <-timer.C:
			writeAccepted(w, call.CallID)
		case <-req.Context().Done(): // the call goes on
		}
	case calltable.Running:
		writeAccepted(w, call.CallID)
	case calltable.Retained:
		// The protocol answers 202 and the outcome goes over /rpc: once more, for a host
		// that lost both the answer and the event.
		r.hub.deliver(owner, outcome)
		writeAccepted(w, call.CallID)
	case calltable.Finished:
		writeOutcome(w, unavailable(call.CallID))
	case calltable.Fenced:
		writeOutcome(w, errorOutcome(call.CallID, fenced()))
	}
}

var preferWait = regexp.MustCompile(`(?i)(?:^|[,; ])wait *= *"?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)`)

// waitBudget is the wait=N of a Prefer header, by default one second.
func waitBudget(headers []string) (time.Duration, string) {
	m := preferWait.FindStringSubmatch(strings.Join(headers, ", "))
	if m == nil {
		return time.Second, "1"
	}
	seconds, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return time.Second, "1"
	}
	seconds = min(seconds, float64(maxTimeoutMS)/1000)
	return time.Duration(seconds * float64(time.Second)), strconv.FormatFloat(seconds, 'f', -1, 64)
}

func writeAccepted(w http.ResponseWriter, id string) {
	w.Header().Set("Location", "/call/"+url.PathEscape(id))
	writeMsgpack(w, http.StatusAccepted, map[string]string{"call_id": id})
}

// writeOutcome answers with {ok, value, encoding?} or {ok, error}.
func writeOutcome(w http.ResponseWriter, o calltable.Outcome) {
	out := map[string]any{"ok": o.Event == wire.EventCallResult}
	_ = wire.Fields(o.Payload, func(key string, raw []byte) { // our own bytes
		switch key {
		case "value":
			out[key], _ = wire.Blob(raw)
		case "encoding":
			out[key], _ = wire.Text(raw)
		case "error":
			out[key] = rawMessage(raw)
		}
	})
	writeMsgpack(w, http.StatusOK, out)
}

func failure(e *wire.Error) any {
	if e.Type == wire.ErrBadRequest {
		return map[string]any{"ok": false, "error": map[string]string{"type": e.Type, "message": e.Message}}
	}
	return map[string]any{"ok": false, "error": e}
}

func writeMsgpack(w http.ResponseWriter, status int, v any) {
	body, err := wire.Marshal(v)
	if err != nil {
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/msgpack")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have left
}
