package option

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestFaultsOfTheProgram: a flag without a name, and one of a type that no stage has, are faults of the program.
func TestFaultsOfTheProgram(t *testing.T) {
	s := defaultStage()
	for want, do := range map[string]func(){
		"no option is named none":                            func() { Only(s.Flags(), "seed", "none") },
		"option --x: no value of a *cli.PathFlag can be set": func() { _ = Set(&cli.PathFlag{Name: "x"}, "a") },
		"option --x: a *cli.PathFlag has no value to record": func() { Values(&cli.PathFlag{Name: "x"}) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}()
			do()
		}()
	}
}

// TestValuesAreReplaced: a value that is set again replaces the one before, -1 of an optional number too, and only lists
// take several values.
func TestValuesAreReplaced(t *testing.T) {
	s := defaultStage()
	flag := func(name string) cli.Flag { return Find(s.Flags(), name) }
	set := func(name string, values ...string) {
		t.Helper()
		if err := Set(flag(name), values...); err != nil {
			t.Error(err)
		}
	}
	set("extra", "0.5")
	if s.Extra == nil || *s.Extra != 0.5 || !reflect.DeepEqual(Values(flag("extra")), []string{"0.5"}) {
		t.Errorf("got %v", s.Extra)
	}
	if set("extra", "-1"); s.Extra == nil || *s.Extra != -1 || Optional(&s.Extra).String() != "-1" {
		t.Errorf("got %v", s.Extra)
	}
	if s.Extra = nil; Values(flag("extra")) != nil || Optional(&s.Extra).String() != "" {
		t.Errorf("got %v, want no value", Values(flag("extra")))
	}
	set("tokens", "12")
	if set("tokens", "34"); *s.Tokens != 34 || Count(&s.Tokens).String() != "34" {
		t.Errorf("got %v", s.Tokens)
	}
	if err := Set(flag("tokens"), "1.5"); err == nil || err.Error() != `--tokens: got "1.5", want a whole number` || *s.Tokens != 34 {
		t.Errorf("got %v, %d", err, *s.Tokens)
	}
	if set("run", "a", "b"); !reflect.DeepEqual(s.Runs, []string{"a", "b"}) {
		t.Errorf("got %q", s.Runs)
	}
	for _, values := range [][]string{nil, {"1", "2"}} {
		if err := Set(flag("seed"), values...); err == nil || err.Error() != fmt.Sprintf("got %d values, want one", len(values)) {
			t.Errorf("%q: got %v", values, err)
		}
	}
	if got := Wanted(&cli.DurationFlag{Name: "x"}); got != "a time with its unit, as in 60s" {
		t.Errorf("got %q", got)
	}
	if Plain(flag("seed")) == flag("seed") || Plain(flag("cores")) == nil || Find(s.Flags(), "none") != nil || !TakesValue(flag("seed")) || TakesValue(flag("quick")) {
		t.Error("another flag")
	}
	if err := Parse("fit --seed 7 --seed 8 --quick --name=b", "fit", s.Flags()); err != nil || s.Seed != 8 || !s.Quick || s.Name != "b" {
		t.Errorf("got %+v, %v", s, err)
	}
	if err := Parse("fit --seed x", "fit", s.Flags()); err == nil || !strings.HasPrefix(err.Error(), `command "fit --seed x": --seed: got "x", want a whole number`) {
		t.Errorf("got %v", err)
	}
}
