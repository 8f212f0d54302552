// Package failpoint names the moments that matter, so that a fault test can make the
// process fail, wait or die exactly there.
//
// A point is a call of Inject with its name, `area/moment`. In a normal build that call is
// empty. Built with `-tags failpoint`, points are set by Enable or by the environment
// variable AGENTIX_FAILPOINTS: `name=terms`, several separated by `;`. Terms have the
// grammar of containerd's failpoints:
//
//	terms := term { "->" term }
//	term  := [ count "*" ] action [ "(" argument ")" ]
//
// Each term acts `count` times and then makes way for the next; without a count it acts
// for ever. After the last one the point is off. The actions:
//
//	off             nothing
//	error(text)     Inject returns an error
//	panic(text)     panics
//	exit(code)      ends the process at once, as a kill would (default code 137)
//	delay(ms)       waits; sleep(ms) is the same
//
// So `2*off->1*error(disk full)` lets two calls pass, fails the third and is off then.
package failpoint

// EnvVar holds points to set at start in a build with tag failpoint.
const EnvVar = "AGENTIX_FAILPOINTS"
