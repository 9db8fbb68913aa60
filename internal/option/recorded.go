package option

// This file marks flags whose values documents record, because they can change a result.

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/urfave/cli/v2"
)

// documented is the part of a flag that urfave/cli needs to parse it and to print its help.
type documented interface {
	cli.DocGenerationFlag
	cli.CategorizableFlag
}

// recorded is a flag whose option can change a result. A command line that repeats the result has
// to have it.
type recorded struct {
	documented
	values func() []string // as the command line has them; none: the option is not recorded
}

// Recorded returns a flag marked as one that can change a result: Command writes its value, unless
// that is empty.
func Recorded(f cli.Flag) cli.Flag {
	return RecordedAs(func() []string { return Values(f) }, f)
}

// RecordedUnless returns a flag marked as one that can change a result, and that is not recorded at
// one value, its default.
func RecordedUnless(omitted string, f cli.Flag) cli.Flag {
	return RecordedAs(func() []string {
		values := Values(f)
		if len(values) == 1 && values[0] == omitted {
			return nil
		}
		return values
	}, f)
}

// RecordedAs returns a flag marked as one that can change a result, and that is recorded by other
// values than its own.
func RecordedAs(values func() []string, f cli.Flag) cli.Flag {
	return recorded{documented: f.(documented), values: values}
}

// RecordedBase returns a flag marked as one that can change a result and whose value is the name of a file. It is recorded
// without its folder, so that a document does not depend on where the file was.
func RecordedBase(f *cli.StringFlag) cli.Flag {
	return RecordedAs(func() []string {
		if *f.Destination == "" {
			return nil
		}
		return []string{filepath.Base(*f.Destination)}
	}, f)
}

// Plain returns the flag without the mark of being recorded.
func Plain(f cli.Flag) cli.Flag {
	if r, ok := f.(recorded); ok {
		return r.documented
	}
	return f
}

// Command returns the recorded command line of a stage: its name and every option that can change a
// result, sorted.
func Command(stage string, flags []cli.Flag) string {
	var words []string
	for _, f := range flags {
		r, ok := f.(recorded)
		if !ok {
			continue
		}
		for _, value := range r.values() {
			words = append(words, strings.TrimSuffix("--"+f.Names()[0]+" "+quoted(value), " "))
		}
	}
	slices.Sort(words)
	return strings.Join(append([]string{stage}, words...), " ")
}

// quoted returns a value as one word of a command line: in quotation marks if it would be several.
func quoted(value string) string {
	if strings.ContainsFunc(value, unicode.IsSpace) || strings.HasPrefix(value, `"`) {
		return strconv.Quote(value)
	}
	return value
}

// wordsOf returns the words of a recorded command line, without quotation marks.
func wordsOf(command string) ([]string, error) {
	var words []string
	for rest := strings.TrimSpace(command); rest != ""; rest = strings.TrimSpace(rest) {
		word := strings.Fields(rest)[0]
		value := word
		if rest[0] == '"' {
			var err error
			if word, err = strconv.QuotedPrefix(rest); err != nil {
				return nil, Misusef("command %q: got a quotation mark without its end, want it", command)
			}
			value, _ = strconv.Unquote(word) // QuotedPrefix has checked it
		}
		words = append(words, value)
		rest = rest[len(word):]
	}
	return words, nil
}

// Parse sets the options to those of a recorded command line.
func Parse(command, stage string, flags []cli.Flag) error {
	words, err := wordsOf(command)
	if err != nil {
		return err
	}
	if len(words) == 0 || words[0] != stage {
		return Misusef("command: got %q, want %s and its options", command, stage)
	}
	for words = words[1:]; len(words) > 0; {
		name, dashed := strings.CutPrefix(words[0], "--")
		name, value, given := strings.Cut(name, "=")
		f := Find(flags, name)
		if !dashed || f == nil {
			return Misusef("command %q: got %q, want an option of %s", command, words[0], stage)
		}
		words = words[1:]
		if !given && TakesValue(f) {
			if len(words) == 0 {
				return Misusef("command %q: --%s: got nothing, want a value", command, name)
			}
			value, words = words[0], words[1:]
		}
		if err := Set(f, value); err != nil {
			return fmt.Errorf("command %q: %w", command, err)
		}
	}
	return nil
}

// TakesValue reports whether the flag is followed by a value, which a switch is not.
func TakesValue(f cli.Flag) bool { return f.(cli.DocGenerationFlag).TakesValue() }

// Set sets the option of a flag to the values from a file or a recorded command line. Only a list
// may have several values. "" switches a switch on.
func Set(f cli.Flag, values ...string) error {
	f = Plain(f)
	if _, isGeneric := f.(*cli.GenericFlag); len(values) != 1 && !isGeneric {
		return Misusef("got %d values, want one", len(values))
	}
	for _, value := range values {
		if err := setOne(f, value); err != nil {
			return Misusef("--%s: got %q, %v", f.Names()[0], value, err)
		}
	}
	return nil
}

// setOne sets the option of a flag to one value.
func setOne(f cli.Flag, value string) (err error) {
	switch f := f.(type) {
	case *cli.StringFlag:
		*f.Destination = value
	case *cli.Float64Flag:
		*f.Destination, err = strconv.ParseFloat(value, 64)
	case *cli.IntFlag:
		*f.Destination, err = strconv.Atoi(value)
	case *cli.Int64Flag:
		*f.Destination, err = strconv.ParseInt(value, 10, 64)
	case *cli.Uint64Flag:
		*f.Destination, err = strconv.ParseUint(value, 10, 64)
	case *cli.BoolFlag:
		*f.Destination = true
		if value != "" {
			*f.Destination, err = strconv.ParseBool(value)
		}
	case *cli.GenericFlag:
		return f.Value.Set(value)
	default:
		panic(fmt.Sprintf("option --%s: no value of a %T can be set", f.Names()[0], f))
	}
	if err != nil {
		return errors.New("want " + Wanted(f))
	}
	return nil
}

// Wanted returns a phrase for the values that a flag takes, as in "want a whole number".
func Wanted(f cli.Flag) string {
	switch Plain(f).(type) {
	case *cli.IntFlag, *cli.Int64Flag:
		return "a whole number"
	case *cli.Uint64Flag:
		return "a whole number >= 0"
	case *cli.Float64Flag:
		return "a number"
	case *cli.BoolFlag:
		return "true or false"
	case *cli.DurationFlag:
		return "a time with its unit, as in 60s"
	}
	return "another value"
}

// Values returns the current value of a flag's option as on a command line; nil for an empty one or
// a switch that is off. A switch that is on has one empty value.
func Values(f cli.Flag) []string {
	text := ""
	switch f := Plain(f).(type) {
	case *cli.StringFlag:
		text = *f.Destination
	case *cli.Float64Flag:
		text = formatNumber(*f.Destination)
	case *cli.IntFlag:
		text = strconv.Itoa(*f.Destination)
	case *cli.Int64Flag:
		text = strconv.FormatInt(*f.Destination, 10)
	case *cli.Uint64Flag:
		text = strconv.FormatUint(*f.Destination, 10)
	case *cli.BoolFlag:
		if *f.Destination {
			return []string{""}
		}
	case *cli.GenericFlag:
		if several, ok := f.Value.(interface{ Values() []string }); ok {
			return several.Values()
		}
		text = f.Value.String()
	default:
		panic(fmt.Sprintf("option --%s: a %T has no value to record", f.Names()[0], f))
	}
	if text == "" {
		return nil
	}
	return []string{text}
}

// formatNumber returns a number as text.
func formatNumber(v float64) string { return fmt.Sprintf("%g", v) }
