package external

import (
	"strings"
	"testing"
)

// FuzzURL: what is taken names one place, and no error tells what is in the URL.
func FuzzURL(f *testing.F) {
	for _, s := range []string{"http://u:hunter2@h:1", "https://[::1]:443/", "unix:///run/x", "unix://u:hunter2@/run/x", "http://h?x", "http://u:hunter2%zz@h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parseURL(text)
		if err != nil {
			if strings.Contains(text, "hunter2") && strings.Contains(err.Error(), "hunter2") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if (e.socket == "") == (e.name == "") || strings.ContainsAny(e.host(), "\r\n @/") || strings.ContainsAny(e.authorization(), "\r\n") {
			t.Fatalf("%q: %+v", text, e)
		}
	})
}

// FuzzAllow: a list that is taken admits no forbidden address.
func FuzzAllow(f *testing.F) {
	f.Add("0.0.0.0/0", "169.254.169.254")
	f.Add("::/0", "::ffff:169.254.169.254")
	f.Add("unix:///run", "fe80::1")
	f.Fuzz(func(t *testing.T, value, address string) {
		a, err := ParseAllow([]string{value})
		addr, parseErr := parsePrefix(address)
		if err != nil || parseErr != nil {
			return
		}
		if a.address(addr.Addr()) && forbidden(addr.Addr()) {
			t.Fatalf("%q admits %s", value, addr)
		}
	})
}
