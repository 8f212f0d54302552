package gateway

import (
	"strconv"
	"strings"
	"time"
)

// prefer is what a Prefer header (RFC 7240) asks for, as far as it is known here.
type prefer struct {
	async bool
	waits bool
	wait  time.Duration
}

// maxWait is what a longer wait counts as; about 31 years.
const maxWait = 999999999

// parsePrefer reads the values of all Prefer headers. What is unknown or malformed is
// ignored; of a preference that is given twice the first counts.
func parsePrefer(values []string) prefer {
	var p prefer
	seen := map[string]bool{}
	for _, preference := range splitQuoted(strings.Join(values, ","), ',') {
		name, value, hasValue := strings.Cut(splitQuoted(preference, ';')[0], "=")
		name, value = strings.ToLower(strings.TrimSpace(name)), word(value)
		if seen[name] {
			continue
		}
		switch {
		case name == "respond-async" && (!hasValue || value == ""): // an empty value is none
			p.async = true
		case name == "wait" && digits(value):
			p.waits, p.wait = true, maxWait*time.Second
			if n, err := strconv.Atoi(value); err == nil && n <= maxWait {
				p.wait = time.Duration(n) * time.Second
			}
		default:
			continue
		}
		seen[name] = true
	}
	return p
}

// applied is the Preference-Applied header.
func (p prefer) applied(async bool) string {
	var parts []string
	if async {
		parts = append(parts, "respond-async")
	}
	if p.waits {
		parts = append(parts, "wait="+strconv.FormatInt(int64(p.wait/time.Second), 10))
	}
	return strings.Join(parts, ", ")
}

// splitQuoted splits at a separator that is not part of a quoted string.
func splitQuoted(text string, separator byte) []string {
	var parts []string
	begin, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == separator && !quoted:
			parts = append(parts, text[begin:i])
			begin = i + 1
		}
	}
	return append(parts, text[begin:])
}

// word is the value of a preference without its quotes.
func word(text string) string {
	text = strings.TrimSpace(text)
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		return text[1 : len(text)-1]
	}
	return text
}

func digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}
