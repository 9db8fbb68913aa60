// Package option reads, records and repeats the options of the stages.
//
// Every stage has a struct of options, a constructor of their defaults, and a method
// Flags that lists them as flags of urfave/cli: name, help text, default and the field
// that holds the value, once and in one place. The program makes its command line of
// these flags, and pipeline.yaml sets the same fields by the same names (Set).
//
// Options that can change a result are marked (Recorded, RecordedUnless, RecordedAs):
// documents record them as the command line that repeats a stage (Command), and Parse
// reads such a line back into the options.
//
// A mistake in how a stage was called is a Misuse: exit status 2 of the program.
package option

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"
)

// Misuse is a mistake in how a stage was called: exit status 2 of the program.
type Misuse struct {
	Msg  string // what was given and what is wanted
	Hint string // what to do about it, on a line of its own; "": none
}

// Error returns the message.
func (e *Misuse) Error() string { return e.Msg }

// Misusef returns a Misuse with the formatted message, without a hint.
func Misusef(format string, args ...any) error { return &Misuse{Msg: fmt.Sprintf(format, args...)} }

// Find returns the flag with the name; nil if there is none.
func Find(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

// Only returns the named flags, in the order of names. It panics if there is no flag with a name,
// because names are written in the program.
func Only(flags []cli.Flag, names ...string) []cli.Flag {
	var found []cli.Flag
	for _, name := range names {
		f := Find(flags, name)
		if f == nil {
			panic("no option is named " + name)
		}
		found = append(found, f)
	}
	return found
}

// Without returns the flags except the named ones.
func Without(flags []cli.Flag, names ...string) []cli.Flag {
	return slices.DeleteFunc(slices.Clone(flags), func(f cli.Flag) bool {
		return slices.Contains(names, f.Names()[0])
	})
}
