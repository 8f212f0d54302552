package sandboxes

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/agentixd/agentixd/internal/errs"
	"github.com/agentixd/agentixd/providers"
)

// Limits of a filter.
const (
	maxFilterBytes = 2048
	maxFilterDepth = 32 // parentheses and NOTs within each other
)

// Filter selects sandboxes; nil selects all. It is the subset of AIP-160 that ParseFilter reads.
type Filter struct {
	text    string
	matches test
}

type test func(s *Sandbox) bool

// Match reports whether a sandbox is selected.
func (f *Filter) Match(s *Sandbox) bool { return f == nil || f.matches(s) }

func (f *Filter) String() string {
	if f == nil {
		return ""
	}
	return f.text
}

// states and reasons are what a filter may compare with.
var (
	states  = []State{Creating, Ready, Paused, Stopping, Stopped, Failed}
	reasons = []Reason{
		Deleted, StartFailed, Reason(providers.Exited), Reason(providers.Killed), Reason(providers.OOMKilled),
		Lost, Unreachable, Expired, Idle,
	}
)

// texts are the fields that compare as text.
var texts = map[string]func(s *Sandbox) string{
	"name":     func(s *Sandbox) string { return s.ID },
	"state":    func(s *Sandbox) string { return string(s.State) },
	"reason":   func(s *Sandbox) string { return string(s.Reason) },
	"image":    func(s *Sandbox) string { return s.Image },
	"project":  func(s *Sandbox) string { return s.Project },
	"provider": func(s *Sandbox) string { return s.Provider },
	"template": func(s *Sandbox) string { return s.Template },
}

// times are the fields that compare as times.
var times = map[string]func(s *Sandbox) time.Time{
	"create_time": func(s *Sandbox) time.Time { return s.CreateTime },
	"expire_time": func(s *Sandbox) time.Time { return s.ExpireTime },
}

// ParseFilter reads a filter; InvalidArgument names what it does not understand, and where.
func ParseFilter(text string) (*Filter, error) {
	if len(text) > maxFilterBytes {
		return nil, errs.Invalid("filter", "%d bytes; at most %d are allowed", len(text), maxFilterBytes)
	}
	if t := strings.TrimSpace(text); t == "" || t == "*" {
		return nil, nil
	}
	p := filterParser{rest: text}
	matches, err := p.all(0)
	if err == nil && p.peek() != "" {
		err = p.wrong("AND, OR or the end")
	}
	if err != nil {
		return nil, err
	}
	return &Filter{text: text, matches: matches}, nil
}

// filterParser reads from the front of rest.
type filterParser struct{ rest string }

// wrong is the error for a place where something else should be.
func (p *filterParser) wrong(want string) error {
	p.skip()
	if p.rest == "" {
		return errs.Invalid("filter", "ends where %s should be", want)
	}
	return errs.Invalid("filter", "%.40q: there should be %s", p.rest, want)
}

func (p *filterParser) skip() { p.rest = strings.TrimLeft(p.rest, " \t\r\n") }

// peek is the next word or mark; empty at the end.
func (p *filterParser) peek() string {
	p.skip()
	if p.rest == "" {
		return ""
	}
	if n := wordLength(p.rest); n > 0 {
		return p.rest[:n]
	}
	for _, mark := range []string{"!=", "<=", ">="} {
		if strings.HasPrefix(p.rest, mark) {
			return mark
		}
	}
	return p.rest[:1]
}

// take drops the next word or mark if it is this one.
func (p *filterParser) take(token string) bool {
	if p.peek() != token {
		return false
	}
	p.rest = p.rest[len(token):]
	return true
}

// isWordByte tells what fields and bare values consist of.
func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._/@+-", c) >= 0
}

// wordLength is how many bytes a word at the front has; it does not begin with "-".
func wordLength(text string) int {
	n := 0
	for n < len(text) && isWordByte(text[n]) && (n > 0 || text[0] != '-') {
		n++
	}
	return n
}

// all reads terms joined by AND, which binds less than OR.
func (p *filterParser) all(depth int) (test, error) {
	if depth > maxFilterDepth {
		return nil, errs.Invalid("filter", "parentheses and NOTs are more than %d deep", maxFilterDepth)
	}
	left, err := p.any(depth)
	for err == nil && p.take("AND") {
		var right test
		before := left
		right, err = p.any(depth)
		left = func(s *Sandbox) bool { return before(s) && right(s) }
	}
	return left, err
}

func (p *filterParser) any(depth int) (test, error) {
	left, err := p.term(depth)
	for err == nil && p.take("OR") {
		var right test
		before := left
		right, err = p.term(depth)
		left = func(s *Sandbox) bool { return before(s) || right(s) }
	}
	return left, err
}

func (p *filterParser) term(depth int) (test, error) {
	switch {
	case depth > maxFilterDepth:
		return nil, errs.Invalid("filter", "parentheses and NOTs are more than %d deep", maxFilterDepth)
	case p.take("NOT"), p.take("-"):
		inner, err := p.term(depth + 1)
		return func(s *Sandbox) bool { return !inner(s) }, err
	case p.take("("):
		inner, err := p.all(depth + 1)
		if err == nil && !p.take(")") {
			err = p.wrong("AND, OR or )")
		}
		return inner, err
	}
	return p.comparison()
}

