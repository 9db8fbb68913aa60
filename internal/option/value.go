package option

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// The values of flags that urfave/cli has no type for. An error of Set says what is wanted, as in
// "want a number": whoever reports it knows the flag and what was given.

// List returns the value of a flag that may be given several times, or once with commas.
func List(list *[]string) cli.Generic { return &listValue{list} }

type listValue struct{ list *[]string }

func (v *listValue) String() string { return "" }

func (v *listValue) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		*v.list = append(*v.list, strings.TrimSpace(part))
	}
	return nil
}

func (v *listValue) Values() []string { return *v.list }

// Settings returns the value of a flag KEY=VALUE that may be given several times. A VALUE is YAML or
// JSON and may contain commas. Blanks inside JSON are removed, because a recorded command line is
// split at blanks.
func Settings(list *[]string) cli.Generic { return &settingsValue{listValue{list}} }

type settingsValue struct{ listValue }

func (v *settingsValue) Set(text string) error {
	key, value, _ := strings.Cut(text, "=")
	var compact bytes.Buffer
	if strings.ContainsAny(value, " \t\n") && json.Compact(&compact, []byte(value)) == nil {
		text = key + "=" + compact.String()
	}
	*v.list = append(*v.list, text)
	return nil
}

// Count returns the value of a flag that takes a whole number, which may be 0; nil where it was not
// given.
func Count(number **int64) cli.Generic { return &countValue{number} }

type countValue struct{ number **int64 }

func (v *countValue) String() string {
	if v.number == nil || *v.number == nil {
		return ""
	}
	return strconv.FormatInt(**v.number, 10)
}

func (v *countValue) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return errors.New("want a whole number")
	}
	*v.number = &n
	return nil
}

// Optional returns the value of a flag that takes a number, or -1 for none.
func Optional(number **float64) cli.Generic { return &optionalValue{number} }

type optionalValue struct{ number **float64 }

func (v *optionalValue) String() string {
	if v.number == nil || *v.number == nil {
		return "-1"
	}
	return formatNumber(**v.number)
}

func (v *optionalValue) Set(text string) error {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return errors.New("want a number")
	}
	*v.number = nil
	if n != -1 {
		*v.number = &n
	}
	return nil
}

func (v *optionalValue) Values() []string {
	if *v.number == nil {
		return nil
	}
	return []string{v.String()}
}
