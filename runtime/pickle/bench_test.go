package pickle

import (
	"fmt"
	"strings"
	"testing"
)

// records is the JSON of a list of small records, of about 1 MB.
func records() string {
	var b strings.Builder
	b.WriteString("[[")
	for i := range 10000 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%d,"name":"record %d","score":%d.25,"tags":["a","bb","ccc"],"ok":true,"parent":null}`, i, i, i)
	}
	b.WriteString("]]")
	return b.String()
}

func pickled(b *testing.B, args string) []byte {
	b.Helper()
	data, err := FromJSON(args, "")
	if err != nil {
		b.Fatal(err)
	}
	return data
}

func benchmark(b *testing.B, size int, f func() error) {
	b.Helper()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
	}
}

// Results of about 1 MB, of several shapes.
func BenchmarkToJSON(b *testing.B) {
	for name, args := range map[string]string{
		"records": records(),
		"ints":    "[" + listOf(250000, "123") + "]",
		"string":  `["` + strings.Repeat("x", 1<<20) + `"]`,
	} {
		b.Run(name, func(b *testing.B) {
			data := pickled(b, args)
			benchmark(b, len(data), func() error {
				_, err := ToJSON(data)
				return err
			})
		})
	}
}

func BenchmarkToMsgpack(b *testing.B) {
	data := pickled(b, records())
	benchmark(b, len(data), func() error {
		_, err := ToMsgpack(data)
		return err
	})
}

func BenchmarkFromJSON(b *testing.B) {
	args := records()
	benchmark(b, len(args), func() error {
		_, err := FromJSON(args, "")
		return err
	})
}
