// Package option describes the options of a stage once. A stage's table is bound
// to its options struct: the program makes flags of it, the documents record the
// words it says, and those words read back give the same options.
//
//	String, Real, Whole, Switch, List, Maybe   one option of a Go type
//	Option.Recorded                            it can change a result: documents record it
//	Table.Command, Table.Parse                 options -> the recorded command line -> options
package option

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Option is one option of a stage.
type Option struct {
	Name  string // of the long flag, without dashes
	Usage string // what it does; a word in back quotes stands for the value
	// Default is what holds when nobody says anything: string, float64, int64,
	// bool or []string. Set takes a value of the same type.
	Default any
	Shown   string // what help shows as the default; "" shows Default
	Set     func(v any) error
	// Values are what the options hold now, as they stand on a command line; empty
	// where nothing needs to be said. A switch that is on holds one empty text.
	Values func() []string

	recorded bool
}

// Misuse is a mistake in how a stage was called: exit code 2 of the program.
type Misuse struct{ Msg, Hint string }

func (e *Misuse) Error() string { return e.Msg }

// Misusef builds a Misuse without a hint.
func Misusef(format string, args ...any) error { return &Misuse{Msg: fmt.Sprintf(format, args...)} }

// String is an option that holds a word.
func String[S ~string](name string, p *S, usage string) Option {
	return Option{
		Name: name, Usage: usage, Default: string(*p),
		Set:    func(v any) error { *p = S(v.(string)); return nil },
		Values: func() []string { return unlessEmpty(string(*p)) },
	}
}

// Real is an option that holds a number.
func Real(name string, p *float64, usage string) Option {
	return Option{
		Name: name, Usage: usage, Default: *p,
		Set:    func(v any) error { *p = v.(float64); return nil },
		Values: func() []string { return []string{fmt.Sprintf("%g", *p)} },
	}
}

// Whole is an option that holds a whole number.
func Whole[N int | int64](name string, p *N, usage string) Option {
	return Option{
		Name: name, Usage: usage, Default: int64(*p),
		Set:    func(v any) error { *p = N(v.(int64)); return nil },
		Values: func() []string { return []string{strconv.FormatInt(int64(*p), 10)} },
	}
}

// Switch is an option that is on or off.
func Switch(name string, p *bool, usage string) Option {
	return Option{
		Name: name, Usage: usage, Default: *p,
		Set:    func(v any) error { *p = v.(bool); return nil },
		Values: func() []string { return make([]string, ones(*p)) },
	}
}

// List is an option that may be given several times. help shows no default.
func List(name string, p *[]string, usage string) Option {
	return Option{
		Name: name, Usage: usage, Default: []string(nil),
		Set:    func(v any) error { *p = v.([]string); return nil },
		Values: func() []string { return *p },
	}
}

// Maybe is a number that need not be there: -1 says so.
func Maybe(name string, p **float64, usage string) Option {
	return Option{
		Name: name, Usage: usage, Default: -1.0,
		Set: func(v any) error {
			*p = nil
			if n := v.(float64); n != -1 {
				*p = &n
			}
			return nil
		},
		Values: func() []string {
			if *p == nil {
				return nil
			}
			return []string{fmt.Sprintf("%g", **p)}
		},
	}
}

func ones(on bool) int {
	if on {
		return 1
	}
	return 0
}

func unlessEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// Recorded marks an option that can change a result.
func (o Option) Recorded() Option { o.recorded = true; return o }

// Unless leaves the option out of the record where it holds the given value.
func (o Option) Unless(value string) Option {
	all := o.Values
	o.Values = func() []string {
		if v := all(); len(v) != 1 || v[0] != value {
			return v
		}
		return nil
	}
	return o
}

// Table is the options of a stage, in the order help shows them.
type Table []Option

// Without is the table less some options.
func (t Table) Without(names ...string) Table {
	return slices.DeleteFunc(slices.Clone(t), func(o Option) bool { return slices.Contains(names, o.Name) })
}

// Only is the named options of the table.
func (t Table) Only(names ...string) Table {
	return slices.DeleteFunc(slices.Clone(t), func(o Option) bool { return !slices.Contains(names, o.Name) })
}

// Names are those of the options.
func (t Table) Names() []string {
	var all []string
	for _, o := range t {
		all = append(all, o.Name)
	}
	return all
}

// Command is the stage and every recorded option, sorted: the line that repeats it.
func (t Table) Command(stage string) string {
	var said []string
	for _, o := range t {
		if !o.recorded {
			continue
		}
		for _, v := range o.Values() {
			said = append(said, strings.TrimSuffix("--"+o.Name+" "+v, " "))
		}
	}
	slices.Sort(said)
	return strings.Join(append([]string{stage}, said...), " ")
}

// Parse reads a recorded command line back into the options. Values hold no
// blanks. Errors say what was got and what is wanted.
func (t Table) Parse(command, stage string) error {
	words := strings.Fields(command)
	if len(words) == 0 || words[0] != stage {
		return Misusef("command: got %q, want %s and its options", command, stage)
	}
	lists := map[string][]string{}
	for words = words[1:]; len(words) > 0; {
		name, dashed := strings.CutPrefix(words[0], "--")
		name, value, given := strings.Cut(name, "=")
		i := slices.IndexFunc(t, func(o Option) bool { return dashed && o.Name == name })
		if i < 0 {
			return Misusef("command %q: got %q, want an option of %s", command, words[0], stage)
		}
		words = words[1:]
		if _, isSwitch := t[i].Default.(bool); !given && !isSwitch {
			if len(words) == 0 {
				return Misusef("command %q: --%s: got nothing, want a value", command, name)
			}
			value, words = words[0], words[1:]
		}
		if err := t[i].parse(value, lists); err != nil {
			return fmt.Errorf("command %q: %w", command, err)
		}
	}
	return nil
}

// Read sets the option from what a file says of it: several words for a list only.
func (o Option) Read(words []string) error {
	if _, isList := o.Default.([]string); len(words) != 1 && !isList {
		return Misusef("got %d values, want one", len(words))
	}
	lists := map[string][]string{}
	for _, w := range words {
		if err := o.parse(w, lists); err != nil {
			return err
		}
	}
	return nil
}

// parse sets the option from a word of a command line.
func (o Option) parse(word string, lists map[string][]string) error {
	var err error
	var v any = word
	switch o.Default.(type) {
	case float64:
		if v, err = strconv.ParseFloat(word, 64); err != nil {
			return Misusef("--%s: got %q, want a number", o.Name, word)
		}
	case int64:
		if v, err = strconv.ParseInt(word, 10, 64); err != nil {
			return Misusef("--%s: got %q, want a whole number", o.Name, word)
		}
	case bool:
		if v = true; word != "" {
			if v, err = strconv.ParseBool(word); err != nil {
				return Misusef("--%s: got %q, want true or false", o.Name, word)
			}
		}
	case []string:
		lists[o.Name] = append(lists[o.Name], word)
		v = slices.Clone(lists[o.Name])
	}
	return o.Set(v)
}
