package trace

import (
	"fmt"
	"io"
	"strings"
)

// YAMLError returns an error of the YAML library as one with a place in the file and the words "got
// ..., want ...". Of several errors it returns the first. key is the name of the key if the error
// is an unknown key, and "" otherwise.
func YAMLError(file string, err error) (e *SyntaxError, key string) {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	msg = strings.TrimSpace(strings.TrimPrefix(msg, "unmarshal errors:"))
	msg, _, _ = strings.Cut(msg, "\n")
	e = &SyntaxError{File: file, Msg: msg}
	if n, _ := fmt.Sscanf(msg, "line %d:", &e.Line); n == 1 {
		_, e.Msg, _ = strings.Cut(msg, ": ")
	}
	if err == io.EOF {
		e.Msg = "got an empty file"
	}
	if name, rest, ok := strings.Cut(strings.TrimPrefix(e.Msg, "field "), " not found in type "); ok && rest != "" {
		e.Msg = fmt.Sprintf("unknown key %q", name)
		return e, name
	}
	if value, kind, ok := strings.Cut(strings.TrimPrefix(e.Msg, "cannot unmarshal "), " into "); ok {
		tag, text, scalar := strings.Cut(value, " ")
		got := "a list"
		switch {
		case scalar:
			got = fmt.Sprintf("%q", strings.Trim(text, "`"))
		case tag == "!!map":
			got = "a mapping"
		}
		e.Msg = fmt.Sprintf("got %s, want %s", got, kindInWords(kind))
	}
	return e, ""
}

// kindInWords returns the words of YAML for a Go type: "an integer" for int64.
func kindInWords(kind string) string {
	switch {
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "an integer"
	case strings.HasPrefix(kind, "float"):
		return "a number"
	case kind == "bool":
		return "true or false"
	case kind == "string":
		return "text"
	case strings.HasPrefix(kind, "[]"):
		return "a list"
	}
	return "a mapping"
}
