package vllm

// This file splits command lines into words and reads flag values as vLLM does.

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// LooksLikeFlag reports whether a word of a command line is a flag and not a negative number.
func LooksLikeFlag(word string) bool {
	if !strings.HasPrefix(word, "-") || word == "-" {
		return false
	}
	_, err := strconv.ParseFloat(word, 64)
	return err != nil
}

// FlagValue returns a value as vLLM's parser reads it: integers with k, K, m, M, g, G, t, T,
// floats, booleans, JSON objects and lists; anything else is text. So are the values of flags that
// are names or types.
func FlagValue(key, text string) any {
	if slices.Contains([]string{"model", "served_model_name", "tokenizer", "revision", "dtype", "kv_cache_dtype", "host"}, key) {
		return text
	}
	if n, ok := ParseInt(text); ok {
		return n
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
		return f
	}
	switch strings.ToLower(text) {
	case "true":
		return true
	case "false":
		return false
	}
	if strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
		var v any
		if json.Unmarshal([]byte(text), &v) == nil {
			return v
		}
	}
	return text
}

// ParseInt returns the number in "8192", "8k" (8000), "8K" (8192), "25.6k" (25600), as vLLM's own parser does
// (vllm/engine/arg_utils.py: human_readable_int()): small letters are powers of 1000, capitals of 1024.
func ParseInt(text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	if len(text) < 2 {
		return 0, false
	}
	number := text[:len(text)-1]
	suffix := text[len(text)-1:]
	if i := strings.Index("kmgt", suffix); i >= 0 {
		f, err := strconv.ParseFloat(number, 64)
		scaled := f * math.Pow(1000, float64(i+1))
		return trace.Int(scaled), err == nil && scaled < 1<<62
	}
	if i := strings.Index("KMGT", suffix); i >= 0 {
		n, err := strconv.ParseInt(number, 10, 32)
		return n << (10 * (i + 1)), err == nil
	}
	return 0, false
}

// ShellWords returns the words of a command line as a POSIX shell splits it: blanks separate,
// quotes group, a backslash makes the next character literal, and backslash-newline is dropped.
// Nothing is expanded.
func ShellWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord := false  // also of a word of which only quotes have been read
	var quote rune   // the one that is open; 0: none
	escaped := false // after a backslash
	for _, r := range line {
		switch {
		case escaped:
			escaped = false
			if r == '\n' {
				continue
			}
			if quote == '"' && !strings.ContainsRune("\"\\$`", r) { // before others the backslash stays
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
		return nil, trace.Errorf(BadCommandLine, "command line: got an open quote or a trailing backslash, want a whole command")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// BadCommandLine is the code of a text that is not a command that runs `vllm serve`, nor the log of its start.
const BadCommandLine trace.Code = "bad_command_line"
