package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is over the parts and their lengths. A part is a string, []byte, int64 or uint64.
func checksum(parts ...any) int64 {
	var sum uint32
	var word [8]byte
	number := func(n uint64) {
		binary.LittleEndian.PutUint64(word[:], n)
		sum = crc32.Update(sum, castagnoli, word[:])
	}
	for _, part := range parts {
		switch v := part.(type) {
		case string:
			number(uint64(len(v)))
			sum = crc32.Update(sum, castagnoli, []byte(v))
		case []byte:
			number(uint64(len(v)))
			sum = crc32.Update(sum, castagnoli, v)
		case int64:
			number(uint64(v))
		case uint64:
			number(v)
		default:
			panic(fmt.Sprintf("checksum of %T", part))
		}
	}
	return int64(sum)
}

// verify compares a row's checksum; table and key name the row in the error.
func (s *Store) verify(table string, key any, want int64, parts ...any) error {
	if got := checksum(parts...); got != want {
		return s.badSum(table, key, got, want)
	}
	return nil
}

func (s *Store) badSum(table string, key any, got, want int64) error {
	return damaged(s.path, fmt.Errorf("row %v of table %s has checksum %08x, not %08x",
		strings.ToValidUTF8(fmt.Sprint(key), "?"), table, got, want))
}
