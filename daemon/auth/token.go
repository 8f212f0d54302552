package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
)

// MinTokenBytes is the shortest token that a token file may hold.
const MinTokenBytes = 16

// Token is the hash of the daemon's token: enough to check one, useless to a reader of memory.
type Token struct{ sum [sha256.Size]byte }

// NewToken returns the hash of a token's text.
func NewToken(text string) Token { return Token{sum: sha256.Sum256([]byte(text))} }

// Matches compares in constant time.
func (t Token) Matches(text string) bool {
	sum := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(t.sum[:], sum[:]) == 1
}

// String, LogValue and MarshalJSON keep even the hash out of every text.
func (Token) String() string { return "[redacted]" }

// LogValue is [redacted].
func (Token) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// MarshalJSON is "[redacted]".
func (Token) MarshalJSON() ([]byte, error) { return []byte(`"[redacted]"`), nil }

// LoadToken reads the token file, or makes one with mode 0600 and a random token. A file
// that others can read is refused: its token is no secret any more.
func LoadToken(path string) (Token, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return readToken(path)
	}
	if err != nil {
		return Token{}, fmt.Errorf("create token file: %w", err)
	}
	text := newTokenText()
	_, err = file.WriteString(text + "\n")
	if err = errors.Join(err, file.Close()); err != nil {
		return Token{}, errors.Join(fmt.Errorf("write token file: %w", err), os.Remove(path))
	}
	return NewToken(text), nil
}

func readToken(path string) (Token, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Token{}, fmt.Errorf("read token file: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return Token{}, fmt.Errorf("read token file: %s has mode %s; it must be a regular file that only its owner can read (chmod 600, or remove it for a new token)", path, info.Mode())
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return Token{}, fmt.Errorf("read token file: %w", err)
	}
	text := strings.TrimSpace(string(content))
	if len(text) < MinTokenBytes {
		return Token{}, fmt.Errorf("read token file: the token in %s has %d bytes, at least %d are needed; remove the file for a new one", path, len(text), MinTokenBytes)
	}
	return NewToken(text), nil
}

func newTokenText() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return base64.RawURLEncoding.EncodeToString(secret)
}
