package pickle

import (
	"fmt"
	"time"
)

// makeTime is a date, time or datetime as its ISO 8601 text.
func (p *parser) makeTime(class uint32, a []val) (val, error) {
	g := p.globals[class]
	if len(a) == 0 || len(a) > 2 || a[0].kind() != kindBytes || (g.known == knownDate && len(a) != 1) {
		return val{}, p.unusual(g)
	}
	text, ok := isoText(g.known, p.text(a[0]))
	if !ok {
		return val{}, p.malformed("a %s out of range", g.name)
	}
	if len(a) == 1 || a[1].kind() == kindNone {
		return p.newText(kindStr, []byte(text))
	}
	if a[1].kind() != kindObject {
		return val{}, p.unusual(g)
	}
	offset, fixed, err := p.zoneOffset(p.objects[a[1].bits])
	if err != nil {
		return val{}, err
	}
	if fixed {
		return p.newText(kindStr, []byte(text+offset))
	}
	// A zone that is code: its offset is not in the pickle.
	naive, err := p.newText(kindStr, []byte(text))
	if err != nil {
		return val{}, err
	}
	args, err := p.newList(kindTuple, []val{naive, a[1]})
	if err != nil {
		return val{}, err
	}
	v, err := p.newObject(class, args, val{})
	if err == nil {
		p.objects[v.bits].known = unknown
	}
	return v, err
}

// isoText decodes the bytes that datetime's classes keep themselves in.
func isoText(k known, b []byte) (string, bool) {
	var out string
	switch {
	case k == knownDate && len(b) == 4, k == knownDatetime && len(b) == 10:
		year, month, day := int(b[0])<<8|int(b[1]), int(b[2]), int(b[3])
		if k == knownDatetime {
			month &= 0x7f // the top bit is fold
		}
		date := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
		if year < 1 || year > 9999 || month < 1 || month > 12 || day < 1 || date.Day() != day {
			return "", false
		}
		out = fmt.Sprintf("%04d-%02d-%02d", year, month, day)
		if k == knownDate {
			return out, true
		}
		out, b = out+"T", b[4:]
	case k == knownTime && len(b) == 6:
		b = append([]byte{b[0] & 0x7f}, b[1:]...) // the top bit is fold
	default:
		return "", false
	}
	hour, minute, second, micros := b[0], b[1], b[2], int(b[3])<<16|int(b[4])<<8|int(b[5])
	if hour > 23 || minute > 59 || second > 59 || micros > 999999 {
		return "", false
	}
	out += fmt.Sprintf("%02d:%02d:%02d", hour, minute, second)
	if micros != 0 {
		out += fmt.Sprintf(".%06d", micros)
	}
	return out, true
}

// zoneOffset returns the text of a datetime.timezone's offset; fixed is false for any other zone.
func (p *parser) zoneOffset(zone object) (text string, fixed bool, err error) {
	if zone.known != knownTimezone {
		return "", false, nil
	}
	bad := p.malformed("a time zone out of range")
	args := p.items(zone.args)
	if len(args) == 0 || args[0].kind() != kindObject || p.objects[args[0].bits].known != knownTimedelta {
		return "", false, bad
	}
	parts := p.items(p.objects[args[0].bits].args)
	if len(parts) != 3 {
		return "", false, bad
	}
	var n [3]int64
	for i, limit := range [3]int64{1, 86399, 999999} {
		n[i] = int64(parts[i].bits)
		if parts[i].kind() != kindInt || n[i] > limit || n[i] < -1 || (i > 0 && n[i] < 0) {
			return "", false, bad
		}
	}
	const day = 86400 * 1000000
	micros := n[0]*day + n[1]*1000000 + n[2]
	if micros <= -day || micros >= day {
		return "", false, bad
	}
	sign := byte('+')
	if micros < 0 {
		sign, micros = '-', -micros
	}
	seconds := micros / 1000000
	text = fmt.Sprintf("%c%02d:%02d", sign, seconds/3600, seconds/60%60)
	if seconds%60 != 0 || micros%1000000 != 0 {
		text += fmt.Sprintf(":%02d", seconds%60)
	}
	if micros%1000000 != 0 {
		text += fmt.Sprintf(".%06d", micros%1000000)
	}
	return text, true, nil
}
