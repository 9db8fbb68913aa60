package option

import (
	"flag"
	"reflect"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

type stage struct {
	Name, File string
	Share      float64
	N          int
	Seed       int64
	Quick      bool
	Runs, Sets []string
	Extra      *float64
	Cores      int
	Tokens     *int64
}

func defaultStage() stage { return stage{Name: "a", Share: 0.8, Seed: 1} }

func (s *stage) Flags() []cli.Flag {
	return []cli.Flag{
		Recorded(&cli.StringFlag{Name: "name", Destination: &s.Name, Value: s.Name}),
		RecordedBase(&cli.StringFlag{Name: "file", Destination: &s.File, Value: s.File}),
		Recorded(&cli.Float64Flag{Name: "share", Destination: &s.Share, Value: s.Share}),
		RecordedUnless("0", &cli.IntFlag{Name: "n", Destination: &s.N, Value: s.N}),
		Recorded(&cli.Int64Flag{Name: "seed", Destination: &s.Seed, Value: s.Seed}),
		Recorded(&cli.BoolFlag{Name: "quick", Destination: &s.Quick, Value: s.Quick}),
		Recorded(&cli.GenericFlag{Name: "run", Value: List(&s.Runs)}),
		Recorded(&cli.GenericFlag{Name: "set", Value: Settings(&s.Sets)}),
		Recorded(&cli.GenericFlag{Name: "extra", Value: Optional(&s.Extra)}),
		Recorded(&cli.GenericFlag{Name: "tokens", Value: Count(&s.Tokens)}),
		&cli.IntFlag{Name: "cores", Destination: &s.Cores, Value: s.Cores},
	}
}

// What is recorded reads back into the same options.
func TestCommandRoundTrip(t *testing.T) {
	extra := 0.0
	tokens := int64(0)
	for want, s := range map[string]stage{
		"fit --name a --seed 1 --share 0.8": defaultStage(),
		"fit --extra 0 --file f.yaml --n 3 --name b --quick --run x --run y --seed 0 --set a=[1,2] --share 0.5 --tokens 0": {
			Name: "b", File: "f.yaml", Share: 0.5, N: 3, Quick: true, Runs: []string{"x", "y"}, Sets: []string{"a=[1,2]"}, Extra: &extra, Tokens: &tokens},
		`fit --file "my f.yaml" --name "\"a\\" --run "two\twords" --run b"c --seed 1 --share 0.8`: {
			Name: `"a\`, File: "my f.yaml", Share: 0.8, Seed: 1, Runs: []string{"two\twords", `b"c`}},
	} {
		got := Command("fit", s.Flags())
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		again := defaultStage()
		if err := Parse(got, "fit", again.Flags()); err != nil {
			t.Errorf("%s: %v", got, err)
		}
		if !reflect.DeepEqual(again, s) {
			t.Errorf("%s: got %+v, want %+v", got, again, s)
		}
	}
	s := defaultStage()
	if err := Parse(`fit --name "a b`, "fit", s.Flags()); err == nil || !strings.Contains(err.Error(), "quotation mark without its end") {
		t.Errorf("got %v", err)
	}
	s.Cores = 8
	s.File = "folder/f.yaml"
	if got, want := Command("fit", s.Flags()), "fit --file f.yaml --name a --seed 1 --share 0.8"; got != want {
		t.Errorf("got %q, want %q: options that change no result and folders are not recorded", got, want)
	}
}

// A command line sets the same fields as a recorded one.
func TestFlagsSetOptions(t *testing.T) {
	s := defaultStage()
	set := flag.NewFlagSet("", flag.ContinueOnError)
	for _, f := range s.Flags() {
		if err := f.Apply(set); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(s, defaultStage()) {
		t.Errorf("flags changed the defaults: got %+v", s)
	}
	args := []string{"--name", "b", "--quick", "--run", "x, y", "--run=z", "--set", `a={"b": 1, "c": 2}`, "--extra", "0", "--n", "3"}
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	want := defaultStage()
	want.Name = "b"
	want.Quick = true
	want.Runs = []string{"x", "y", "z"}
	want.Sets = []string{`a={"b":1,"c":2}`}
	want.N = 3
	want.Extra = new(float64)
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got %+v, want %+v", s, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for command, want := range map[string]string{
		"":                  "want fit and its options",
		"simulate --seed 1": "want fit and its options",
		"fit --sead 1":      `got "--sead", want an option of fit`,
		"fit out":           `got "out", want an option of fit`,
		"fit --seed":        "--seed: got nothing, want a value",
		"fit --seed one":    `--seed: got "one", want a whole number`,
		"fit --share x":     `--share: got "x", want a number`,
		"fit --extra x":     `--extra: got "x", want a number`,
		"fit --quick=maybe": `--quick: got "maybe", want true or false`,
	} {
		s := defaultStage()
		if err := Parse(command, "fit", s.Flags()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", command, err, want)
		}
	}
}

func TestOnlyAndWithout(t *testing.T) {
	s := defaultStage()
	if only := Only(s.Flags(), "seed", "run"); len(only) != 2 || only[0].Names()[0] != "seed" {
		t.Errorf("got %v", only)
	}
	if n := len(Without(s.Flags(), "seed", "run")); n != 9 {
		t.Errorf("got %d options, want 9", n)
	}
}

func TestCountsHaveALargestValue(t *testing.T) {
	for _, c := range []struct {
		name, value string
		ok          bool
	}{
		{"workers", "4096", true}, {"workers", "4097", false}, {"workers", "-4096", true}, {"workers", "-4097", false},
		{"workers", "many", true}, {"workers", "99999999999999999999", false}, {"no-count", "99999999999999999999", true},
	} {
		if err := CheckCount(c.name, c.value); (err == nil) != c.ok || HasMost(c.name) == (c.name == "no-count") {
			t.Errorf("--%s %s: got %v", c.name, c.value, err)
		}
	}
}

// TestValuesOfFlags: what a flag of each type takes, and how its value is written.
func TestValuesOfFlags(t *testing.T) {
	var number uint64
	var text string
	var on bool
	var share float64
	var whole int
	for _, c := range []struct {
		flag          cli.Flag
		value, wanted string
		bad           string
	}{
		{&cli.Uint64Flag{Name: "x", Destination: &number}, "18446744073709551615", "a whole number >= 0", "-1"},
		{&cli.StringFlag{Name: "x", Destination: &text}, "a", "another value", ""},
		{&cli.Float64Flag{Name: "x", Destination: &share}, "0.25", "a number", "much"},
		{&cli.IntFlag{Name: "x", Destination: &whole}, "-7", "a whole number", "1.5"},
		{&cli.BoolFlag{Name: "x", Destination: &on}, "", "true or false", "maybe"},
	} {
		if err := Set(c.flag, c.value); err != nil {
			t.Fatal(err)
		}
		if got := Values(c.flag); !reflect.DeepEqual(got, []string{c.value}) || Wanted(c.flag) != c.wanted {
			t.Errorf("%T: got %q, want %q; takes %s, want %s", c.flag, got, c.value, Wanted(c.flag), c.wanted)
		}
		if err := setOne(c.flag, c.bad); c.bad != "" && (err == nil || err.Error() != "want "+c.wanted) {
			t.Errorf("%T: %s: got %v", c.flag, c.bad, err)
		}
	}
	if on = false; Values(&cli.BoolFlag{Name: "x", Destination: &on}) != nil {
		t.Error("a switch that is off has no value")
	}
}