func (p *filterParser) comparison() (test, error) {
	field := p.peek()
	if wordLength(field) == 0 {
		return nil, p.wrong("the name of a field")
	}
	text, isText := texts[field]
	at, isTime := times[field]
	key, isLabel := strings.CutPrefix(field, "labels.")
	if !isText && !isTime && !isLabel && field != "labels" {
		return nil, errs.Invalid("filter", "%.80q is no field to filter by; there are name, state, reason, image, project, provider, template, labels.KEY, create_time and expire_time", field)
	}
	p.take(field)
	operator := p.peek()
	switch {
	case field == "labels":
		return p.hasLabel()
	case isTime && slices.Contains([]string{"=", "!=", "<", "<=", ">", ">="}, operator),
		!isTime && slices.Contains([]string{"=", "!="}, operator):
		p.take(operator)
	case isTime:
		return nil, p.wrong("=, !=, <, <=, > or >=")
	default:
		return nil, p.wrong("= or !=, which are what " + field + " compares by")
	}
	value, err := p.value()
	switch {
	case err != nil:
		return nil, err
	case isTime:
		return compareTime(field, at, operator, value)
	case isLabel:
		return func(s *Sandbox) bool {
			v, has := s.Labels[key]
			return (has && v == value) == (operator == "=")
		}, nil
	}
	if value, err = knownValue(field, value); err != nil {
		return nil, err
	}
	return func(s *Sandbox) bool { return (text(s) == value) == (operator == "=") }, nil
}

// hasLabel reads the rest of `labels:KEY`.
func (p *filterParser) hasLabel() (test, error) {
	if !p.take(":") {
		return nil, p.wrong(": and a key, as in labels:team, or .KEY as in labels.team = \"x\"")
	}
	key, err := p.value()
	return func(s *Sandbox) bool { _, has := s.Labels[key]; return has }, err
}

// value reads a word or a text in quotes.
func (p *filterParser) value() (string, error) {
	p.skip()
	if p.rest == "" {
		return "", p.wrong("a value")
	}
	if quote := p.rest[0]; quote == '"' || quote == '\'' {
		return p.quoted(quote)
	}
	n := 0 // times and images have colons, values may begin with "-"
	for n < len(p.rest) && (isWordByte(p.rest[n]) || p.rest[n] == ':') {
		n++
	}
	if n == 0 {
		if p.rest[0] == '*' {
			return "", errs.Invalid("filter", "%.40q: wildcards are not supported; compare with the whole value", p.rest)
		}
		return "", p.wrong("a word or a text in quotes")
	}
	value := p.rest[:n]
	p.rest = p.rest[n:]
	if strings.HasPrefix(p.rest, "*") {
		return "", errs.Invalid("filter", "%.40q: wildcards are not supported; compare with the whole value", value+p.rest)
	}
	return value, nil
}

func (p *filterParser) quoted(quote byte) (string, error) {
	var value strings.Builder
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == quote:
			p.rest = p.rest[i+1:]
			if strings.Contains(value.String(), "*") {
				return "", errs.Invalid("filter", "%.40q: wildcards are not supported; compare with the whole value", value.String())
			}
			return value.String(), nil
		case c == '\\' && i+1 < len(p.rest):
			i++
			value.WriteByte(p.rest[i])
		default:
			value.WriteByte(c)
		}
	}
	return "", errs.Invalid("filter", "%.40q: the quotes are not closed", p.rest)
}

// knownValue refuses values that a field never has, which would select nothing.
func knownValue(field, value string) (string, error) {
	switch {
	case field == "name":
		return strings.TrimPrefix(value, "sandboxes/"), nil
	case field == "template":
		return strings.TrimPrefix(value, "templates/"), nil
	case field == "state" && !slices.Contains(states, State(value)):
		return "", errs.Invalid("filter", "state %.40q is none of %s", value, joined(states))
	case field == "reason" && value != "" && !slices.Contains(reasons, Reason(value)):
		return "", errs.Invalid("filter", "reason %.40q is none of %s", value, joined(reasons))
	}
	return value, nil
}

func joined[T ~string](values []T) string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return strings.Join(all, ", ")
}

func compareTime(field string, at func(*Sandbox) time.Time, operator, value string) (test, error) {
	want, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return nil, errs.Invalid("filter", "%s: %.40q is no time like 2026-11-29T12:00:00Z", field, value)
	}
	return func(s *Sandbox) bool {
		t := at(s)
		if t.IsZero() {
			return operator == "!="
		}
		order := t.Compare(want)
		switch operator {
		case "=":
			return order == 0
		case "!=":
			return order != 0
		case "<":
			return order < 0
		case "<=":
			return order <= 0
		case ">":
			return order > 0
		}
		return order >= 0
	}, nil
}

// byCreation orders entries as lists show them.
func byCreation(a, b *entry) int { return cmp.Compare(a.rec.Seq, b.rec.Seq) }
