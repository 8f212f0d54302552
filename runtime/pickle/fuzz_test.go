package pickle

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/agentixd/agentixd/runtime/wire"
)

// isOurs tells whether err is one of the errors of the package.
func isOurs(err error) bool {
	for _, kind := range []error{ErrMalformed, ErrTooLarge, ErrNoForm, ErrArguments} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// FuzzRead reads any bytes: the answer is one of our errors or well-formed and bounded.
func FuzzRead(f *testing.F) {
	for _, r := range rows(f) {
		if len(r.Pickle) < 2000 {
			f.Add(r.Pickle)
		}
	}
	for _, s := range corpus() {
		if len(s.pickle) < 2000 {
			f.Add([]byte(s.pickle))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := boundsFor(len(data), 1<<20, 1<<20)
		b.memory = 1 << 20
		text, err := convert(data, false, b)
		switch {
		case err != nil && (!isOurs(err) || text != nil):
			t.Errorf("JSON: %q, %v", text, err)
		case err == nil && (!json.Valid(text) || len(text) > b.output):
			t.Errorf("JSON of %d bytes: %.300q", len(text), text)
		}
		packed, err := convert(data, true, b)
		switch {
		case err != nil && (!isOurs(err) || packed != nil):
			t.Errorf("msgpack: %x, %v", packed, err)
		case err == nil && wire.Check(packed, wire.MaxDepth) != nil:
			t.Errorf("msgpack: %v: %.300x", wire.Check(packed, wire.MaxDepth), packed)
		}
	})
}

// FuzzArguments writes any JSON: what is written reads back as JSON of the same pickle.
func FuzzArguments(f *testing.F) {
	for _, p := range argumentTexts() {
		if len(p[0])+len(p[1]) < 2000 {
			f.Add(p[0], p[1])
		}
	}
	f.Fuzz(func(t *testing.T, args, kwargs string) {
		data, err := FromJSON(args, kwargs)
		if err != nil {
			if !isOurs(err) || data != nil {
				t.Errorf("%x, %v", data, err)
			}
			return
		}
		if args != "" && !json.Valid([]byte(args)) || kwargs != "" && !json.Valid([]byte(kwargs)) {
			t.Error("it is not JSON")
		}
		text, err := ToJSON(data)
		if errors.Is(err, ErrNoForm) { // a lone surrogate, or the pair as a whole nests too deep
			return
		}
		var pair []json.RawMessage
		if err != nil || json.Unmarshal(text, &pair) != nil {
			t.Fatalf("%q, %v", text, err)
		}
		if again, err := FromJSON(string(pair[0]), string(pair[1])); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%v: %s", err, difference(again, data))
		}
	})
}

// FuzzMsgpackArguments writes any msgpack.
func FuzzMsgpackArguments(f *testing.F) {
	for _, s := range []string{
		"\x92\x90\x80", "\x92\x91\xc4\x02\x00\xff\x81\xa1a\x01", "\x92\x91\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00\x80",
		"\x92\xdc\x00\x02\x01\x02\xde\x00\x01\xa1k\x91\xc4\x00", "\x92\x91\xd4\x01\x00\x80",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, pair []byte) {
		data, err := FromMsgpack(pair)
		if err != nil {
			if !isOurs(err) || data != nil {
				t.Errorf("%x, %v", data, err)
			}
			return
		}
		if err := wire.Check(pair, wire.MaxDepth+2); err != nil {
			t.Errorf("it is not msgpack: %v", err)
		}
		if _, err := ToMsgpack(data); err != nil && !errors.Is(err, ErrNoForm) {
			t.Errorf("it does not read back: %v", err)
		}
	})
}
