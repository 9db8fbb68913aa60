package trace

// This file words the errors of the YAML library.

import (
	"fmt"
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
	if name, rest, ok := strings.Cut(strings.TrimPrefix(e.Msg, "field "), " not found in type "); ok && rest != "" {
		e.Msg = fmt.Sprintf("unknown key %q", name)
		return e, name
	}
	if value, goType, ok := strings.Cut(strings.TrimPrefix(e.Msg, "cannot unmarshal "), " into "); ok {
		// The value is "!!str `text`" for a single one, and the tag alone for "!!map" and "!!seq".
		tag, text, isSingle := strings.Cut(value, " ")
		got := "a list"
		switch {
		case isSingle:
			got = fmt.Sprintf("%q", strings.Trim(text, "`"))
		case tag == "!!map":
			got = "a mapping"
		}
		e.Msg = fmt.Sprintf("got %s, want %s", got, kindInWords(goType))
	}
	return e, ""
}

// kindInWords returns the words of YAML for a Go type: "an integer" for int64. Structs and maps are
// mappings.
func kindInWords(goType string) string {
	switch {
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		return "an integer"
	case strings.HasPrefix(goType, "float"):
		return "a number"
	case goType == "bool":
		return "true or false"
	case goType == "string":
		return "text"
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	}
	return "a mapping"
}
