package deploy

import (
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// shellWords splits a command line as a POSIX shell does: blanks separate,
// quotes group, a backslash takes the next character, backslash-newline is
// nothing. Nothing is expanded.
func shellWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord := false
	var quote rune
	escaped := false
	for _, r := range line {
		switch {
		case escaped:
			escaped = false
			if r == '\n' {
				continue
			}
			if quote == '"' && !strings.ContainsRune("\"\\$`", r) {
				word.WriteByte('\\')
			}
			word.WriteRune(r)
			inWord = true
		case r == '\\' && quote != '\'':
			escaped = true
		case quote != 0:
			if r == quote {
				quote = 0
				continue
			}
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 || escaped {
		return nil, trace.Errorf(badCommandLine, "command line: got an open quote or a trailing backslash, want a whole command")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
