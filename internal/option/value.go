package option

// This file has the values of flags that urfave/cli has no type for. An error of Set states what is wanted, as in
// "want a number": the caller adds the flag and the value that was given.

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// List returns the value of a flag that may be given several times, or once with commas.
func List(list *[]string) cli.Generic { return &listValue{list} }

// listValue is the value of List.
type listValue struct{ list *[]string }

// String returns "": the flag has no default.
func (v *listValue) String() string { return "" }

// Set appends the words of the text.
func (v *listValue) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		*v.list = append(*v.list, strings.TrimSpace(part))
	}
	return nil
}

// Values returns the words.
func (v *listValue) Values() []string { return *v.list }

// Settings returns the value of a flag KEY=VALUE that may be given several times. A VALUE is YAML or
// JSON and may contain commas. Blanks inside JSON are removed, because a recorded command line is
// split at blanks.
func Settings(list *[]string) cli.Generic { return &settingsValue{listValue{list}} }

// settingsValue is the value of Settings.
type settingsValue struct{ listValue }

// Set appends a text KEY=VALUE.
func (v *settingsValue) Set(text string) error {
	key, value, _ := strings.Cut(text, "=")
	var compact bytes.Buffer
	if strings.ContainsAny(value, " \t\n") && json.Compact(&compact, []byte(value)) == nil {
		text = key + "=" + compact.String()
	}
	*v.list = append(*v.list, text)
	return nil
}

// Count returns the value of a flag that takes a whole number, which may be 0. *number is nil if
// the flag was not given.
func Count(number **int64) cli.Generic { return &countValue{number} }

// countValue is the value of Count.
type countValue struct{ number **int64 }

// String returns the number; "" if it is not set.
func (v *countValue) String() string {
	if v.number == nil || *v.number == nil {
		return ""
	}
	return strconv.FormatInt(**v.number, 10)
}

// Set sets the number.
func (v *countValue) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return errors.New("want a whole number")
	}
	*v.number = &n
	return nil
}

// IsNumber reports whether the value of a flag is one of Count or Optional.
func IsNumber(v cli.Generic) bool {
	switch v.(type) {
	case *countValue, *optionalValue:
		return true
	}
	return false
}

// Optional returns the value of a flag that takes a number. *number is nil if the flag was not given.
func Optional(number **float64) cli.Generic { return &optionalValue{number} }

// optionalValue is the value of Optional.
type optionalValue struct{ number **float64 }

// String returns the number; "" if it is not set.
func (v *optionalValue) String() string {
	if v.number == nil || *v.number == nil {
		return ""
	}
	return formatNumber(**v.number)
}

// Set sets the number.
func (v *optionalValue) Set(text string) error {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return errors.New("want a number")
	}
	*v.number = &n
	return nil
}

// Values returns the number as it is recorded.
func (v *optionalValue) Values() []string {
	if *v.number == nil {
		return nil
	}
	return []string{v.String()}
}
